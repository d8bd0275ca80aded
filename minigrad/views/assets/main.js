// One state, the keys that change it, and what follows.

const life = new AbortController(); // ends when the page is shown anew

const state = { at: 0, chosen: null, tab: "step", picture: pictures.get(""), inside: false, playing: null, marked: new Set(), markedEdges: new Set() };
// The entry that is shown: the chosen one, or else that of the step.
const current = () => entries[state.chosen ?? steps[state.at].id];

function go(at, chosenId = null) {
  state.at = clamp(at, 0, steps.length - 1);
  state.chosen = chosenId;
  const entry = current();
  if (entry && state.inside) state.picture = pictureOf(entry);
  while (entry && state.picture.parent && !boxIdOf(entry, state.picture)) state.picture = state.picture.parent;
  if (!entry) Object.assign(state, { picture: pictures.get(""), marked: new Set(), markedEdges: new Set() });
  if (scaled === "legible") scaled = "whole";
  render();
}
// An entry was clicked, or found: its own step in the phase at hand, or, of a leaf, its panel.
function choose(id) {
  const when = steps[state.at].phase === "backward" || (steps[state.at].phase === "whole" && entries[id].marks?.startsWith("✗")) ? backAt : ranAt;
  state.tab = "step";
  if (!boxIdOf(entries[id], state.picture) || state.picture.closed[boxIdOf(entries[id], state.picture)]) state.inside = true;
  const at = when.get(id) ?? ranAt.get(id);
  if (at === undefined) go(state.at, id);
  else go(at);
}
function open(root) {
  state.picture = pictures.get(root);
  const entry = current();
  state.inside = Boolean(entry && boxIdOf(entry, state.picture) && root);
  render();
}
function mark(ids, edgeIds = []) {
  Object.assign(state, { marked: new Set(ids), markedEdges: new Set(edgeIds) });
  light();
}
function play(on) {
  clearInterval(state.playing);
  state.playing = on ? setInterval(() => (state.at < steps.length - 1 ? step1(1)() : play(false)), 900) : null;
  byId("play").textContent = on ? "⏸" : "▶";
  byId("play").setAttribute("aria-pressed", on);
}

// ---------------------------------------------------------------- showing

function sentence(step) {
  if (step.phase === "whole") return `the whole pass: ${record.forward.length} steps forward, ${record.backward.length} backward`;
  const entry = entries[step.id];
  const name = entry.op === entry.label ? entry.op : `${entry.label}, ${entry.op}`;
  const back = step.phase === "backward" && `: gradient ${entry.inWords}`;
  return `${step.phase} ${step.number} of ${step.of}: ${name}${back || ""}`;
}
const PANELS = {
  step: () => {
    const [step, entry] = [steps[state.at], current()];
    if (!entry) return wholePanel();
    if (state.chosen !== null && !entry.op) return leafPanel(entry);
    return (step.phase === "backward" ? backwardPanel : forwardPanel)(entry, step);
  },
  chapters: chaptersPanel,
  attention: attentionPanel,
  why: whyPanel,
};
function renderPanel() {
  const panel = byId("panel");
  if (state.tab !== "attention") document.body.classList.remove("filled");
  if (state.tab !== "why") unmarkWay();
  const keep = state.tab !== "step" && panel.dataset.tab === state.tab ? panel.scrollTop : 0;
  panel.replaceChildren(...PANELS[state.tab]().flat(Infinity).filter(given));
  panel.dataset.tab = state.tab;
  panel.scrollTop = keep;
  for (const tab of byId("tabs").children) tab.ariaCurrent = tab.dataset.tab === state.tab ? "page" : null;
  window.onPanel?.(panel, current());
}
function render() {
  const step = steps[state.at];
  byId("now").textContent = sentence(step);
  byId("range").value = state.at;
  byId("range").setAttribute("aria-valuetext", sentence(step));
  byId("previous").disabled = byId("first").disabled = state.at === 0;
  byId("next").disabled = state.at === steps.length - 1;
  paintTicks();
  showCrumbs();
  light();
  renderPanel();
  const hash = step.phase === "whole" ? "#" : `#${step.phase}-${step.number}`;
  if (location.protocol !== "about:" && location.hash !== hash) history.replaceState(null, "", hash);
}
// A tick for each step, the backward ones in their gradients' colours.
function paintTicks() {
  const canvas = byId("ticks");
  const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio || 1];
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  const [pen, each] = [canvas.getContext("2d"), width / Math.max(1, steps.length - 1)];
  pen.scale(ratio, ratio);
  steps.slice(1).forEach((step, i) => {
    const { bin, broken, marks } = entries[step.id];
    const back = step.phase === "backward";
    const name = (back ? bin === 8 || marks?.startsWith("✗") : broken) ? "alarm" : back ? (bin === undefined ? "faint" : `bin${bin}`) : "accent";
    pen.globalAlpha = state.at === 0 || i + 1 <= state.at || name === "alarm" ? 0.9 : 0.3;
    pen.fillStyle = colour(name);
    pen.fillRect(i * each, 4, Math.max(1, each - (each > 4 ? 2 : 0)), height - 8);
    if (i + 1 === state.at) pen.strokeRect(i * each - 1, 2, Math.max(3, each), height - 4);
  });
}
const system = matchMedia("(prefers-color-scheme: dark)");
let wanted = null;
function paint(theme = wanted || (system.matches ? "dark" : "light")) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "☾" : "☀";
  document.querySelectorAll("canvas, .paints").forEach((one) => one.repaint?.());
  paintTicks();
}
function otherTheme() {
  wanted = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  paint();
}

// ---------------------------------------------------------------- keys, finding, beginning

