// ---------------------------------------------------------------- play: changes are sent, and the page is drawn anew from the answer

const pristine = [...document.body.children].filter((one) => one !== document.currentScript)
  .map((one) => one.cloneNode(true));
const SLOW = 150; // milliseconds after which a run is said to be running
const REST = 120; // without a change, after which the picture is asked for

let page; // what the page's own scripts offer, of the latest drawing
let gestures = 0;
let editing = null; // what the editor holds: node and index, or a setting

// ------------------------------------------------------------ the bar, which stays while all around it is drawn anew

const parts = {
  undo: button("↶ Undo", () => send({ do: "undo" }), { title: "Undo (Ctrl+Z)" }),
  redo: button("↷ Redo", () => send({ do: "redo" }), { title: "Redo (Ctrl+Shift+Z)" }),
  reset: button("Reset", () => send({ do: "reset" }), { title: "All as the function has it" }),
  optimizer: el("select", { "aria-label": "Optimizer" }),
  lr: el("input", { inputmode: "decimal", size: 6, "aria-label": "Learning rate" }),
  copy: button("Copy as Python", copy, { title: "The changes as a program" }),
  status: el("p.play-status", { role: "status" }),
  error: el("p.play-error", { role: "alert", hidden: true }),
  varies: el("p.play-varies", "The function gives another loss each time it runs, so what differs is not the change alone: seed what it draws from."),
  list: el("ol.play-changes", { "aria-label": "Changes" }),
  keywords: el("div.play-keywords"),
  editor: el("div.play-editor", { role: "group", "aria-label": "Entry", hidden: true }),
  program: el("details.play-program", { hidden: true }),
};
const step = () => send({ do: "step", lr: parts.lr.value, optimizer: parts.optimizer.value });
const bar = el("section.play-bar", { "aria-label": "Play" },
  el("div.play-row",
    parts.undo, parts.redo, parts.reset,
    el("span.play-step",
      button("Step", step, { title: "One step of the optimizer: all parameters move along their gradients" }),
      parts.optimizer, el("label", "lr ", parts.lr)),
    parts.copy, parts.status),
  parts.error, parts.varies, parts.keywords, parts.editor, parts.list, parts.program,
);
parts.lr.addEventListener("keydown", (event) => event.key === "Enter" && step());

function fail(text) {
  parts.error.hidden = !text;
  parts.error.textContent = text ? `✗ ${text}. Nothing has changed.` : "";
}
function showState() {
  const { play } = page.record;
  const [before, now] = play.loss;
  const changed = Object.values(play.changed);
  const [values, gradients] = [0, 1].map((i) => changed.filter((pair) => pair[i]).length);
  parts.status.textContent = changed.length
    ? `loss ${digits(before, 5)} → ${digits(now, 5)}; ${plural(values, "value")} and ${plural(gradients, "gradient")} changed`
    : `loss ${digits(now, 5)}; click an entry of a value to change it`;
  parts.varies.hidden = !play.varies;
  parts.undo.disabled = !play.undo;
  parts.redo.disabled = !play.redo;
  parts.reset.disabled = !play.changes.length;
  parts.list.replaceChildren(...play.changes.map((text) => el("li", text)));
  parts.list.hidden = !play.changes.length;
  showArguments(play.arguments);
  if (parts.optimizer.children.length) return;
  parts.optimizer.append(...play.optimizers.map((name) => el("option", { selected: name === play.optimizer[0] }, name)));
  parts.lr.value = play.optimizer[1];
}

