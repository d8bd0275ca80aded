"use strict";
// Whatever comes from the record reaches the document as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
const el = (tag, properties, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === "on") made.addEventListener("click", value);
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};
const svg = (tag, properties, ...children) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const words = { nan: "NaN", inf: "∞", "-inf": "−∞" };
const brief = (x) => {
  if (typeof x === "string") return words[x];
  if (x === null || x === undefined) return "";
  const size = Math.abs(x);
  const text = x === 0 || (size >= 1e-3 && size < 1e4) ? String(Number(x.toPrecision(3))) : x.toExponential(1);
  return text.replace(/-/g, "−").replace("e+", "e");
};

let record = JSON.parse(byId("record").textContent);
const state = { sample: 0, row: 0, unit: 0, figure: "gradient", pinned: null };
const last = () => record.steps.length - 1;
const height = 16;

// ---------------------------------------------------------------- colours

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const palette = () => Array.from({ length: 8 }, (_, i) => css(`--bin${i}`));

// From the smallest to the largest number that is shown; on a log scale, in whole powers of ten.
function bounds(figure) {
  const kind = record.scales[figure];
  if (kind === "share") return [0, 1];
  if (kind === "signed") return [-1, 1];
  let low = Infinity, high = -Infinity;
  for (const row of record.figures[figure] || [])
    for (const x of row)
      if (typeof x === "number" && x > 0) { low = Math.min(low, x); high = Math.max(high, x); }
  if (!(low <= high)) return [0, 1];
  const from = Math.floor(Math.log10(low));
  return [from, Math.max(from + 1, Math.ceil(Math.log10(high)))];
}

function bin(x, figure, [low, high]) {
  if (x === null || x === undefined) return -1;
  if (typeof x === "string") return 8;
  const log = record.scales[figure] === "log";
  if (log && x === 0) return 9;
  const place = ((log ? Math.log10(x) : x) - low) / (high - low);
  return Math.min(7, Math.max(0, Math.floor(place * 8)));
}

function showLegend() {
  const [low, high] = bounds(state.figure), log = record.scales[state.figure] === "log";
  const bound = (i) => { const x = low + ((high - low) * i) / 8; return brief(log ? 10 ** x : x); };
  const cells = palette().map((_, i) => el("span", { style: `background:var(--bin${i});color:var(--on${i})` }, `${bound(i)} – ${bound(i + 1)}`));
  cells.push(el("span", { style: "background:var(--alarm);color:var(--paper)" }, "NaN"));
  if (log) cells.push(el("span", { style: "background:var(--border)" }, "0"));
  byId("legend").replaceChildren(...cells);
}

// ---------------------------------------------------------------- the heat map

function showHeat() {
  const canvas = byId("cells"), n = record.steps.length, grid = record.figures[state.figure] || [];
  canvas.width = Math.max(n, 1);
  canvas.height = record.rows.length;
  canvas.style.height = `${record.rows.length * height}px`;
  const draw = canvas.getContext("2d"), limits = bounds(state.figure);
  const colours = [...palette(), css("--alarm"), css("--border")];
  grid.forEach((row, y) => row.forEach((x, i) => {
    const k = bin(x, state.figure, limits);
    if (k >= 0) { draw.fillStyle = colours[k]; draw.fillRect(i, y, 1, 1); }
  }));
  byId("names").replaceChildren(...record.rows.map((row, y) =>
    el("button", { type: "button", class: row.kind, title: row.path, on: () => choose({ row: y }) }, el("bdi", {}, row.path))));
}

// Where a step lies, from 0 to 1: in the column of the sample before it, as far as it goes.
function place(step) {
  const steps = record.steps;
  let i = 0;
  while (i + 1 < steps.length && steps[i + 1] <= step) i += 1;
  const end = i + 1 < steps.length ? steps[i + 1] : steps[i] + record.every;
  return (i + Math.min(1, (step - steps[i]) / Math.max(1, end - steps[i]))) / steps.length;
}

function showLoss() {
  const names = Object.keys(record.logged), chosen = names.filter((name) => name.includes("loss"));
  const curves = (chosen.length ? chosen : names).slice(0, 2).map((name) => [name, record.logged[name].filter(([, x]) => typeof x === "number")]);
  const all = curves.flatMap(([, points]) => points.map(([, x]) => x));
  if (!all.length) return byId("loss").replaceChildren();
  const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
  const log = low > 0 && high > 20 * low, f = log ? Math.log10 : (x) => x;
  const y = (x) => 100 - (96 * (f(x) - f(low))) / (f(high) - f(low) || 1);
  const lines = curves.map(([name, points], i) =>
    svg("polyline", { class: i ? "curve other" : "curve", points: points.map(([step, x]) => `${(1000 * place(step)).toFixed(1)},${y(x).toFixed(1)}`).join(" ") }, svg("title", {}, name)));
  const label = curves.map(([name]) => name).join(", ") + (log ? ", log scale" : "");
  byId("loss").replaceChildren(
    el("div", { class: "muted", style: "font-size:11px" }, `${label}: ${brief(low)} to ${brief(high)}`),
    svg("svg", { viewBox: "0 0 1000 104", preserveAspectRatio: "none", role: "img", "aria-label": label }, ...lines));
}

