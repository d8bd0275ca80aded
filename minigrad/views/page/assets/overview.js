// ---------------------------------------------------------------- the panel of the whole pass: verdicts, sizes of gradients, how to read the graph

const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
// A bar for one gradient, a column for each of several.
function sizesOf(bars, colourOfBar) {
  if (bars.length === 1) {
    const bar = el("i", { class: colourOfBar(bars[0]) });
    bar.style.width = `${bars[0][1]}%`;
    return el("span.row-bar", bar);
  }
  const columns = bars.map((one) => {
    const column = el("i", { class: colourOfBar(one) });
    column.style.height = `${Math.max(4, one[1])}%`;
    return column;
  });
  return el("span.columns", columns);
}
function gradientRow(row, actions) {
  const node = nodes[row.node];
  const [glyph, words] = states[row.state];
  const figure = row.bars.length > 1 ? row.text : number("gradient-rms", sizeAt(node));
  return el(
    "tr",
    { class: row.state },
    el("th", { scope: "row" }, nodeLink(node, actions)),
    el("td.muted", shapeOf(node)),
    el("td.track", sizesOf(row.bars, ([id]) => `bin${nodes[id].bin} ${nodes[id].state}`)),
    el("td.figure", figure),
    el("td.glyph", { title: row.note || words }, glyph),
  );
}
function gradientRows(actions) {
  const groups = [...grouped(record.rows, (row) => row.scope)].map(([scope, rows]) =>
    el("div",
      el("h4", el("bdi", scope || "top level")),
      el("table.bars", el("tbody", rows.map((row) => gradientRow(row, actions)))),
    ),
  );
  return groups.length > 0 && section("Gradients of leaves: parameters and inputs", ...groups);
}
// The gradient against the step, or the depth: a column for what each copy of a block hands to the next.
const alongCopies = (strip) =>
  section(`${record.compared ? "Ratio" : "Gradient"} along ${strip.name}`,
    el("div.along", { role: "img", "aria-label": strip.text }, sizesOf(strip.bars, ([bin]) => `bin${bin}`)),
    el("p.note", strip.text),
  );

// Figures that were made beside the record: guesses, gradients by token, block and head.
function figuresOf({ title, hint, columns, figures, rows }) {
  const cell = (text, i) =>
    i ? el("td", { class: figures[i] && "figure" }, text) : el("th", { scope: "row" }, text);
  const head = columns.map((name, i) => el(name ? "th" : "td", { scope: name && "col", class: figures[i] && "figure" }, name));
  return el("details.call.tabled", { open: rows.length <= MOST_OPEN },
    el("summary", title),
    hint && el("p.note", hint),
    el("div.cells",
      el("table", el("thead", el("tr", head)), el("tbody", rows.map((row) => el("tr", row.map(cell))))),
    ),
  );
}
const MOST_OPEN = 24; // rows of a table that is not folded

const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", part) : part));

const okGlyph = (ok) => ({ true: "✓", false: "✗" })[ok] || "–"; // –: nothing was measured
// What the checks of one kind found; where something is wrong, with a link to the first step that is.
function verdictOf({ ok, said, first, chapters }, actions) {
  const link = said.length > 1 && first !== null && nodeLink(nodes[first], actions);
  const open = chapters && button("See the chapters", () => actions.tab("chapters"), { class: "link" });
  const words_ = [`${okGlyph(ok)} ${said[0]}`, link, said[1], open && " ", open].filter(Boolean);
  const kind = { true: "right", false: "wrong" }[ok] || "";
  return el(`p.verdict.${kind}`, { role: ok === false ? "alert" : null }, ...words_);
}

function verdicts(actions) {
  const broken = nodes.find((node) => node.broken);
  const alert_ = (...said) => el("p.verdict.wrong", { role: "alert" }, ...said);
  const [byStep, byHand_] = [false, true].map((chapters) =>
    record.kinds.filter((kind) => kind.chapters === chapters).map((kind) => verdictOf(kind, actions)),
  );
  return [
    ...byStep,
    broken && alert_("‼ NaN or ∞ appears first in ", nodeLink(broken, actions), ` ${broken.op || broken.kind}.`),
    ...byHand_,
    record.flow &&
      el("p.flow-of",
        withCode(`${record.flow[0].toUpperCase()}${record.flow.slice(1)}. `),
        record.path && button("Show the way", () => actions.mark(record.path), { class: "link" }),
      ),
  ];
}

function readingTheGraph() {
  const kept = {
    pooled: "large arrays are pooled, their ranges exact",
    full: "every entry of every array",
    none: "without arrays, only their sizes and ranges",
  }[record.kept];
  return section("Reading the graph",
    el("ul.shapes-legend",
      Object.values(states).map(([glyph, text]) => el("li", el("span.glyph", glyph), text)),
    ),
    el("ul.shapes-legend",
      record.marks.map(([sign, text]) => el("li", el("strong", sign), ` ${text}`)),
    ),
    el("p.note", `This file: ${document.body.dataset.size}; ${kept}.`),
    record.note && el("p.note", record.note),
  );
}

function overviewPanel(actions) {
  const loss = root && !root.shape ? arrays[root.value] : null;
  return [
    el("header.step-head",
      el("p.kicker", "The whole pass"),
      el("h2", `${plural(record.forward.length, "step")} forward, ${record.backward.length} back`),
      el("p.lead",
        loss && ["The loss is ", el("strong", number("loss", loss.min)), ". "],
        "Press ",
        el("kbd", "→"),
        " to walk through it: the forward pass computes each value, the backward pass paints each node with the size of its gradient.",
      ),
    ),
    ...verdicts(actions),
    ...record.tables.map(figuresOf),
    ...record.strips.map(alongCopies),
    gradientRows(actions),
    readingTheGraph(),
  ];
}
// The scale of gradients.
function drawLegend(place) {
  const { scale } = record;
  const bounds = [0, (scale.length - 1) / 2, scale.length - 1].map((i) => digits(10 ** scale[i], 2));
  place.append(
    el("span.label", record.compared ? "gradient, there / here" : "gradient, rms"),
    el("span.swatches", { "aria-hidden": true },
      scale.slice(1).map((_, i) => el(`i.swatch.bin${i}`)),
    ),
    el("span.bounds", bounds.map((text) => el("span", text))),
  );
}
