// Attention: who looks at whom, and what that does to the loss; every head small, one of them large.

const chosen = { layer: 0, head: 0, batch: 0, query: null };
const LINES = 400; // of one drawing, the strongest
const SMALL = 6; // layers from which on their heads are drawn smaller
const WEAKEST = 0.02; // of the strongest, below which none is drawn

function headOf(layer, head, batch) {
  const one = shown.attention[layer];
  const own = Math.min(batch, one.batch - 1);
  const matrix = own * one.heads + head;
  const map = (index, kind, sign, range) => {
    const array = arrays[index];
    return array && matrix < array.matrices && { array, matrix, kind, sign, range: range || endsOf(array, matrix) };
  };
  const maps = [map(one.A, "value", "A", [0, 1]), map(one.dA, "gradient", "∂L/∂A")].filter(Boolean);
  const named = (texts) => texts[own] || texts[0]; // of each text of a batch, or of all
  return { ...one, queries: named(one.queries), keys: named(one.keys), layer, head, matrix, maps, pool: maps[0]?.array.pool || [1, 1] };
}
function endsOf(array, matrix) {
  const all = count(array.rows * array.columns).map((k) => cellOf(array, matrix, 0, k)).filter(Number.isFinite);
  return all.length ? [Math.min(...all), Math.max(...all)] : [0, 0];
}
const pooledNames = (names, pool) =>
  pool === 1 ? names : count(Math.ceil(names.length / pool)).map((k) => `${names[k * pool]} … ${names[Math.min(names.length, (k + 1) * pool) - 1]}`);

function thumbnail(one, size) {
  const maps = one.maps.map((map) => {
    const canvas = heatMap(map.array, { ...map, hatched: true, width: size, height: size, largest: size, label: "" });
    canvas.tabIndex = -1;
    return canvas;
  });
  const norm = one.norms && one.norms[one.matrix];
  const said = `${one.path}, head ${one.head}: ${one.figures[one.head]}`;
  const pick = () => {
    Object.assign(chosen, { layer: one.layer, head: one.head });
    renderPanel();
    byId("panel").querySelector(".attention-head").scrollIntoView({ block: "nearest" });
  };
  return button([maps, norm && el("span.norm", norm)], pick,
    { class: "thumbnail", title: said, "aria-label": said, "aria-pressed": String(one.layer === chosen.layer && one.head === chosen.head) });
}
// The parts of paths in which they differ.
function distinct(paths) {
  const split = paths.map((path) => path.replace(/\/A$/, "").split("/"));
  const same = (part) => split.every((one) => part(one) === part(split[0]));
  while (split.every((one) => one.length > 1) && same((one) => one[0])) split.forEach((one) => one.shift());
  while (split.every((one) => one.length > 1) && same((one) => one.at(-1))) split.forEach((one) => one.pop());
  return split.map((one) => one.join("/"));
}
function headGrid() {
  const names = distinct(shown.attention.map((one) => one.path));
  const row = (one, layer) => el("tr", el("th", { scope: "row", title: one.path }, short(names[layer], 22)),
    count(one.heads).map((head) => el("td", thumbnail(headOf(layer, head, chosen.batch), shown.attention.length > SMALL ? 22 : 40))));
  return el("div.head-grid", el("table", el("tbody", shown.attention.map(row))), el("p.note", "A, beside it ∂L/∂A, below ‖∂L/∂A‖; choose one to see it large"));
}