// ---------------------------------------------------------------- the chosen cell

const figure = (name, row, sample) => (record.figures[name] ? record.figures[name][row][sample] : null);

function histogram(row, sample, which) {
  for (let i = sample; i >= 0; i -= 1) {  // the nearest one that was kept
    const found = record.histograms[`${row},${i}`];
    if (found) return found[which];
  }
  return null;
}

function bars(title, row, which) {
  const now = histogram(row, state.sample, which);
  if (!now) return [];
  const wide = 210 / now[1].length;
  const shapes = [...now[1]].map((c, i) => svg("rect", { class: "bar", x: i * wide, y: 70 - 7 * c, width: wide - 1, height: 7 * c }));
  const then = state.pinned === null ? null : histogram(row, state.pinned, which);
  if (then) shapes.push(svg("polyline", { class: "then", points: [...then[1]].map((c, i) => `${(i * then[0]) / (now[0] || 1) * wide + 105 * (1 - then[0] / (now[0] || 1)) + wide / 2},${70 - 7 * c}`).join(" ") }));
  return [el("div", { class: "muted" }, `${title}, −${brief(now[0])} to ${brief(now[0])}${then ? "; line: the step compared" : ""}`),
    svg("svg", { viewBox: "0 0 210 72", preserveAspectRatio: "none", role: "img", "aria-label": title }, ...shapes)];
}

function series(row) {
  const points = (record.figures[state.figure] || [])[row] || [];
  const log = record.scales[state.figure] === "log";
  const good = points.map((x, i) => [i, x]).filter(([, x]) => typeof x === "number" && (!log || x > 0));
  if (good.length < 2) return [];
  const f = log ? Math.log10 : (x) => x;
  const sizes = good.map(([, x]) => f(x)), low = Math.min(...sizes), high = Math.max(...sizes);
  const line = good.map(([i, x]) => `${(210 * i) / Math.max(1, points.length - 1)},${68 - (64 * (f(x) - low)) / (high - low || 1)}`).join(" ");
  return [el("div", { class: "muted" }, `${state.figure} over training, ${brief(log ? 10 ** low : low)} to ${brief(log ? 10 ** high : high)}`),
    svg("svg", { viewBox: "0 0 210 72", preserveAspectRatio: "none", role: "img", "aria-label": `${state.figure} over training` }, svg("polyline", { class: "series", points: line }))];
}

function showCell() {
  const { sample, row, pinned } = state, told = record.rows[row];
  if (!told) return byId("cell").replaceChildren(el("p", { class: "muted" }, "no step was looked at yet"));
  const heads = ["", `step ${record.steps[sample]}`, ...(pinned === null ? [] : [`step ${record.steps[pinned]}`, "times"])];
  const lines = Object.keys(record.figures).map((name) => {
    const now = figure(name, row, sample), then = pinned === null ? null : figure(name, row, pinned);
    if (now === null && then === null) return null;
    const times = typeof now === "number" && typeof then === "number" && then ? brief(now / then) : "";
    return el("tr", {}, ...[name, brief(now), ...(pinned === null ? [] : [brief(then), times])].map((text) => el("td", {}, text)));
  });
  const note = (record.notes[sample] || {})[row];
  byId("cell").replaceChildren(
    el("h2", {}, told.path),
    el("p", { class: "muted" }, [told.kind === "weight" ? "parameter" : `made by ${told.op}`, told.shape.join(" × ")].join(", ")),
    ...(note ? [el("p", { class: "note" }, note)] : []),
    el("table", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text))), ...lines),
    ...scatter(row), ...units(row), ...series(row), ...bars("values", row, 0), ...bars("gradients", row, 1),
    el("div", { class: "graphs" }, ...Object.keys(record.traces).map((step) =>
      el("button", { type: "button", on: () => openGraph(step) }, `graph of step ${step}`))));
}

// ---------------------------------------------------------------- points and units of a row

function picture(row) {
  for (let i = state.sample; i >= 0; i -= 1) {  // the nearest one that was kept
    const found = record.units[`${row},${i}`];
    if (found) return { ...found, step: record.steps[i] };
  }
  return null;
}

const classes = (row) => [...new Set(Object.entries(record.units).filter(([key]) => key.startsWith(`${row},`)).flatMap(([, one]) => one.labels))].sort((a, b) => (a > b) - (a < b));
const hue = (i) => `hsl(${(i * 137.5 + 215) % 360} 65% 50%)`;

