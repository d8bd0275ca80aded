// ---------------------------------------------------------------- the picture: boxes with absolute places, lines with their points

/* The whole graph as it stands. Lines between the same two visible boxes are one if they carry the same value. */
function arrange(open) {
  const whole = layoutOf("", open);
  const shown = [];
  const corner = new Map();
  (function visit(layout, x, y, scope) {
    corner.set(scope, { layout, x, y });
    for (const box of layout.boxes.values()) {
      const here = { ...box, x: x + box.x, y: y + box.y };
      shown.push(here);
      if (box.layout) visit(box.layout, here.x - box.width / 2, here.y - box.height / 2, box.scope);
    }
  })(whole, 0, 0, "");
  const lines = new Map();
  for (const wire of wires) {
    const [a, b] = [visible(wire.source, open, wire.home), visible(wire.target, open)];
    if (a === b && (a[0] === "s" || !wire.back)) continue; // within a closed scope
    const single = (a[0] === "n" && b[0] === "n") || wire.back;
    const key = single ? `w${wire.id}` : `${a}>${b}>${wire.source.id}`;
    if (lines.has(key)) lines.get(key).wires.push(wire);
    else lines.set(key, { wires: [wire], points: wire.back ? laneOf(wire, corner) : wayOf(wire, corner) });
  }
  return {
    width: whole.width,
    height: whole.height,
    boxes: shown,
    lines: [...lines.values()].map(withBounds),
  };
}
function withBounds(line) {
  const [xs, ys] = [line.points.map((p) => p.x), line.points.map((p) => p.y)];
  return Object.assign(line, {
    left: Math.min(...xs),
    right: Math.max(...xs),
    top: Math.min(...ys),
    bottom: Math.max(...ys),
  });
}

// The parts of a line in each scope that it crosses, joined.
function wayOf(wire, corner) {
  const { source, target, home } = wire;
  const end = target.home;
  const chain = (scope) => ["", ...around(scope)].filter((one) => corner.has(one));
  const up = chain(home).reverse();
  const down = chain(end);
  const shared =
    up.find(
      (scope) => within(end, scope) && childOf(scope, source.id, home) !== childOf(scope, target.id, end),
    ) ?? "";
  const points = [];
  const add = (scope, from, to) => {
    const { layout, x, y } = corner.get(scope);
    const way = layout.ways.get(`${from}>${to}>${wayName(from, to, wire)}`);
    if (!way) return;
    const own = way.map((p) => ({ x: x + p.x, y: y + p.y }));
    ends(own, corner.get(scope), from, to, source.id);
    points.push(...own);
  };
  for (const scope of up) {
    if (scope === shared) break;
    add(scope, childOf(scope, source.id, home), `out${source.id}`);
  }
  add(shared, childOf(shared, source.id, home), childOf(shared, target.id, end));
  for (const scope of down.slice(down.indexOf(shared) + 1))
    add(scope, `in${source.id}`, childOf(scope, target.id, end));
  return points;
}
// Moves the first and last point of a way to the port of the box it leaves or enters, or to the scope's border.
function ends(way, { layout, x, y }, from, to, source) {
  const last = way.length - 1;
  const a = layout.boxes.get(from);
  const b = layout.boxes.get(to);
  const at = (box, below, side, end) => ({
    x:
      x +
      box.x +
      (box.layout && box.layout.ports[side].has(source)
        ? box.layout.ports[side].get(source) - box.width / 2
        : clamp(way[end].x - x - box.x, box.width * 0.3)),
    y: y + box.y + (below * box.height) / 2,
  });
  way[last] = b ? at(b, -1, "in", last) : { x: x + layout.ports.out.get(source), y: y + layout.height };
  if (a) way[0] = at(a, 1, "out", 0);
  else {
    // upright past the heading
    const port = x + layout.ports.in.get(source);
    way.splice(0, 1, { x: port, y }, { x: port, y: y + PAD.top - 6 });
  }
}
const clamp = (x, limit) => Math.max(-limit, Math.min(limit, x));

// From below a box, up along the right side of its scope, and into a box from above: to the next copy.
function laneOf(wire, corner) {
  const scope = commonScope(wire.source.home, wire.target.home);
  const { layout, x, y } = corner.get(scope);
  const lane = x + layout.lanes.get(wire.id);
  const [from, to] = [placeIn(layout, scope, wire.source), placeIn(layout, scope, wire.target)];
  const [start, down] = [x + from.x + from.width * 0.3, y + from.y + from.height / 2];
  const [end, up] = [x + to.x + to.width * 0.3, y + to.y - to.height / 2];
  return [
    { x: start, y: down },
    { x: start, y: down + 9 },
    { x: lane, y: down + 9 },
    { x: lane, y: up - 9 },
    { x: end, y: up - 9 },
    { x: end, y: up },
  ];
}

// From rank to rank by curves that start and end upright; a lane has straight parts and round corners.
function pathOf(line) {
  const { points } = line;
  const at = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  let d = `M${at(points[0].x, points[0].y)}`;
  if (line.wires[0].back) {
    for (let i = 1; i < points.length - 1; i++) {
      const [before, corner, after] = [points[i - 1], points[i], points[i + 1]];
      const near = (p) => {
        const far = Math.hypot(p.x - corner.x, p.y - corner.y) || 1;
        const r = Math.min(7, far / 2) / far;
        return at(corner.x + (p.x - corner.x) * r, corner.y + (p.y - corner.y) * r);
      };
      d += `L${near(before)}Q${at(corner.x, corner.y)} ${near(after)}`;
    }
    const last = points[points.length - 1];
    return `${d}L${at(last.x, last.y)}`;
  }
  for (let i = 1; i < points.length; i++) {
    const [from, to] = [points[i - 1], points[i]];
    const middle = (from.y + to.y) / 2;
    d +=
      Math.abs(from.x - to.x) < 0.5
        ? `L${at(to.x, to.y)}`
        : `C${at(from.x, middle)} ${at(to.x, middle)} ${at(to.x, to.y)}`;
  }
  return d;
}
