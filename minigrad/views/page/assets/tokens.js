// ---------------------------------------------------------------- lines from query to key: weights, and both signs of their gradient

const LINES = 500; // of one drawing, the strongest
const WEAKEST = 0.02; // of the strongest, below which none is drawn

function strongest(one, { array, kind, range }) {
  const top = Math.max(Math.abs(range[0]), Math.abs(range[1])) || 1;
  const found = [];
  for (let i = 0; i < array.rows; i++)
    for (let j = 0; j < array.columns; j++) {
      const x = cellOf(array, one.matrix, i, j);
      if (one.masked(i, j) || !(Math.abs(x) / top > WEAKEST)) continue; // nor what is not a number
      found.push({
        i,
        j,
        x,
        part: Math.abs(x) / top,
        sign: kind === "value" ? "weight" : x > 0 ? "raises" : "lowers",
      });
    }
  return found.sort((a, b) => b.part - a.part).slice(0, LINES).reverse();
}

// Names of rows or columns; of pooled ones, the first and the last in each.
function pooledNames(names, pool) {
  if (pool === 1) return names;
  return count(Math.ceil(names.length / pool)).map(
    (k) => `${names[k * pool]} … ${names[Math.min(names.length, (k + 1) * pool) - 1]}`,
  );
}

// One drawing: queries at the left, keys at the right. `follow` hears which token is pointed at: {side, index} or null.
function linesOf(one, drawing, follow) {
  const { array } = drawing;
  const rows = Math.max(array.rows, array.columns);
  const step = rows > 24 ? 14 : 20;
  const [width, height, edge] = [260, rows * step + 6, 72];
  const y = (index, length) => 3 + (index + 0.5) * step + ((rows - length) * step) / 2;
  const [queries, keys] = [pooledNames(one.queries, array.pool[0]), pooledNames(one.keys, array.pool[1])];
  const lines = strongest(one, drawing).map(({ i, j, x, part, sign }) => {
    const [a, b] = [y(i, queries.length), y(j, keys.length)];
    const middle = width / 2;
    const path = svg(
      "path",
      {
        class: `pull ${sign}`,
        d: `M${edge} ${a}C${middle} ${a} ${middle} ${b} ${width - edge} ${b}`,
        "stroke-opacity": part.toFixed(3),
        "stroke-width": (0.7 + 2.3 * part).toFixed(2),
      },
      svg("title", `${queries[i]} → ${keys[j]}: ${digits(x, 3)}`),
    );
    return { i, j, path };
  });
  const label = (side, names) =>
    names.map((name, index) =>
      svg(
        "text",
        {
          x: side === "query" ? edge - 6 : width - edge + 6,
          y: y(index, names.length) + 4,
          class: `token ${side}`,
          "data-index": index,
          tabindex: index ? -1 : 0,
          role: "button",
          "aria-label": `${side} ${name}, ${drawing.sign}`,
        },
        short(name, 10),
      ),
    );
  const labels = [...label("query", queries), ...label("key", keys)];
  const drawing_ = svg(
    "svg",
    {
      class: "token-lines",
      viewBox: `0 0 ${width} ${height}`,
      role: "group",
      "aria-label": `${drawing.sign}: lines from queries at the left to keys at the right`,
    },
    lines.map(({ path }) => path),
    labels,
  );
  const show = (at) => {
    for (const text of labels) text.classList.toggle("pointed", at !== null && text.dataset.index === String(at.index) && text.classList.contains(at.side));
    for (const { i, j, path } of lines)
      path.classList.toggle("aside", at !== null && (at.side === "query" ? i : j) !== at.index);
  };
  for (const text of labels) listen(text, drawing_, follow);
  return {
    block: el("figure", { "data-kind": drawing.kind }, el("figcaption", drawing.sign), drawing_),
    show,
    queries,
    keys,
  };
}
// Pointer, focus and arrow keys on the name of a token.
function listen(text, inside, follow) {
  const side = text.classList.contains("query") ? "query" : "key";
  const at = { side, index: Number(text.dataset.index) };
  for (const event of ["pointerenter", "focus"]) text.addEventListener(event, () => follow(at));
  for (const event of ["pointerleave", "blur"]) text.addEventListener(event, () => follow(null));
  text.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const next = step && inside.querySelector(`.token.${side}[data-index="${at.index + step}"]`);
    if (!next) return;
    next.focus();
    event.preventDefault();
    event.stopPropagation();
  });
}

function tokenLines(one) {
  const drawings = drawingsOf(one);
  const reading = el("p.reading", { "aria-live": "polite" }, " ");
  const { asking } = one.attention; // at first, and when nothing is pointed at
  const asked = asking === undefined ? null : { side: "query", index: Math.floor(asking / (one.value || one.gradient).pool[0]) };
  const follow = (pointed) => {
    const at = pointed || asked;
    made.forEach(({ show }) => show(at));
    reading.textContent =
      at === null
        ? " "
        : drawings.map((drawing, k) => sentenceOfToken(one, drawing, made[k], at)).join(" · ");
  };
  const made = drawings.map((drawing) => linesOf(one, drawing, follow));
  follow(null);
  return (made.length > 0 && el("div.lines-of-tokens", made.map(({ block }) => block), reading));
}
// The three keys a query looks at most, or the three queries that look at a key.
function sentenceOfToken(one, { array, sign }, { queries, keys }, { side, index }) {
  const others = side === "query" ? keys : queries;
  const value = (k) =>
    side === "query" ? cellOf(array, one.matrix, index, k) : cellOf(array, one.matrix, k, index);
  const open = (k) => !(side === "query" ? one.masked(index, k) : one.masked(k, index));
  const most = count(others.length).filter(open).sort((a, b) => Math.abs(value(b)) - Math.abs(value(a)))
    .slice(0, 3);
  return `${sign} “${(side === "query" ? queries : keys)[index]}” ${side === "query" ? "→" : "←"} ${most.map((k) => `${others[k]} ${digits(value(k), 2)}`).join(", ")}`;
}
