// The graph: each scope as Python drew it, lit by the step. A step changes classes, and of copies the number shown.

const pictures = new Map(shown.pictures.map((picture) => [picture.root, picture]));
for (const picture of shown.pictures)
  for (const root of Object.values(picture.closed)) if (pictures.has(root)) pictures.get(root).parent = picture;
const LEGIBLE = 1.25; // pixels a point of the picture takes at least where a step is shown
const GRADIENT_WORDS = ["0 in theory", "zero", "not finite"];

// The box of a picture that stands for an entry, if one does.
function boxIdOf(entry, picture) {
  if (!picture.boxOf) {
    picture.boxOf = new Map();
    for (const part of ["boxes", "held"])
      for (const [id, inside] of Object.entries(picture[part])) for (const one of inside) picture.boxOf.set(one, id);
  }
  return picture.boxOf.get(entry.id);
}
// The innermost picture that shows an entry by a box of its own.
function pictureOf(entry) {
  let found = pictures.get("");
  for (;;) {
    const inner = pictures.get(found.closed[boxIdOf(entry, found)]);
    if (!inner) return found;
    found = inner;
  }
}

// A picture's drawing with its boxes and lines, made once.
function drawingOf(picture) {
  if (picture.made) return picture.made;
  const holder = el("template");
  holder.innerHTML = picture.svg;
  const drawing = holder.content.firstElementChild;
  drawing.setAttribute("class", "drawing");
  const boxes = [...drawing.querySelectorAll(".node:not(.turn)")].map((element) => {
    const scope = picture.closed[element.id];
    const own = (picture.boxes[element.id] || []).map((id) => entries[id]);
    const fills = [...element.querySelectorAll('path[fill^="var(--bin"], path[fill="var(--alarm)"]')];
    const inks = [...element.querySelectorAll('text[fill="#000001"], text[fill="#fffffe"], text[fill="var(--paper)"]')];
    const cells = picture.cells[element.id].map(({ entries: ids, uses }, i) => ({
      own: uses ? uses.map((id) => edges[id]) : ids.map((id) => entries[id]), ground: fills[i], text: inks[i],
      fill: fills[i]?.getAttribute("fill"), ink: inks[i]?.getAttribute("fill"), said: inks[i]?.textContent,
    }));
    const texts = [...element.querySelectorAll('text, polygon[fill^="var(--bin"]')].filter(({ tagName, textContent }) =>
      tagName === "polygon" || GRADIENT_WORDS.includes(textContent.trim()) || /^(Σ|of) /.test(textContent.trim()));
    element.setAttribute("role", "button");
    element.setAttribute("tabindex", -1);
    element.addEventListener("click", () => press(picture, element.id));
    return { element, own, scope, cells, texts };
  });
  const lines = [...drawing.querySelectorAll(".edge")].map((element) => {
    for (const part of element.querySelectorAll("path, polygon"))
      part.classList.add([part.getAttribute("stroke"), part.getAttribute("fill")].includes("var(--line)") ? "value-part" : "gradient-part");
    return { element, own: picture.lines[parseInt(element.id.slice(1), 10)].map((id) => edges[id]) };
  });
  picture.made = { drawing, boxes, lines };
  return picture.made;
}

let scale = 1;
let scaled = "whole"; // all of it in the pane; "legible", so that a step can be read; or "by hand"
const pane = byId("canvas");
function resize(drawing, to) {
  scale = clamp(to, 0.1, 4);
  const { width, height } = drawing.viewBox.baseVal;
  drawing.setAttribute("width", width * scale);
  drawing.setAttribute("height", height * scale);
}
function fit() {
  const { drawing } = drawingOf(state.picture);
  const { width, height } = drawing.viewBox.baseVal;
  const whole = Math.min((pane.clientWidth - 12) / width, (pane.clientHeight - 12) / height);
  const across = (pane.clientWidth - 12) / width;
  const least = Math.min(LEGIBLE, Math.max(across, 1)); // the pane is filled, and what is in it can be read
  resize(drawing, scaled === "all" ? whole : clamp(whole, least, 1.6));
}
function zoom(by) {
  const { drawing } = drawingOf(state.picture);
  const middle = [pane.scrollLeft + pane.clientWidth / 2, pane.scrollTop + pane.clientHeight / 2].map((x) => x / scale);
  scaled = "by hand";
  resize(drawing, scale * by);
  pane.scrollTo({ left: middle[0] * scale - pane.clientWidth / 2, top: middle[1] * scale - pane.clientHeight / 2, behavior: "instant" });
}
// Brings a box into the middle of the pane, unless it is well within.
function follow(element) {
  const [own, frame] = [element.getBoundingClientRect(), pane.getBoundingClientRect()];
  const off = (start, end) => {
    const room = Math.min(60, (frame[end] - frame[start]) / 6);
    return own[start] < frame[start] + room || own[end] > frame[end] - room ? (own[start] + own[end] - frame[start] - frame[end]) / 2 : 0;
  };
  const [left, top] = [off("left", "right"), off("top", "bottom")];
  if (left || top) pane.scrollBy({ left, top, behavior: calm() ? "instant" : "smooth" });
}
function press(picture, id) {
  if (pane.dragged) return;
  const scope = picture.closed[id];
  if (pictures.has(scope)) return open(scope);
  const inside = picture.boxes[id].map((one) => entries[one]);
  const step = steps[state.at];
  choose((inside.find((one) => one.id === step.id) || latest(inside)).id);
}
// Of copies that are drawn once, the one that the walk has come to last.
function latest(some) {
  const when = steps[state.at].phase === "backward" ? backAt : ranAt;
  const ran = some.filter((one) => (when.get(one.id) ?? 0) <= state.at);
  return ran.sort((a, b) => (when.get(b.id) ?? 0) - (when.get(a.id) ?? 0))[0] || some[0];
}

