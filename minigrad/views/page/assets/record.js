// ---------------------------------------------------------------- the record: what this page shows, as plain data

const record = JSON.parse(document.getElementById("record").textContent);
const { nodes, edges, arrays, states, folds } = record;
const count = (n) => Array.from({ length: n }, (_, i) => i);
function grouped(list, keyOf) {
  const groups = new Map();
  for (const one of list) {
    const key = keyOf(one);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(one);
  }
  return groups;
}

for (const node of nodes) Object.assign(node, { into: [], uses: [], home: node.home || "" });
edges.forEach((edge, id) => {
  edge.id = id;
  nodes[edge.target].into.push(edge);
  nodes[edge.source].uses.push(edge);
});

// Step 0 is the whole picture; then forward steps, then backward steps, each in the order they ran.
const steps = [{ phase: "overview" }];
for (const phase of ["forward", "backward"]) {
  record[phase].forEach((node, i) => {
    steps.push({ phase, node, number: i + 1, of: record[phase].length, at: steps.length });
  });
}
const stepOf = { forward: new Map(), backward: new Map() }; // node to the step where it ran, the last one
steps.forEach((step, at) => step.node !== undefined && stepOf[step.phase].set(step.node, at));

// From which step on a node's whole gradient is known: once all its uses have sent their part.
const roots = new Set(record.roots);
const root = roots.size === 1 ? nodes[record.roots[0]] : null;
for (const node of nodes) {
  const sent = node.uses.filter((edge) => edge.sent !== undefined)
    .map((edge) => stepOf.backward.get(edge.target));
  const start = roots.has(node.id) ? stepOf.backward.get(node.id) : -1;
  node.knownAt = node.gradient === undefined ? Infinity : Math.max(start, ...sent);
}

// ---------------------------------------------------------------- scopes, and copies of blocks that are drawn once

const around = (scope) => (scope ? scope.split("/").map((_, i, all) => all.slice(0, i + 1).join("/")) : []);
const within = (scope, outer) => !outer || scope === outer || scope.startsWith(`${outer}/`);

/* What is drawn is a leader; it stands for its copies, one in each block. Which copy is on top follows the step, so that
   a walk through the run turns the copies over like cards. */
const leaderOf = (node) => nodes[node.lead ?? node.id];
const leaders = nodes.filter((node) => node.lead === undefined);
const copyOnTop = new Map(Object.keys(folds).map((fold) => [fold, 0]));
const numberIn = (node, fold) => (node.copy || {})[fold] || 0;
for (const node of leaders)
  Object.assign(node, { copies: new Map(), folds: around(node.home).filter((scope) => folds[scope]) });
const placeOf = (node, numberOf) => leaderOf(node).folds.map(numberOf).join();
for (const node of nodes) leaderOf(node).copies.set(placeOf(node, (fold) => numberIn(node, fold)), node);
const onTop = (node) =>
  leaderOf(node).copies.get(placeOf(node, (fold) => copyOnTop.get(fold))) || leaderOf(node);
// The same node in another copy of a block.
const twinOf = (node, fold, number) =>
  leaderOf(node).copies.get(placeOf(node, (one) => (one === fold ? number : numberIn(node, one))));
function turnTo(node) {
  for (const fold of leaderOf(node).folds) copyOnTop.set(fold, numberIn(node, fold));
}

// ---------------------------------------------------------------- names

const labelOf = (node) => node.name || node.op || node.role || `${node.kind} ${node.id}`;
const fullName = (node) => (node.scope ? `${node.scope}/${labelOf(node)}` : labelOf(node));
const shapeOf = (node) => (node.shape ? node.shape.join("×") : "scalar");
const tupleOf = (node) =>
  `(${(node.shape || []).join(", ")}${node.shape && node.shape.length === 1 ? "," : ""})`;
const stateOf = (node) => ({ name: node.state, glyph: states[node.state][0], words: states[node.state][1] });
const rmsOf = (array) => (array === undefined ? undefined : arrays[array].rms);

// The size of a gradient; of two runs compared, the other's over this one's.
const sizeAt = (node) => (record.compared ? node.ratio : rmsOf(node.gradient));
const sizeText = (size) => `${record.compared && size !== undefined ? "×" : ""}${brief(size)}`;
const ALARM = record.scale.length - 1; // the bin of what is not finite, or wrong

// ---------------------------------------------------------------- arrays

// An array's cells, decoded on first use.
function cellsOf(array) {
  if (!array.cells) {
    const bytes = Uint8Array.from(atob(array.data), (c) => c.charCodeAt(0));
    array.cells = new Float32Array(bytes.buffer);
  }
  return array.cells;
}
function cellOf(array, matrix, row, column) {
  return cellsOf(array)[(matrix * array.rows + row) * array.columns + column] * (array.scale || 1);
}
