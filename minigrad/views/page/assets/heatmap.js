// ---------------------------------------------------------------- heatmaps: a matrix as cells, its range in words

// Stops from the middle outwards; gradients diverge from zero, values run from their least to their greatest.
const RAMPS = {
  light: { below: ["#f3f2ee", "#86b3d9", "#174f8a"], above: ["#f3f2ee", "#eda36f", "#9c3a05"], value: ["#f5f4f9", "#9d93cd", "#36266f"], hatch: "#8a8f99", hole: "#eceef1", alarm: "#b3261e", mark: "#111" },
  dark: { below: ["#20252d", "#3f81b9", "#b3dafa"], above: ["#20252d", "#c06a31", "#ffd3a6"], value: ["#20222c", "#6a5db1", "#ddd7ff"], hatch: "#6b7482", hole: "#191d24", alarm: "#ff8a80", mark: "#fff" },
};
const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const SHADES = 120; // of a ramp, each made once
const shades = new Map();
function between(stops, t) {
  if (!shades.has(stops)) {
    shades.set(stops, count(SHADES + 1).map((k) => {
      const place = (k / SHADES) * (stops.length - 1), i = Math.min(stops.length - 2, Math.floor(place));
      const [a, b] = [channels(stops[i]), channels(stops[i + 1])];
      return `rgb(${a.map((x, c) => Math.round(x + (b[c] - x) * (place - i))).join(",")})`;
    }));
  }
  return shades.get(stops)[Math.round(Math.min(1, Math.max(0, t)) * SHADES)];
}
const ramps = () => RAMPS[document.documentElement.dataset.theme];
function colourOf(x, kind, low, high) {
  const ramp = ramps();
  if (kind === "gradient") {
    const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return between(x < 0 ? ramp.below : ramp.above, Math.abs(x) / size);
  }
  return between(ramp.value, high > low ? (x - low) / (high - low) : 0.5);
}
const finite = (x, otherwise) => (typeof x === "number" && Number.isFinite(x) ? x : otherwise);

// The range of what is finite: min and max of a record may be infinite, where a mask is.
function rangeOf(array) {
  if (array.range) return array.range;
  let [low, high] = [finite(array.min, Infinity), finite(array.max, -Infinity)];
  if (!Number.isFinite(low) || !Number.isFinite(high)) {
    for (const cell of cellsOf(array)) {
      const x = cell * (array.scale || 1);
      if (Number.isFinite(x)) [low, high] = [Math.min(low, x), Math.max(high, x)];
    }
  }
  return (array.range = low <= high ? [low, high] : [0, 0]);
}

// The same of one matrix alone, as far as its cells tell.
function matrixRange(array, matrix) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < array.rows; i++) for (let j = 0; j < array.columns; j++) {
    const x = cellOf(array, matrix, i, j);
    if (Number.isFinite(x)) [low, high] = [Math.min(low, x), Math.max(high, x)];
  }
  return low <= high ? [low, high] : [0, 0];
}

/* Draws one matrix on a canvas that reads itself out: pointer or arrow keys choose a cell, `say` hears of it.
   options: matrix, kind, low, high, width, height (at most), masked(row, column), label, say(row, column, x) */
function drawn(array, options) {
  const { matrix = 0, kind, width = 260, height = 200, masked, say } = options;
  const [low, high] = options.low === undefined ? rangeOf(array) : [options.low, options.high];
  const { rows, columns } = array;
  const size = Math.max(1.5, Math.min(options.largest || 22, width / columns, height / rows));
  const tall = rows === 1 ? Math.max(size, 14) : size;
  const across = Math.max(size, Math.min(options.largest || 22, columns === 1 ? 14 : size));
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": options.label });
  const scale = Math.max(1, window.devicePixelRatio || 1);
  canvas.style.width = `${across * columns}px`;
  canvas.style.aspectRatio = `${across * columns} / ${tall * rows}`; // page.css narrows it where there is less room
  canvas.width = Math.round(across * columns * scale);
  canvas.height = Math.round(tall * rows * scale);
  const gap = across > 7 && tall > 7 ? scale : 0;

  function paint() {
    const pen = canvas.getContext("2d"), ramp = ramps();
    pen.clearRect(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
      const x = cellOf(array, matrix, i, j);
      const [left, top] = [Math.round(j * across * scale), Math.round(i * tall * scale)];
      const [w, h] = [Math.round((j + 1) * across * scale) - left - gap, Math.round((i + 1) * tall * scale) - top - gap];
      const hole = masked ? masked(i, j) : x === -Infinity;
      pen.fillStyle = hole ? ramp.hole : Number.isFinite(x) ? colourOf(x, kind, low, high) : ramp.alarm;
      pen.fillRect(left, top, w, h);
      if (hole) hatch(pen, left, top, w, h, ramp.hatch, scale);
    }
    if (cell) {
      pen.strokeStyle = ramp.mark;
      pen.lineWidth = 1.5 * scale;
      pen.strokeRect(cell[1] * across * scale, cell[0] * tall * scale, across * scale - gap, tall * scale - gap);
    }
  }
  let cell = null;
  function read(row, column) {
    cell = row === null ? null : [row, column];
    paint();
    if (say) say(row, column, row === null ? undefined : cellOf(array, matrix, row, column));
  }
  const at = (event) => [Math.min(rows - 1, Math.floor((event.offsetY / canvas.clientHeight) * rows)), Math.min(columns - 1, Math.floor((event.offsetX / canvas.clientWidth) * columns))];
  canvas.addEventListener("pointermove", (event) => read(...at(event).map((n) => Math.max(0, n))));
  canvas.addEventListener("pointerleave", () => read(null));
  canvas.addEventListener("mousedown", (event) => event.preventDefault()); // a click leaves the keys to the stepper
  canvas.addEventListener("blur", () => read(null));
  canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && read(0, 0));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    const [i, j] = cell || [0, 0];
    read(Math.min(rows - 1, Math.max(0, i + move[0])), Math.min(columns - 1, Math.max(0, j + move[1])));
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.mark = (row, column) => { cell = row === null ? null : [row, column]; paint(); };
  canvas.repaint = paint;
  paint();
  return canvas;
}
function hatch(pen, left, top, w, h, colour, scale) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, w, h);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 0.8 * scale;
  const gap = 4.5 * scale, first = Math.floor((left - top - h) / gap) * gap; // lines run on from cell to cell
  pen.beginPath();
  for (let x = first; x < left + w - top + h + gap; x += gap) {
    pen.moveTo(x + top, top);
    pen.lineTo(x + top + h, top + h);
  }
  pen.stroke();
  pen.restore();
}

