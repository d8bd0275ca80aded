// ---------------------------------------------------------------- heatmaps: a matrix as cells

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
    const pen = canvas.getContext("2d");
    const ramp = ramps();
    pen.clearRect(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) {
        const x = cellOf(array, matrix, i, j);
        const [left, top] = [Math.round(j * across * scale), Math.round(i * tall * scale)];
        const [w, h] = [
          Math.round((j + 1) * across * scale) - left - gap,
          Math.round((i + 1) * tall * scale) - top - gap,
        ];
        const hole = masked ? masked(i, j) : x === -Infinity;
        pen.fillStyle = hole ? ramp.hole : Number.isFinite(x) ? colourOf(x, kind, low, high) : ramp.alarm;
        pen.fillRect(left, top, w, h);
        if (hole) hatch(pen, left, top, w, h, ramp.hatch, scale);
      }
    if (cell) {
      pen.strokeStyle = ramp.mark;
      pen.lineWidth = 1.5 * scale;
      pen.strokeRect(
        cell[1] * across * scale,
        cell[0] * tall * scale,
        across * scale - gap,
        tall * scale - gap,
      );
    }
  }
  let cell = null;
  function read(row, column) {
    cell = row === null ? null : [row, column];
    canvas.dataset.cell = cell ? [matrix, row, column] : "";
    paint();
    if (say) say(row, column, row === null ? undefined : cellOf(array, matrix, row, column));
  }
  const at = (event) => [
    Math.min(rows - 1, Math.floor((event.offsetY / canvas.clientHeight) * rows)),
    Math.min(columns - 1, Math.floor((event.offsetX / canvas.clientWidth) * columns)),
  ];
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
  canvas.mark = (row, column) => {
    cell = row === null ? null : [row, column];
    paint();
  };
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
  const gap = 4.5 * scale;
  const first = Math.floor((left - top - h) / gap) * gap; // lines run on from cell to cell
  pen.beginPath();
  for (let x = first; x < left + w - top + h + gap; x += gap) {
    pen.moveTo(x + top, top);
    pen.lineTo(x + top + h, top + h);
  }
  pen.stroke();
  pen.restore();
}
