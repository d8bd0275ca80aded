// ---------------------------------------------------------------- what is open at first, and the legend

/* The scopes that are open at first: those with the most steps in them, as long as the whole can be read; and further,
   until a walk through the steps moves between several boxes. */
function openAtFirst(fits) {
  const FEW = 8;
  const MANY = 90;
  const TRIALS = 30;
  const drawn_ = leaders.filter((node) => node.op);
  const boxes = (open) => new Set(drawn_.map((node) => visible(node, open))).size;
  const good = (open) => boxes(open) <= MANY && fits(open);
  if (good(scopeSet)) return new Set(scopeSet);
  const within_ = (scope) =>
    nodesIn(scope).reduce((sum, node) => sum + (node.op ? node.copies.length : 0), 0);
  const bySize = [...scopeSet].sort((a, b) => within_(b) - within_(a));
  const refused = new Set();
  let open = new Set();
  for (let trial = 0; trial < TRIALS; trial++) {
    const next = bySize.find(
      (scope) => !open.has(scope) && !refused.has(scope) && (!outer(scope) || open.has(outer(scope))),
    );
    if (next === undefined) break;
    const more = new Set([...open, next]);
    const moves = boxes(open) >= Math.min(FEW, drawn_.length / 3);
    if (moves && !good(open)) break;
    if (good(more) || !moves) open = more;
    else refused.add(next);
  }
  return open;
}

// The scale of gradients.
function drawLegend(place) {
  const { scale } = record;
  const [low, middle, high] = [0, (scale.length - 1) / 2, scale.length - 1].map((i) =>
    digits(10 ** scale[i], 2),
  );
  place.append(
    el("span", { class: "label" }, record.compared ? "gradient, there / here" : "gradient, rms"),
    el(
      "span",
      { class: "swatches", "aria-hidden": true },
      scale.slice(1).map((_, i) => el("i", { class: `swatch bin${i}` })),
    ),
    el(
      "span",
      { class: "bounds" },
      [low, middle, high].map((text) => el("span", {}, text)),
    ),
  );
}
