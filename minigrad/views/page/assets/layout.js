// ---------------------------------------------------------------- layout: each scope by itself, as a box in the one around it
/* dagre places the children of one scope; an open scope is then a box of its own size in its parent. So opening or
   closing a scope lays out that scope and those around it, nothing else, and a long model stays narrow. A value that
   crosses a scope's border does so at a port: a point at the top for each value that comes in, at the bottom for each
   that leaves. What a block hands to its next copy runs in a lane of its own, up along the right side. */

const PAD = { side: 14, top: 34, bottom: 14 };
const LANE = 20; // between lanes
const layouts = new Map(); // of scopes, kept while nothing in them opens or closes
const lanesOf = grouped(
  wires.filter((wire) => wire.back),
  (wire) => commonScope(wire.source.home, wire.target.home),
);

function layoutOf(scope, open) {
  const inside = [...open]
    .filter((one) => within(one, scope))
    .sort()
    .join("|");
  const known = layouts.get(scope);
  if (known && known.inside === inside) return known;
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  const ranker = members.get(scope).length > 60 ? "tight-tree" : "network-simplex"; // the quick one for many
  graph.setGraph({ ranker, ranksep: 28, nodesep: 16, edgesep: 12, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  const boxes = new Map();
  for (const child of members.get(scope)) {
    const box = { ...child };
    if (child.scope && open.has(child.scope)) box.layout = layoutOf(child.scope, open);
    Object.assign(box, box.layout ? { width: box.layout.width, height: box.layout.height } : sizeOf(child));
    boxes.set(child.key, box);
    graph.setNode(child.key, { width: box.width, height: box.height });
  }
  const ports = addLines(graph, scope);
  dagre.layout(graph);
  const made = { inside, boxes, ports: { in: new Map(), out: new Map() }, ways: new Map(), lanes: new Map() };
  place(graph, scope, made, ports);
  layouts.set(scope, made);
  return made;
}
// A value enters or leaves once, however often it is used on the other side.
function addLines(graph, scope) {
  const ports = { in: new Map(), out: new Map() };
  const port = (side, source) => {
    if (!ports[side].has(source)) {
      ports[side].set(source, `${side}${source}`);
      graph.setNode(`${side}${source}`, { width: 6, height: 1 });
    }
    return ports[side].get(source);
  };
  for (const wire of wiresOf.get(scope)) {
    const { source, target } = wire;
    const [from, to] = [childOf(scope, source.id, wire.home), childOf(scope, target.id, target.home)];
    if (wire.back || (!from && !to) || from === to) continue;
    const [a, b] = [from || port("in", source.id), to || port("out", source.id)];
    graph.setEdge(a, b, { width: 1, height: 1 }, wayName(a, b, wire));
  }
  for (const key of ports.in.values()) graph.setEdge("top", key, { weight: 50 });
  for (const key of ports.out.values()) graph.setEdge(key, "bottom", { weight: 50 });
  if (ports.in.size) graph.setNode("top", { width: 1, height: 1 });
  if (ports.out.size) graph.setNode("bottom", { width: 1, height: 1 });
  return ports;
}
const wayName = (from, to, wire) =>
  from[0] === "n" && to[0] === "n" ? `w${wire.id}` : String(wire.source.id);

// Takes dagre's figures over, the scope's own corner at 0, 0, without the helpers at top and bottom.
function place(graph, scope, made, ports) {
  const boxes = [...made.boxes.values()];
  for (const box of boxes) ({ x: box.x, y: box.y } = graph.node(box.key));
  const ways = graph.edges().filter((e) => e.v !== "top" && e.w !== "bottom");
  const points = ways.flatMap((e) => graph.edge(e).points);
  const lanes = lanesOf.get(scope) || [];
  const pad = scope ? PAD : { side: 12, top: 12, bottom: 12 };
  const least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (list) => -least(list.map((x) => -x));
  const left = least([...boxes.map((b) => b.x - b.width / 2), ...points.map((p) => p.x)]) - pad.side;
  const right = most([...boxes.map((b) => b.x + b.width / 2), ...points.map((p) => p.x)]) + pad.side;
  const top = least(boxes.map((b) => b.y - b.height / 2)) - pad.top;
  const bottom = most(boxes.map((b) => b.y + b.height / 2)) + pad.bottom;
  const shift = (p) => ({ x: p.x - left, y: p.y - top });
  for (const box of boxes) Object.assign(box, shift(box));
  made.width = right - left + (lanes.length ? lanes.length * LANE + 8 : 0);
  made.height = bottom - top;
  const heightOf = ({ source, target }) =>
    Math.abs(placeIn(made, scope, source).y - placeIn(made, scope, target).y);
  lanes
    .sort((a, b) => heightOf(a) - heightOf(b))
    .forEach((wire, i) => made.lanes.set(wire.id, right - left + i * LANE));
  for (const [kind, keys] of Object.entries(ports)) {
    for (const [source, key] of keys) made.ports[kind].set(source, shift(graph.node(key)).x);
  }
  for (const e of ways) {
    const way = graph
      .edge(e)
      .points.filter((_, i) => i % 2 === 0)
      .map(shift); // every other lies between ranks
    const bent = way.flatMap((p, i) => (i && i < way.length - 1 ? upright(p, boxes) : [p]));
    made.ways.set(`${e.v}>${e.w}>${e.name}`, Object.assign(bent, { from: e.v, to: e.w }));
  }
  straighten(made);
  if (scope) placeHeading(made, headingWidth(scope) + 14);
}
const placeIn = (layout, scope, node) => layout.boxes.get(childOf(scope, node.id, node.home));
// Where a line passes boxes of a rank it stays upright as long as the tallest of them.
function upright(p, boxes) {
  const tall = boxes.reduce(
    (most, box) => (Math.abs(box.y - p.y) < 1 ? Math.max(most, box.height / 2 - 6) : most),
    0,
  );
  return tall
    ? [
        { x: p.x, y: p.y - tall },
        { x: p.x, y: p.y + tall },
      ]
    : [p];
}
// A port stands below, or above, that of the open box it leads to: no bend on the way through several borders.
function straighten(made) {
  for (const way of made.ways.values()) {
    const { from, to } = way;
    const last = way.length - 1;
    for (const [side, box, other, end] of [
      ["out", made.boxes.get(from), to, last],
      ["in", made.boxes.get(to), from, 0],
    ]) {
      const source = Number(other.slice(side.length));
      if (!box || !other.startsWith(side) || !box.layout || !box.layout.ports[side].has(source)) continue;
      const x = box.x - box.width / 2 + box.layout.ports[side].get(source);
      made.ports[side].set(source, x);
      if (way.length === 2) way[end].x = x;
    }
  }
}
/* The heading of a scope stands in the first gap between the lines that enter at the top, or else to one side of
   them all, for which the scope grows. */
function placeHeading(made, needed) {
  made.width = Math.max(made.width, needed);
  const entries = [...made.ports.in.values()].sort((a, b) => a - b);
  const ends = [0, ...entries, made.width];
  const gap = ends.findIndex((x, i) => i + 1 < ends.length && ends[i + 1] - x >= needed);
  made.heading = gap > 0 ? ends[gap] + 6 : 0;
  if (gap >= 0) return;
  const last = entries[entries.length - 1];
  const left = needed - entries[0];
  const right = needed - (made.width - last);
  if (right < left) {
    made.heading = last + 6;
    made.width += right;
    return;
  }
  made.width += left;
  for (const box of made.boxes.values()) box.x += left;
  for (const way of made.ways.values()) for (const p of way) p.x += left;
  for (const places of [made.ports.in, made.ports.out, made.lanes])
    for (const [key, x] of places) places.set(key, x + left);
}
