// ---------------------------------------------------------------- attention: every head of every layer, then one of them
/* A and ∂L/∂A of each head stand in a grid of layers by heads, each in its own range: a weak head is as clear as a
   strong one, and the size of its gradient stands below it. The head that is chosen is shown large: lines from query to
   key, and the two matrices. */

const chosen = { layer: 0, head: 0, batch: 0 };

function tokensOf(batch, length) {
  const row = record.tokens && (record.tokens[batch] || record.tokens[0]);
  return row && row.length === length ? row : count(length).map(String);
}
// Of a pooled cell, whether all of it is masked.
function maskedCells({ masks, masked, value, queries, keys }, matrix) {
  if (!masks) return () => false;
  const bytes = bytesOf(masks[masked[matrix]]);
  const [tall, wide] = arrays[value].pool;
  const one = (i, j) => (bytes[(i * keys + j) >> 3] >> (7 - ((i * keys + j) & 7))) & 1;
  const covered = (k, size, most) => count(Math.min(size, most - k * size)).map((i) => k * size + i);
  return (row, column) =>
    covered(row, tall, queries).every((i) => covered(column, wide, keys).every((j) => one(i, j)));
}

/* One head of one entry of the batch, and the drawings of it: of what the file has cells of. */
function headOf(layer, head, batch) {
  const attention = record.attention[layer];
  const matrix = batch * attention.heads + head;
  const masked = maskedCells(attention, matrix);
  const { value, gradient, ranges, norm } = attention;
  const kept = (index) => index !== null && matrix < arrays[index].matrices;
  const drawing = (index, kind, sign, name, range) =>
    kept(index) && { array: arrays[index], matrix, masked, kind, sign, name, range };
  return {
    attention,
    layer,
    head,
    name: `${attention.label}, head ${head}`,
    pool: kept(value) ? arrays[value].pool : [1, 1],
    queries: tokensOf(batch, attention.queries),
    keys: tokensOf(batch, attention.keys),
    masked,
    entropy: attention.entropy[matrix],
    norm: norm && norm[matrix],
    drawings: [
      drawing(value, "value", "A", "attention weights", [0, ranges[0][matrix][1]]),
      drawing(gradient, "gradient", "∂L/∂A", "gradient of the attention weights", ranges[1][matrix]),
    ].filter(Boolean),
  };
}

// ---------------------------------------------------------------- the grid of layers and heads

