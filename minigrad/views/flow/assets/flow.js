// Names reach the document as text; the picture alone comes as markup, in which Python has escaped them.
const figureText = (x) => (given(x) ? digits(x, 3) : "");

let record = JSON.parse(byId("record").textContent);
const state = { sample: 0, row: 0, figure: "gradient", pinned: null };
const last = () => record.steps.length - 1;

// ---------------------------------------------------------------- the picture, and what is chosen in it

const frames = { column: null, pinned: null, line: null }; // rectangles over the picture

function showPicture() {
  const picture = new DOMParser().parseFromString(record.picture, "image/svg+xml").documentElement;
  for (const name of Object.keys(frames)) frames[name] = picture.appendChild(svg("rect", { class: `frame ${name}` }));
  picture.addEventListener("click", pick);
  byId("picture").replaceChildren(document.adoptNode(picture));
}
function frame(name, x, y, width, height) {
  for (const [key, value] of Object.entries({ x, y, width, height })) frames[name].setAttribute(key, value);
}
// Where a sample stands: in the column of the last one drawn before it.
function columnOf(sample) {
  const { left, cell, samples } = record.frame;
  return left + Math.max(0, samples.findLastIndex((one) => one <= sample)) * cell[0];
}
function markChosen() {
  const { left, top, bottom, cell, rows, above, samples } = record.frame;
  const place = rows.indexOf(state.row);
  const wide = Math.max(3, cell[0]);
  frame("column", columnOf(state.sample), above, wide, bottom - above);
  frame("pinned", columnOf(state.pinned ?? 0), above, state.pinned === null ? 0 : wide, bottom - above);
  frame("line", left, top + place * cell[1] - 0.5, place < 0 ? 0 : samples.length * cell[0], cell[1]);
}
function pick(event) {
  const picture = byId("picture").firstElementChild;
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
  const { left, top, bottom, cell, rows, samples } = record.frame;
  if (at.y < top || at.y >= bottom) return;
  const sample = samples[Math.min(samples.length - 1, Math.floor((at.x - left) / cell[0]))];
  choose({ row: rows[Math.floor((at.y - top) / cell[1])], ...(at.x < left ? {} : { sample }) });
}
function rowBeside(by) {
  const { rows } = record.frame;
  return rows[clamp(rows.indexOf(state.row) + by, 0, rows.length - 1)];
}

// ---------------------------------------------------------------- the chosen cell

const figure = (name, row, sample) => record.figures[name]?.[row][sample] ?? null;
// The histogram of values, 0, or of gradients, 1: of the nearest sample before this one that has any.
const barsOf = (row, sample, which) =>
  count(sample + 1).map((i) => record.histograms[`${row},${i}`]).findLast(given)?.[which];
function chart(label, ...shapes) {
  const own = { viewBox: "0 0 210 72", preserveAspectRatio: "none", role: "img", "aria-label": label };
  return [el("div.muted", label), svg("svg", own, shapes)];
}
const polyline = (kind, points) => svg(`polyline.${kind}`, { points: points.map((point) => point.join()).join(" ") });
function bars(title, row, which) {
  const now = barsOf(row, state.sample, which);
  if (!now) return [];
  const then = state.pinned === null ? null : barsOf(row, state.pinned, which);
  const wide = 210 / now[1].length;
  const shapes = [...now[1]].map((c, i) => svg("rect.bar", { x: i * wide, y: 70 - 7 * c, width: wide - 1, height: 7 * c }));
  if (then) {
    const part = then[0] / (now[0] || 1); // of this step's range
    const x = (i) => i * part * wide + 105 * (1 - part) + wide / 2;
    shapes.push(polyline("then", [...then[1]].map((c, i) => [x(i), 70 - 7 * c])));
  }
  const range = `${title}, −${figureText(now[0])} to ${figureText(now[0])}`;
  return chart(then ? `${range}; line: the step compared` : range, shapes);
}
// The figure that is chosen, over training.
function series(row) {
  const all = record.figures[state.figure]?.[row] || [];
  const log = record.scales[state.figure] === "log";
  const good = all.map((x, i) => [i, x]).filter(([, x]) => typeof x === "number" && (!log || x > 0));
  if (good.length < 2) return [];
  const ends = [Math.min, Math.max].map((end) => end(...good.map(([, x]) => x)));
  const size = (x) => (log ? Math.log10(x) : x);
  const [low, high] = ends.map(size);
  const at = ([i, x]) => [(210 * i) / Math.max(1, all.length - 1), 68 - (64 * (size(x) - low)) / (high - low || 1)];
  return chart(`${state.figure} over training, ${ends.map(figureText).join(" to ")}`, polyline("series", good.map(at)));
}
function figures(row) {
  const { sample, pinned } = state;
  const samples = pinned === null ? [sample] : [sample, pinned];
  const heads = samples.map((one) => `step ${record.steps[one]}`);
  const lines = Object.keys(record.figures).map((name) => {
    const found = samples.map((one) => figure(name, row, one));
    const [now, then] = found;
    const times = typeof now === "number" && typeof then === "number" && then ? now / then : null;
    const texts = [...found, ...(pinned === null ? [] : [times])].map(figureText);
    return found.some(given) && el("tr", [name, ...texts].map((text) => el("td", text)));
  });
  const all = pinned === null ? heads : [...heads, "times"];
  return el("table", el("tr", el("td"), all.map((text) => el("th", { scope: "col" }, text))), lines);
}
function showCell() {
  const { row } = state;
  const shown = record.rows[row];
  if (!shown) return byId("cell").replaceChildren(el("p.muted", "no step was looked at yet"));
  const note = record.notes[state.sample]?.[row];
  const share = figure("saturated", row, state.sample);
  const stuck = share ? `${figureText(100 * share)} % of ${shown.saturates}` : "";
  const made = shown.kind === "weight" ? "parameter" : `made by ${shown.op}`;
  byId("cell").replaceChildren(
    el("h2", shown.path),
    el("p.muted", [made, shown.shape.join(" × ")].join(", ")),
    ...[note, stuck].filter(Boolean).map((text) => el("p.note", text)),
    figures(row),
    ...series(row),
    ...bars("values", row, 0),
    ...bars("gradients", row, 1),
    el("div.graphs", Object.keys(record.traces).map((step) => button(`graph of step ${step}`, () => openGraph(step)))),
  );
}

