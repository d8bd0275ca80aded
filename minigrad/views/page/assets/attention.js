// ---------------------------------------------------------------- attention: weights beside their gradients, head by head

const chosen = { layer: 0, batch: 0 };

function maskedCells(attention, matrix) {
  const bits = attention.masked[matrix];
  if (!bits) return () => false;
  const bytes = Uint8Array.from(atob(bits), (c) => c.charCodeAt(0)), { pool } = arrays[attention.value];
  const one = (i, j) => (bytes[(i * attention.keys + j) >> 3] >> (7 - ((i * attention.keys + j) & 7))) & 1;
  return (row, column) => { // a pooled cell is masked if all of it is
    for (let i = row * pool[0]; i < Math.min(attention.queries, (row + 1) * pool[0]); i++) {
      for (let j = column * pool[1]; j < Math.min(attention.keys, (column + 1) * pool[1]); j++) if (!one(i, j)) return false;
    }
    return true;
  };
}
function tokensOf(batch, count) {
  const rows = record.tokens, row = rows && (rows[batch] || rows[0]);
  return row && row.length === count ? row : Array.from({ length: count }, (_, i) => String(i));
}

// A heatmap with its tokens: queries down, keys across.
function gridOf(attention, array, options) {
  const { queries, keys, size } = options;
  const canvas = drawn(array, { ...options, width: size, height: size, largest: 40 });
  const [w, h] = [parseFloat(canvas.style.width), (parseFloat(canvas.style.width) * canvas.height) / canvas.width];
  const every = (n, length) => Math.max(1, Math.ceil((n * 11) / length));
  const labels = (names, length, place, upright) => names.map((name, i) => {
    if (i % every(names.length, length)) return null;
    const label = el("span", { title: name }, short(name, 9));
    label.style[upright ? "left" : "top"] = `${((i + 0.5) * length) / names.length}px`;
    return label;
  });
  const long = Math.max(...keys.map((name) => widthOf(short(name, 9), "11px system-ui"))) > w / keys.length - 3;
  const across = el("div", { class: `tokens across ${long ? "slanted" : ""}`, "aria-hidden": true }, labels(keys, w, 0, true));
  const down = el("div", { class: "tokens down", "aria-hidden": true }, labels(queries, h, 0, false));
  across.style.width = `${w}px`;
  down.style.height = `${h}px`;
  return { canvas, block: el("div", { class: "axes" }, el("span", {}), across, down, canvas) };
}

function headCard(attention, matrix, head, ranges, names) {
  const [value, gradient] = [arrays[attention.value], attention.gradient === null ? null : arrays[attention.gradient]];
  const masked = maskedCells(attention, matrix), reading = el("p", { class: "reading", "aria-live": "polite" }, " ");
  const { pool } = value, exact = pool[0] * pool[1] === 1;
  const canvases = [];
  const say = (row, column) => {
    canvases.forEach((canvas) => canvas.mark(row, column));
    if (row === null) { reading.textContent = " "; return; }
    const [i, j] = [row * pool[0], column * pool[1]];
    const pair = `“${names.queries[i]}” looks at “${names.keys[j]}”${exact ? "" : " and neighbours"}`;
    const back = gradient ? `, ∂L/∂A = ${digits(cellOf(gradient, matrix, row, column), 3)}` : "";
    reading.textContent = `${pair}: ${masked(row, column) ? "masked" : `A = ${digits(cellOf(value, matrix, row, column), 3)}`}${back}`;
  };
  const size = Math.max(120, Math.min(230, (byId("panel").clientWidth - 112) / 2 - 64)); // both side by side
  const cell = (array, kind, range, name) => {
    const label = `${name} of head ${head + 1}, ${names.queries.length} queries by ${names.keys.length} keys, from ${digits(range[0])} to ${digits(range[1])}; arrow keys read pairs`;
    const grid = gridOf(attention, array, { matrix, kind, low: range[0], high: range[1], masked, say, label, size, ...names });
    canvases.push(grid.canvas);
    return el("figure", { class: "attention-map", "data-kind": kind }, el("figcaption", {}, inlineMath(kind === "value" ? symbol({ name: "A" }) : gradientOf("A"))), grid.block);
  };
  return el("article", { class: "attention-head", "data-head": head }, el("header", {}, el("h4", {}, `Head ${head + 1}`),
    el("span", {}, "entropy ", number("entropy", attention.entropy[matrix], digits(attention.entropy[matrix], 3)), " nats"),
    attention.norm && el("span", {}, "‖∂L/∂A‖ ", number("norm", attention.norm[matrix], digits(attention.norm[matrix], 3)))),
    el("div", { class: "pair" }, cell(value, "value", ranges.value, "attention weights"), gradient && cell(gradient, "gradient", ranges.gradient, "gradient of the attention weights")), reading);
}

