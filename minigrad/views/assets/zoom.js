// Zoom with the wheel, pan by dragging, back with a double click; where the picture is the document.
// It opens as large as the window, but never so small that it cannot be read: then at its top.
// In an <img> no script runs, and in a page that holds the picture this one does nothing.
(() => {
  const svg = document.currentScript.ownerSVGElement;
  if (svg !== document.documentElement) return;
  const LEAST = 0.9, LEGIBLE = 1.2, LARGEST = 1.6; // pixels a point of the picture takes
  const own = svg.viewBox.baseVal;
  const fit = Math.min(innerWidth / own.width, innerHeight / own.height);
  const scale = Math.min(LARGEST, Math.max(fit, LEAST, Math.min(LEGIBLE, innerWidth / own.width)));
  const [wide, high] = [innerWidth / scale, innerHeight / scale];
  const start = [own.x - Math.max(0, wide - own.width) / 2, own.y, wide, high];
  let view = start.slice(), from = null;
  const show = () => svg.setAttribute("viewBox", view.join(" "));
  const part = () => view[2] / innerWidth;
  const at = (e) => [view[0] + e.clientX * part(), view[1] + e.clientY * part()];
  svg.setAttribute("width", "100%");
  svg.setAttribute("height", "100%");
  show();
  addEventListener("wheel", (e) => {
    e.preventDefault();
    if (!e.ctrlKey && view[2] === start[2] && (high < own.height || wide < own.width)) {
      const scrolled = (at, by, from, whole, part) => Math.max(from, Math.min(from + Math.max(0, whole - part), at + by));
      if (wide < own.width) view[0] = scrolled(view[0], e.deltaX * part(), own.x, own.width, wide);
      view[1] = scrolled(view[1], e.deltaY * part(), own.y, own.height, high);
      return show();
    }
    const [x, y] = at(e), by = Math.exp(e.deltaY / 500);
    view = [x - (x - view[0]) * by, y - (y - view[1]) * by, view[2] * by, view[3] * by];
    show();
  }, { passive: false });
  addEventListener("pointerdown", (e) => { from = at(e); });
  addEventListener("pointerup", () => { from = null; });
  addEventListener("pointermove", (e) => {
    if (!from) return;
    const [x, y] = at(e);
    view[0] += from[0] - x;
    view[1] += from[1] - y;
    show();
  });
  addEventListener("dblclick", () => { view = start.slice(); show(); });
})();