function scatter(row) {
  const one = picture(row);
  if (!one || !one.points || !one.points.length) return [];
  const known = classes(row), share = (x) => `${Math.round(100 * x)} %`;
  const dots = [];
  for (let i = 0; 2 * i < one.points.length; i += 1) {
    const named = one.labels.length ? [svg("title", {}, `class ${one.labels[i]}`)] : [];
    const fill = named.length ? hue(known.indexOf(one.labels[i])) : "var(--accent)";
    dots.push(svg("circle", { cx: 105 + one.points[2 * i], cy: 105 - one.points[2 * i + 1], r: 2.2, fill, "fill-opacity": 0.75 }, ...named));
  }
  const title = `${dots.length} points on two principal components (${one.shares.map(share).join(", ")} of the variance), ±${brief(one.span)}, step ${one.step}`;
  const legend = known.length < 2 ? [] : known.slice(0, 12).map((name, i) => el("span", {}, el("i", { style: `background:${hue(i)}` }), String(name)));
  if (known.length > 12) legend.push(el("span", {}, `and ${known.length - 12} more`));
  return [el("div", { class: "muted" }, title),
    svg("svg", { viewBox: "0 0 210 210", class: "scatter", role: "img", "aria-label": title },
      svg("path", { class: "axes", d: "M4 105H206M105 4V206" }), ...dots),
    ...(legend.length ? [el("div", { class: "classes" }, "class ", ...legend)] : [])];
}

// How one figure of a unit went over training, as a line, and what it is at this step.
function course(row, name, title, at) {
  const kept = record.steps.map((_, i) => [i, record.units[`${row},${i}`]]).filter(([, one]) => one && one[name].length > at);
  const good = kept.map(([i, one]) => [i, one[name][at]]).filter(([, x]) => typeof x === "number");
  if (!kept.length) return null;
  const sizes = good.map(([, x]) => x), low = Math.min(...sizes), high = Math.max(...sizes);
  const y = (x) => (high > low ? 18 - (16 * (x - low)) / (high - low) : 10);
  const line = good.map(([i, x]) => `${(100 * i) / Math.max(1, last())},${y(x)}`).join(" ");
  const one = picture(row);
  return el("tr", { "data-figure": name }, el("td", {}, title), el("td", {}, one ? brief(one[name][at]) : ""),
    el("td", { class: "course" }, svg("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img", "aria-label": `${title} over training, ${brief(low)} to ${brief(high)}` }, svg("polyline", { class: "series", points: line }))));
}

function units(row) {
  const one = picture(row);
  if (!one) return [];
  const at = Math.min(state.unit, one.units.length - 1), dead = (i) => one.zeros[i] === 1;
  const all = record.rows[row].shape[one.axis], few = one.units.length < all ? `, ${one.units.length} of ${all}` : "";
  const strip = one.units.map((unit, i) => el("button", { type: "button", class: dead(i) ? "dead" : "", "aria-pressed": i === at, "aria-label": `unit ${unit}${dead(i) ? ", dead" : ""}`, title: `unit ${unit}${dead(i) ? ": 0 for the whole batch" : ""}`, on: () => choose({ unit: i }) }));
  const strongest = (one.strongest[at] || []).map(([place, x]) => el("li", {}, `from ${place}: ${brief(x)}`));
  return [el("div", { class: "muted" }, `units (axis ${one.axis}${few}); red: 0 for the whole batch`),
    el("div", { class: "units", role: "group", "aria-label": "Units" }, ...strip),
    el("div", { id: "unit" }, el("strong", {}, `unit ${one.units[at]}`), dead(at) ? el("span", { class: "note" }, " dead: 0 for the whole batch") : null,
      el("table", {}, course(row, "mean", "mean", at), course(row, "zeros", "zeros", at), course(row, "gradient", "gradient", at), course(row, "norm", "weights' norm", at)),
      strongest.length ? el("div", { class: "muted" }, `strongest weights to it, in ${one.weights}`) : null, strongest.length ? el("ol", {}, ...strongest) : null)];
}

// ---------------------------------------------------------------- the graph of a step

function openGraph(step) {
  const { html, at } = record.traces[step], path = record.rows[state.row].path;
  const url = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  byId("graph-title").textContent = `Step ${step}: ${path}`;
  byId("frame").src = url + (at[path] ? `#backward-${at[path]}` : "");
  byId("graph").showModal();
  byId("graph").addEventListener("close", () => { byId("frame").removeAttribute("src"); URL.revokeObjectURL(url); }, { once: true });
}

// ---------------------------------------------------------------- what was found

