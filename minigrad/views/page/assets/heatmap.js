// ---------------------------------------------------------------- heatmaps: a matrix as cells in colours

// What page.css calls a colour in the theme at hand; of --below, --above and --values, three from the middle outwards.
const colours = {};
function colour(name) {
  const html = document.documentElement;
  return (colours[html.dataset.theme + name] ??= getComputedStyle(html).getPropertyValue(`--${name}`).trim());
}
const SHADES = 120; // of a ramp, each made once
const shades = {};
function shadesOf(stops) {
  const [from, middle, to] = stops.split(" ").map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const mixed = (one, other, part) => `rgb(${one.map((x, c) => Math.round(x + (other[c] - x) * part)).join(",")})`;
  return count(SHADES + 1).map((k) => {
    const place = (2 * k) / SHADES;
    return place < 1 ? mixed(from, middle, place) : mixed(middle, to, place - 1);
  });
}
// Gradients diverge from zero, values run from their least to their greatest.
function colourOf(x, kind, [low, high]) {
  if (!Number.isFinite(x)) return colour("alarm");
  const signed = kind === "gradient";
  const stops = colour(signed ? (x < 0 ? "below" : "above") : "values");
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
  const part = signed ? Math.abs(x) / size : high > low ? (x - low) / (high - low) : 0.5;
  return (shades[stops] ??= shadesOf(stops))[Math.round(Math.min(1, Math.max(0, part)) * SHADES)];
}
// The range of what is finite: the least and the largest of an array may be infinite, where a mask is.
const rangeOf = ({ range, min, max }) => range || [min ?? 0, max ?? 0];
// The colours from one end of a range to the other, between what stands for the ends.
function rangeBar(kind, [from, to], atLow, atHigh) {
  const bar = el("span.bar.paints", { "aria-hidden": true });
  bar.repaint = () => {
    const stops = count(9).map((i) => colourOf(from + ((to - from) * i) / 8, kind, [from, to]));
    bar.style.background = `linear-gradient(90deg, ${stops.join(",")})`;
  };
  bar.repaint();
  return el("span.ends", atLow, bar, atHigh);
}

/* Paints a matrix on a canvas, a cell `wide` by `tall` pixels. Where a mask forbids looking nothing is painted, and the
   hatching that page.css has behind the canvas is seen. */
function paintCells(canvas, array, { matrix, kind, range, masked }, wide, tall, gap) {
  const pen = canvas.getContext("2d");
  pen.fillStyle = colour("panel");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < array.rows; i++)
    for (let j = 0; j < array.columns; j++) {
      const x = cellOf(array, matrix, i, j);
      const [left, top] = [Math.round(j * wide), Math.round(i * tall)];
      const place = [left, top, Math.round((j + 1) * wide) - left - gap, Math.round((i + 1) * tall) - top - gap];
      pen.fillStyle = colourOf(x, kind, range);
      if (masked ? masked(i, j) : x === -Infinity) pen.clearRect(...place);
      else pen.fillRect(...place);
    }
}

/* A matrix on a canvas that reads itself out: pointer or arrow keys choose a cell, `say` hears of it.
   options: matrix, kind, range, masked(row, column), width, height and largest (at most), label, say(row, column, x) */
function drawn(array, options) {
  const { width, height, largest = 22, label, say, ...how } = { matrix: 0, range: rangeOf(array), ...options };
  const { rows, columns } = array;
  const size = Math.max(1.5, Math.min(largest, width / columns, height / rows));
  const [across, tall] = [columns, rows].map((n) => (n === 1 ? Math.max(size, 14) : size));
  const scale = Math.max(1, window.devicePixelRatio || 1);
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label });
  canvas.style.width = `${across * columns}px`;
  canvas.style.aspectRatio = `${across * columns} / ${tall * rows}`; // page.css narrows it where there is less room
  canvas.width = Math.round(across * columns * scale);
  canvas.height = Math.round(tall * rows * scale);
  const [wide, high] = [across * scale, tall * scale];
  const gap = across > 7 && tall > 7 ? scale : 0;
  let cell = null;

  canvas.repaint = () => {
    paintCells(canvas, array, how, wide, high, gap);
    if (!cell) return;
    const pen = canvas.getContext("2d");
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5 * scale;
    pen.strokeRect(cell[1] * wide, cell[0] * high, wide - gap, high - gap);
  };
  canvas.mark = (row, column) => {
    cell = row === null ? null : [row, column];
    canvas.repaint();
  };
  function read(row, column) {
    canvas.mark(row, column);
    canvas.dataset.cell = cell ? [how.matrix, row, column] : "";
    say(row, column, cell && cellOf(array, how.matrix, row, column));
  }
  const inside = (i, j) => read(clamp(i, 0, rows - 1), clamp(j, 0, columns - 1));
  const move = (down, right) => () => inside((cell?.[0] ?? 0) + down, (cell?.[1] ?? 0) + right);
  onKeys(canvas, { ArrowLeft: move(0, -1), ArrowRight: move(0, 1), ArrowUp: move(-1, 0), ArrowDown: move(1, 0) });
  const events = {
    pointermove: ({ offsetX, offsetY }) =>
      inside(Math.floor((offsetY / canvas.clientHeight) * rows), Math.floor((offsetX / canvas.clientWidth) * columns)),
    pointerleave: () => read(null),
    mousedown: (event) => event.preventDefault(), // a click leaves the keys to the stepper
    blur: () => read(null),
    focus: () => canvas.matches(":focus-visible") && read(0, 0),
  };
  for (const [name, f] of Object.entries(events)) canvas.addEventListener(name, f);
  canvas.repaint();
  return canvas;
}
