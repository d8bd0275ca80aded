// ---------------------------------------------------------------- boxes and lines as SVG; what a step changes in them

const pen = document.createElement("canvas").getContext("2d");
const FONT = { title: "italic 17px Georgia, 'DejaVu Serif', serif", op: "500 14px system-ui, sans-serif", small: "11.5px system-ui, sans-serif", name: "600 13.5px system-ui, sans-serif" };
const CAP = 60; // the coloured end of a box, with the gradient's size
const STRIP = 30; // cells at most of a strip, which has one for each copy of a block
function widthOf(text, font) {
  pen.font = font;
  return pen.measureText(text).width;
}
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const ops = (n) => `${n} op${n === 1 ? "" : "s"}`;
const below = (node) => (node.op ? [node.name ? node.op : "", shapeOf(node)].filter(Boolean).join(" · ") : shapeOf(node));
const hasCap = (node) => node.copies.some((copy) => copy.gradient !== undefined);
const isCopied = (node) => node.copies.length > 1;
// The sign by which formulas call what has no name.
const signOf = (node) => (node.op && !node.name && !isLoss(node) ? symbolOf(node) : "");
const titleOf = (node) => (isLoss(node) ? "L" : node.name ? short(node.name, 18) : node.op || role(node) || node.kind);

function sizeOf({ node, scope }) {
  if (scope !== undefined) {
    const inside = nodesIn(scope), strip = inside.some(hasCap);
    return { width: Math.max(176, 16 + headingWidth(scope)), height: strip ? 64 : 46 };
  }
  const title = node.name || isLoss(node) ? widthOf(titleOf(node), FONT.title) : widthOf(titleOf(node), FONT.op) + (node.op ? widthOf(` t${node.id}`, FONT.small) + 12 : 0);
  const width = Math.ceil(Math.max(title, widthOf(below(node), FONT.small))) + 24 + (hasCap(node) ? CAP : 10);
  return { width, height: (node.op ? 44 : 40) + (isCopied(node) && hasCap(node) ? 8 : 0) };
}
function headingWidth(scope) {
  const fold = folds[scope], name = short(fold ? fold.name : lastName(scope), 30);
  return 28 + widthOf(name, FONT.name) + 10 + (fold ? 96 : 0) + widthOf(ops(999), FONT.small);
}

// ---------------------------------------------------------------- a node

