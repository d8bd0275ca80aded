// ---------------------------------------------------------------- the panel of the whole pass: verdicts, sizes of gradients, how to read the graph

// A bar for one gradient, a column for each of several.
function sizesOf(bars, colourOfBar) {
  const single = bars.length === 1;
  const made = bars.map((one) => {
    const bar = el("i", { class: colourOfBar(one) });
    bar.style[single ? "width" : "height"] = `${single ? one[1] : Math.max(4, one[1])}%`;
    return bar;
  });
  return el(single ? "span.row-bar" : "span.columns", made);
}
function gradientRow({ node: id, state: name, bars, text, note }) {
  const node = nodes[id];
  const [glyph, words] = states[name];
  return el(`tr.${name}`,
    el("th", { scope: "row" }, nodeLink(node)),
    el("td.muted", shapeOf(node)),
    el("td.track", sizesOf(bars, ([one]) => `bin${nodes[one].bin} ${nodes[one].state}`)),
    el("td.figure", bars.length > 1 ? text : number("gradient-rms", sizeAt(node))),
    el("td.glyph", { title: note || words }, glyph),
  );
}
function gradientRows() {
  const groups = [...Map.groupBy(record.rows, (row) => row.scope)].map(([scope, rows]) =>
    el("div",
      el("h4", el("bdi", scope || "top level")),
      el("table.bars", el("tbody", rows.map(gradientRow))),
    ),
  );
  return groups.length > 0 && section("Gradients of leaves: parameters and inputs", groups);
}
// The gradient against the step, or the depth: a column for what each copy of a block hands to the next.
const alongCopies = (strip) =>
  section(`${record.compared ? "Ratio" : "Gradient"} along ${strip.name}`,
    el("div.along", { role: "img", "aria-label": strip.text }, sizesOf(strip.bars, ([bin]) => `bin${bin}`)),
    el("p.note", strip.text),
  );

const UNFOLDED = 24; // rows of a table that is open at first
// Figures that were made beside the record: guesses, gradients by token, block and head.
function figuresOf({ title, hint, columns, figures, rows }) {
  const cell = (text, i) =>
    i ? el("td", { class: figures[i] && "figure" }, text) : el("th", { scope: "row" }, text);
  const head = columns.map((name, i) => el(name ? "th" : "td", { scope: name && "col", class: figures[i] && "figure" }, name));
  return el("details.call.tabled", { open: rows.length <= UNFOLDED },
    el("summary", title),
    hint && el("p.note", hint),
    el("div.cells",
      el("table", el("thead", el("tr", head)), el("tbody", rows.map((row) => el("tr", row.map(cell))))),
    ),
  );
}

const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", part) : part));

const okGlyph = (ok) => ({ true: "✓", false: "✗" })[ok] || "–"; // –: nothing was measured
// What the checks of one kind found; where something is wrong, with a link to the first step that is.
function verdictOf({ ok, said, first, chapters }) {
  const link = said.length > 1 && first !== null && nodeLink(nodes[first]);
  const open = chapters && [" ", button("See the chapters", () => showTab("chapters"), { class: "link" })];
  const role = ok === false ? "alert" : null;
  return el(`p.verdict.${{ true: "right", false: "wrong" }[ok] || ""}`, { role }, `${okGlyph(ok)} ${said[0]}`, link, said[1], open);
}
function verdicts() {
  const broken = nodes.find((node) => node.broken);
  const way = button("Show the way", () => mark(record.path), { class: "link" });
  return [
    ...record.kinds.filter((kind) => !kind.chapters).map(verdictOf),
    broken && el("p.verdict.wrong", { role: "alert" }, "‼ NaN or ∞ appears first in ", nodeLink(broken), ` ${broken.op || broken.kind}.`),
    ...record.kinds.filter((kind) => kind.chapters).map(verdictOf),
    record.flow && el("p.flow-of", withCode(`${record.flow[0].toUpperCase()}${record.flow.slice(1)}. `), record.path && way),
  ];
}

function readingTheGraph() {
  return section("Reading the graph",
    el("ul.shapes-legend", Object.values(states).map(([glyph, text]) => el("li", el("span.glyph", glyph), text))),
    el("ul.shapes-legend", record.marks.map(([sign, text]) => el("li", el("strong", sign), ` ${text}`))),
    el("p.note", `This file: ${document.body.dataset.size}; ${record.kept}.`),
  );
}

function overviewPanel() {
  const loss = root && !root.shape ? arrays[root.value] : null;
  return [
    panelHead("The whole pass", `${plural(record.forward.length, "step")} forward, ${record.backward.length} back`,
      loss && ["The loss is ", el("strong", number("loss", loss.min)), ". "],
      "Press ",
      el("kbd", "→"),
      " to walk through it: the forward pass computes each value, the backward pass paints each node with the size of its gradient.",
    ),
    ...verdicts(),
    ...record.tables.map(figuresOf),
    ...record.strips.map(alongCopies),
    gradientRows(),
    readingTheGraph(),
  ];
}
// The scale of gradients.
function drawLegend(place) {
  const bounds = [0, ALARM / 2, ALARM].map((i) => digits(10 ** record.scale[i], 2));
  place.append(
    el("span.label", record.compared ? "gradient, there / here" : "gradient, rms"),
    el("span.swatches", { "aria-hidden": true }, count(ALARM).map((i) => el(`i.swatch.bin${i}`))),
    el("span.bounds", bounds.map((text) => el("span", text))),
  );
}
