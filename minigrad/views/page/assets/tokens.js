// ---------------------------------------------------------------- lines from query to key: weights, and both signs of their gradient

const LINES = 500; // of one drawing, the strongest
const WEAKEST = 0.02; // of the strongest, below which none is drawn

function strongest({ array, matrix, masked, kind, range }) {
  const top = Math.max(...range.map(Math.abs)) || 1;
  const found = [];
  for (let i = 0; i < array.rows; i++)
    for (let j = 0; j < array.columns; j++) {
      const x = cellOf(array, matrix, i, j);
      const part = Math.abs(x) / top; // nothing if it is not a number
      const sign = kind === "value" ? "weight" : x > 0 ? "raises" : "lowers";
      if (!masked(i, j) && part > WEAKEST) found.push({ i, j, x, part, sign });
    }
  return found.sort((a, b) => b.part - a.part).slice(0, LINES).reverse();
}

// Names of rows or columns; of pooled ones, the first and the last in each.
const pooledNames = (names, pool) =>
  pool === 1 ? names : count(Math.ceil(names.length / pool))
    .map((k) => `${names[k * pool]} … ${names[Math.min(names.length, (k + 1) * pool) - 1]}`);

// One drawing: queries at the left, keys at the right. `follow` hears which token is pointed at: {side, index} or null.
function linesOf(one, drawing, follow) {
  const { array, kind, sign } = drawing;
  const rows = Math.max(array.rows, array.columns);
  const step = rows > 24 ? 14 : 20;
  const [width, height, edge] = [260, rows * step + 6, 72];
  const y = (index, length) => 3 + (index + 0.5) * step + ((rows - length) * step) / 2;
  const names = { query: pooledNames(one.queries, array.pool[0]), key: pooledNames(one.keys, array.pool[1]) };
  const lines = strongest(drawing).map(({ i, j, x, part, sign: towards }) => {
    const [a, b] = [y(i, names.query.length), y(j, names.key.length)];
    const path = svg(`path.pull.${towards}`,
      {
        d: `M${edge} ${a}C${width / 2} ${a} ${width / 2} ${b} ${width - edge} ${b}`,
        "stroke-opacity": part.toFixed(3),
        "stroke-width": (0.7 + 2.3 * part).toFixed(2),
      },
      svg("title", `${names.query[i]} → ${names.key[j]}: ${digits(x, 3)}`),
    );
    return { query: i, key: j, path };
  });
  const labels = Object.entries(names).flatMap(([side, all]) =>
    all.map((name, index) => {
      const place = { x: side === "query" ? edge - 6 : width - edge + 6, y: y(index, all.length) + 4 };
      const said = { "data-index": index, tabindex: index ? -1 : 0, role: "button", "aria-label": `${side} ${name}, ${sign}` };
      return { side, index, text: svg(`text.token.${side}`, { ...place, ...said }, short(name, 10)) };
    }),
  );
  for (const label of labels) listen(label, labels, follow);
  const said = `${sign}: lines from queries at the left to keys at the right`;
  const graph = svg("svg.token-lines", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": said },
    lines.map(({ path }) => path),
    labels.map(({ text }) => text),
  );
  return {
    block: el("figure", { "data-kind": kind }, el("figcaption", sign), graph),
    names,
    show(at) {
      for (const { side, index, text } of labels) text.classList.toggle("pointed", at?.side === side && at.index === index);
      for (const line of lines) line.path.classList.toggle("aside", at !== null && line[at.side] !== at.index);
    },
  };
}
// Pointer, focus and arrow keys on the name of a token.
function listen({ side, index, text }, labels, follow) {
  for (const event of ["pointerenter", "focus"]) text.addEventListener(event, () => follow({ side, index }));
  for (const event of ["pointerleave", "blur"]) text.addEventListener(event, () => follow(null));
  const move = (by) => () => {
    const next = labels.find((label) => label.side === side && label.index === index + by);
    next?.text.focus();
    return Boolean(next);
  };
  onKeys(text, { ArrowUp: move(-1), ArrowDown: move(1) });
}

function tokenLines(one) {
  const reading = el("p.reading", { "aria-live": "polite" }, " ");
  const { decisive_query } = one.attention; // at first, and when nothing is pointed at
  const first = decisive_query === undefined ? null : { side: "query", index: Math.floor(decisive_query / one.pool[0]) };
  const follow = (pointed) => {
    const at = pointed || first;
    made.forEach(({ show }) => show(at));
    reading.textContent = at ? made.map(({ names }, k) => sentenceOfToken(one.drawings[k], names, at)).join(" · ") : " ";
  };
  const made = one.drawings.map((drawing) => linesOf(one, drawing, follow));
  follow(null);
  return made.length > 0 && el("div.lines-of-tokens", made.map(({ block }) => block), reading);
}
// The three keys a query looks at most, or the three queries that look at a key.
function sentenceOfToken({ array, matrix, masked, sign }, names, { side, index }) {
  const [others, arrow] = side === "query" ? [names.key, "→"] : [names.query, "←"];
  const pair = (k) => (side === "query" ? [index, k] : [k, index]);
  const value = (k) => cellOf(array, matrix, ...pair(k));
  const open = count(others.length).filter((k) => !masked(...pair(k)));
  const most = open.sort((a, b) => Math.abs(value(b)) - Math.abs(value(a))).slice(0, 3);
  return `${sign} “${names[side][index]}” ${arrow} ${most.map((k) => `${others[k]} ${digits(value(k), 2)}`).join(", ")}`;
}