// Rounded for ops, round ends for parameters, cut corners for inputs, dashes for constants: shape says what it is.
function outline(node, w, h) {
  const r = node.kind === "parameter" ? h / 2 : 8, c = 8;
  if (node.kind === "input" || node.kind === "detached") {
    return `M${c} 0H${w - c}L${w} ${c}V${h - c}L${w - c} ${h}H${c}L0 ${h - c}V${c}Z`;
  }
  return `M${r} 0H${w - r}A${r} ${r} 0 0 1 ${w} ${r}V${h - r}A${r} ${r} 0 0 1 ${w - r} ${h}H${r}A${r} ${r} 0 0 1 0 ${h - r}V${r}A${r} ${r} 0 0 1 ${r} 0Z`;
}
// A name with what is below it set small and low; without one, the op, and the sign that formulas give it.
function titleText(node, x, y) {
  if (!node.name && !isLoss(node)) {
    const [base, under] = parts(signOf(node));
    const sign = node.op && [svg("tspan", { class: "sign", dx: 6 }, base), svg("tspan", { class: "sign under", dy: 3 }, under)];
    return svg("text", { x, y, class: "title op" }, svg("tspan", {}, titleOf(node)), sign);
  }
  const [base, under] = parts(titleOf(node));
  return svg("text", { x, y, class: "title" }, svg("tspan", {}, base), under && svg("tspan", { class: "under", dy: 4 }, under));
}
function drawNode(box, actions) {
  const { node, width: w, height: h } = box, left = node.kind === "parameter" ? 16 : 12;
  const middle = h / 2 - (isCopied(node) && hasCap(node) ? 4 : 0);
  const group = svg("g", { class: "node", "data-node": node.id, role: "button", tabindex: -1, transform: `translate(${box.x - w / 2} ${box.y - h / 2})` });
  const title = svg("title", {});
  group.append(title, svg("path", { class: "body", d: outline(node, w, h) }));
  if (hasCap(node)) group.append(svg("clipPath", { id: `clip${box.key}` }, svg("path", { d: outline(node, w, h) })), (box.cap = svg("g", { class: "cap", "clip-path": `url(#clip${box.key})` })));
  group.append(svg("path", { class: "frame", d: outline(node, w, h) }));
  if (isLoss(node)) group.append(svg("path", { class: "frame inner", d: outline(node, w - 7, h - 7), transform: "translate(3.5 3.5)" }));
  group.append((box.text = svg("g", {})), svg("text", { x: left, y: middle + 15, class: "small" }, below(node), (box.mark = svg("tspan", {}))));
  group.addEventListener("click", () => actions.choose(onTop(node).id));
  box.redo = (view) => { // what the copy on top changes
    const shown = onTop(node), about = aboutNode(node, shown, view.all);
    title.textContent = about;
    group.setAttribute("aria-label", about);
    box.text.replaceChildren(titleText(shown, left, below(node) ? middle - 2 : middle + 5));
    const checked = (view.all ? node.copies : [shown]).filter((copy) => copy.check), right = checked.every((copy) => copy.check.ok);
    box.mark.textContent = checked.length ? (right ? " ✓" : " ✗") : "";
    box.mark.setAttribute("class", right ? "agrees" : "differs");
    if (box.cap) fillCap(box, shown, view);
  };
  return group;
}
function aboutNode(node, shown, all) {
  const copies = all && isCopied(node) ? node.copies : [shown], name = all && isCopied(node) ? `${labelOf(node)} in ${copies.length} blocks` : fullName(shown);
  const graded = copies.filter((copy) => copy.gradient !== undefined);
  const state = graded.length ? `gradient ${spreadOf(graded).join(" ")}, ${stateText(graded)}${shown.check ? `, ${shown.check.ok ? "equals its numeric derivative" : "WRONG beside its numeric derivative"}` : ""}` : `no gradient: ${shown.why}`;
  return [name, node.op && node.name ? node.op : "", shapeOf(node), state].filter(Boolean).join(" · ");
}
const rank = (x) => (typeof x === "number" ? x : Infinity); // what is not finite is larger than anything
// The sizes of several gradients: one text, or the least and the largest.
function spreadOf(some) {
  const sizes = some.map((node) => rmsOf(node.gradient)).sort((a, b) => rank(a) - rank(b)), [low, high] = [brief(sizes[0]), brief(sizes[sizes.length - 1])];
  return low === high ? [low] : [low, `to ${high}`];
}
const WORST_FIRST = ["wrong", "non-finite", "exploding", "vanishing", "zero", "ok", "cancels", "none"];
const RED = new Set(["wrong", "non-finite"]);
const worstOf = (some) => WORST_FIRST.find((state) => some.some((node) => node.state === state));
// The state of several nodes: that of all, or the worst and where it is.
function stateText(some) {
  const worst = worstOf(some), those = some.filter((node) => node.state === worst), { words } = stateOf(those[0]);
  return those.length === some.length ? words : `${those.length} of ${some.length} ${words}: ${those[0].scope}`;
}
const binOf = (some) => Math.max(...some.map((node) => node.bin ?? 0));

