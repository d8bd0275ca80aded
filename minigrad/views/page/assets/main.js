// ---------------------------------------------------------------- one state, the keys that change it, and what follows

/* `inside`: whether steps are followed into closed scopes, as they are once one has been opened. */
const state = { at: 0, chosen: null, tab: "step", playing: null, picture: pictures[0], inside: false, marked: new Set() };
const view = View(byId("canvas"), byId("crumbs"));
const timeline = Timeline(byId("ticks"));
// The node that is shown: the chosen one, or else that of the step; undefined for the whole pass.
const shown = () => nodes[state.chosen ?? steps[state.at].node];

function go(at, chosenNode = null) {
  state.at = clamp(at, 0, steps.length - 1);
  state.chosen = chosenNode;
  const node = shown();
  if (!node) state.picture = pictures[0];
  else {
    turnTo(node);
    state.picture = state.inside ? pictureOf(node) : nearest(state.picture, node);
  }
  render();
}
// A node was clicked, or found: its own step in the phase at hand, or, of a leaf, its panel.
function choose(id) {
  const { phase } = steps[state.at];
  const at = stepOf[phase === "backward" ? "backward" : "forward"].get(id);
  state.tab = "step";
  if (closedAround(nodes[id], nearest(state.picture, nodes[id]))) state.inside = true;
  if (at !== undefined) go(at);
  else go(state.at, id);
}
// The backward step that finds a node's gradient.
function show(id) {
  state.tab = "step";
  go(nodes[id].knownAt);
}
function showTab(name, step) {
  state.tab = name;
  renderPanel();
  const article = step && byId("panel").querySelector(`.chapter.here[data-step="${Number(step.number)}"]`);
  if (article) article.scrollIntoView({ block: "center", behavior: calm() ? "auto" : "smooth" });
}
// Turns the copies of a block over: to the same step in another copy, if the step lies in it.
function turn(fold, number) {
  const node = shown();
  const other = node && twinOf(node, fold, number);
  const at = other && stepOf[steps[state.at].phase]?.get(other.id);
  copyOnTop.set(fold, number);
  if (other && state.chosen !== null) go(state.at, other.id);
  else if (at !== undefined) go(at);
  else render();
}
// The same for the innermost fold around the step, by one forward or back.
function turnBy(by, fold = shown() ? shown().folds.at(-1) : Object.keys(folds)[0]) {
  if (fold === undefined) return;
  const total = folds[fold].length;
  turn(fold, (copyOnTop.get(fold) + by + total) % total);
}

// ---------------------------------------------------------------- into scopes and out of them

function open(picture) {
  const node = shown();
  const inward = within(picture.scope, state.picture.scope);
  state.inside = Boolean(inward && node && within(node.home, picture.scope));
  state.picture = picture;
  render();
}
// Opens the closed scope that stands for the step; with no step, the first there is.
function openAtStep() {
  const scope = shown() ? closedAround(shown(), state.picture) : Object.keys(state.picture.closed)[0];
  if (scope !== undefined) open(pictureOfScope(scope));
}
function up() {
  if (state.picture.parent) open(state.picture.parent);
}
// Marks nodes: that of a symbol in the panel, or a way through the graph.
function mark(ids) {
  state.marked = new Set(ids.map((id) => (state.at === 0 ? nodes[id].lead : id)));
  view.light();
}

// ---------------------------------------------------------------- showing