function attentionPanel(state, actions) {
  const all = record.attention;
  if (!all.length) {
    return [el("header", { class: "step-head" }, el("h2", {}, "Attention"), el("p", { class: "lead" }, "There is no attention in this record: no softmax named A."))];
  }
  const attention = all[Math.min(chosen.layer, all.length - 1)], node = nodes[attention.node], value = arrays[attention.value];
  const batches = Math.max(1, attention.entropy.length / attention.heads), batch = Math.min(chosen.batch, batches - 1);
  const names = { queries: tokensOf(batch, attention.queries), keys: tokensOf(batch, attention.keys) };
  const top = rangeOf(value)[1];
  const ranges = { value: [0, top], gradient: attention.gradient === null ? null : rangeOf(arrays[attention.gradient]) };
  const heads = Array.from({ length: attention.heads }, (_, head) => batch * attention.heads + head);
  const shown = heads.filter((matrix) => matrix < value.matrices && (attention.gradient === null || matrix < arrays[attention.gradient].matrices));
  const pick = (name, count, text) => count > 1 && el("label", {}, `${name} `, el("select", { on: { change: (event) => { chosen[name] = Number(event.target.value); actions.refresh(); } } },
    Array.from({ length: count }, (_, i) => el("option", { value: i, selected: i === (name === "layer" ? chosen.layer : batch) }, text(i)))));
  const picks = [pick("layer", all.length, (i) => nodes[all[i].node].scope || `layer ${i + 1}`), pick("batch", batches, (i) => `item ${i + 1} of ${batches}`)].filter(Boolean);
  return [el("header", { class: "step-head" }, el("p", { class: "kicker" }, "Attention"), el("h2", {}, "Weights and their gradients"),
    el("p", { class: "lead" }, "A row is a query, its cells the keys it looks at. Beside it, ∂L/∂A: orange where more weight would raise the loss, blue where it would lower it", attention.masked.length ? "; hatched where the mask forbids looking." : "."),
    picks.length > 0 && el("div", { class: "picks" }, picks), el("p", { class: "where" }, el("bdi", {}, node.scope || "top level"), " · ", button("show its step", () => actions.choose(node.id), { class: "link" }))),
    el("div", { class: "scales" }, el("span", { class: "label" }, "A"), el("span", { class: "ends" }, "0", miniBar("value", 0, top), digits(top, 3)),
      ranges.gradient && [el("span", { class: "label" }, "∂L/∂A"), el("span", { class: "ends" }, digits(-Math.max(...ranges.gradient.map(Math.abs)), 2), miniBar("gradient", ...ranges.gradient), digits(Math.max(...ranges.gradient.map(Math.abs)), 2))]),
    el("div", { class: "heads" }, shown.map((matrix) => headCard(attention, matrix, matrix % attention.heads, ranges, names))),
    shown.length < heads.length && el("p", { class: "note" }, `${shown.length} of ${heads.length} heads are in this file`)];
}
function miniBar(kind, low, high) {
  const size = Math.max(Math.abs(low), Math.abs(high)), ends = kind === "gradient" ? [-size, size] : [low, high];
  const bar = el("span", { class: "bar paints", "aria-hidden": true });
  bar.repaint = () => { bar.style.background = `linear-gradient(90deg, ${Array.from({ length: 9 }, (_, i) => colourOf(ends[0] + ((ends[1] - ends[0]) * i) / 8, kind, low, high)).join(",")})`; };
  bar.repaint();
  return bar;
}
