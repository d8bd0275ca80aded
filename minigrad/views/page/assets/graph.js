// ---------------------------------------------------------------- the graph: boxes and lines as SVG, lit by the step

const pen = document.createElement("canvas").getContext("2d");
const FONT = { title: "italic 17px Georgia, 'DejaVu Serif', serif", small: "11.5px system-ui, sans-serif" };
function widthOf(text, font) {
  pen.font = font;
  return pen.measureText(text).width;
}
const CAP = 60; // the coloured end of a box, with the gradient's size
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const below = (node) => (node.op ? [node.name ? node.op : "", shapeOf(node)].filter(Boolean).join(" · ") : shapeOf(node));
const titleOf = (node) => (node.name ? short(node.name, 18) : node.op || role(node) || node.kind);
const hasCap = (node) => node.gradient !== undefined;

function sizeOf(child) {
  if (child.scope !== undefined) {
    const inside = nodesIn(child.scope);
    return { width: Math.max(176, 40 + widthOf(child.scope.split("/").pop(), "600 15px system-ui, sans-serif")), height: inside.some(hasCap) ? 62 : 46 };
  }
  const { node } = child, cap = hasCap(node) ? CAP : 10;
  const text = Math.max(widthOf(titleOf(node), FONT.title), widthOf(below(node), FONT.small));
  return { width: Math.ceil(text) + 24 + cap, height: node.op ? 44 : 40 };
}

// A name with what is below it set small and low.
function titleText(node, x, y) {
  if (!node.name) return svg("text", { x, y, class: "title op" }, titleOf(node));
  const [base, under] = parts(titleOf(isLoss(node) ? { ...node, name: "L" } : node));
  return svg("text", { x, y, class: "title" }, svg("tspan", {}, base), under && svg("tspan", { class: "under", dy: 4 }, under));
}

// Rounded for ops, round ends for parameters, cut corners for inputs, dashes for constants: shape says what it is.
function outline(node, w, h) {
  const r = node.kind === "parameter" ? h / 2 : 8, c = 8;
  if (node.kind === "input" || node.kind === "detached") {
    return `M${c} 0H${w - c}L${w} ${c}V${h - c}L${w - c} ${h}H${c}L0 ${h - c}V${c}Z`;
  }
  return `M${r} 0H${w - r}A${r} ${r} 0 0 1 ${w} ${r}V${h - r}A${r} ${r} 0 0 1 ${w - r} ${h}H${r}A${r} ${r} 0 0 1 0 ${h - r}V${r}A${r} ${r} 0 0 1 ${r} 0Z`;
}

function drawNode(box, choose) {
  const { node, width: w, height: h } = box;
  const left = node.kind === "parameter" ? 16 : 12;
  const group = svg("g", { class: `node ${node.kind} ${isLoss(node) ? "loss" : ""}`, "data-node": node.id, transform: `translate(${box.x - w / 2} ${box.y - h / 2})` });
  const rms = rmsOf(node.gradient), state = stateOf(node);
  const about = [pathOf(node), node.op && node.name ? node.op : "", shapeOf(node), rms === undefined ? `no gradient: ${node.why}` : `gradient ${digits(rms)}, ${state.words}`];
  group.append(svg("title", {}, about.filter(Boolean).join(" · ")), svg("path", { class: "body", d: outline(node, w, h) }));
  if (hasCap(node)) {
    const clip = `clip${node.id}`;
    group.append(svg("clipPath", { id: clip }, svg("path", { d: outline(node, w, h) })));
    const cap = svg("g", { class: `cap bin${node.bin} ${node.state}`, "clip-path": `url(#${clip})` });
    cap.append(svg("rect", { x: w - CAP, y: 0, width: CAP, height: h }));
    const text = (state.name === "ok" ? "" : `${state.glyph} `) + brief(rms);
    cap.append(svg("text", { x: w - CAP / 2 - (node.kind === "parameter" ? 2 : 0), y: h / 2 + 4.5, class: text.length > 6 && "long" }, text));
    group.append(cap);
  }
  group.append(svg("path", { class: "frame", d: outline(node, w, h) }));
  if (isLoss(node)) group.append(svg("path", { class: "frame inner", d: outline(node, w - 7, h - 7), transform: "translate(3.5 3.5)" }));
  group.append(titleText(node, left, below(node) ? h / 2 - 2 : h / 2 + 5), svg("text", { x: left, y: h / 2 + 15, class: "small" }, below(node)));
  group.addEventListener("click", () => choose(node.id));
  return group;
}