const stepTo = (at) => () => {
  state.tab = "step";
  go(at);
};
const step1 = (by) => () => stepTo(state.at + by)();
const nthTab = (n) => ["", "", () => showTab(tabs[n - 1])];
const openAtStep = () => {
  const closed = current() ? state.picture.closed[boxIdOf(current(), state.picture)] : Object.values(state.picture.closed)[0];
  if (pictures.has(closed)) open(closed);
};
const KEYS = {
  ArrowRight: ["→", "next step", step1(1)], ArrowLeft: ["←", "previous step", step1(-1)],
  " ": ["space", "play or pause", () => play(!state.playing)], o: ["o", "the whole pass", stepTo(0)],
  f: ["f", "first forward step", stepTo(1)], b: ["b", "first backward step", stepTo(record.forward.length + 1)], End: ["End", "last step", stepTo(steps.length)],
  Enter: ["Enter", "open the closed scope at this step", openAtStep], u: ["u", "out of the scope", () => state.picture.parent && open(state.picture.parent.root)],
  1: ["1 2 3 4", "the tabs, in their order", () => showTab(tabs[0])], 2: nthTab(2), 3: nthTab(3), 4: nthTab(4),
  "+": ["+ − 0", "larger, smaller, fit", () => zoom(1.2)], "-": ["", "", () => zoom(1 / 1.2)], 0: ["", "", () => { scaled = "all"; fit(); }],
  "/": ["/", "find", () => { byId("search").showModal(); find(); }], t: ["t", "light or dark", otherTheme], "?": ["?", "these keys", () => byId("help").showModal()],
};
const offered = { attention: shown.attention.length > 0, step: true, chapters: chapters.length > 0, why: record.backward.length > 0 };
const tabs = Object.keys(offered).filter((name) => offered[name]); // in the order in which they stand
const TAB_TITLES = { attention: "Attention", step: "Step", chapters: "By hand", why: "Why" };
function showTab(name) {
  if (!offered[name]) return;
  state.tab = name;
  renderPanel();
}
function pressed(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (target.tagName === "SELECT" || (target.tagName === "INPUT" && target.type !== "range")) return;
  if (["BUTTON", "SUMMARY"].includes(target.tagName) && ["Enter", " "].includes(key)) return;
  if (!KEYS[key]) return;
  event.preventDefault();
  if (key !== " " && state.playing) play(false);
  KEYS[key][2]();
}
function find() {
  const asked = byId("query").value.trim().toLowerCase();
  const number = Number(asked);
  const found = asked && Number.isInteger(number) ? steps.slice(1).filter((step) => step.number === number) : null;
  const hits = found ? found.map((step) => [sentence(step), stepTo(step.at)])
    : entries.filter((entry) => `${fullName(entry)} ${entry.op}`.toLowerCase().includes(asked)).map((entry) => [`${fullName(entry)}  ${entry.op || entry.kind}`, () => choose(entry.id)]);
  byId("hits").replaceChildren(...hits.slice(0, 30).map(([text, act]) => el("li", button(text, () => { byId("search").close(); act(); }))));
}
function begin(keep) {
  document.title = shown.title;
  byId("title").textContent = shown.title;
  byId("headline").textContent = shown.headline;
  byId("verdicts").replaceChildren(...shown.verdicts.map(([said, ok]) => el(`span.${{ true: "right", false: "wrong", null: "muted" }[ok]}`, { title: said }, `${SIGNS[ok]} ${short(said, 60)}`)));
  byId("range").max = steps.length - 1;
  const badge = shown.verdicts.some(([, ok]) => ok === false) ? "✗" : "✓";
  byId("tabs").replaceChildren(...tabs.map((name) => button([TAB_TITLES[name], tick(name === "chapters" && ` ${badge}`)], () => showTab(name), { "data-tab": name })));
  if (shown.named && shown.attention.length) state.tab = "attention";
  byId("legend").replaceChildren(el("span", "gradient rms ", shown.scale[0]), el("span.swatches", count(8).map((i) => el(`i.bin${i}`))), el("span", shown.scale[2]),
    el("span.muted", "grey dots ↓ values, coloured ⇡ gradients"));
  byId("keys").replaceChildren(...Object.values(KEYS).filter(([sign]) => sign).flatMap(([sign, text]) => [el("dt", el("kbd", sign)), el("dd", text)]));
  const acts = { first: KEYS.o[2], previous: step1(-1), next: step1(1), play: () => play(!state.playing), back: KEYS.b[2], find: KEYS["/"][2], theme: otherTheme, "keys-open": KEYS["?"][2] };
  for (const [id, act] of Object.entries(acts)) byId(id).onclick = act;
  byId("range").oninput = (event) => stepTo(Number(event.target.value))();
  byId("query").oninput = find;
  document.onkeydown = pressed;
  window.addEventListener("resize", () => state.tab === "attention" && renderPanel(), { signal: life.signal });
  system.onchange = () => paint();
  listenToGraph();
  listenToLedgers();
  fitFonts();
  if (keep) Object.assign(state, { tab: offered[keep.tab] ? keep.tab : "step", inside: keep.inside, picture: pictures.get(keep.root) || state.picture });
  if (keep) Object.assign(chosen, keep.attention);
  const [, phase, n] = /^#(forward|backward)-(\d+)$/.exec(location.hash) || [];
  const at = steps.findIndex((step) => step.phase === phase && step.number === Number(n));
  document.documentElement.dataset.theme = system.matches ? "dark" : "light";
  go(keep ? keep.at : Math.max(0, at), keep && keep.chosen < entries.length ? keep.chosen : null);
  paint();
}
// What the page shows now, so that it can be shown anew as it was.
const keepNow = () => ({ at: state.at, chosen: state.chosen, tab: state.tab, inside: state.inside, root: state.picture.root, attention: { ...chosen } });
function end() {
  play(false);
  life.abort();
}