function thumbnail(one, size) {
  const { layer, head, norm } = one;
  const said = `${one.name}: entropy ${digits(one.entropy, 3)} nats${norm === null ? "" : `, norm of its gradient ${brief(norm)}`}`;
  const pick = () => {
    Object.assign(chosen, { layer, head });
    renderPanel();
  };
  const maps = one.drawings.map((drawing) => smallMap(drawing, size));
  return button([maps, norm !== null && el("span.norm", brief(norm))], pick, {
    class: "thumbnail",
    "aria-pressed": String(layer === chosen.layer && head === chosen.head),
    "data-layer": layer,
    "data-head": head,
    "aria-label": said,
    title: said,
  });
}
// A matrix with one pixel a cell, stretched.
function smallMap(drawing, size) {
  const { array } = drawing;
  const canvas = el("canvas.paints", { width: array.columns, height: array.rows });
  canvas.style.width = canvas.style.height = `${size}px`;
  canvas.repaint = () => paintCells(canvas, array, drawing, 1, 1, 0);
  canvas.repaint();
  return canvas;
}
const batchesOf = (attention) => Math.max(1, attention.entropy.length / attention.heads);
function headGrid(batch) {
  const most = Math.max(...record.attention.map((one) => one.heads));
  const width = (byId("panel").clientWidth - 150) / most;
  const beside = width > 96; // A and its gradient side by side
  const size = clamp(Math.floor((width - 10) / (beside ? 2 : 1)), 20, 56);
  const row = (attention, layer) => {
    const heads = count(attention.heads).map((head) => headOf(layer, head, Math.min(batch, batchesOf(attention) - 1)));
    return el("tr",
      el("th", { scope: "row", title: nodes[attention.node].scope }, short(attention.label, 14)),
      heads.map((one) => el("td", thumbnail(one, size))),
    );
  };
  const caption = `Layers by heads: A, ∂L/∂A ${beside ? "beside" : "below"} it, and ‖∂L/∂A‖; each in its own range.`;
  return el(`div.head-grid.${beside ? "beside" : ""}`,
    el("table",
      el("caption", caption),
      el("thead", el("tr", el("td"), count(most).map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", record.attention.map(row)),
    ),
  );
}

// ---------------------------------------------------------------- one head, large

// A heatmap with its tokens: queries down, keys across.
function withTokens(canvas, { queries, keys }) {
  const wide = parseFloat(canvas.style.width);
  const high = (wide * canvas.height) / canvas.width;
  const labels = (names, length, side) => {
    const every = Math.max(1, Math.ceil((names.length * 11) / length));
    return names.map((name, i) => {
      const label = el("span", { title: name }, short(name, 9));
      label.style[side] = `${((i + 0.5) * length) / names.length}px`;
      return i % every === 0 && label;
    });
  };
  const long = Math.max(...keys.map((name) => short(name, 9).length)) * 6.5 > wide / keys.length - 3; // pixels of a letter
  const across = el(`div.tokens.across.${long ? "slanted" : ""}`, { "aria-hidden": true }, labels(keys, wide, "left"));
  const down = el("div.tokens.down", { "aria-hidden": true }, labels(queries, high, "top"));
  across.style.width = `${wide}px`;
  down.style.height = `${high}px`;
  return el("div.axes", el("span"), across, down, canvas);
}
function headCard(one) {
  const { attention, queries, keys, pool, drawings } = one;
  const [tall, wide] = pool;
  const pooled = tall * wide > 1;
  const reading = el("p.reading", { "aria-live": "polite" }, " ");
  const canvases = [];
  const say = (row, column) => {
    canvases.forEach((canvas) => canvas.mark(row, column));
    if (row === null) {
      reading.textContent = " ";
      return;
    }
    const figures = drawings.map(({ array, matrix, kind, sign }) =>
      kind === "value" && one.masked(row, column) ? "masked" : `${sign} = ${digits(cellOf(array, matrix, row, column), 3)}`);
    reading.textContent = `“${queries[row * tall]}” looks at “${keys[column * wide]}”${pooled ? " and neighbours" : ""}: ${figures.join(", ")}`;
  };
  const size = clamp((byId("panel").clientWidth - 112) / 2 - 64, 120, 230); // both side by side
  const map = (drawing) => {
    const { array, name, kind, range } = drawing;
    const label = `${name} of head ${one.head}, ${queries.length} queries by ${keys.length} keys, from ${digits(range[0])} to ${digits(range[1])}; arrow keys read pairs`;
    const canvas = drawn(array, { ...drawing, width: size, height: size, largest: 40, say, label });
    const most = Math.max(...range.map(Math.abs)); // of a gradient the bar is symmetric, and so are its ends
    const ends = kind === "gradient" ? [-most, most] : range;
    const A = ml("mi", "A");
    canvases.push(canvas);
    return el("figure.attention-map", { "data-kind": kind },
      el("figcaption",
        inlineMath(kind === "gradient" ? gradientBy(A) : A),
        rangeBar(kind, ends, ...ends.map((x) => digits(x, 2))),
      ),
      withTokens(canvas, one),
    );
  };
  const node = nodes[attention.node];
  return el("article.attention-head", { "data-head": one.head, "data-of": node.id },
    el("header",
      el("h3", one.name),
      el("span", "entropy ", number("entropy", one.entropy, digits(one.entropy, 3)), " nats"),
      one.norm !== null && el("span", "‖∂L/∂A‖ ", number("norm", one.norm, digits(one.norm, 3))),
    ),
    tokenLines(one),
    el("div.pair", drawings.map(map)),
    reading,
    !drawings.length && el("p.note", "The cells of this head are not in this file."),
    pooled && el("p.note", `pooled: a cell is the largest in size of ${tall}×${wide} entries`),
    node.gradient === undefined && el("p.note", `no gradient: ${node.why}`),
  );
}

function attentionPanel() {
  const all = record.attention;
  if (!all.length) return [panelHead("", "Attention", "There is no attention in this record: no softmax named A.")];
  const batches = Math.max(...all.map(batchesOf));
  const batch = Math.min(chosen.batch, batches - 1);
  chosen.layer = Math.min(chosen.layer, all.length - 1); // a change of the run may leave fewer
  const attention = all[chosen.layer];
  const own = Math.min(batch, batchesOf(attention) - 1);
  const { decisive_query } = attention;
  const change = (event) => {
    chosen.batch = Number(event.target.value);
    renderPanel();
  };
  const option = (i) => el("option", { value: i, selected: i === batch }, `item ${i + 1} of ${batches}`);
  return [
    panelHead("Attention", "Weights and their gradients",
      "Each query looks at keys with weights A. Of ∂L/∂A, orange is where more weight would raise the loss, blue where it would lower it",
      all.some((one) => one.masks) ? "; hatched where the mask forbids looking." : ".",
      decisive_query !== undefined && ` Nearly all of the loss's gradient comes through one query, “${tokensOf(own, attention.queries)[decisive_query]}”: its lines are shown until another is pointed at.`,
    ),
    el("div.picks",
      batches > 1 && el("label", "batch ", el("select", { on: { change } }, count(batches).map(option))),
      button("show its step", () => choose(attention.node), { class: "link" }),
    ),
    all.length + attention.heads > 2 && headGrid(batch),
    headCard(headOf(chosen.layer, Math.min(chosen.head, attention.heads - 1), own)),
  ];
}
