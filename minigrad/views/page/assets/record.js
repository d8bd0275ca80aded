// ---------------------------------------------------------------- the record: what this page shows, as plain data

const record = JSON.parse(document.getElementById("record").textContent);
const { nodes, edges, arrays, states } = record;
const parents = (scope) => scope.split("/").map((_, i, all) => all.slice(0, i + 1).join("/"));
const count = (n) => Array.from({ length: n }, (_, i) => i);

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
  const sent = node.uses
    .filter((edge) => edge.sent !== undefined)
    .map((edge) => stepOf.backward.get(edge.target));
  const start = roots.has(node.id) ? stepOf.backward.get(node.id) : -1;
  node.knownAt = node.gradient === undefined ? Infinity : Math.max(start, ...sent);
}

// ---------------------------------------------------------------- names

const isLoss = (node) => node === root && !node.shape && (!node.name || node.name === "loss");
// A constant without a name is called what the op calls it, "mask" say.
const role = (node) => {
  const names = new Set(node.op ? [] : node.uses.map((edge) => edge.input));
  return names.size === 1 && [...names][0].length > 1 ? [...names][0] : "";
};
const symbolOf = (node) =>
  isLoss(node) ? "L" : node.name || role(node) || `${node.op ? "t" : "c"}_${node.id}`;
const labelOf = (node) => node.name || node.op || role(node) || `${node.kind} ${node.id}`;
const fullName = (node) => (node.scope ? `${node.scope}/${labelOf(node)}` : labelOf(node));
const shapeOf = (node) => (node.shape ? node.shape.join("×") : "scalar");
const tupleOf = (node) =>
  `(${(node.shape || []).join(", ")}${node.shape && node.shape.length === 1 ? "," : ""})`;
const stateOf = (node) => ({ name: node.state, glyph: states[node.state][0], words: states[node.state][1] });
const rmsOf = (array) => (array === undefined ? undefined : arrays[array].rms);

// The size of a gradient; of two runs compared, the other's over this one's.
const sizeAt = (node) => (record.compared ? node.ratio : rmsOf(node.gradient));
const sizeSent = (edge) => (record.compared ? edge.ratio : rmsOf(edge.sent));
const sizeText = (size) => `${record.compared && size !== undefined ? "×" : ""}${brief(size)}`;
const ALARM = record.scale.length - 1; // the bin of what is not finite
// A wrong gradient, or a value that is not finite.
const faulty = (some) => some.some((node) => node.broken || (node.check && !node.check.ok));

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