// A scope: closed, a box with a cell for each parameter's gradient inside; open, a frame with a heading.
function drawScope(box, toggle) {
  const open = Boolean(box.layout), { width: w, height: h } = box, name = box.scope.split("/").pop();
  const group = svg("g", { class: `scope ${open ? "open" : "closed"}`, "data-scope": box.scope, transform: `translate(${box.x - w / 2} ${box.y - h / 2})` });
  const inside = nodesIn(box.scope), count = inside.filter((node) => node.op).length, ops = `${count} op${count === 1 ? "" : "s"}`;
  group.append(svg("rect", { class: "body", width: w, height: h, rx: 12 }));
  const head = svg("g", { class: "head", tabindex: 0, role: "button", "aria-expanded": String(open), "aria-label": `${box.scope}, ${ops}` });
  head.append(svg("title", {}, `${box.scope}: ${ops}; Enter or click ${open ? "closes" : "opens"} it`),
    svg("rect", { class: "hit", x: 4, y: 3, width: open ? Math.min(w - 8, 9 * name.length + 88) : w - 8, height: open ? 24 : h - 6, rx: 8 }),
    svg("text", { class: "twist", x: 12, y: 20 }, open ? "▾" : "▸"), svg("text", { class: "name", x: 28, y: 20 }, short(name, 30)));
  head.append(open ? svg("text", { class: "count", x: 36 + widthOf(short(name, 30), "600 15px system-ui, sans-serif"), y: 20 }, ops) : svg("text", { class: "count", x: 28, y: 37 }, ops));
  const graded = inside.filter((node) => node.kind === "parameter" && hasCap(node));
  if (!open && (graded.length ? graded : inside.filter(hasCap)).length) {
    const cells = (graded.length ? graded : inside.filter(hasCap)).slice(0, 24), each = Math.min(12, (w - 32) / cells.length);
    const strip = svg("g", { class: "strip", transform: `translate(28 ${h - 16})` });
    cells.forEach((node, i) => strip.append(svg("rect", { class: `cap bin${node.bin} ${node.state}`, "data-cell": node.id, x: i * each, width: each - 1.5, height: 8, rx: 1.5 })));
    group.append(head, strip);
  } else group.append(head);
  head.addEventListener("click", () => toggle(box.scope));
  head.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    toggle(box.scope);
    const again = document.querySelector(`[data-scope="${CSS.escape(box.scope)}"] > .head`);
    if (again) again.focus();
  });
  return group;
}

// From rank to rank by curves that start and end upright.
function smooth(points) {
  const at = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  let d = `M${at(points[0].x, points[0].y)}`;
  for (let i = 1; i < points.length; i++) {
    const [from, to] = [points[i - 1], points[i]], middle = (from.y + to.y) / 2;
    d += Math.abs(from.x - to.x) < 0.5 ? `L${at(to.x, to.y)}` : `C${at(from.x, middle)} ${at(to.x, middle)} ${at(to.x, to.y)}`;
  }
  return d;
}

function drawLine(line) {
  const sent = line.edges.filter((edge) => edge.sent !== undefined);
  const top = sent.length ? Math.max(...sent.map((edge) => edge.bin)) : null;
  const [source, target] = [nodes[line.edges[0].source], nodes[line.edges[0].target]];
  const d = smooth(line.points);
  const group = svg("g", { class: `line ${sent.length ? `line${top}` : "dry"}` });
  group.append(svg("title", {}, `${pathOf(source)} → ${pathOf(target)}${sent.length ? ` · sends back ${digits(rmsOf(sent[0].sent))}` : ""}`),
    svg("path", { class: "wide", d }), svg("path", { class: "stroke", d }), svg("path", { class: "flow", d }));
  group.style.setProperty("--width", top === null ? 1.3 : 1.4 + top * 0.28);
  return group;
}

