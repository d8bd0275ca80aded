// ---------------------------------------------------------------- the panel of the whole pass: verdicts, sizes of gradients, how to read the graph

const placeOn = (rms) => {
  const [low, high] = [record.scale[0], record.scale[record.scale.length - 1]];
  if (typeof rms !== "number") return 1; // not finite: larger than anything
  return rms > 0 ? Math.min(1, Math.max(0.02, (Math.log10(rms) - low) / (high - low))) : 0;
};

// The gradient of a parameter: a bar; of one in each of several blocks, a column for each of them.
function sizeOfGradient(node) {
  const graded = node.copies.filter((copy) => copy.gradient !== undefined);
  if (!isCopied(node)) {
    const bar = el("i", { class: `bin${node.bin} ${node.state}` });
    bar.style.width = `${placeOn(sizeAt(node)) * 100}%`;
    return el("span", { class: "row-bar" }, bar);
  }
  return el(
    "span",
    { class: "columns" },
    graded.map((copy) => {
      const column = el("i", {
        class: `bin${copy.bin} ${copy.state}`,
        title: `${copy.scope}: ${digits(sizeAt(copy))}, ${stateOf(copy).words}`,
      });
      column.style.height = `${Math.max(4, placeOn(sizeAt(copy)) * 100)}%`;
      return column;
    }),
  );
}
function gradientRow(node, actions) {
  const graded = node.copies.filter((copy) => copy.gradient !== undefined);
  const worst = worstOf(graded);
  const [low, high] = spreadOf(graded);
  const figure = isCopied(node) ? [low, high && ` ${high}`] : [number("gradient-rms", sizeAt(node))];
  return el(
    "tr",
    { class: worst },
    el("th", { scope: "row" }, nodeLink(node, actions)),
    el("td", { class: "muted" }, shapeOf(node)),
    el("td", { class: "track" }, sizeOfGradient(node)),
    el("td", { class: "figure" }, figure),
    el("td", { class: "glyph", title: stateText(graded) }, states[worst][0]),
  );
}
function gradientRows(actions) {
  const graded = leaders.filter((node) => !node.op && hasCap(node));
  if (!graded.length) return null;
  const called = (node) =>
    node.folds.reduce(
      (home, fold) => home.replace(fold, `${outer(fold)}${outer(fold) && "/"}${folds[fold].name}`),
      node.home,
    );
  const groups = grouped(graded, called);
  return section(
    "Gradients of parameters and inputs",
    ...[...groups].map(([scope, group]) =>
      el(
        "div",
        {},
        groups.size > 1 && el("h4", {}, el("bdi", {}, scope || "top level")),
        el(
          "table",
          { class: "bars" },
          el(
            "tbody",
            {},
            group.map((node) => gradientRow(node, actions)),
          ),
        ),
      ),
    ),
  );
}

/* The gradient against the step, or the depth: of each value that one copy of a block hands to the next, its size in
   every copy, on a logarithmic axis. */
function alongCopies(fold, actions) {
  const handed = [...new Set(lanesInside(fold).map((wire) => wire.source))].filter(hasCap).slice(0, 4);
  if (!handed.length) return null;
  const [width, height, left, bottom] = [520, 132, 46, 22];
  const total = folds[fold].copies.length;
  const sizes = handed
    .flatMap((node) => node.copies)
    .map((copy) => sizeAt(copy))
    .filter((x) => typeof x === "number" && x > 0)
    .map(Math.log10);
  if (!sizes.length) return null;
  const [low, high] = [
    Math.floor(Math.min(...sizes)),
    Math.max(Math.floor(Math.min(...sizes)) + 1, Math.ceil(Math.max(...sizes))),
  ];
  const x = (i) => left + 8 + (i * (width - left - 78)) / Math.max(1, total - 1);
  const y = (size) =>
    8 + (1 - (Math.max(low, Math.min(high, size)) - low) / (high - low)) * (height - bottom - 14);
  const every = Math.max(1, Math.ceil((high - low) / 4));
  const axis = count(high - low + 1)
    .filter((i) => i % every === 0)
    .flatMap((i) => [
      svg("path", { class: "grid", d: `M${left} ${y(low + i)}H${width - 66}` }),
      svg(
        "text",
        { class: "tick", x: left - 6, y: y(low + i) + 4, "text-anchor": "end" },
        `1e${low + i}`.replace("-", "−"),
      ),
    ]);
  const names = [0, total - 1].map((i) =>
    svg(
      "text",
      { class: "tick", x: x(i), y: height - 6, "text-anchor": i ? "end" : "start" },
      short(lastName(folds[fold].copies[i]), 24),
    ),
  );
  const series = handed.map((node, nth) => {
    const points = node.copies
      .map((copy) => ({ copy, i: numberIn(copy, fold), rms: sizeAt(copy) }))
      .filter(({ rms }) => rms !== undefined);
    const place = ({ i, rms }) => [
      x(i),
      y(typeof rms === "number" ? (rms > 0 ? Math.log10(rms) : low) : high),
    ];
    const [ex, ey] = place(points[points.length - 1]);
    return svg(
      "g",
      { class: "series" },
      svg("path", {
        class: "trend",
        d: `M${points
          .map((point) =>
            place(point)
              .map((v) => v.toFixed(1))
              .join(" "),
          )
          .join("L")}`,
      }),
      points.map((point) =>
        svg(
          "circle",
          {
            class: `cell bin${point.copy.bin} ${point.copy.state}`,
            cx: place(point)[0],
            cy: place(point)[1],
            r: total > 60 ? 2 : 3.6,
            on: { click: () => actions.show(point.copy.id) },
          },
          svg("title", {}, `${point.copy.scope}, ${labelOf(node)}: ${digits(point.rms)}`),
        ),
      ),
      svg("text", { class: "tick named", x: ex + 9 + 15 * nth, y: ey + 4 }, short(labelOf(node), 7)),
    );
  });
  const said = handed
    .map(
      (node) =>
        `${symbolOf(node)} ${spreadOf(node.copies.filter((copy) => copy.gradient !== undefined)).join(" ")}`,
    )
    .join("; ");
  return section(
    `${record.compared ? "Ratio" : "Gradient"} along ${folds[fold].name}`,
    svg(
      "svg",
      {
        class: "along",
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": `Gradient of what each copy hands to the next, first to last: ${said}`,
      },
      axis,
      names,
      series,
    ),
  );
}