function sentenceOf(step) {
  if (step.phase === "overview") return "The whole pass";
  const node = nodes[step.node];
  const name = `${node.op}${node.name ? `, ${node.name}` : ""}`;
  const scope = node.scope ? `, in ${node.scope}` : "";
  if (step.phase === "forward")
    return `Forward step ${step.number} of ${step.of}: ${name}${scope}, shape ${shapeOf(node)}`;
  const sent = sentOf(node.into);
  const to = [...new Set(sent.map((edge) => labelOf(nodes[edge.source])))].join(", ") || "nothing";
  return `Backward step ${step.number} of ${step.of}: ${name}${scope}, gradient ${digits(rmsOf(node.gradient), 3)}, sent to ${to}`;
}
function render() {
  const step = steps[state.at];
  const text = sentenceOf(step);
  byId("now").textContent = text;
  byId("range").value = state.at;
  byId("range").setAttribute("aria-valuetext", text);
  timeline(state.at);
  byId("first").disabled = byId("previous").disabled = state.at === 0;
  byId("last").disabled = byId("next").disabled = state.at === steps.length - 1;
  view.light();
  renderPanel();
  const hash = step.phase === "overview" ? "#overview" : `#${step.phase}-${step.number}`;
  const hosted = location.protocol === "about:"; // in a frame, which has no address of its own
  if (location.hash !== hash && !hosted) history.replaceState(null, "", hash);
}
function stepPanel() {
  const step = steps[state.at];
  if (state.chosen !== null) {
    const node = nodes[state.chosen];
    return node.op ? forwardPanel(node, steps[stepOf.forward.get(node.id)] || step) : leafPanel(node);
  }
  if (hides(step)) return step.phase === "overview" ? askingWhole(step) : askingPanel(nodes[step.node], step);
  if (step.phase === "overview") return overviewPanel();
  return (step.phase === "forward" ? forwardPanel : backwardPanel)(nodes[step.node], step);
}
const WIDE = ".rule, .formula, .forward-of, .shapes, .cells, .head-grid"; // scrolled by keyboard where too wide
function renderPanel() {
  const panel = byId("panel");
  const panels = { step: stepPanel, chapters: chaptersPanel, attention: attentionPanel };
  const keep = state.tab !== "step" && panel.dataset.tab === state.tab ? panel.scrollTop : 0;
  refill(panel, panels[state.tab]().flat(Infinity).filter(Boolean), () => panel);
  panel.dataset.tab = state.tab;
  panel.scrollTop = keep;
  for (const wide of panel.querySelectorAll(WIDE)) if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
  for (const tab of byId("tabs").children) tab.ariaCurrent = tab.dataset.tab === state.tab ? "page" : null;
}
function fromHash() {
  const [, phase, n] = /^#(overview|forward|backward)(?:-(\d+))?$/.exec(location.hash) || [];
  const at = steps.findIndex((step) => step.phase === phase && (phase === "overview" || step.number === Number(n)));
  return Math.max(0, at);
}

// ---------------------------------------------------------------- beginning

function showHeading() {
  document.title = record.title;
  byId("title").textContent = record.title;
  const skipped = record.skipped.join(", ");
  const uncovered = record.uncovered.join(", ");
  byId("summary").textContent =
    `${plural(record.forward.length, "step")} forward, ${record.backward.length} backward, ${plural(nodes.length, "value")}` +
    record.kinds.map(({ ok, heading }) => ` · ${okGlyph(ok)} ${heading}`).join("") +
    (skipped && ` · not checked, no backward ran through it: ${skipped}`) +
    (uncovered && ` · no hand-derived steps cover ${uncovered}`);
  byId("summary").classList.toggle("wrong", record.kinds.some((kind) => kind.ok === false));
}
function makeTabs() {
  const derived = record.kinds.find((kind) => kind.chapters);
  const tabs = [
    ["step", "Step", null],
    ["chapters", "By hand", derived ? (derived.ok ? "✓" : "✗") : ""],
    ["attention", "Attention", String(record.attention.length || "")],
  ];
  for (const [name, text, badge] of tabs) {
    const label = badge && el(`span.count.${badge === "✗" ? "wrong" : ""}`, badge);
    byId("tabs").append(button([text, label], () => showTab(name), { "data-tab": name, hidden: badge === "" }));
  }
}
function listKeys() {
  for (const [, signs, text] of keys.filter(([, signs]) => signs))
    byId("keys").append(el("dt", signs.split(" ").map((key) => el("kbd", key))), el("dd", text));
}
function listenToPanel() {
  const follow = (on) => (event) => {
    const found = event.target.closest("[data-of]") || event.target.querySelector?.(":scope > math > [data-of]:only-child");
    if (found) mark(on ? [Number(found.dataset.of)] : []);
  };
  for (const event of ["pointerover", "focusin"]) byId("panel").addEventListener(event, follow(true));
  for (const event of ["pointerout", "focusout"]) byId("panel").addEventListener(event, follow(false));
}
function listenToControls() {
  for (const one of document.querySelectorAll("[data-key]")) one.addEventListener("click", () => actionOf(one.dataset.key)());
  byId("range").addEventListener("input", (event) => go(Number(event.target.value)));
  listenToSearch();
  for (const dialog of document.querySelectorAll("dialog"))
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.onkeydown = pressed; // a property, so that there is one when the page is drawn anew
  window.onhashchange = () => go(fromHash());
}
function begin(at = fromHash(), chosenNode = null) {
  fitFonts();
  byId("range").max = steps.length - 1;
  showHeading();
  makeTabs();
  listKeys();
  drawLegend(byId("legend"));
  listenToControls();
  listenToPanel();
  paint();
  go(at, chosenNode);
}