function Graph(canvas, actions) {
  let picture, scale = 1, fitted = true, drawing;
  function draw(open) {
    picture = arrange(open);
    drawing = svg("svg", { class: "drawing", viewBox: `0 0 ${Math.ceil(picture.width)} ${Math.ceil(picture.height)}`, role: "group", "aria-label": "Computation graph" });
    const arrow = (id) => svg("marker", { id, viewBox: "0 0 8 8", refX: 6.5, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, svg("path", { d: "M0 .8 7 4 0 7.2Z" }));
    drawing.append(svg("defs", {}, arrow("arrow"), arrow("arrow-forward"), arrow("arrow-backward")));
    const frames = picture.boxes.filter((box) => box.layout);
    frames.forEach((box) => drawing.append(drawScope(box, actions.toggle)));
    for (const line of picture.lines) drawing.append((line.group = drawLine(line)));
    for (const box of picture.boxes) {
      if (box.scope !== undefined && !box.layout) drawing.append((box.group = drawScope(box, actions.toggle)));
      if (box.node) drawing.append((box.group = drawNode(box, actions.choose)));
    }
    canvas.replaceChildren(drawing);
    if (fitted) fit();
    else zoom(scale);
  }
  function zoom(to) {
    scale = Math.max(0.15, Math.min(2, to));
    drawing.setAttribute("width", picture.width * scale);
    drawing.setAttribute("height", picture.height * scale);
  }
  // All of it if that can be read, or else its width, or else a size that can be read.
  function fit() {
    const [w, h] = [canvas.clientWidth - 8, canvas.clientHeight - 8];
    const whole = Math.min(w / picture.width, h / picture.height);
    zoom(Math.min(1.15, whole > 0.57 ? whole : Math.max(0.7, Math.min(w / picture.width, 0.95))));
    fitted = true;
  }
  function light(state, open) {
    const { at } = state, step = steps[at], all = step.phase === "overview";
    const ran = (node) => all || step.phase === "backward" || !node.op || (stepOf.forward.get(node.id) ?? Infinity) <= at;
    const known = (node) => hasCap(node) && (all || node.knownAt <= at);
    const active = step.node === undefined ? null : visible(nodes[step.node], open);
    for (const box of picture.boxes) {
      if (!box.group) continue;
      const own = box.node ? [box.node] : nodesIn(box.scope), key = box.key;
      const is = (name, yes) => box.group.classList.toggle(name, Boolean(yes));
      is("later", !own.some(ran));
      is("known", own.some(known));
      is("active", key === active);
      is("chosen", box.node && state.chosen === box.node.id);
      is("forward", step.phase === "forward");
      is("backward", step.phase === "backward");
      for (const cell of box.group.querySelectorAll("[data-cell]")) cell.classList.toggle("waiting", !known(nodes[cell.dataset.cell]));
    }
    for (const { group, edges: own } of picture.lines) {
      const lit = step.node !== undefined && own.some((edge) => edge.target === step.node && (step.phase === "forward" || edge.sent !== undefined));
      const back = all || step.phase === "backward";
      group.classList.toggle("lit", lit);
      group.classList.toggle("forward", step.phase === "forward");
      group.classList.toggle("backward", step.phase === "backward");
      group.classList.toggle("later", step.phase === "forward" && own.every((edge) => stepOf.forward.get(edge.target) > at));
      group.classList.toggle("sent", back && own.some((edge) => edge.sent !== undefined && (all || stepOf.backward.get(edge.target) <= at)));
    }
    follow(picture.boxes.find((box) => box.key === (state.chosen !== null ? visible(nodes[state.chosen], open) : active)));
  }
  // Brings a box into view, when it is not well within it.
  function follow(box) {
    if (!box) return;
    const [x, y, w, h] = [box.x * scale + drawing.getBoundingClientRect().left - canvas.getBoundingClientRect().left + canvas.scrollLeft, box.y * scale, canvas.clientWidth, canvas.clientHeight];
    const off = (p, from, size) => p < from + size * 0.18 || p > from + size * 0.82;
    const to = {};
    if (off(y, canvas.scrollTop, h)) to.top = y - h / 2;
    if (off(x, canvas.scrollLeft, w)) to.left = x - w / 2;
    if (Object.keys(to).length) canvas.scrollTo({ ...to, behavior: calm() ? "auto" : "smooth" });
  }
  const by = (factor) => () => { fitted = false; zoom(scale * factor); };
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    by(event.deltaY < 0 ? 1.1 : 1 / 1.1)();
  }, { passive: false });
  dragging(canvas);
  new ResizeObserver(() => picture && fitted && fit()).observe(canvas);
  return { draw, light, fit, larger: by(1.2), smaller: by(1 / 1.2) };
}

function dragging(canvas) {
  let from = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType !== "mouse") return;
    from = { x: event.clientX + canvas.scrollLeft, y: event.clientY + canvas.scrollTop };
  });
  window.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons) return;
    canvas.scrollTo({ left: from.x - event.clientX, top: from.y - event.clientY, behavior: "auto" });
  });
  window.addEventListener("pointerup", () => { from = null; });
}

// The fixed scale of gradients, as everywhere in minigrad.
function drawLegend(place) {
  const power = (x) => el("span", { class: "power" }, "10", el("sup", {}, String(x).replace("-", "−")));
  const { scale } = record;
  place.append(el("span", { class: "label" }, "gradient, rms"),
    el("span", { class: "swatches", "aria-hidden": true }, scale.slice(1).map((_, i) => el("i", { class: `swatch bin${i}` }))),
    el("span", { class: "bounds" }, power(scale[0]), power((scale[0] + scale[scale.length - 1]) / 2), power(scale[scale.length - 1])));
}