// The arguments of the function itself: a field for each, made once.
function showArguments(all) {
  if (!parts.keywords.children.length) parts.keywords.append(...all.map(keyword));
  all.forEach(([, value], i) => {
    const field = parts.keywords.children[i].querySelector("input");
    if (field === document.activeElement && field.type !== "checkbox") return;
    if (field.type === "checkbox") field.checked = value;
    else field.value = value;
  });
  parts.keywords.hidden = !all.length;
}
function keyword([name, value, kind]) {
  const give = (given, gesture) => send({ do: "argument", name, value: given, gesture });
  if (kind === "flag") return el("label", name, " ", el("input", { type: "checkbox", on: { change: (event) => give(Number(event.target.checked)) } }));
  const field = typed(el("input", { class: kind, inputmode: kind === "number" && "decimal" }), give);
  if (kind === "number") scrub(field, Math.abs(value) || 1, give);
  return el("label", name, " ", field);
}
// A field that gives what is typed, on Enter or when it is left.
function typed(field, give) {
  let last = field.value;
  const leave = () => {
    if (field.value === last) return;
    last = field.value;
    give(field.value);
  };
  field.addEventListener("change", leave);
  field.addEventListener("keydown", (event) => event.key === "Enter" && leave());
  field.addEventListener("focus", () => (last = field.value));
  return field;
}
// A field whose number is dragged sideways, or moved by the up and down keys: 100 pixels for its span.
function scrub(field, span, give) {
  let from = null;
  field.title = "Type a number, drag it sideways, or press ↑ and ↓";
  field.addEventListener("pointerdown", (event) => {
    from = { x: event.clientX, value: Number(field.value), gesture: `g${(gestures += 1)}` };
  });
  field.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons || Math.abs(event.clientX - from.x) < 4 || !Number.isFinite(from.value)) return;
    field.setPointerCapture(event.pointerId);
    event.preventDefault();
    field.value = rounded(from.value + ((event.clientX - from.x) / 100) * span, span);
    give(field.value, from.gesture);
  });
  field.addEventListener("pointerup", () => (from = null));
  field.addEventListener("keydown", (event) => {
    const by = { ArrowUp: 0.05, ArrowDown: -0.05 }[event.key];
    if (!by || !Number.isFinite(Number(field.value))) return;
    event.preventDefault();
    field.value = rounded(Number(field.value) + by * span, span);
    give(field.value);
  });
}
const rounded = (x, span) => String(Number(x.toPrecision(Math.abs(x) > span ? 5 : 4)));

// ------------------------------------------------------------ the editor of one entry

async function look(node, index) {
  const answer = await ask({ do: "look", node, index });
  fail(answer.error);
  if (answer.error) return;
  if (answer.toggle !== undefined) {
    send({ do: "set", node, index, value: answer.toggle });
    return;
  }
  edit(answer);
}
function edit({ node, index, name, value, span, kind }) {
  const whole = kind !== "f";
  const give = (given, gesture) => {
    slider.value = given;
    send({ do: "set", node: editing.node, index, value: given, gesture });
  };
  const field = typed(el("input", { value, inputmode: "decimal", size: 12, "aria-label": `Value of ${name}` }), give);
  const ends = kind === "b" ? [0, 1] : [-2 * span, 2 * span].map((x) => (whole ? Math.round(x) : x));
  const slider = el("input", { type: "range", min: whole ? Math.min(0, ends[0]) : ends[0], max: ends[1], step: whole ? 1 : "any", value, "aria-label": `Drag ${name}` });
  let gesture = "";
  slider.addEventListener("pointerdown", () => (gesture = `g${(gestures += 1)}`));
  slider.addEventListener("input", () => {
    field.value = whole ? slider.value : rounded(Number(slider.value), span);
    send({ do: "set", node: editing.node, index, value: field.value, gesture });
  });
  slider.addEventListener("pointerup", () => (gesture = ""));
  if (!whole) scrub(field, span, give);
  const close = () => {
    parts.editor.hidden = true;
    editing = null;
    document.querySelector("#panel canvas")?.focus();
  };
  const cutting = { title: cutTitle(page.nodes[node]) };
  const cut = button("Cut", () => send({ do: "cut", node: editing.node, index }), cutting);
  const all = [el("strong", name), otherIndex(node, index), field, slider, cut, button("Done", close)];
  parts.editor.replaceChildren(...all.filter(Boolean));
  parts.editor.onkeydown = (event) => {
    if (event.key === "Escape") close();
  };
  editing = { node, index };
  parts.editor.hidden = false;
  field.focus();
  field.select();
}

const cutTitle = (node) => (node.op ? "0 in its place, and no gradient through it" : "0 in its place");
// Of an array whose cells stand for several entries: which of them.
function otherIndex(node, index) {
  const { pool, matrices, shape } = page.arrays[page.nodes[node].value];
  const all = shape.slice(0, -2).reduce((a, b) => a * b, 1);
  if (pool[0] * pool[1] === 1 && matrices === all) return null;
  const field = el("input", { value: index.join(", "), size: 9, inputmode: "numeric", "aria-label": "Index" });
  return typed(field, (typedIndex) => look(editing.node, typedIndex.split(",").map(Number)));
}
// The editor's value after another change.
async function refresh() {
  const answer = await ask({ do: "look", node: editing.node, index: editing.index });
  if (answer.error) return;
  for (const input of parts.editor.querySelectorAll("input")) if (input !== document.activeElement) input.value = answer.value;
}

// ------------------------------------------------------------ asking: one question at a time; of a drag the last

