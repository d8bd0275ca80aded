// ---------------------------------------------------------------- a card: an array as heatmap, its range in words, its numbers as text

function sentence(name, array, stat) {
  const shape = array.shape.length ? array.shape.join(" by ") : "scalar";
  return `${name}: ${stat}, ${shape}, minimum ${digits(array.min)}, maximum ${digits(array.max)}, rms ${digits(array.rms)}`;
}

// A card: name, heatmap, range, and the numbers as text. `stat` is "value", "gradient" or "sent".
function heatCard(index, name, stat, properties = {}) {
  const array = arrays[index];
  const kind = stat === "value" ? "value" : "gradient";
  const reading = el("p.reading", { "aria-live": "polite" });
  const place = el("div.cells");
  const several = array.matrices > 1;
  const all = array.shape.slice(0, -2).reduce((a, b) => a * b, 1);
  const leading = (matrix) => {
    const found = [];
    for (const n of array.shape.slice(0, -2).reverse()) {
      found.unshift(matrix % n);
      matrix = Math.floor(matrix / n);
    }
    return found;
  };
  const pooled = array.pool[0] * array.pool[1] > 1;
  let matrix = 0;
  function show() {
    const say = (i, j, x) => {
      const own = [
        ...leading(matrix),
        ...(array.shape.length > 1
          ? [i * array.pool[0], j * array.pool[1]]
          : array.shape.length ? [j * array.pool[1]] : []),
      ];
      reading.textContent = i === null ? "" : `[${own.join(", ")}]${pooled ? " …" : ""}  ${digits(x)}`;
    };
    place.replaceChildren(
      drawn(array, {
        matrix,
        kind,
        say,
        width: properties.width || 280,
        height: properties.height || 150,
        label: sentence(name, array, stat),
      }),
    );
    if (several) which.textContent = `[${leading(matrix).join(", ")}]`;
  }
  const which = el("span.which");
  const turn = (by) => () => {
    matrix = (matrix + by + array.matrices) % array.matrices;
    show();
  };
  const pager =
    several &&
    el("span.pager",
      button("‹", turn(-1), { "aria-label": "previous matrix" }),
      which,
      button("›", turn(1), { "aria-label": "next matrix" }),
    );
  const notes = [];
  if (pooled)
    notes.push(`pooled: a cell is the largest in size of ${array.pool[0]}×${array.pool[1]} entries`);
  if (0 < array.matrices && array.matrices < all)
    notes.push(`the first ${array.matrices} of ${all} matrices`);
  const empty = array.rows * array.columns * array.matrices === 0;
  const leftOut = array.shape.every((n) => n > 0);
  if (!empty) show();
  return el(`figure.heat.${kind}`, { "data-kind": stat, "data-name": name },
    el("figcaption",
      el("strong", properties.caption || name),
      el("span.shape", array.shape.join("×") || "scalar"),
      pager,
    ),
    empty ? el("p.note", leftOut ? "its cells are not in this file" : "no entries") : place,
    reading,
    el("div.range",
      scaleBar(kind, array),
      el("span", "rms ", number(`${stat}-rms`, array.rms)),
    ),
    notes.length > 0 && el("p.note", notes.join("; ")),
    !empty && asText(array, () => matrix),
  );
}
function scaleBar(kind, array) {
  const ends = [number("min", array.min, digits(array.min, 3)), number("max", array.max, digits(array.max, 3))];
  return rangeBar(kind, ...rangeOf(array), ...ends);
}
// The colours from one end of a range to the other, between what stands for the ends.
function rangeBar(kind, low, high, atLow, atHigh) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  const [from, to] = kind === "gradient" ? [-size, size] : [low, high];
  const bar = el("span.bar.paints", { "aria-hidden": true });
  bar.repaint = () => {
    const stops = count(9).map((i) => colourOf(from + ((to - from) * i) / 8, kind, low, high));
    bar.style.background = `linear-gradient(90deg, ${stops.join(",")})`;
  };
  bar.repaint();
  return el("span.ends", atLow, bar, atHigh);
}
// The first rows and columns as a table, for those who read rather than look.
function asText(array, matrix) {
  const details = el("details.as-text", el("summary", "as text"));
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    const [rows, columns] = [Math.min(array.rows, 16), Math.min(array.columns, 12)];
    const line = (i) =>
      el("tr", Array.from({ length: columns }, (_, j) => el("td", digits(cellOf(array, matrix(), i, j)))));
    const table = el("div.scroll", el("table", Array.from({ length: rows }, (_, i) => line(i))));
    const cut =
      (rows < array.rows || columns < array.columns) &&
      el("p.note", `first ${rows} rows, ${columns} columns`);
    details.replaceChildren(details.firstChild, table, ...(cut ? [cut] : []));
  });
  return details;
}
