// ---------------------------------------------------------------- layout: each scope by itself, as a box in the one around it
/* dagre places the children of one scope; an open scope is then a box of its own size in its parent. So opening or
   closing a scope lays out that scope and those around it, nothing else, and a long model stays narrow. A value that
   crosses a scope's border does so at a port: a point at the top for each value that comes in, at the bottom for each
   that leaves. An edge is the parts of its way, joined. */

const PAD = { side: 14, top: 30, bottom: 12 };
const layouts = new Map(); // of scopes, kept while nothing in them opens or closes

const scopeSet = new Set(nodes.flatMap((node) => (node.home ? parents(node.home) : [])));
const outer = (scope) => scope.slice(0, Math.max(0, scope.lastIndexOf("/")));
const within = (scope, around) => !around || scope === around || scope.startsWith(`${around}/`);
const nodesOf = new Map([...scopeSet].map((scope) => [scope, nodes.filter((node) => within(node.home, scope))]));
const nodesIn = (scope) => nodesOf.get(scope);
const members = new Map([["", []]]);
for (const scope of scopeSet) members.set(scope, []);
// A constant that several scopes use, such as one mask for all layers, stands in each of them: no lines across the page.
for (const edge of edges) {
  const source = nodes[edge.source], scopes = new Set(source.uses.map((use) => nodes[use.target].home));
  edge.home = source.op || source.gradient !== undefined || scopes.size < 2 ? source.home : nodes[edge.target].home;
}
const edgesOf = new Map(["", ...scopeSet].map((scope) => [scope, edges.filter((edge) => within(edge.home, scope) || within(nodes[edge.target].home, scope))]));
for (const node of nodes) {
  const homes = new Set(node.uses.length ? node.uses.map((edge) => edge.home) : [node.home]);
  for (const home of homes) members.get(home).push({ key: `n${node.id}`, node });
}
for (const scope of [...scopeSet].sort((a, b) => b.length - a.length)) {
  const first = Math.min(...nodesIn(scope).map((node) => node.id));
  members.get(outer(scope)).push({ key: `s${scope}`, scope, first });
}
for (const list of members.values()) list.sort((a, b) => (a.node ? a.node.id : a.first) - (b.node ? b.node.id : b.first));

// The child of `scope` that holds a node at home in `home`; null if it is outside.
function childOf(scope, id, home = nodes[id].home) {
  if (!within(home, scope)) return null;
  if (home === scope) return `n${id}`;
  const rest = scope ? home.slice(scope.length + 1) : home;
  return `s${scope ? `${scope}/` : ""}${rest.split("/")[0]}`;
}

function layoutOf(scope, open) {
  const inside = [...open].filter((one) => within(one, scope)).sort().join("|");
  const known = layouts.get(scope);
  if (known && known.inside === inside) return known;
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ ranksep: 28, nodesep: 16, edgesep: 12, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  const boxes = new Map();
  for (const child of members.get(scope)) {
    const box = { ...child };
    if (child.scope && open.has(child.scope)) box.layout = layoutOf(child.scope, open);
    Object.assign(box, box.layout ? { width: box.layout.width, height: box.layout.height } : sizeOf(child));
    boxes.set(child.key, box);
    graph.setNode(child.key, { width: box.width, height: box.height });
  }
  const ports = { in: new Map(), out: new Map() };
  for (const edge of edgesOf.get(scope)) {
    const [from, to] = [childOf(scope, edge.source, edge.home), childOf(scope, edge.target)];
    if (!from && !to || from === to) continue;
    // a value enters or leaves once, however often it is used on the other side
    const a = from || port(graph, ports.in, "in", edge.source), b = to || port(graph, ports.out, "out", edge.source);
    graph.setEdge(a, b, { width: 1, height: 1 }, b[0] === "n" && a[0] === "n" ? String(edge.id) : String(edge.source));
  }
  for (const key of ports.in.values()) graph.setEdge("top", key, { weight: 50 });
  for (const key of ports.out.values()) graph.setEdge(key, "bottom", { weight: 50 });
  if (ports.in.size) graph.setNode("top", { width: 1, height: 1 });
  if (ports.out.size) graph.setNode("bottom", { width: 1, height: 1 });
  dagre.layout(graph);
  const made = { inside, boxes, ports: { in: new Map(), out: new Map() }, ways: new Map() };
  place(graph, scope, made, ports);
  layouts.set(scope, made);
  return made;
}
function port(graph, kind, name, source) {
  if (!kind.has(source)) {
    kind.set(source, `${name}${source}`);
    graph.setNode(`${name}${source}`, { width: 6, height: 1 });
  }
  return kind.get(source);
}