function light() {
  const { picture, at } = state;
  const { drawing, boxes, lines } = drawingOf(picture);
  if (pane.firstElementChild !== drawing) {
    pane.replaceChildren(drawing);
    if (scaled !== "by hand") fit();
  }
  const step = steps[at];
  const [whole, back] = [step.phase === "whole", step.phase === "backward"];
  const node = current();
  const active = node && boxIdOf(node, picture);
  drawing.dataset.phase = step.phase;
  for (const { element, own, cells, texts } of boxes) {
    element.classList.toggle("later", step.phase === "forward" && own.some((one) => one.op) && own.every((one) => !one.op || one.ranAt > at));
    element.classList.toggle("active", element.id === active);
    element.classList.toggle("marked", own.some((one) => state.marked.has(one.id)) || (picture.held[element.id] || []).some((id) => state.marked.has(id)));
    element.ariaCurrent = element.id === active ? "step" : null;
    cells.forEach((cell, i) => showCell(cell, whole, at, element, i));
    const known = whole || own.every((one) => backAt.size > 0 && back && (one.knownAt <= at || one.knownAt === Infinity));
    for (const text of texts) text.style.visibility = known ? "" : "hidden";
  }
  for (const { element, own } of lines) {
    const sent = sentOf(own).filter((edge) => whole || (back && backAt.get(edge.target) <= at));
    element.classList.toggle("known", sent.length > 0);
    element.classList.toggle("later", step.phase === "forward" && own.every((edge) => ranAt.get(edge.target) > at));
    element.classList.toggle("lit", own.some((edge) => edge.target === step.id) && (!back || sent.length > 0));
    element.classList.toggle("marked", own.some((edge) => state.markedEdges.has(edge.id)));
  }
  if (!active || whole) return;
  const { element } = boxes.find((box) => box.element.id === active);
  if (scaled === "whole") fit();
  follow(element);
}
// The gradient of what is known by now: of copies, of the latest one.
function showCell({ own, ground, text, fill, ink, said }, whole, at, element, i) {
  if (!ground || !text) return;
  const known = own.filter((one) => isKnown(one, at));
  const is = whole || (known.length > 0 && steps[at].phase === "backward");
  for (const part of [ground, text]) part.style.visibility = is ? "" : "hidden";
  if (i === 0) element.classList.toggle("known", is);
  const shown = known.find((one) => one.op && one.id === steps[at].id) || known.sort((a, b) => b.knownAt - a.knownAt)[0];
  const one = !whole && own.length > 1 && shown;
  const bin = one && one.bin !== undefined && one.bin < 8;
  ground.setAttribute("fill", bin ? `var(--bin${one.bin})` : fill);
  text.setAttribute("fill", bin ? `var(--on${one.bin})` : ink);
  text.textContent = one ? one.inWords : said;
}

// ---------------------------------------------------------------- the way in and out, and the pointer

function showCrumbs() {
  const way = [];
  for (let one = state.picture; one; one = one.parent) way.unshift(one);
  const items = way.map((one, i) => el("li", i < way.length - 1 ? link(one.name, () => open(one.root)) : el("bdi", { "aria-current": "location" }, one.name)));
  const entry = current();
  const closed = entry && state.picture.closed[boxIdOf(entry, state.picture)];
  const inner = pictures.has(closed) && link(`open ${closed.split("/").at(-1)} ⏎`, () => open(closed));
  const note = state.picture.note && el("span.muted", state.picture.note.split(";")[0]);
  const sizes = el("span.sizes", button("−", () => zoom(1 / 1.2), { "aria-label": "Smaller" }), button("+", () => zoom(1.2), { "aria-label": "Larger" }),
    button("Fit", () => { scaled = scaled === "all" ? "whole" : "all"; fit(); }, { title: "All of it, or so that it can be read (0)" }));
  const save = saveLinks(() => drawingOf(state.picture).drawing, state.picture.root || shown.title);
  byId("crumbs").replaceChildren(el("ol.way", items), ...[inner, note, save, sizes].filter(Boolean));
}
function listenToGraph() {
  let from = null;
  pane.addEventListener("pointerdown", ({ clientX: x, clientY: y, button: which }) => {
    pane.dragged = false;
    from = which ? null : { x, y, left: pane.scrollLeft, top: pane.scrollTop };
  });
  window.addEventListener("pointerup", () => { from = null; }, { signal: life.signal });
  window.addEventListener("pointermove", (event) => {
    if (!from || event.pointerType !== "mouse") return;
    const [dx, dy] = [from.x - event.clientX, from.y - event.clientY];
    if (Math.hypot(dx, dy) > 4) pane.dragged = true;
    pane.scrollTo({ left: from.left + dx, top: from.top + dy, behavior: "instant" });
  }, { signal: life.signal });
  pane.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
  }, { passive: false });
  const sized = new ResizeObserver(() => scaled !== "by hand" && fit());
  sized.observe(pane);
  life.signal.addEventListener("abort", () => sized.disconnect());
}
