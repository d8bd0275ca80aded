// What this page shows: the record, what is said of its entries, and the steps.

const record = shown.record;
const entries = record.entries.map((entry, i) => ({ ...entry, ...shown.entries[i], into: [], uses: [], checks: [] }));
const edges = record.edges.map((edge, i) => ({ ...edge, ...shown.uses[i], id: i }));
for (const edge of edges) {
  entries[edge.target].into.push(edge);
  entries[edge.source].uses.push(edge);
}
// What was checked: that of an entry, and by a layer's call what was derived by hand.
const checks = record.checks.results.map((check, i) => ({ ...check, ...shown.checks[i] }));
for (const check of checks) if (given(check.entry) && check.ok !== null) entries[check.entry].checks.push(check);
const grouped = (some, key) => [...Map.groupBy(some, key).values()];
const chapters = grouped(checks.filter(({ kind }) => kind === "by hand"), ({ scope, call }) => `${scope} ${call}`);
const sentOf = (some) => some.filter((edge) => edge.inWords !== undefined);

// Step 0 is the whole pass; then forward steps, then backward steps, each in the order they ran.
const steps = [{ phase: "whole" }];
for (const phase of ["forward", "backward"])
  record[phase].forEach((id, i) => steps.push({ phase, id, number: i + 1, of: record[phase].length, at: steps.length }));
const ranAt = new Map();
const backAt = new Map();
steps.forEach((step, at) => step.id !== undefined && (step.phase === "forward" ? ranAt : backAt).set(step.id, at));
// From which step on an entry's whole gradient is known: once all its uses have sent their part.
for (const entry of entries) {
  const sent = sentOf(entry.uses).map((edge) => backAt.get(edge.target) ?? Infinity);
  const start = record.roots.includes(entry.id) ? record.forward.length + 1 : -1;
  entry.knownAt = entry.gradient === undefined || entry.gradient === null ? Infinity : Math.max(start, ...sent);
  entry.ranAt = ranAt.get(entry.id) ?? 0;
}
for (const edge of edges) edge.knownAt = edge.inWords === undefined ? Infinity : backAt.get(edge.target) ?? Infinity;
const isKnown = (entry, at) => at === 0 || entry.knownAt <= at;

const shapeOf = (entry) => entry.shape.join("×") || "scalar";
const fullName = (entry) => (entry.scope ? `${entry.scope}/${entry.label}` : entry.label);
const settingsOf = (entry) => Object.entries(entry.settings).filter(([, text]) => given(text)).map(([name, text]) => `${name} = ${text}`).join(", ");

// A formula: LaTeX that came with its MathML.
function math(tex, kind = "") {
  const holder = el(`span.math ${kind}`);
  holder.innerHTML = shown.maths[tex] ?? "";
  return holder;
}
const equation = (left, right) => el("span.equation", math(left), " = ", math(right));
function rule(left, right, where = []) {
  return el("div.rule", equation(left, right), where.length > 0 && el("div.where", "with ", where.map((one) => math(one))));
}

// Whether the font in use says where scripts stand; the style moves them where it does not.
function fitFonts() {
  const probe = el("span", { style: "font-size: 60px" });
  probe.innerHTML = "<math><msup><mi>V</mi><mi>T</mi></msup></math>";
  document.body.append(probe);
  const [letter, script] = [...probe.querySelectorAll("mi")].map((one) => one.getBoundingClientRect());
  probe.remove();
  document.documentElement.classList.toggle("high-scripts", script.bottom <= letter.top + letter.height * 0.12);
}

// ---------------------------------------------------------------- arrays

const arrays = shown.arrays;
function cellOf(array, matrix, row, column) {
  array.cells ??= new Float32Array(Uint8Array.from(atob(array.data), (c) => c.charCodeAt(0)).buffer);
  return array.cells[(matrix * array.rows + row) * array.columns + column] * (array.scale || 1);
}
// The index of a cell's first entry in the whole array.
function indexOf({ shape, pool, kept }, matrix, row, column) {
  const index = [row * pool[0], column * pool[1]].slice(2 - Math.min(2, shape.length));
  matrix = kept ? kept[matrix] : matrix;
  for (const n of shape.slice(0, -2).reverse()) {
    index.unshift(matrix % n);
    matrix = Math.floor(matrix / n);
  }
  return index;
}