function fillCap(box, shown, { all, known }) {
  const { node, width: w, height: h } = box, several = isCopied(node), graded = node.copies.filter((copy) => copy.gradient !== undefined);
  const some = all && several ? graded : shown.gradient === undefined ? [] : [shown];
  const state = some.length ? worstOf(some) : "none", glyph = state === "ok" ? "" : `${states[state][0]} `;
  const lines = some.length ? spreadOf(some) : ["–"];
  lines[0] = glyph + lines[0];
  const middle = w - CAP / 2 - (node.kind === "parameter" ? 2 : 0), y = (several ? h - 8 : h) / 2 + (lines.length > 1 ? -1 : 4.5);
  const look = RED.has(state) || some.every((copy) => copy.state === state) ? state : "ok";
  box.cap.setAttribute("class", `cap bin${some.length ? binOf(some) : 0} ${look}`);
  const text = svg("text", { x: middle, y, class: lines.length > 1 || lines[0].length > 6 ? "long" : null }, lines.map((line, i) => svg("tspan", { x: middle, dy: i ? 11 : 0 }, line)));
  box.cap.replaceChildren(svg("g", { class: some.length && some.some(known) ? "shown" : "hidden" }, svg("rect", { class: "fill", x: w - CAP, y: 0, width: CAP, height: several ? h - 9 : h }), text));
  if (several) box.cap.append(strip(node.copies, w - CAP, h - 8, CAP, 8, known, all ? null : shown));
}
// One cell for each copy, or for some of them: the gradient against the step, or the depth.
function strip(copies, x, y, width, height, known, shown) {
  const each = Math.ceil(copies.length / STRIP), cells = count(Math.ceil(copies.length / each)).map((i) => copies.slice(i * each, (i + 1) * each));
  const wide = width / cells.length;
  return svg("g", { class: "strip" }, cells.map((some, i) => {
    const graded = some.filter((copy) => copy.gradient !== undefined && known(copy));
    const look = graded.length ? `bin${binOf(graded)} ${worstOf(graded)}` : "waiting";
    return svg("rect", { class: `cell ${look} ${some.includes(shown) ? "on" : ""}`, x: x + i * wide, y, width: Math.max(0.8, wide - (wide > 3 ? 1 : 0)), height });
  }));
}

// ---------------------------------------------------------------- a scope

// Open, a frame with a heading; closed, a box with a cell for each copy of it, or for each parameter's gradient in it.
function drawScope(box, actions) {
  const open = Boolean(box.layout), { width: w, height: h, scope } = box, fold = folds[scope], inside = nodesIn(scope);
  const group = svg("g", { class: `scope ${open ? "open" : "closed"} ${fold ? "fold" : ""}`, "data-scope": scope, transform: `translate(${box.x - w / 2} ${box.y - h / 2})` });
  const total = ops(inside.filter((node) => node.op).length), start = open ? box.layout.heading : 0;
  if (fold) for (const back of [6, 3]) group.append(svg("rect", { class: "body under", x: back, y: -back, width: w, height: h, rx: 12 }));
  group.append(svg("rect", { class: "body", width: w, height: h, rx: 12 }));
  const name = svg("text", { class: "name", x: start + 28, y: 20 }), note = svg("text", { class: "count", x: 28, y: 38 });
  const head = svg("g", { class: "head", tabindex: -1, role: "button", "aria-expanded": String(open) }, svg("title", {}, `${scope}: ${total}; Enter or click ${open ? "closes" : "opens"} it`),
    svg("rect", { class: "hit", x: start + 4, y: 3, width: open ? headingWidth(scope) - (fold ? 96 : 0) : w - 8, height: open ? 26 : h - 6, rx: 8 }), svg("text", { class: "twist", x: start + 12, y: 20 }, open ? "▾" : "▸"), name, note);
  head.addEventListener("click", () => actions.toggle(scope));
  group.append(head);
  const turner = fold && turnerOf(scope, actions), cells = svg("g", {});
  if (turner) group.append(turner.group);
  if (!open) group.append(cells);
  box.redo = (view) => {
    const called = short(fold ? (view.all ? fold.name : lastName(fold.copies[copyOnTop.get(scope)])) : lastName(scope), 30);
    name.textContent = called;
    const after = start + 36 + widthOf(called, FONT.name);
    if (turner) turner.place(after, view.all);
    if (open) { note.setAttribute("x", after + (fold ? 92 : 0)); note.setAttribute("y", 20); }
    note.textContent = !open && view.active === box.key ? progress(scope, view.step) : total;
    head.setAttribute("aria-label", `${scope}${fold ? `, ${fold.copies.length} alike` : ""}, ${note.textContent}`);
    if (!open) cells.replaceChildren(...[closedStrip(scope, inside, w, h, view)].filter(Boolean));
  };
  return group;
}
// Which op of a closed scope a step is at.
function progress(scope, step) {
  const inside = nodesIn(scope).filter((node) => node.op), at = inside.indexOf(leaderOf(step.node));
  return short(`${at + 1} of ${inside.length}: ${labelOf(nodes[step.node])}`, 26);
}
function closedStrip(scope, inside, w, h, { known, all }) {
  const graded = inside.filter((node) => node.kind === "parameter" && hasCap(node)), shown = (graded.length ? graded : inside.filter(hasCap)).slice(0, 24);
  if (!shown.length) return null;
  const fold = folds[scope], handed = (lanesInside(scope)[0] || { source: shown[0] }).source;
  if (fold) return strip(handed.copies, 28, h - 17, w - 48, 9, known, all ? null : onTop(handed));
  const each = Math.min(12, (w - 40) / shown.length);
  return svg("g", { class: "strip" }, shown.map((node, i) => {
    const seen = (all ? node.copies : [onTop(node)]).filter((copy) => copy.gradient !== undefined && known(copy)), look = seen.length ? `bin${binOf(seen)} ${worstOf(seen)}` : "waiting";
    return svg("rect", { class: `cell ${look}`, "data-cell": node.id, x: 28 + i * each, y: h - 17, width: each - 1.5, height: 9, rx: 1.5 });
  }));
}
const lanesInside = (scope) => [...lanesOf].filter(([home]) => within(home, scope)).flatMap(([, lanes]) => lanes);

