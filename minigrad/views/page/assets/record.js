// ---------------------------------------------------------------- the record: what this page shows, as plain data

const record = JSON.parse(byId("record").textContent);
const { nodes, edges, arrays, states, folds } = record;
const sentOf = (some) => some.filter((edge) => edge.sent !== undefined);

for (const node of nodes) Object.assign(node, { into: [], uses: [] });
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
  const sent = sentOf(node.uses).map((edge) => stepOf.backward.get(edge.target));
  const start = roots.has(node.id) ? stepOf.backward.get(node.id) : -1;
  node.knownAt = node.gradient === undefined ? Infinity : Math.max(start, ...sent);
}

// ---------------------------------------------------------------- scopes, and copies of blocks that are drawn once

const around = (scope) => (scope ? scope.split("/").map((_, i, all) => all.slice(0, i + 1).join("/")) : []);
const within = (scope, outer) => !outer || scope === outer || scope.startsWith(`${outer}/`);

/* What is drawn is a leader; it stands for its copies, one in each block. Which copy is on top follows the step, so that
   a walk through the run turns the copies over like cards. */
const copyOnTop = new Map(Object.keys(folds).map((fold) => [fold, 0]));
const numberIn = (node, fold) => node.copy?.[fold] || 0;
const copyAt = (node, numberOf) => node.copies.get(node.folds.map(numberOf).join());
for (const node of nodes) {
  node.lead ??= node.id;
  const { home = "" } = nodes[node.lead];
  const copies = (nodes[node.lead].copies ??= new Map());
  Object.assign(node, { home, copies, folds: around(home).filter((scope) => folds[scope]) });
  copies.set(node.folds.map((fold) => numberIn(node, fold)).join(), node);
}
const onTop = (node) => copyAt(node, (fold) => copyOnTop.get(fold)) || nodes[node.lead];
// The same node in another copy of a block.
const twinOf = (node, fold, number) => copyAt(node, (one) => (one === fold ? number : numberIn(node, one)));
function turnTo(node) {
  for (const fold of node.folds) copyOnTop.set(fold, numberIn(node, fold));
}

// ---------------------------------------------------------------- names

const labelOf = (node) => node.name || node.op || node.role || `${node.kind} ${node.id}`;
const fullName = (node) => (node.scope ? `${node.scope}/${labelOf(node)}` : labelOf(node));
const shapeOf = (node) => (node.shape ? node.shape.join("×") : "scalar");
const tupleOf = (node) =>
  `(${(node.shape || []).join(", ")}${node.shape && node.shape.length === 1 ? "," : ""})`;
const rmsOf = (array) => (array === undefined ? undefined : arrays[array].rms);

// The size of a gradient; of two runs compared, the other's over this one's.
const sizeAt = (node) => (record.compared ? node.ratio : rmsOf(node.gradient));
const sizeText = (size) => `${record.compared && size !== undefined ? "×" : ""}${brief(size)}`;
const ALARM = record.scale.length - 1; // the bin of what is not finite, or wrong

// ---------------------------------------------------------------- arrays

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
function cellOf(array, matrix, row, column) {
  array.cells ??= new Float32Array(bytesOf(array.data).buffer); // decoded on first use
  return array.cells[(matrix * array.rows + row) * array.columns + column] * (array.scale || 1);
}
// The index of a cell's first entry in the whole array.
function indexOf({ shape, pool }, matrix, row, column) {
  const index = [row * pool[0], column * pool[1]].slice(2 - Math.min(2, shape.length));
  for (const n of shape.slice(0, -2).reverse()) {
    index.unshift(matrix % n);
    matrix = Math.floor(matrix / n);
  }
  return index;
}