const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

// Why steps were not measured, and how many of them.
function notMeasured() {
  const reasons = Object.entries(record.unchecked).map(([why, times]) => `${times} ${why}`);
  return reasons.length ? ` Not measured: ${reasons.join(", ")}.` : "";
}
function verdicts(actions) {
  const measured_ = nodes.filter((node) => node.check);
  const wrong = measured_.filter((node) => !node.check.ok);
  const broken = nodes.find((node) => node.broken);
  const first = [...wrong].sort((a, b) => stepOf.backward.get(a.id) - stepOf.backward.get(b.id))[0];
  return [
    first &&
      el(
        "p",
        { class: "verdict wrong", role: "alert" },
        `✗ ${wrong.length} of ${record.backward.length} backward steps are WRONG, first `,
        nodeLink(first, actions),
        ` ${first.op}: the rule for ${first.check.input} is no derivative of it.`,
      ),
    !first &&
      measured_.length > 0 &&
      el(
        "p",
        { class: "verdict right" },
        `✓ ${measured_.length} of ${record.backward.length} backward steps equal numeric derivatives of their ops.${notMeasured()}`,
      ),
    broken &&
      el(
        "p",
        { class: "verdict wrong", role: "alert" },
        "‼ NaN or ∞ appears first in ",
        nodeLink(broken, actions),
        ` ${broken.op || broken.kind}.`,
      ),
    verdict(actions),
    record.flow &&
      el(
        "p",
        { class: "flow-of" },
        withCode(`${record.flow[0].toUpperCase()}${record.flow.slice(1)}. `),
        record.path && button("Show the way", () => actions.way(record.path), { class: "link" }),
      ),
  ];
}

function readingTheGraph() {
  const kinds = ["parameter", "input", "constant", "op"].map((kind) =>
    el(
      "li",
      {},
      svg(
        "svg",
        { width: 44, height: 24, class: "mini", "aria-hidden": true },
        svg(
          "g",
          { class: `node ${kind}`, transform: "translate(2 2)" },
          svg("path", { class: "body", d: outline({ kind }, 40, 20) }),
          svg("path", { class: "frame", d: outline({ kind }, 40, 20) }),
        ),
      ),
      kind,
    ),
  );
  const kept = {
    pooled: "large arrays are pooled, their ranges exact",
    full: "every entry of every array",
    none: "without arrays, only their sizes and ranges",
  }[record.kept];
  return section(
    "Reading the graph",
    el("ul", { class: "shapes-legend" }, kinds),
    el(
      "ul",
      { class: "shapes-legend" },
      Object.values(states).map(([glyph, text]) => el("li", {}, el("span", { class: "glyph" }, glyph), text)),
    ),
    el("p", { class: "note" }, `This file: ${document.body.dataset.size}; ${kept}.`),
    record.note && el("p", { class: "note" }, record.note),
  );
}

// The folds of most copies; of two there is no trend.
const longestFolds = () =>
  Object.keys(folds)
    .filter((fold) => folds[fold].copies.length > 2)
    .sort((a, b) => folds[b].copies.length - folds[a].copies.length)
    .slice(0, 4);

function overviewPanel(actions) {
  const loss = root && !root.shape ? arrays[root.value] : null;
  return [
    el(
      "header",
      { class: "step-head" },
      el("p", { class: "kicker" }, "The whole pass"),
      el("h2", {}, `${record.forward.length} steps forward, ${record.backward.length} back`),
      el(
        "p",
        { class: "lead" },
        loss && ["The loss is ", el("strong", {}, number("loss", loss.min)), ". "],
        "Press ",
        el("kbd", {}, "→"),
        " to walk through it: the forward pass computes each value, the backward pass paints each node with the size of its gradient.",
      ),
    ),
    ...verdicts(actions),
    ...longestFolds().map((fold) => alongCopies(fold, actions)),
    gradientRows(actions),
    readingTheGraph(),
  ];
}
