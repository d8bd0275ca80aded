// ---------------------------------------------------------------- one head, large

const LETTER = 6.5; // pixels that one takes in the name of a token

// A heatmap with its tokens: queries down, keys across.
function gridOf(one, drawing, options) {
  const { queries, keys } = one;
  const canvas = drawn(drawing.array, {
    ...options,
    matrix: one.matrix,
    kind: drawing.kind,
    low: drawing.range[0],
    high: drawing.range[1],
    masked: one.masked,
    width: options.size,
    height: options.size,
    largest: 40,
  });
  const [w, h] = [
    parseFloat(canvas.style.width),
    (parseFloat(canvas.style.width) * canvas.height) / canvas.width,
  ];
  const every = (n, length) => Math.max(1, Math.ceil((n * 11) / length));
  const labels = (names, length, upright) =>
    names.map((name, i) => {
      if (i % every(names.length, length)) return null;
      const label = el("span", { title: name }, short(name, 9));
      label.style[upright ? "left" : "top"] = `${((i + 0.5) * length) / names.length}px`;
      return label;
    });
  const long = Math.max(...keys.map((name) => short(name, 9).length)) * LETTER > w / keys.length - 3;
  const across = el(`div.tokens.across.${long ? "slanted" : ""}`, { "aria-hidden": true },
    labels(keys, w, true),
  );
  const down = el("div.tokens.down", { "aria-hidden": true }, labels(queries, h, false));
  across.style.width = `${w}px`;
  down.style.height = `${h}px`;
  return { canvas, block: el("div.axes", el("span"), across, down, canvas) };
}

function headCard(one) {
  const reading = el("p.reading", { "aria-live": "polite" }, " ");
  const canvases = [];
  const pool = (one.value || { pool: [1, 1] }).pool;
  const exact = pool[0] * pool[1] === 1;
  const say = (row, column) => {
    canvases.forEach((canvas) => canvas.mark(row, column));
    if (row === null) {
      reading.textContent = " ";
      return;
    }
    const pair = `“${one.queries[row * pool[0]]}” looks at “${one.keys[column * pool[1]]}”${exact ? "" : " and neighbours"}`;
    const back = one.gradient ? `, ∂L/∂A = ${digits(cellOf(one.gradient, one.matrix, row, column), 3)}` : "";
    reading.textContent = `${pair}: ${one.masked(row, column) ? "masked" : `A = ${digits(cellOf(one.value, one.matrix, row, column), 3)}`}${back}`;
  };
  const size = Math.max(120, Math.min(230, (byId("panel").clientWidth - 112) / 2 - 64)); // both side by side
  const map = (drawing) => {
    const label = `${drawing.name} of head ${one.name}, ${one.queries.length} queries by ${one.keys.length} keys, from ${digits(drawing.range[0])} to ${digits(drawing.range[1])}; arrow keys read pairs`;
    const grid = gridOf(one, drawing, { size, say, label });
    canvases.push(grid.canvas);
    return el("figure.attention-map", { "data-kind": drawing.kind },
      el("figcaption",
        inlineMath(drawing.kind === "value" ? ml("mi", "A") : gradientBy(ml("mi", "A"))),
        signedBar(drawing),
      ),
      grid.block,
    );
  };
  const node = nodes[one.attention.node];
  return el("article.attention-head", { "data-head": one.head, "data-of": node.id },
    el("header",
      el("h3", `${one.attention.label}, head ${one.name}`),
      el("span", "entropy ", number("entropy", one.entropy, digits(one.entropy, 3)), " nats"),
      one.norm !== null && el("span", "‖∂L/∂A‖ ", number("norm", one.norm, digits(one.norm, 3))),
    ),
    tokenLines(one),
    el("div.pair", drawingsOf(one).map(map)),
    reading,
    !one.value && el("p.note", "The cells of this head are not in this file."),
    !exact && el("p.note", `pooled: a cell is the largest in size of ${pool[0]}×${pool[1]} entries`),
    node.gradient === undefined && el("p.note", `no gradient: ${node.why}`),
  );
}
// Of a gradient the bar is symmetric, and so are its ends.
function signedBar({ kind, range }) {
  const size = Math.max(...range.map(Math.abs));
  const ends = kind === "gradient" ? [-size, size] : range;
  return rangeBar(kind, ...range, ...ends.map((x) => digits(x, 2)));
}
