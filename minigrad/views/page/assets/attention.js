// ---------------------------------------------------------------- attention: every head of every layer, then one of them
/* A and ∂L/∂A of each head stand in a grid of layers by heads, each in its own range: a weak head is as clear as a
   strong one, and the size of its gradient stands below it. The head that is chosen is shown large: lines from query to
   key, and the two matrices. */

const chosen = { layer: 0, head: 0, batch: 0 };

function tokensOf(batch, length) {
  const rows = record.tokens;
  const row = rows && (rows[batch] || rows[0]);
  return row && row.length === length ? row : count(length).map(String);
}

function maskedCells(attention, matrix) {
  if (!attention.masks) return () => false;
  const bytes = Uint8Array.from(atob(attention.masks[attention.masked[matrix]]), (c) => c.charCodeAt(0));
  const [tall, wide] = arrays[attention.value].pool;
  const one = (i, j) => (bytes[(i * attention.keys + j) >> 3] >> (7 - ((i * attention.keys + j) & 7))) & 1;
  return (row, column) => {
    // a pooled cell is masked if all of it is
    for (let i = row * tall; i < Math.min(attention.queries, (row + 1) * tall); i++) {
      for (let j = column * wide; j < Math.min(attention.keys, (column + 1) * wide); j++)
        if (!one(i, j)) return false;
    }
    return true;
  };
}

/* One head of one entry of the batch: what its drawings need. `gradient` and `value` are null where the file has no
   cells of them. */
function headOf(layer, head, batch) {
  const attention = record.attention[layer];
  const matrix = batch * attention.heads + head;
  const kept = (index) => (index !== null && matrix < arrays[index].matrices ? arrays[index] : null);
  const one = {
    attention,
    layer,
    head,
    name: attention.names[head],
    matrix,
    value: kept(attention.value),
    gradient: kept(attention.gradient),
  };
  one.queries = tokensOf(batch, attention.queries);
  one.keys = tokensOf(batch, attention.keys);
  one.masked = maskedCells(attention, matrix);
  one.entropy = attention.entropy[matrix];
  one.norm = attention.norm ? attention.norm[matrix] : null;
  return one;
}
const drawingsOf = (one) =>
  [
    one.value && {
      array: one.value,
      kind: "value",
      sign: "A",
      name: "attention weights",
      range: [0, one.attention.ranges[0][one.matrix][1]],
    },
    one.gradient && {
      array: one.gradient,
      kind: "gradient",
      sign: "∂L/∂A",
      name: "gradient of the attention weights",
      range: one.attention.ranges[1][one.matrix],
    },
  ].filter(Boolean);

// ---------------------------------------------------------------- the grid of layers and heads

function thumbnail(one, size, actions) {
  const current = one.layer === chosen.layer && one.head === chosen.head;
  const figures = `entropy ${digits(one.entropy, 3)} nats${one.norm === null ? "" : `, norm of its gradient ${brief(one.norm)}`}`;
  const pick = () => {
    Object.assign(chosen, { layer: one.layer, head: one.head });
    actions.refresh();
    const again = document.querySelector(".head-grid [aria-pressed=true]");
    if (again) again.focus({ preventScroll: true });
  };
  const maps = drawingsOf(one).map(({ array, kind, range }) => smallMap(array, one, kind, range, size));
  return button([...maps, one.norm !== null && el("span.norm", brief(one.norm))], pick, {
    class: "thumbnail",
    "aria-pressed": String(current),
    "data-layer": one.layer,
    "data-head": one.head,
    "aria-label": `${one.attention.label}, head ${one.name}: ${figures}`,
    title: `${one.attention.label}, head ${one.name}: ${figures}`,
  });
}
// A matrix with one pixel a cell, stretched.
function smallMap(array, one, kind, range, size) {
  const canvas = el("canvas.paints", { width: array.columns, height: array.rows });
  canvas.style.width = canvas.style.height = `${size}px`;
  canvas.repaint = () => {
    const pen = canvas.getContext("2d");
    const ramp = ramps();
    for (let i = 0; i < array.rows; i++)
      for (let j = 0; j < array.columns; j++) {
        const x = cellOf(array, one.matrix, i, j);
        pen.fillStyle = one.masked(i, j)
          ? ramp.hole
          : Number.isFinite(x) ? colourOf(x, kind, ...range) : ramp.alarm;
        pen.fillRect(j, i, 1, 1);
      }
  };
  canvas.repaint();
  return canvas;
}
function headGrid(batch, actions) {
  const named = record.attention.map((one) => one.names).reduce((a, b) => (b.length > a.length ? b : a));
  const most = named.length;
  const width = byId("panel").clientWidth - 150;
  const beside = width / most > 96; // A and its gradient side by side
  const size = Math.max(20, Math.min(56, Math.floor((width / most - 10) / (beside ? 2 : 1))));
  const row = (attention, layer) =>
    el("tr",
      el("th", { scope: "row", title: nodes[attention.node].scope }, short(attention.label, 14)),
      count(attention.heads).map((head) =>
        el("td", thumbnail(headOf(layer, head, Math.min(batch, batchesOf(attention) - 1)), size, actions)),
      ),
    );
  const caption = `Layers by heads: A, ∂L/∂A ${beside ? "beside" : "below"} it, and ‖∂L/∂A‖; each in its own range.`;
  return el(`div.head-grid.${beside ? "beside" : ""}`,
    el("table",
      el("caption", caption),
      el("thead", el("tr", el("td"), named.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", record.attention.map(row)),
    ),
  );
}
const batchesOf = (attention) => Math.max(1, attention.entropy.length / attention.heads);

function attentionPanel(state, actions) {
  const all = record.attention;
  if (!all.length) {
    return [
      el("header.step-head",
        el("h2", "Attention"),
        el("p.lead", "There is no attention in this record: no softmax named A."),
      ),
    ];
  }
  const batches = Math.max(...all.map(batchesOf));
  const batch = Math.min(chosen.batch, batches - 1);
  const attention = all[chosen.layer];
  const own = Math.min(batch, batchesOf(attention) - 1);
  const change = (event) => {
    chosen.batch = Number(event.target.value);
    actions.refresh();
  };
  const pick =
    batches > 1 &&
    el("label",
      "batch ",
      el(
        "select",
        { on: { change } },
        count(batches).map((i) =>
          el("option", { value: i, selected: i === batch }, `item ${i + 1} of ${batches}`),
        ),
      ),
    );
  return [
    el("header.step-head",
      el("p.kicker", "Attention"),
      el("h2", "Weights and their gradients"),
      el("p.lead",
        "Each query looks at keys with weights A. Of ∂L/∂A, orange is where more weight would raise the loss, blue where it would lower it",
        all.some((one) => one.masks) ? "; hatched where the mask forbids looking." : ".",
        attention.asking !== undefined && ` Nearly all of the loss's gradient comes through one query, “${tokensOf(own, attention.queries)[attention.asking]}”: its lines are shown until another is pointed at.`,
      ),
      el("div.picks", pick, button("show its step", () => actions.choose(attention.node), { class: "link" })),
    ),
    all.length + attention.heads > 2 && headGrid(batch, actions),
    headCard(headOf(chosen.layer, Math.min(chosen.head, attention.heads - 1), own)),
  ];
}