// ---------------------------------------------------------------- the graph of a step

function openGraph(step) {
  const { html, at } = record.traces[step];
  const { path } = record.rows[state.row];
  const url = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  byId("graph-title").textContent = `Step ${step}: ${path}`;
  byId("frame").src = url + (at[path] ? `#backward-${at[path]}` : "");
  byId("graph").showModal();
  const close = () => {
    byId("frame").removeAttribute("src");
    URL.revokeObjectURL(url);
  };
  byId("graph").addEventListener("close", close, { once: true });
}

// ---------------------------------------------------------------- what was found

function showFindings() {
  const list = record.findings.map((one) => {
    const sample = Math.max(0, record.steps.findLastIndex((step) => step <= one.step));
    const said = [
      el("b", `step ${one.step}: ${one.kind}`),
      `${one.path ? `, ${one.path}` : ""}: ${one.text}. `,
      one.follows && `So also: ${one.follows}. `,
      el("span.muted", `Try: ${one.remedy}`),
    ];
    const go = () => choose({ sample, row: one.row < 0 ? state.row : one.row });
    return button(said, go, { class: "finding", title: "Show where it began" });
  });
  const nothing = el("p.muted", "Nothing found that needs mending.");
  refill(byId("findings"), list.length ? list : [nothing], () => byId("range"));
}

// ---------------------------------------------------------------- choosing

function choose(change) {
  Object.assign(state, change);
  state.sample = Math.min(last(), Math.max(0, state.sample));
  state.row = Math.min(record.rows.length - 1, Math.max(0, state.row));
  if (state.pinned !== null && state.pinned > last()) state.pinned = null;
  const rate = record.rates[state.sample];
  byId("range").value = state.sample;
  byId("now").textContent = last() < 0 ? "" : `step ${record.steps[state.sample]}${given(rate) ? `, lr ${figureText(rate)}` : ""}`;
  byId("pin").textContent =
    state.pinned === null ? "compare with this" : `stop comparing with step ${record.steps[state.pinned]}`;
  markChosen();
  showCell();
}
function showAll() {
  byId("title").textContent = record.title;
  document.title = record.title;
  byId("summary").textContent = record.summary;
  byId("range").max = Math.max(0, last());
  const option = (name) => el("option", { value: name, selected: name === state.figure }, name);
  const names = Object.keys(record.figures);
  if (names.length !== byId("figure").length) byId("figure").replaceChildren(...names.map(option)); // open, it stays so
  showFindings();
  showPicture();
  choose({});
}
const pin = () => choose({ pinned: state.pinned === null ? state.sample : null });

let playing = null;
function play() {
  if (playing === null && state.sample >= last()) choose({ sample: 0 });
  const next = () => (state.sample >= last() ? play() : choose({ sample: state.sample + 1 }));
  playing = playing === null ? setInterval(next, 250) : clearInterval(playing) || null;
  byId("play").textContent = playing === null ? "▶ play" : "❚❚ pause";
}

const clicks = {
  back: () => choose({ sample: state.sample - 1 }),
  next: () => choose({ sample: state.sample + 1 }),
  play,
  pin,
  theme: nextTheme,
};
for (const [id, f] of Object.entries(clicks)) byId(id).addEventListener("click", f);
byId("range").addEventListener("input", (event) => choose({ sample: Number(event.target.value) }));
byId("figure").addEventListener("change", (event) => choose({ figure: event.target.value }));
const keys = {
  ArrowLeft: clicks.back,
  ArrowRight: clicks.next,
  ArrowUp: () => choose({ row: rowBeside(-1) }),
  ArrowDown: () => choose({ row: rowBeside(1) }),
  p: pin,
  " ": play,
};
document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (target.matches("select, input") || event.ctrlKey || event.metaKey || event.altKey || byId("graph").open) return;
  if (!keys[key] || (key === " " && target.matches("button"))) return;
  event.preventDefault();
  keys[key]();
});

// ---------------------------------------------------------------- news, while training runs

async function ask() {
  let wait = 1000;
  try {
    const answer = await fetch(record.live, { cache: "no-store" });
    const follow = state.sample >= last();
    record = { ...(await answer.json()), title: record.title, live: record.live };
    showAll();
    if (follow) choose({ sample: last() });
    byId("state").textContent = "live";
  } catch {
    byId("state").textContent = "no answer: training has ended";
    wait = 3000;
  }
  setTimeout(ask, wait);
}

paint();
state.sample = last();
if (record.findings.length && record.findings[0].row >= 0) state.row = record.findings[0].row;
showAll();
if (record.live) setTimeout(ask, 300);
