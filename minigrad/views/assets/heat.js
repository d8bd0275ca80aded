// Heat maps: a matrix as cells in colours, read out by pointer or arrow keys.

// What the style calls a colour in the theme at hand; of ramps, three from the middle outwards.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const mixed = (one, other, part) => `rgb(${one.map((x, c) => Math.round(x + (other[c] - x) * part)).join(",")})`;
function ramp(name) {
  const [from, middle, to] = colour(name).split(" ").map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return (part) => (part < 0.5 ? mixed(from, middle, 2 * part) : mixed(middle, to, 2 * part - 1));
}
// Gradients diverge from zero, values run from their least to their greatest, weights from 0 to 1.
function painter(kind, [low, high]) {
  const alarm = colour("alarm");
  if (kind === "gradient") {
    const [below, above, most] = [ramp("below"), ramp("above"), Math.max(Math.abs(low), Math.abs(high)) || 1];
    return (x) => (Number.isFinite(x) ? (x < 0 ? below : above)(Math.min(1, Math.abs(x) / most)) : alarm);
  }
  const values = ramp("values");
  const span = high - low || 1;
  return (x) => (Number.isFinite(x) ? values(clamp((x - low) / span, 0, 1)) : x === -Infinity ? colour("hole") : alarm);
}
const MOST_NUMBERS = 12; // keys whose weights stand in their cells
const LEAST_OF_NUMBERS = 24; // pixels of such a cell
// Of a colour as rgb(r,g,b), the ink that can be read on it.
const inkOn = (fill) => {
  const [r, g, b] = fill.match(/\d+/g) || [0, 0, 0];
  return 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#000" : "#fff";
};
/* A matrix on a canvas. options: matrix, kind, range, hatched (NaN is a mask's), numbers (in cells, where they fit), width, height and largest (at most, of a
   cell), label, say(row, column, x): hears of the cell that is pointed at, or of null. */
function heatMap(array, options) {
  const { matrix = 0, kind, range = array.ends, hatched, numbers, width, height, largest = 22, label, say } = options;
  const { rows, columns } = array;
  const size = clamp(Math.min(width / columns, height / rows), 1.5, largest);
  const [across, tall] = [columns, rows].map((n) => (n === 1 ? Math.max(size, 12) : size));
  const scale = Math.max(1, window.devicePixelRatio || 1);
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label });
  canvas.style.width = `${across * columns}px`;
  canvas.style.height = `${tall * rows}px`;
  [canvas.width, canvas.height] = [Math.round(across * columns * scale), Math.round(tall * rows * scale)];
  const [wide, high] = [across * scale, tall * scale];
  const gap = across > 7 && tall > 7 ? scale : 0;
  let cell = null;
  canvas.repaint = () => {
    const [pen, paint] = [canvas.getContext("2d"), painter(kind, range)];
    pen.clearRect(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) {
        const x = cellOf(array, matrix, i, j);
        if (hatched && Number.isNaN(x)) continue;
        pen.fillStyle = paint(x);
        const [left, top] = [Math.round(j * wide), Math.round(i * high)];
        pen.fillRect(left, top, Math.round((j + 1) * wide) - left - gap, Math.round((i + 1) * high) - top - gap);
        if (!numbers || columns > MOST_NUMBERS || across < LEAST_OF_NUMBERS) continue;
        pen.fillStyle = inkOn(paint(x));
        pen.font = `${Math.min(13, across / 3.1) * scale}px sans-serif`;
        [pen.textAlign, pen.textBaseline] = ["center", "middle"];
        pen.fillText(digits(x, 2), left + wide / 2, top + high / 2);
      }
    if (!cell) return;
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5 * scale;
    pen.strokeRect(cell[1] * wide, cell[0] * high, wide - gap, high - gap);
  };
  canvas.mark = (row, column) => {
    cell = row === null ? null : [row, column];
    canvas.dataset.cell = cell ? [matrix, row, column] : "";
    canvas.repaint();
  };
  canvas.cellAt = () => (cell ? { array, index: indexOf(array, matrix, ...cell) } : {});
  canvas.valueAt = () => (cell ? digits(cellOf(array, matrix, ...cell), 6) : "");
  const read = (row, column) => {
    canvas.mark(row, column);
    if (say) say(row, column, row === null ? null : cellOf(array, matrix, row, column));
  };
  const at = (i, j) => read(clamp(i, 0, rows - 1), clamp(j, 0, columns - 1));
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) =>
    at(Math.floor((offsetY / canvas.clientHeight) * rows), Math.floor((offsetX / canvas.clientWidth) * columns)));
  for (const event of ["pointerleave", "blur"]) canvas.addEventListener(event, () => read(null));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    at((cell?.[0] ?? 0) + move[0], (cell?.[1] ?? 0) + move[1]);
  });
  canvas.repaint();
  return canvas;
}
// The colours from one end of a range to the other, between what stands for the ends.
function rangeBar(kind, range, said) {
  const [low, high] = kind === "gradient" ? [-1, 1].map((sign) => sign * Math.max(...range.map(Math.abs))) : range;
  const bar = el("span.bar.paints", { "aria-hidden": true });
  bar.repaint = () => {
    const paint = painter(kind, [low, high]);
    bar.style.background = `linear-gradient(90deg, ${count(9).map((i) => paint(low + ((high - low) * i) / 8)).join(",")})`;
  };
  bar.repaint();
  return el("span.ends", said ? said[0] : digits(low), bar, said ? said[1] : digits(high));
}