let busy = false;
const waiting = [];
async function ask(question) {
  const body = JSON.stringify({ version: page.record.play.version, ...question });
  try {
    const answer = await fetch("ask", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!answer.ok) return { error: `the server refused this (${answer.status})` };
    const [first, content] = (await answer.text()).split("\n");
    return { ...JSON.parse(first), content };
  } catch {
    return { error: "the program that serves this page has ended" };
  }
}
async function send(question) {
  const last = waiting.at(-1);
  if (last && question.gesture && last.gesture === question.gesture) waiting.pop();
  waiting.push(question);
  if (busy) return;
  busy = true;
  while (waiting.length) await change(waiting.shift());
  busy = false;
}
async function change(question) {
  const start = performance.now();
  const slow = setTimeout(() => {
    bar.classList.add("running");
    parts.status.textContent = "running…";
  }, SLOW);
  const answer = await ask(question);
  clearTimeout(slow);
  bar.classList.remove("running");
  fail(answer.error);
  parts.program.hidden = true;
  if (answer.error) showState();
  else redraw(answer, answer.content);
  if (!answer.error && editing && question.do !== "set") refresh();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  bar.dataset.took = performance.now() - start; // until the browser has painted it
  bar.dataset.edits = Number(bar.dataset.edits || 0) + 1;
}

// ------------------------------------------------------------ drawing anew

let text = null; // of the page's own script
let pending = 0;
function redraw(play, content, pictures) {
  const own = [...document.scripts].at(-1);
  text ??= own.textContent;
  const was = page.take();
  const { alike, moved } = play;
  const old = pictures ? null : [...document.querySelectorAll("template")];
  const focused = bar.contains(document.activeElement) ? null : focusOf(document.activeElement);
  for (const one of [...document.body.children]) if (one !== bar) one.remove();
  let after = false;
  for (const one of pristine) {
    if (one.localName === "template") continue;
    if (one.localName === "main") after = true;
    const fresh = one.cloneNode(true);
    if (fresh.id === "record") fresh.textContent = content;
    if (after) document.body.append(fresh);
    else bar.before(fresh);
  }
  for (let i = 0; i < play.pictures; i++) document.body.append(templateOf(i, pictures, alike && old));
  if (editing && !pictures && moved) editing.node = moved[editing.node];
  window.minigradPlay.before = { was, moved: !pictures && !alike && moved };
  document.body.append(el("script", text));
  refocus(focused);
  if (!pictures) askForPictures();
  byId("canvas").classList.toggle("stale", !pictures);
}
const WAITING = '<svg viewBox="0 0 220 40" width="220" height="40"><text x="110" y="24" text-anchor="middle" class="f-muted">the graph is being drawn…</text></svg>';
function templateOf(i, pictures, old) {
  if (!pictures && old) return old[i]; // the picture of the run before, until the new one comes
  const made = el("template", { id: `picture-${i}` });
  made.innerHTML = pictures ? pictures[i] : WAITING;
  return made;
}
function askForPictures() {
  clearTimeout(pending);
  pending = setTimeout(async () => {
    if (busy) return askForPictures();
    const answer = await fetch("pictures").catch(() => null);
    if (!answer) return;
    const { version, pictures } = await answer.json();
    if (version === page.record.play.version && !busy) redraw(page.record.play, byId("record").textContent, pictures);
  }, REST);
}
// The way to the element that has the focus, to find it in the new drawing.
function focusOf(element) {
  if (!element || element === document.body) return null;
  if (element.id) return `#${element.id}`;
  const inside = element.closest("#panel, #tabs, #canvas");
  if (!inside) return null;
  const alike = [...inside.querySelectorAll(element.localName)];
  return [`#${inside.id}`, element.localName, alike.indexOf(element)];
}
function refocus(way) {
  if (!way) return;
  const found = typeof way === "string" ? document.querySelector(way) : document.querySelector(way[0]).querySelectorAll(way[1])[way[2]];
  if (found) found.focus({ preventScroll: true });
}

// ------------------------------------------------------------ copying

async function copy() {
  const answer = await ask({ do: "python" });
  fail(answer.error);
  if (answer.error) return;
  const program = el("pre", { tabindex: 0 }, answer.python);
  parts.program.replaceChildren(el("summary", "the program that makes this run"), program);
  parts.program.hidden = false;
  parts.program.open = true;
  try {
    await navigator.clipboard.writeText(answer.python);
    parts.status.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(program); // for the keys of the browser
    parts.status.textContent = "press Ctrl+C to copy";
  }
}

// ------------------------------------------------------------ what the panel gets besides