// Arrows that turn the copies of a block over, and which of them is on top.
function turnerOf(scope, actions) {
  const total = folds[scope].copies.length, text = svg("text", { class: "count", y: 20, x: 45, "text-anchor": "middle" });
  const arrow = (sign, by, x) => {
    const turn = () => actions.turn(scope, (copyOnTop.get(scope) + by + total) % total);
    const group = svg("g", { class: "turn", role: "button", tabindex: -1, "aria-label": `${by < 0 ? "previous" : "next"} of ${total} alike`, on: { click: turn } }, svg("rect", { class: "hit", x: x - 9, y: 6, width: 18, height: 20, rx: 6 }), svg("text", { x, y: 20, class: "twist", "text-anchor": "middle" }, sign));
    group.turn = turn;
    return group;
  };
  const [before, after] = [arrow("‹", -1, 9), arrow("›", 1, 81)], group = svg("g", {}, before, text, after);
  const place = (x, all) => {
    group.setAttribute("transform", `translate(${x} 0)`);
    text.textContent = all ? `×${total}` : `${copyOnTop.get(scope) + 1} of ${total}`;
  };
  return { group, place };
}

// ---------------------------------------------------------------- a line

function drawLine(line) {
  const d = pathOf(line), back = line.wires[0].back, title = svg("title", {});
  const group = svg("g", {}, title, svg("path", { class: "wide", d }), svg("path", { class: "stroke", d }), svg("path", { class: "flow", d }));
  const label = back && svg("text", { class: "hands-on", transform: `translate(${line.right + 7} ${(line.top + line.bottom) / 2}) rotate(90)` });
  if (label) group.append(label);
  line.redo = (view) => {
    const shown = view.all ? line.wires.flatMap((wire) => wire.edges) : line.wires.map(edgeOnTop), sent = shown.filter((edge) => edge.sent !== undefined);
    const top = sent.length ? Math.max(...sent.map((edge) => edge.bin)) : null, sizes = sent.map((edge) => rmsOf(edge.sent)).sort((a, b) => rank(a) - rank(b));
    const range = [...new Set([sizes[0], sizes[sizes.length - 1]].map((size) => digits(size, 3)))].join(" to ");
    const { source, target } = line.wires[0], further = shown.length && back ? ` in ${shown[0].apart === 1 ? "the next copy" : "another copy"}` : "";
    title.textContent = `${labelOf(source)} → ${labelOf(target)}${further}${sent.length ? ` · sends back ${range}` : ""}`;
    if (label) label.textContent = `${line.wires[0].edges[0].apart === 1 ? "to the next" : "to another"}${view.all ? ` ×${line.wires[0].edges.length}` : ""}${sent.length ? ` · ${view.all ? range : digits(sizes[0], 2)}` : ""}`;
    group.style.setProperty("--width", top === null ? 1.3 : 1.4 + top * 0.28);
    line.grade = sent.length ? `line${top}` : "dry";
  };
  return group;
}