/* A card: a name, the shape, a heat map with a pager over its matrices, and what is pointed at. */
function card(index, caption, stat, inWords, id) {
  const array = arrays[index];
  if (!array) return null;
  const kind = stat === "value" ? "value" : "gradient";
  const { shape, rows, columns, matrices, pool, said } = array;
  const all = shape.slice(0, -2).reduce((a, b) => a * b, 1);
  const reading = el("p.reading", { "aria-live": "polite" });
  const [place, which] = [el("div.cells"), el("span.which")];
  const isZero = (m) => count(rows * columns).every((k) => cellOf(array, m, 0, k) === 0);
  let matrix = Math.max(0, count(matrices).findIndex((m) => !isZero(m)));
  const say = (i, j, x) => {
    reading.textContent = i === null ? "" : `[${indexOf(array, matrix, i, j).join(", ")}]${pool[0] * pool[1] > 1 ? " …" : ""}  ${digits(x, 4)}`;
  };
  const label = `${stat}, ${shape.join(" by ") || "scalar"}, from ${said[0]} to ${said[1]}; arrow keys read entries`;
  const turn = (by) => {
    matrix = (matrix + by + matrices) % matrices;
    place.replaceChildren(heatMap(array, { matrix, kind, say, width: 250, height: 150, label }));
    which.textContent = matrices > 1 ? `[${indexOf(array, matrix, 0, 0).slice(0, -2).join(", ")}]` : "";
  };
  if (rows * columns * matrices) turn(0);
  const pager = matrices > 1 && el("span.pager", button("‹", () => turn(-1), { "aria-label": "previous matrix" }), which, button("›", () => turn(1), { "aria-label": "next matrix" }));
  const notes = [
    pool[0] * pool[1] > 1 && `a cell is the largest of ${pool[0]}×${pool[1]} entries`,
    matrices < all && `${matrices} of ${all} matrices, first those that are not zero`,
  ].filter(Boolean);
  const one = array.shape.reduce((a, b) => a * b, 1) === 1;
  return el(`figure.heat.${kind}`, { "data-kind": stat, "data-entry": id },
    el("figcaption", el("strong", caption), el("span.muted", shape.join("×") || "scalar"), pager),
    one ? el("p.single", digits(cellOf(array, 0, 0, 0), 4)) : place,
    !one && el("div.range", rangeBar(kind, array.ends, kind === "value" && said), inWords && el("span.muted", `rms ${inWords}`)),
    reading,
    notes.length > 0 && el("p.note", notes.join("; ")));
}
