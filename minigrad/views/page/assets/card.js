// ---------------------------------------------------------------- a card: an array as heatmap, its range in words, its numbers as text

// A card: name, heatmap, range, and the numbers as text. `stat` is "value", "gradient" or "sent".
function heatCard(index, name, stat, caption) {
  const array = arrays[index];
  const { shape, rows, columns, matrices, pool } = array;
  const kind = stat === "value" ? "value" : "gradient";
  const all = shape.slice(0, -2).reduce((a, b) => a * b, 1);
  const pooled = pool[0] * pool[1] > 1;
  const empty = rows * columns * matrices === 0;
  const ends = `minimum ${digits(array.min)}, maximum ${digits(array.max)}, rms ${digits(array.rms)}`;
  const label = `${name}: ${stat}, ${shape.length ? shape.join(" by ") : "scalar"}, ${ends}`;
  const reading = el("p.reading", { "aria-live": "polite" });
  const place = el("div.cells");
  const which = el("span.which");
  let matrix = 0;
  const say = (i, j, x) => {
    const at = shape.length > 0 && `[${indexOf(array, matrix, i, j).join(", ")}]${pooled ? " …" : ""}`;
    reading.textContent = i === null ? "" : [at, digits(x)].filter(Boolean).join("  ");
  };
  function show() {
    place.replaceChildren(drawn(array, { matrix, kind, say, width: 280, height: 150, label }));
    which.textContent = `[${indexOf(array, matrix, 0, 0).slice(0, -2).join(", ")}]`;
  }
  const turn = (by) => {
    matrix = (matrix + by + matrices) % matrices;
    show();
  };
  if (!empty) show();
  const notes = [
    pooled && `pooled: a cell is the largest in size of ${pool[0]}×${pool[1]} entries`,
    0 < matrices && matrices < all && `the first ${matrices} of ${all} matrices`,
  ].filter(Boolean);
  return el(`figure.heat.${kind}`, { "data-kind": stat, "data-name": name },
    el("figcaption",
      el("strong", caption),
      el("span.shape", shape.join("×") || "scalar"),
      matrices > 1 && pager(turn, which, "matrix"),
    ),
    empty ? el("p.note", shape.every((n) => n > 0) ? "its cells are not in this file" : "no entries") : place,
    reading,
    el("div.range",
      rangeBar(kind, rangeOf(array), ...["min", "max"].map((end) => number(end, array[end], digits(array[end], 3)))),
      el("span", "rms ", number(`${stat}-rms`, array.rms)),
    ),
    notes.length > 0 && el("p.note", notes.join("; ")),
    !empty && asText(array, () => matrix),
  );
}
// The first rows and columns as a table, for those who read rather than look.
function asText(array, matrix) {
  const [rows, columns] = [Math.min(array.rows, 16), Math.min(array.columns, 12)];
  const line = (i) => el("tr", count(columns).map((j) => el("td", digits(cellOf(array, matrix(), i, j)))));
  const cut = rows < array.rows || columns < array.columns;
  const details = el("details.as-text", el("summary", "as text"));
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    const table = el("div.scroll", el("table", count(rows).map(line)));
    details.replaceChildren(details.firstChild, table, cut ? el("p.note", `first ${rows} rows, ${columns} columns`) : "");
  });
  return details;
}
