// ---------------------------------------------------------------- the view: which picture is shown, at what scale, and the way in and out

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const READABLE = 1.05; // pixels a point of the picture takes at least where a step is shown
const made = new Map(); // number of a picture to the picture, each made once

function View(canvas, crumbs) {
  let picture;
  let scale = 1;
  let scaled = "whole"; // all of it in the window; "step", so that a step can be read; or "by hand"

  function show(number) {
    if (!made.has(number)) made.set(number, Picture(number));
    if (picture === made.get(number)) return;
    const held = canvas.contains(document.activeElement);
    const left = picture?.shows.scope;
    picture = made.get(number);
    canvas.replaceChildren(picture.drawing);
    fit();
    const stop = picture.boxes.find(({ scope }) => scope && scope === left) || picture.boxes[0];
    rove(stop);
    if (held) focus(stop);
  }
  function light() {
    show(state.picture.number);
    picture.light();
    const node = shown();
    const box = node && picture.boxFor(node);
    if (!box && scaled === "step") fit();
    if (box) {
      if (scaled === "whole" && scale < READABLE) {
        scaled = "step";
        resize(READABLE);
      }
      follow(box.element);
      if (!canvas.contains(document.activeElement)) rove(box);
    }
    showWay(node, box?.scope);
  }

  // ------------------------------------------------------------ the way from the whole record to this scope

  function showWay(node, closed) {
    const { scope, around: outer } = picture.shows;
    const places = [{ scope: "", name: "all" }, ...outer].map((place, i, all) => {
      const times = folds[place.scope] ? ` ×${folds[place.scope].length}` : "";
      const own = pictures.find((one) => one.scope === place.scope);
      const here = i === all.length - 1;
      const way = own && !here;
      return el("li", way ? button(place.name, () => open(own), { class: "link" }) : el("bdi", { "aria-current": here && "location" }, place.name), times);
    });
    const fold = node?.folds.at(-1);
    const more = [fold && copiesOf(fold), closed && opener(closed, node)].filter(Boolean);
    refill(crumbs, [el("ol.way", scope ? places : []), ...more], () => canvas.querySelector("[tabindex='0']"));
  }
  function copiesOf(fold) {
    const names = folds[fold];
    const at = copyOnTop.get(fold);
    const place = el("span", el("bdi", names[at]), `, ${at + 1} of ${names.length}`);
    return pager((by) => turnBy(by, fold), place, `of ${names.length} alike`);
  }
  // A closed scope stands for the step: which of those in it, and the way in.
  function opener(scope, node) {
    const ran = record[steps[state.at].phase] || [];
    const inside = ran.filter((id) => within(nodes[id].home, scope) && onTop(nodes[id]).id === id);
    const nth = inside.indexOf(node.id) + 1;
    const said = nth > 0 && `${nth} of ${inside.length} in ${scope.split("/").at(-1)}: ${labelOf(node)} `;
    return el("span.opener", said, button("Open ⏎", () => open(pictureOfScope(scope)), { class: "link", "aria-label": `Open ${scope}` }));
  }

  // ------------------------------------------------------------ scale and place

  const box = () => picture.drawing.viewBox.baseVal;
  const whole = () => Math.min((canvas.clientWidth - 8) / box().width, (canvas.clientHeight - 8) / box().height);
  function resize(to) {
    scale = clamp(to, 0.1, 4);
    if (picture.drawing.width.baseVal.value === Math.fround(box().width * scale)) return; // nothing to lay out
    picture.drawing.setAttribute("width", box().width * scale);
    picture.drawing.setAttribute("height", box().height * scale);
  }
  // Changes the scale, and keeps what is at a point of the window, or in the middle, where it is.
  function zoom(to, point) {
    const frame = canvas.getBoundingClientRect();
    const { x, y } = point || { x: frame.left + canvas.clientWidth / 2, y: frame.top + canvas.clientHeight / 2 };
    const before = picture.drawing.getBoundingClientRect();
    const [px, py] = [(x - before.left) / scale, (y - before.top) / scale];
    scaled = "by hand";
    resize(to);
    const after = picture.drawing.getBoundingClientRect();
    canvas.scrollBy({ left: after.left + px * scale - x, top: after.top + py * scale - y, behavior: "instant" });
  }
  function fit() {
    scaled = "whole";
    resize(Math.min(1.4, whole()));
  }
  // Brings an element into view, when it is not well within it.
  function follow(element) {
    const [own, frame] = [element.getBoundingClientRect(), canvas.getBoundingClientRect()];
    const off = (start, end) => {
      const [from, to, low, high] = [own[start], own[end], frame[start], frame[end]];
      const room = Math.min(0.15 * (high - low), Math.max(0, (high - low - (to - from)) / 2));
      return from < low + room || to > high - room ? (from + to - low - high) / 2 : 0;
    };
    const [left, top] = [off("left", "right"), off("top", "bottom")];
    const far = calm() || Math.hypot(left, top) > 3000;
    if (left || top) canvas.scrollBy({ left, top, behavior: far ? "instant" : "smooth" });
  }

  // ------------------------------------------------------------ keyboard and pointer: one box has the focus, arrows move it

  function rove(stop) {
    for (const one of picture.boxes) one.element.setAttribute("tabindex", one === stop ? 0 : -1);
  }
  function focus(one) {
    rove(one);
    one.element.focus({ preventScroll: true });
    follow(one.element);
  }
  const boxAt = (target) => picture.boxes.find((one) => one.element.contains(target));
  function press(one) {
    if (one.scope) open(pictureOfScope(one.scope));
    else choose(onTop(one.node).id);
  }
  const atBox = (act) => ({ target }) => (boxAt(target) ? act(boxAt(target)) : false);
  const move = (by) => atBox((one) => focus(picture.boxes[clamp(picture.boxes.indexOf(one) + by, 0, picture.boxes.length - 1)]));
  onKeys(canvas, { ArrowDown: move(1), ArrowUp: move(-1), Enter: atBox(press), " ": atBox(press) });
  let from = null;
  window.onpointerdown = (event) => {
    const { clientX: x, clientY: y } = event;
    const begins = canvas.contains(event.target) && !event.button && event.pointerType === "mouse";
    from = begins ? { x, y, left: canvas.scrollLeft, top: canvas.scrollTop } : null;
  };
  window.onpointermove = (event) => {
    if (from && event.buttons)
      canvas.scrollTo({ left: from.left + from.x - event.clientX, top: from.top + from.y - event.clientY, behavior: "instant" });
  };
  canvas.addEventListener("click", (event) => {
    const dragged = from && Math.hypot(event.clientX - from.x, event.clientY - from.y) > 4;
    from = null;
    const one = boxAt(event.target);
    if (one && !dragged) press(one);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1), { x: event.clientX, y: event.clientY });
    },
    { passive: false },
  );
  new ResizeObserver(() => picture && scaled === "whole" && fit()).observe(canvas);
  return { light, fit, zoom: (by) => zoom(scale * by) };
}