// The value that a heat map shows, if it can be changed.
function valueOf(canvas) {
  const figure = canvas.closest("[data-kind=value]");
  const named = figure && (figure.querySelector("figcaption [data-of]") || figure.closest(".attention-head"));
  return named ? page.nodes[named.dataset.of] : null;
}
function pick(canvas) {
  const node = valueOf(canvas);
  if (!canvas.dataset.cell || node?.value === undefined) return;
  const cell = canvas.dataset.cell.split(",").map(Number);
  look(node.id, page.indexOf(page.arrays[node.value], ...cell));
}
function listenToPanel(panel) {
  panel.addEventListener("click", (event) => {
    if (event.target.localName !== "canvas") return;
    const { clientX, clientY } = event;
    event.target.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
    pick(event.target);
  });
  panel.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Enter" || event.target.localName !== "canvas") return;
      event.stopPropagation();
      pick(event.target);
    },
    true,
  );
}
const percent = (x) => (x === null || x === undefined ? "–" : x === 0 ? "the same" : x >= 10 ? `×${digits(1 + x, 2)}` : `${digits(100 * x, 2)} %`);
function decorate(panel) {
  if (panel.querySelector(".play-acts, .play-changed")) return;
  const head = panel.querySelector(".step-head");
  const node = page.shown();
  if (node) head.after(acts(node));
  else if (location.hash === "#overview" && panel.dataset.tab === "step") panel.append(changedTable());
  for (const canvas of panel.querySelectorAll("canvas")) {
    if (valueOf(canvas)) canvas.classList.add("editable");
  }
}
function acts(node) {
  const { changed } = page.record.play;
  const pair = changed[node.id];
  const freeze = node.op ? "Hold as it is" : "Freeze";
  const why = node.op ? "It keeps the value it has now, and hands no gradient on" : "No gradient reaches it";
  const inputs = node.into.map((edge) =>
    button(["Cut ", page.symbolOf(page.nodes[edge.source]), " →"], () => send({ do: "cut", node: node.id, of: edge.input }), { title: `0 in place of this input, ${edge.input}` }),
  );
  const numbers = Object.entries(node.settings || {}).filter(([, value]) => value !== "" && Number.isFinite(Number(value)));
  const fields = numbers.map(([name, value]) => {
    const give = (given, gesture) => send({ do: "setting", node: node.id, name, value: given, gesture });
    const field = typed(el("input", { value: Number(value), size: 9, inputmode: "decimal" }), give);
    scrub(field, Math.abs(Number(value)) || 1, give);
    return el("label", `${name} `, field);
  });
  return el("div.play-acts",
    (node.op || node.gradient !== undefined) && button(freeze, () => send({ do: "freeze", node: node.id }), { title: why }),
    button("Set to zero", () => send({ do: "cut", node: node.id }), { title: cutTitle(node) }),
    inputs, fields,
    pair && el("p.play-mark", `△ against the run before: value ${percent(pair[0])}, gradient ${percent(pair[1])}`),
  );
}
function changedTable() {
  const rows = Object.entries(page.record.play.changed)
    .map(([id, [value, gradient]]) => ({ node: page.nodes[id], value, gradient }))
    .sort((a, b) => Math.max(b.value || 0, b.gradient || 0) - Math.max(a.value || 0, a.gradient || 0))
    .slice(0, 12);
  const line = ({ node, value, gradient }) =>
    el("tr", el("th", { scope: "row" }, button(page.fullName(node), () => page.choose(node.id), { class: "link" })), el("td.figure", percent(value)), el("td.figure", percent(gradient)));
  const table = el("table",
    el("thead", el("tr", el("td"), ...["value", "gradient"].map((name) => el("th.figure", { scope: "col" }, name)))),
    el("tbody", rows.map(line)));
  return el("section.block.tabled.play-changed", { hidden: !rows.length }, el("h3", "△ Changed most against the run before"), table);
}
// Boxes whose value or gradient is another than in the run before.
function mark() {
  const drawing = byId("canvas").firstElementChild;
  for (const id of Object.keys(page.record.play.changed)) {
    const box = page.boxOf(page.nodes[id], drawing);
    if (box) box.classList.add("changed");
  }
}

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.matches("input:not([type=range], [type=checkbox])")) return;
  event.preventDefault();
  send({ do: event.shiftKey ? "redo" : "undo" });
});
bar.addEventListener("keydown", (event) => event.target.localName === "input" && event.stopPropagation());
window.minigradPlay = {
  opened(offered) {
    page = offered;
    if (!bar.isConnected) document.querySelector("main").before(bar);
    const panel = byId("panel");
    listenToPanel(panel);
    new MutationObserver(() => decorate(panel)).observe(panel, { childList: true });
    new MutationObserver(mark).observe(byId("canvas"), { childList: true });
    decorate(panel);
    mark();
    showState();
  },
};