// Lines from queries at the left to keys at the right, of the query that is pointed at, or of all.
function linesOf(one, map, follow) {
  const { array, matrix, kind, sign, range } = map;
  const rows = Math.max(array.rows, array.columns);
  const gap = rows > 24 ? 14 : 20;
  const [width, height, edge] = [270, rows * gap + 6, 76];
  const names = { query: pooledNames(one.queries, one.pool[0]), key: pooledNames(one.keys, one.pool[1]) };
  const y = (i, length) => 3 + (i + 0.5) * gap + ((rows - length) * gap) / 2;
  const top = Math.max(...range.map(Math.abs)) || 1;
  const lines = count(array.rows * array.columns)
    .map((k) => ({ query: Math.floor(k / array.columns), key: k % array.columns, x: cellOf(array, matrix, 0, k) }))
    .filter(({ x }) => Math.abs(x) / top > WEAKEST)
    .sort((a, b) => Math.abs(b.x) - Math.abs(a.x)).slice(0, LINES).reverse()
    .map((line) => {
      const [a, b, part] = [y(line.query, names.query.length), y(line.key, names.key.length), Math.min(1, Math.abs(line.x) / top)];
      const path = svg(`path.pull.${kind === "value" ? "weight" : line.x > 0 ? "raises" : "lowers"}`, {
        d: `M${edge} ${a}C${width / 2} ${a} ${width / 2} ${b} ${width - edge} ${b}`, "stroke-opacity": part.toFixed(3), "stroke-width": (0.7 + 2.3 * part).toFixed(2),
      });
      return { ...line, path };
    });
  const labels = Object.entries(names).flatMap(([side, all]) => all.map((name, index) => {
    const text = svg(`text.token.${side}`, { x: side === "query" ? edge - 6 : width - edge + 6, y: y(index, all.length) + 4, tabindex: index ? -1 : 0 }, short(name, 11));
    if (side === "query") text.addEventListener("click", () => { chosen.query = index; });
    return { side, index, text: pointed(text, (on) => follow(on ? { side, index } : null)) };
  }));
  const show = (at) => {
    for (const label of labels) label.text.classList.toggle("pointed", at?.side === label.side && at.index === label.index);
    for (const line of lines) line.path.classList.toggle("aside", at !== null && line[at.side] !== at.index);
  };
  const drawn = svg("svg.token-lines", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${sign}: queries at the left, keys at the right` },
    lines.map(({ path }) => path), labels.map(({ text }) => text));
  return { block: el("figure", { "data-kind": kind }, el("figcaption", sign), drawn), names, show, map };
}
function tokenLines(one) {
  const reading = el("p.reading", { "aria-live": "polite" });
  const first = () => {
    const query = chosen.query ?? (given(shown.asked) ? Math.floor(shown.asked / one.pool[0]) : null);
    return query === null ? null : { side: "query", index: query };
  };
  const follow = (at) => {
    const now = at || first();
    made.forEach(({ show }) => show(now));
    reading.textContent = now ? made.map(({ names, map }) => sentenceOf(map, names, now)).join(" · ") : " ";
  };
  const made = one.maps.map((map) => linesOf(one, map, follow));
  follow(null);
  return el("div.lines-of-tokens", made.map(({ block }) => block), reading);
}
// The three keys a query looks at most, or the three queries that look at a key.
function sentenceOf({ array, matrix, sign }, names, { side, index }) {
  const others = side === "query" ? names.key : names.query;
  const value = (k) => (side === "query" ? cellOf(array, matrix, index, k) : cellOf(array, matrix, k, index));
  const most = count(others.length).filter((k) => Number.isFinite(value(k))).sort((a, b) => Math.abs(value(b)) - Math.abs(value(a))).slice(0, 3);
  return `${sign} of “${names[side][index]}”: ${most.map((k) => `${others[k]} ${digits(value(k), 2)}`).join(", ")}`;
}

// A heat map with its tokens: queries down, keys across.
function matrixOf(one, map, mark) {
  const { array, kind, range, sign } = map;
  const panel = byId("panel").clientWidth;
  const size = clamp(panel / one.maps.length - 90, Math.min(240, panel - 80), Math.max(240, innerHeight - 300));
  const canvas = heatMap(array, { ...map, hatched: true, numbers: true, width: size, height: size, largest: 72, say: mark,
    label: `${sign}: ${one.queries.length} queries by ${one.keys.length} keys; arrow keys read pairs` });
  const names = [pooledNames(one.queries, one.pool[0]), pooledNames(one.keys, one.pool[1])];
  const across = el("div.across", { "aria-hidden": true });
  const down = el("div.down", { "aria-hidden": true });
  for (const [holder, all, side, length] of [[across, names[1], "left", parseFloat(canvas.style.width)], [down, names[0], "top", parseFloat(canvas.style.height)]]) {
    const every = Math.max(1, Math.ceil((all.length * 11) / length));
    all.forEach((name, i) => {
      if (i % every) return;
      const label = el("span", short(name, 9));
      label.style[side] = `${((i + 0.5) * length) / all.length}px`;
      holder.append(label);
    });
    holder.style[side === "left" ? "width" : "height"] = `${length}px`;
  }
  return { figure: el("figure", { "data-kind": kind, "data-of": one.entry }, el("figcaption", sign, rangeBar(kind, range)), el("div.axes", el("span"), across, down, canvas)), canvas };
}
function headCard(one) {
  const reading = el("p.reading", { "aria-live": "polite" });
  const say = (i, j) => {
    made.forEach(({ canvas }) => canvas.mark(i, j));
    reading.textContent = i === null ? "" : `“${one.queries[i * one.pool[0]]}” looks at “${one.keys[j * one.pool[1]]}”: ${one.maps.map(({ array, matrix, sign }) => {
      const x = cellOf(array, matrix, i, j);
      return `${sign} = ${Number.isNaN(x) ? "masked" : digits(x)}`;
    }).join(", ")}`;
  };
  const made = one.maps.map((map) => matrixOf(one, map, say));
  return el("article.attention-head",
    el("h3", `${one.path}, head ${one.head}`), el("p.muted", one.figures[one.head]),
    el("p", saveLinks(() => drawingOfHead(one), `${one.path} head ${one.head}`), " · ", link(fillsWindow() ? "beside the graph" : "fill the window", fillWindow)),
    tokenLines(one), el("div.pair", made.map(({ figure }) => figure)), reading,
    one.pool[0] * one.pool[1] > 1 && el("p.note", `a cell is the largest of ${one.pool.join("×")} pairs`),
    one.maps.length === 1 && el("p.note", `no gradient: ${entries[one.entry].why}`));
}
// For a talk: the panel takes the whole window.
const fillsWindow = () => document.body.classList.contains("filled");
function fillWindow() {
  document.body.classList.toggle("filled");
  renderPanel();
}
function attentionPanel() {
  const all = shown.attention;
  chosen.layer = clamp(chosen.layer, 0, all.length - 1);
  const one = headOf(chosen.layer, clamp(chosen.head, 0, all[chosen.layer].heads - 1), chosen.batch);
  const batches = Math.max(...all.map(({ batch }) => batch));
  const option = (i) => el("option", { value: i, selected: i === chosen.batch }, `text ${i + 1} of ${batches}`);
  return [
    el("p.note", "Queries look at keys with weights A. Where ∂L/∂A is orange more weight would raise the loss, where blue lower it.",
      given(shown.asked) && ` The loss depends on one query, “${one.queries[shown.asked] ?? shown.asked}”: its lines are shown until another is pointed at.`),
    batches > 1 && el("select", { "aria-label": "text", on: { change: (event) => { chosen.batch = Number(event.target.value); renderPanel(); } } }, count(batches).map(option)),
    all.length + one.heads > 2 && headGrid(), headCard(one),
    el("p", link("show its step", () => choose(one.entry))),
  ];
}
