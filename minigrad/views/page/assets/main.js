// ---------------------------------------------------------------- one state, the keys that change it, and what follows

const state = { at: 0, chosen: null, tab: "step", open: new Set(), playing: null };
const tabs = { step: "Step", chapters: "By hand", attention: "Attention" };
const graph = Graph(byId("canvas"), byId("minimap"), byId("afar"), { choose, toggle, turn });
const timeline = Timeline(byId("ticks"));
const actions = { choose, tab: showTab, show, way: (ids) => graph.mark(ids), refresh: () => renderPanel() };

function go(at, chosenNode = null) {
  state.at = Math.max(0, Math.min(steps.length - 1, at));
  state.chosen = chosenNode;
  const shown = chosenNode ?? steps[state.at].node;
  if (shown !== undefined) turnTo(nodes[shown]);
  render();
}
// A node was clicked, or found: its own step in the phase at hand, or, of a leaf, its panel.
function choose(id) {
  const { phase } = steps[state.at];
  const at = stepOf[phase === "backward" ? "backward" : "forward"].get(id);
  state.tab = "step";
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
  const { node, phase } = steps[state.at];
  const id = state.chosen ?? node;
  const other = id !== undefined && twinOf(nodes[id], fold, number);
  copyOnTop.set(fold, number);
  if (other && state.chosen === null && stepOf[phase].has(other.id)) go(stepOf[phase].get(other.id));
  else if (other && state.chosen !== null) go(state.at, other.id);
  else render();
}
// The same for the innermost fold around the step.
function turnAtStep(by) {
  const id = state.chosen ?? steps[state.at].node;
  const fold = id === undefined ? Object.keys(folds)[0] : leaderOf(id).folds.at(-1);
  if (fold === undefined) return;
  const total = folds[fold].copies.length;
  turn(fold, (copyOnTop.get(fold) + by + total) % total);
}
function toggle(scope) {
  if (state.open.has(scope)) state.open.delete(scope);
  else state.open.add(scope);
  redraw();
}
function redraw() {
  graph.draw(state.open);
  graph.light(state, state.open);
  byId("scopes").textContent = state.open.size ? "Close boxes" : "Open boxes";
  byId("scopes").hidden = scopeSet.size === 0;
}
// Enter: opens the closed scope that stands for the active node, or closes the innermost around it.
function toggleAtStep() {
  const id = state.chosen ?? steps[state.at].node;
  const home = id === undefined ? "" : leaderOf(id).home;
  if (!home) {
    const first = [...scopeSet][0];
    if (first) toggle(first);
    return;
  }
  const closed = visible(nodes[id], state.open);
  toggle(closed[0] === "s" ? closed.slice(1) : home);
}
function toggleAll() {
  if (state.open.size) state.open.clear();
  else scopeSet.forEach((scope) => state.open.add(scope));
  redraw();
}

function play(on) {
  clearInterval(state.playing);
  state.playing = on
    ? setInterval(() => (state.at < steps.length - 1 ? go(state.at + 1) : play(false)), 1100)
    : null;
  byId("play").setAttribute("aria-label", on ? "Pause" : "Play");
  byId("play").setAttribute("aria-pressed", String(Boolean(on)));
  byId("now").setAttribute("aria-live", on ? "off" : "polite"); // no flood of announcements
}

// ---------------------------------------------------------------- showing

