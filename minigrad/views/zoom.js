// Zoom with the wheel, pan by dragging, back with a double click; where the picture is the document.
// In an <img> no script runs, and in a page that holds the picture this one does nothing.
(() => {
  const svg = document.currentScript.ownerSVGElement;
  if (svg !== document.documentElement) return;
  const points = 0.75; // of a CSS pixel
  const own = svg.viewBox.baseVal;
  const wide = Math.max(own.width, innerWidth * points);
  const high = Math.max(own.height, innerHeight * points);
  const start = [own.x - (wide - own.width) / 2, own.y, wide, high];
  let view = start.slice(), from = null;
  const show = () => svg.setAttribute("viewBox", view.join(" "));
  const scale = () => Math.max(view[2] / innerWidth, view[3] / innerHeight);
  const at = (e) => [
    view[0] + view[2] / 2 + (e.clientX - innerWidth / 2) * scale(),
    view[1] + view[3] / 2 + (e.clientY - innerHeight / 2) * scale(),
  ];
  svg.setAttribute("width", "100%");
  svg.setAttribute("height", "100%");
  show();
  addEventListener("wheel", (e) => {
    e.preventDefault();
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