function sentence(name, array, stat) {
  const shape = array.shape.length ? array.shape.join(" by ") : "scalar";
  return `${name}: ${stat}, ${shape}, minimum ${digits(array.min)}, maximum ${digits(array.max)}, rms ${digits(array.rms)}`;
}

// A card: name, heatmap, range, and the numbers as text. `stat` is "value", "gradient" or "sent".
function heatCard(index, name, stat, properties = {}) {
  const array = arrays[index], kind = stat === "value" ? "value" : "gradient";
  const reading = el("p", { class: "reading", "aria-live": "polite" }), place = el("div", { class: "cells" });
  const several = array.matrices > 1, all = array.shape.slice(0, -2).reduce((a, b) => a * b, 1);
  const leading = (matrix) => {
    const found = [];
    for (const n of array.shape.slice(0, -2).reverse()) { found.unshift(matrix % n); matrix = Math.floor(matrix / n); }
    return found;
  };
  const pooled = array.pool[0] * array.pool[1] > 1;
  let matrix = 0;
  function show() {
    const say = (i, j, x) => {
      const own = [...leading(matrix), ...(array.shape.length > 1 ? [i * array.pool[0], j * array.pool[1]] : array.shape.length ? [j * array.pool[1]] : [])];
      reading.textContent = i === null ? "" : `[${own.join(", ")}]${pooled ? " …" : ""}  ${digits(x)}`;
    };
    place.replaceChildren(drawn(array, { matrix, kind, say, width: properties.width || 280, height: properties.height || 150, label: sentence(name, array, stat) }));
    if (several) which.textContent = `[${leading(matrix).join(", ")}]`;
  }
  const which = el("span", { class: "which" });
  const turn = (by) => () => { matrix = (matrix + by + array.matrices) % array.matrices; show(); };
  const pager = several && el("span", { class: "pager" }, button("‹", turn(-1), { "aria-label": "previous matrix" }), which, button("›", turn(1), { "aria-label": "next matrix" }));
  const notes = [];
  if (pooled) notes.push(`pooled: a cell is the largest in size of ${array.pool[0]}×${array.pool[1]} entries`);
  if (0 < array.matrices && array.matrices < all) notes.push(`the first ${array.matrices} of ${all} matrices`);
  const empty = array.rows * array.columns * array.matrices === 0, leftOut = record.kept === "none" && array.rms !== 0;
  if (!empty) show();
  return el("figure", { class: `heat ${kind}`, "data-kind": stat, "data-name": name },
    el("figcaption", {}, el("strong", {}, properties.caption || name), el("span", { class: "shape" }, array.shape.join("×") || "scalar"), pager),
    empty ? el("p", { class: "note" }, leftOut ? "its cells are not in this file" : "no entries") : place, reading,
    el("div", { class: "range" }, scaleBar(kind, array), el("span", {}, "rms ", number(`${stat}-rms`, array.rms))),
    notes.length > 0 && el("p", { class: "note" }, notes.join("; ")),
    !empty && asText(array, () => matrix));
}
function scaleBar(kind, array) {
  const [low, high] = rangeOf(array), size = Math.max(Math.abs(low), Math.abs(high));
  const ends = kind === "gradient" ? [-size, size] : [low, high];
  const stops = Array.from({ length: 9 }, (_, i) => ends[0] + ((ends[1] - ends[0]) * i) / 8);
  const bar = el("span", { class: "bar", "aria-hidden": true });
  bar.repaint = () => { bar.style.background = `linear-gradient(90deg, ${stops.map((x) => colourOf(x, kind, low, high)).join(",")})`; };
  bar.repaint();
  bar.classList.add("paints");
  return el("span", { class: "ends" }, number("min", array.min, digits(array.min, 3)), bar, number("max", array.max, digits(array.max, 3)));
}
// The first rows and columns as a table, for those who read rather than look.
function asText(array, matrix) {
  const details = el("details", { class: "as-text" }, el("summary", {}, "as text"));
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    const [rows, columns] = [Math.min(array.rows, 16), Math.min(array.columns, 12)];
    const line = (i) => el("tr", {}, Array.from({ length: columns }, (_, j) => el("td", {}, digits(cellOf(array, matrix(), i, j)))));
    const table = el("div", { class: "scroll" }, el("table", {}, Array.from({ length: rows }, (_, i) => line(i))));
    const cut = (rows < array.rows || columns < array.columns) && el("p", { class: "note" }, `first ${rows} rows, ${columns} columns`);
    details.replaceChildren(details.firstChild, table, ...(cut ? [cut] : []));
  });
  return details;
}