function showFindings() {
  const list = record.findings.map((one) => {
    const go = () => choose({ sample: Math.max(0, record.steps.filter((step) => step <= one.step).length - 1), row: one.row < 0 ? state.row : one.row });
    return el("button", { type: "button", class: "finding", on: go, title: "Show where it began" },
      el("b", {}, `step ${one.step}: ${one.kind}`), `${one.path ? `, ${one.path}` : ""}: ${one.text}. `, el("span", { class: "muted" }, `Try: ${one.remedy}`));
  });
  byId("findings").replaceChildren(...(list.length ? list : [el("p", {}, "Nothing found that needs mending.")]));
}

// ---------------------------------------------------------------- choosing

function mark(id, sample) {
  const n = record.steps.length || 1, box = byId(id).style;
  box.left = `${(100 * sample) / n}%`;
  box.width = `max(3px, ${100 / n}%)`;
}

function choose(change) {
  Object.assign(state, change);
  state.sample = Math.min(last(), Math.max(0, state.sample));
  state.row = Math.min(record.rows.length - 1, Math.max(0, state.row));
  if (state.pinned !== null && state.pinned > last()) state.pinned = null;
  byId("range").value = state.sample;
  const rate = record.rates[state.sample];
  byId("now").textContent = last() < 0 ? "" : `step ${record.steps[state.sample]}${rate === null || rate === undefined ? "" : `, lr ${brief(rate)}`}`;
  mark("column", state.sample);
  byId("pinned").hidden = state.pinned === null;
  if (state.pinned !== null) mark("pinned", state.pinned);
  byId("pin").textContent = state.pinned === null ? "compare with this" : `stop comparing with step ${record.steps[state.pinned]}`;
  byId("line").style.top = `${state.row * height}px`;
  [...byId("names").children].forEach((name, y) => name.setAttribute("aria-current", y === state.row));
  byId("sizes").replaceChildren(...record.rows.map((_, y) => el("span", {}, brief(figure(state.figure, y, state.sample)))));
  showCell();
}

function showAll() {
  byId("title").textContent = record.title;
  document.title = record.title;
  byId("summary").textContent = record.summary;
  byId("range").max = Math.max(0, last());
  const known = Object.keys(record.figures);
  byId("figure").replaceChildren(...known.map((name) => el("option", { value: name, selected: name === state.figure ? "" : undefined }, name)));
  showFindings();
  showLegend();
  showHeat();
  showLoss();
  choose({});
}

function pin() { choose({ pinned: state.pinned === null ? state.sample : null }); }

let playing = null;
function play() {
  if (playing !== null) { clearInterval(playing); playing = null; }
  else {
    if (state.sample >= last()) choose({ sample: 0 });
    playing = setInterval(() => (state.sample >= last() ? play() : choose({ sample: state.sample + 1 })), 250);
  }
  byId("play").textContent = playing === null ? "▶ play" : "❚❚ pause";
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "light" : "dark";
  showLegend();
  showHeat();
  choose({});
}

byId("back").addEventListener("click", () => choose({ sample: state.sample - 1 }));
byId("next").addEventListener("click", () => choose({ sample: state.sample + 1 }));
byId("play").addEventListener("click", play);
byId("pin").addEventListener("click", pin);
byId("range").addEventListener("input", (event) => choose({ sample: Number(event.target.value) }));
byId("figure").addEventListener("change", (event) => { state.figure = event.target.value; showLegend(); showHeat(); choose({}); });
byId("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
byId("cells").addEventListener("click", (event) => {
  const box = byId("cells").getBoundingClientRect();
  choose({ sample: Math.floor(((event.clientX - box.left) / box.width) * record.steps.length), row: Math.floor((event.clientY - box.top) / height) });
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("select, input") || event.ctrlKey || event.metaKey || event.altKey || byId("graph").open) return;
  const moves = { ArrowLeft: { sample: state.sample - 1 }, ArrowRight: { sample: state.sample + 1 }, ArrowUp: { row: state.row - 1 }, ArrowDown: { row: state.row + 1 } };
  if (moves[event.key]) { event.preventDefault(); choose(moves[event.key]); }
  else if (event.key === "p") pin();
  else if (event.key === " " && !event.target.matches("button")) { event.preventDefault(); play(); }
});

// ---------------------------------------------------------------- news, while training runs

async function ask() {
  try {
    const answer = await fetch(record.live, { cache: "no-store" });
    const follow = state.sample >= last(), news = await answer.json();
    record = { ...news, title: record.title, live: record.live };
    showAll();
    if (follow) choose({ sample: last() });
    byId("state").textContent = "live";
    setTimeout(ask, 1000);
  } catch {
    byId("state").textContent = "no answer: training has ended";
    setTimeout(ask, 3000);
  }
}

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
byId("theme").textContent = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
state.sample = last();
if (record.findings.length && record.findings[0].row >= 0) state.row = record.findings[0].row;
showAll();
if (record.live) setTimeout(ask, 300);
