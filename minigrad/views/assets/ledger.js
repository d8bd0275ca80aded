// Why a gradient is this number: rows that add up to one entry of it, each with the way on to the op that it came by.

const ledgers = shown.ledgers; // by an entry's number and index; by the number alone, which of these is of the largest entry
const keyOf = (id, index) => (index ? `${id} [${index.join(", ")}]` : ledgers[id]);
const nextOf = (ledger) => ledger.rows.find((row) => given(row.made));

// From an entry on along the largest terms, as far as it is known here.
function wayFrom(id, index) {
  const way = [];
  for (let key = keyOf(id, index); ledgers[key]; ) {
    const next = nextOf(ledgers[key]);
    way.push({ id: parseInt(key, 10), ledger: ledgers[key], index: JSON.parse(key.slice(key.indexOf("["))) });
    key = next && keyOf(next.made, next.at);
  }
  return way;
}
// A gradient was clicked, or an entry of it: a program that serves the page is asked for what is not known.
async function why(id, index) {
  Object.assign(state, { why: { id, index, asked: true }, tab: "why" });
  if (window.askWhy && !ledgers[keyOf(id, index)]) Object.assign(ledgers, await window.askWhy({ do: "why", entry: id, index }));
  renderPanel();
}
let isWayMarked = false;
function unmarkWay() {
  if (isWayMarked) mark([]);
  isWayMarked = false;
}
function markWay() {
  isWayMarked = true;
  const ids = wayFrom(state.why.id, state.why.index).map((one) => one.id);
  mark(ids, ids.slice(1).flatMap((target, i) => entries[target].into.filter((edge) => edge.source === ids[i]).map((edge) => edge.id)));
}
function ledgerRow({ value, text, made, at }, most) {
  const part = Math.min(1, Math.abs(value) / most) || 0;
  const bar = el("span.signed", { "aria-hidden": true }, el(`i.${value < 0 ? "lowers" : "raises"}`, { style: `width: ${50 * part}%; ${value < 0 ? "right" : "left"}: 50%` }));
  const label = given(made) ? pointed(link(text, () => why(made, at)), (on) => (on ? mark([made]) : markWay())) : text;
  return el("li", bar, el("span.figure", digits(Number(value), 4)), el("span", label));
}
function whyPanel() {
  const { id, index, asked } = state.why;
  const [entry, ledger] = [entries[id], ledgers[keyOf(id, index)]];
  const place = index ? `, (${index.join(", ")}${index.length === 1 ? "," : ""})` : "";
  const largest = ledgers[id] && index && keyOf(id) !== keyOf(id, index) && el("p", link("its largest entry", () => why(id)));
  markWay();
  if (!ledger && window.askWhy && !asked) why(id, index);
  if (!ledger) {
    return [el("h2", "Why ", math(entry.slope), index && ` [${index.join(", ")}]`),
      el("p.note", entry.gradient === undefined ? `It has no gradient: ${entry.why || entry.state}.` : [`This page holds no ledger of it: `, el("code", `t.why("${fullName(entry)}"${place})`), " prints it."]), largest];
  }
  const most = Math.max(...ledger.rows.map(({ value }) => Math.abs(value) || 0));
  const way = wayFrom(id, index).slice(1);
  return [
    el("h2", "Why ", ledger.title),
    el("p.note", "Each row is a part of it: the gradient of an entry · a factor. They add up; a row leads to the entry that it came by."),
    el("ol.ledger", ledger.rows.map((row) => ledgerRow(row, most))),
    way.length > 0 && section("along the largest, to the loss", el("ol.ledger-way", way.map((one) => el("li", link(one.ledger.title, () => why(one.id, one.index)))))),
    largest,
  ];
}

// ---------------------------------------------------------------- what opens it

// In the picture: the number on a box, or a line by which a gradient goes back.
function gradientAt(target) {
  const { boxes, lines } = drawingOf(state.picture);
  for (const { cells, scope } of boxes)
    for (const { own, ground, text } of cells) if (!scope && [ground, text].includes(target)) return (own[0].source ?? own[0].id);
  const line = lines.find(({ element }) => element.contains(target));
  const sent = line && sentOf(line.own);
  return sent && sent.length > 0 ? sent[0].source : null;
}
// In the panel: a cell of a heat map of a gradient.
function cellClicked({ target }) {
  const { array, index } = target.cellAt?.() || {};
  const number = arrays.indexOf(array);
  if (number < 0) return;
  const entry = current();
  const near = entry ? [entry, ...entry.into.map((edge) => entries[edge.source])] : [];
  const sent = entry?.into.find((edge) => edge.sent === number);
  const weights = state.tab === "attention" && shown.attention.find((one) => one.dA === number);
  const id = weights ? weights.entry : (near.find((one) => one.gradient === number)?.id ?? sent?.source);
  if (id === undefined) return;
  const shape = entries[id].shape;
  why(id, index.slice(index.length - shape.length));
}
function listenToLedgers() {
  state.why = { id: record.way ? edges[record.way.at(-1)].source : record.backward.at(-1) };
  pane.addEventListener("click", (event) => {
    const id = pane.dragged ? null : gradientAt(event.target);
    if (id === null) return;
    event.stopPropagation();
    why(id);
  }, true);
  byId("panel").addEventListener("click", cellClicked);
}