// Takes dagre's figures over, the scope's own corner at 0, 0, without the helpers at top and bottom.
function place(graph, scope, made, ports) {
  const boxes = [...made.boxes.values()];
  for (const box of boxes) ({ x: box.x, y: box.y } = graph.node(box.key));
  const points = graph.edges().filter((e) => e.v !== "top" && e.w !== "bottom").flatMap((e) => graph.edge(e).points);
  const pad = scope ? PAD : { side: 12, top: 12, bottom: 12 };
  const left = Math.min(...boxes.map((b) => b.x - b.width / 2), ...points.map((p) => p.x)) - pad.side;
  const right = Math.max(...boxes.map((b) => b.x + b.width / 2), ...points.map((p) => p.x)) + pad.side;
  const top = Math.min(...boxes.map((b) => b.y - b.height / 2)) - pad.top;
  const bottom = Math.max(...boxes.map((b) => b.y + b.height / 2)) + pad.bottom;
  const name = scope ? 9 * scope.split("/").pop().length + 96 : 0; // room for the heading
  const spare = Math.max(0, name - (right - left)) / 2;
  const shift = (p) => ({ x: p.x - left + spare, y: p.y - top });
  for (const box of boxes) Object.assign(box, shift(box));
  Object.assign(made, { width: right - left + 2 * spare, height: bottom - top });
  for (const [source, key] of ports.in) made.ports.in.set(source, shift(graph.node(key)).x);
  for (const [source, key] of ports.out) made.ports.out.set(source, shift(graph.node(key)).x);
  for (const e of graph.edges()) {
    if (e.v === "top" || e.w === "bottom") continue;
    const points = graph.edge(e).points.filter((_, i) => i % 2 === 0).map(shift); // every other lies between ranks
    made.ways.set(`${e.v}>${e.w}>${e.name}`, Object.assign(points.flatMap((p, i) => (i && i < points.length - 1 ? upright(p, boxes) : [p])), { from: e.v, to: e.w }));
  }
  straighten(made);
}

// Where a line passes boxes of a rank it stays upright as long as the tallest of them.
function upright(p, boxes) {
  const tall = Math.max(0, ...boxes.filter((box) => Math.abs(box.y - p.y) < 1).map((box) => box.height / 2 - 6));
  return tall ? [{ x: p.x, y: p.y - tall }, { x: p.x, y: p.y + tall }] : [p];
}
// A port stands below, or above, that of the open box it leads to: no bend on the way through several borders.
function straighten(made) {
  for (const way of made.ways.values()) {
    const { from, to } = way, last = way.length - 1;
    for (const [side, box, other, end] of [["out", made.boxes.get(from), to, last], ["in", made.boxes.get(to), from, 0]]) {
      const source = Number(other.slice(side.length));
      if (!box || !other.startsWith(side) || !box.layout || !box.layout.ports[side].has(source)) continue;
      const x = box.x - box.width / 2 + box.layout.ports[side].get(source);
      made.ports[side].set(source, x);
      if (way.length === 2) way[end].x = x;
    }
  }
}

/* The whole graph as it stands: boxes with absolute places, and edges with their points. Edges between the same two
   visible boxes are one line if they carry the same value. */
function arrange(open) {
  const whole = layoutOf("", open), shown = [], corner = new Map();
  (function visit(layout, x, y, scope) {
    corner.set(scope, { layout, x, y });
    for (const box of layout.boxes.values()) {
      const here = { ...box, x: x + box.x, y: y + box.y };
      shown.push(here);
      if (box.layout) visit(box.layout, here.x - box.width / 2, here.y - box.height / 2, box.scope);
    }
  })(whole, 0, 0, "");
  const lines = new Map();
  for (const edge of edges) {
    const [a, b] = [visible(nodes[edge.source], open, edge.home), visible(nodes[edge.target], open)];
    if (a === b) continue;
    const key = a[0] === "n" && b[0] === "n" ? `e${edge.id}` : `${a}>${b}>${edge.source}`;
    if (lines.has(key)) lines.get(key).edges.push(edge);
    else lines.set(key, { edges: [edge], points: wayOf(edge, open, corner) });
  }
  return { width: whole.width, height: whole.height, boxes: shown, lines: [...lines.values()] };
}
// What stands for a node on the screen: itself, or the outermost closed scope around it.
function visible(node, open, home = node.home) {
  const closed = home && parents(home).find((scope) => !open.has(scope));
  return closed ? `s${closed}` : `n${node.id}`;
}
function wayOf(edge, open, corner) {
  const { source, target, home } = edge, end = nodes[target].home;
  const chain = (scope) => ["", ...(scope ? parents(scope) : [])].filter((one) => corner.has(one));
  const up = chain(home).reverse(), down = chain(end);
  const shared = up.find((scope) => within(end, scope) && childOf(scope, source, home) !== childOf(scope, target)) ?? "";
  const points = [];
  const add = (scope, from, to) => {
    const { layout, x, y } = corner.get(scope);
    const name = from[0] === "n" && to[0] === "n" ? edge.id : source;
    const way = layout.ways.get(`${from}>${to}>${name}`);
    if (!way) return;
    const own = way.map((p) => ({ x: x + p.x, y: y + p.y }));
    ends(own, scope, from, to, corner, edge);
    points.push(...own);
  };
  for (const scope of up) {
    if (scope === shared) break;
    add(scope, childOf(scope, source, home), `out${source}`);
  }
  add(shared, childOf(shared, source, home), childOf(shared, target));
  for (const scope of down.slice(down.indexOf(shared) + 1)) add(scope, `in${source}`, childOf(scope, target));
  return points;
}
// Moves the first and last point of a way to the port of the box it leaves or enters, or to the scope's border.
function ends(way, scope, from, to, corner, edge) {
  const { layout, x, y } = corner.get(scope), last = way.length - 1;
  const a = layout.boxes.get(from), b = layout.boxes.get(to);
  const at = (box, side, ports) => ({
    x: x + box.x + (box.layout && ports(box.layout).has(edge.source) ? ports(box.layout).get(edge.source) - box.width / 2 : clampTo(way[side ? last : 0].x - x - box.x, box.width * 0.3)),
    y: y + box.y + ((side ? -1 : 1) * box.height) / 2,
  });
  way[0] = a ? at(a, 0, (l) => l.ports.out) : { x: x + layout.ports.in.get(edge.source), y };
  way[last] = b ? at(b, 1, (l) => l.ports.in) : { x: x + layout.ports.out.get(edge.source), y: y + layout.height };
}
const clampTo = (x, limit) => Math.max(-limit, Math.min(limit, x));