function sentenceOf(step) {
  if (step.phase === "overview") return "The whole pass";
  const node = nodes[step.node];
  const name = `${node.op}${node.name ? `, ${node.name}` : ""}`;
  const scope = node.scope ? `, in ${node.scope}` : "";
  if (step.phase === "forward")
    return `Forward step ${step.number} of ${step.of}: ${name}${scope}, shape ${shapeOf(node)}`;
  const to = [
    ...new Set(
      node.into.filter((edge) => edge.sent !== undefined).map((edge) => labelOf(nodes[edge.source])),
    ),
  ];
  return `Backward step ${step.number} of ${step.of}: ${name}${scope}, gradient ${digits(rmsOf(node.gradient), 3)}, sent to ${to.join(", ") || "nothing"}`;
}
function render() {
  const step = steps[state.at];
  const text = sentenceOf(step);
  byId("now").textContent = text;
  byId("range").value = state.at;
  byId("range").setAttribute("aria-valuetext", text);
  timeline.at(state.at);
  byId("first").disabled = byId("previous").disabled = state.at === 0;
  byId("last").disabled = byId("next").disabled = state.at === steps.length - 1;
  graph.light(state, state.open);
  renderPanel();
  const hash = step.phase === "overview" ? "#overview" : `#${step.phase}-${step.number}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}
function stepPanel() {
  const step = steps[state.at];
  if (state.chosen !== null) {
    const node = nodes[state.chosen];
    return node.op
      ? forwardPanel(node, steps[stepOf.forward.get(node.id)] || step, actions)
      : leafPanel(node, actions);
  }
  if (step.phase === "overview") return overviewPanel(actions);
  return (step.phase === "forward" ? forwardPanel : backwardPanel)(nodes[step.node], step, actions);
}
function renderPanel() {
  const panel = byId("panel");
  const key = `${state.tab} ${state.at} ${state.chosen}`;
  const made =
    state.tab === "step"
      ? stepPanel()
      : state.tab === "chapters"
        ? chaptersPanel(state, actions)
        : attentionPanel(state, actions);
  const keep = state.tab !== "step" && panel.dataset.tab === state.tab ? panel.scrollTop : 0;
  panel.replaceChildren(...made.flat().filter(Boolean));
  panel.dataset.tab = state.tab;
  panel.dataset.key = key;
  panel.scrollTop = keep;
  for (const tab of byId("tabs").children) {
    if (tab.dataset.tab === state.tab) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
}
function fromHash() {
  const [, phase, n] = /^#(overview|forward|backward)(?:-(\d+))?$/.exec(location.hash) || [];
  if (!phase) return 0;
  const found = steps.findIndex(
    (step) => step.phase === phase && (phase === "overview" || step.number === Number(n)),
  );
  return Math.max(0, found);
}

// ---------------------------------------------------------------- light and dark

const system = matchMedia("(prefers-color-scheme: dark)");
let wanted = "auto";
function paint(only) {
  const theme = only || (wanted !== "auto" ? wanted : system.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  for (const [name, colours] of Object.entries(record.palette[theme])) {
    colours.forEach((colour, i) => document.documentElement.style.setProperty(`--${name}${i}`, colour));
  }
  byId("theme").textContent = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[wanted];
  byId("theme").setAttribute("aria-label", `Colours: ${wanted}`);
  document.querySelectorAll("canvas, .paints").forEach((one) => one.repaint && one.repaint());
}

// ---------------------------------------------------------------- beginning

function begin() {
  document.title = record.title;
  const fonts = formulaFonts();
  document.documentElement.classList.toggle("high-scripts", !fonts.scripts);
  document.documentElement.classList.toggle("small-brackets", !fonts.brackets);
  byId("title").textContent = record.title;
  const checked = nodes.filter((node) => node.check);
  const wrongSteps = checked.filter((node) => !node.check.ok).length;
  const verdictOf = (wrong, all, right, differ) =>
    !all ? "" : wrong ? ` · ✗ ${wrong} of ${all} ${differ}` : ` · ✓ ${all} ${right}`;
  const checks =
    verdictOf(wrongSteps, checked.length, "steps measured", "steps wrong") +
    verdictOf(total.wrong, total.measured, "formulas agree", "formulas differ");
  const skipped = record.skipped.length
    ? ` · not checked, no backward ran through it: ${record.skipped.join(", ")}`
    : "";
  byId("summary").textContent =
    `${record.forward.length} steps forward, ${record.backward.length} backward, ${nodes.length} values${checks}${skipped}`;
  byId("summary").classList.toggle("wrong", total.wrong + wrongSteps > 0);
  byId("range").max = steps.length - 1;
  for (const [name, text] of Object.entries(tabs)) {
    const count = {
      chapters: total.wrong ? "✗" : total.measured ? "✓" : "",
      attention: String(record.attention.length || ""),
    }[name];
    byId("tabs").append(
      button(
        [
          text,
          count
            ? el("span", { class: `count ${name === "chapters" && total.wrong ? "wrong" : ""}` }, count)
            : null,
        ],
        () => showTab(name),
        { "data-tab": name, hidden: count === "" },
      ),
    );
  }
  byId("keys").append(
    ...keys
      .filter(([, shown]) => shown)
      .flatMap(([, shown, text]) => [
        el(
          "dt",
          {},
          shown.split(" ").map((key) => el("kbd", {}, key)),
        ),
        el("dd", {}, text),
      ]),
  );
  drawLegend(byId("legend"));
  state.open = openAtFirst(graph.fits);
  const on = (id, f) => byId(id).addEventListener("click", f);
  on("first", () => go(1));
  on("previous", () => go(state.at - 1));
  on("next", () => go(state.at + 1));
  on("last", () => go(steps.length - 1));
  on("play", () => play(!state.playing));
  on("theme", () => {
    wanted = {
      auto: system.matches ? "light" : "dark",
      light: system.matches ? "dark" : "auto",
      dark: system.matches ? "auto" : "light",
    }[wanted];
    paint();
  });
  on("search-open", openSearch);
  on("help-open", () => byId("help").showModal());
  on("zoom-in", graph.larger);
  on("zoom-out", graph.smaller);
  on("zoom-fit", graph.fit);
  on("scopes", toggleAll);
  byId("range").addEventListener("input", (event) => go(Number(event.target.value)));
  byId("query").addEventListener("input", (event) => hits(event.target.value));
  byId("search").addEventListener("keydown", moveInHits);
  for (const dialog of document.querySelectorAll("dialog"))
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  system.addEventListener("change", () => paint());
  document.addEventListener("keydown", pressed);
  window.addEventListener("hashchange", () => go(fromHash()));
  window.addEventListener("beforeprint", () => {
    paint("light");
    graph.print(true);
  });
  window.addEventListener("afterprint", () => {
    paint();
    graph.print(false);
  });
  for (const [event, on_] of [
    ["pointerover", true],
    ["pointerout", false],
    ["focusin", true],
    ["focusout", false],
  ]) {
    byId("panel").addEventListener(event, (happened) => {
      const found =
        happened.target.closest("[data-of]") ||
        happened.target.querySelector?.(":scope > math > [data-of]:only-child");
      if (found) graph.mark(on_ ? [Number(found.dataset.of)] : []);
    });
  }
  paint();
  redraw();
  graph.start();
  go(fromHash());
}
begin();
