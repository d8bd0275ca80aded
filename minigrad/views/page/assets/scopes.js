// ---------------------------------------------------------------- what is drawn: scopes, blocks that repeat, and lines
/* Blocks that repeat are drawn once. What is drawn is a leader; it stands for its copies, one in each block. Which copy
   is on top follows the step, so that a walk through the run turns the copies over like cards. */

const outer = (scope) => scope.slice(0, Math.max(0, scope.lastIndexOf("/")));
const lastName = (scope) => scope.slice(scope.lastIndexOf("/") + 1);
const within = (scope, around) => !around || scope === around || scope.startsWith(`${around}/`);
const around = (scope) => (scope ? parents(scope) : []);
function grouped(list, keyOf) {
  const groups = new Map();
  for (const one of list) {
    const key = keyOf(one);
    if (groups.has(key)) groups.get(key).push(one);
    else groups.set(key, [one]);
  }
  return groups;
}

const leaders = nodes.filter((node) => node.lead === undefined);
const leaderOf = (id) => nodes[nodes[id].lead ?? id];

// ---------------------------------------------------------------- long scopes

const TOGETHER = 150; // ops and scopes side by side; more are cut into parts, in the order they ran

// Of what stands side by side in a scope, by id or path: the names of the parts it comes into.
function partsOfLongScopes() {
  const children = new Map();
  for (const node of leaders.filter((one) => one.op)) {
    const chain = [...around(node.home), node.id];
    chain.forEach((child, i) => {
      const scope = i ? chain[i - 1] : "";
      if (!children.has(scope)) children.set(scope, new Set());
      children.get(scope).add(child);
    });
  }
  const found = new Map();
  for (const all of [...children.values()].filter((some) => some.size > TOGETHER)) {
    const levels = Math.ceil(Math.log(all.size) / Math.log(TOGETHER));
    const most = Math.ceil(all.size ** (1 / levels));
    [...all].forEach((child, i) => {
      const names = [];
      for (let size = most ** (levels - 1); size >= most; size /= most) {
        const first = Math.floor(i / size) * size;
        names.push(`⋯ ${first + 1} to ${Math.min(all.size, first + size)}`);
      }
      found.set(child, names);
    });
  }
  return found;
}
const longParts = partsOfLongScopes();
const joined = (...names) => names.filter(Boolean).join("/");
const moved = (scope) =>
  scope && joined(moved(outer(scope)), ...(longParts.get(scope) || []), lastName(scope));
const folds = Object.fromEntries(Object.entries(record.folds).map(([scope, fold]) => [moved(scope), fold]));
for (const node of nodes) {
  node.home = joined(moved(node.home), ...(longParts.get(node.id) || []));
  node.copy = Object.fromEntries(
    Object.entries(node.copy || {}).map(([fold, number]) => [moved(fold), number]),
  );
}
const commonScope = (one, other) => ["", ...around(one)].reverse().find((scope) => within(other, scope));
for (const node of longParts.size ? leaders : []) {
  // a leaf goes along with its uses
  const homes = node.uses.map((edge) => leaderOf(edge.target).home);
  const common = homes.length ? homes.reduce(commonScope) : "";
  if (
    !node.op &&
    within(common, node.home) &&
    common.slice(node.home.length).startsWith(node.home ? "/⋯" : "⋯")
  )
    node.home = common;
}
for (const node of leaders) {
  Object.assign(node, { copies: [], wires: [], folds: around(node.home).filter((scope) => folds[scope]) });
}
for (const node of nodes) leaderOf(node.id).copies.push(node);

// ---------------------------------------------------------------- copies

const copyOnTop = new Map(Object.keys(folds).map((fold) => [fold, 0]));
const numberIn = (node, fold) => node.copy[fold] || 0;
for (const node of leaders) {
  node.byNumbers = new Map(
    node.copies.map((copy) => [node.folds.map((fold) => numberIn(copy, fold)).join(), copy]),
  );
}
// The copy of a leader that is on top.
function onTop(node) {
  return node.copies.length === 1
    ? node
    : node.byNumbers.get(node.folds.map((fold) => copyOnTop.get(fold)).join()) || node;
}
function turnTo(node) {
  for (const fold of leaderOf(node.id).folds) copyOnTop.set(fold, numberIn(node, fold));
}
// The same node in another copy of a block.
function twinOf(node, fold, number) {
  const leader = leaderOf(node.id);
  return leader.byNumbers.get(
    leader.folds.map((one) => (one === fold ? number : numberIn(node, one))).join(),
  );
}

// ---------------------------------------------------------------- lines

/* Uses of values that are one line: those between the same two leaders, as the same input, within a copy or from one
   copy to another. */
function findWires() {
  const found = new Map();
  const times = new Map();
  for (const edge of edges) {
    const [source, target] = [leaderOf(edge.source), leaderOf(edge.target)];
    const use = `${edge.source}>${edge.target}>${edge.input}`;
    const nth = times.get(use) || 0;
    times.set(use, nth + 1);
    const name = source.copies.length > 1 ? edge.input.replace(/\d+$/, "") : edge.input;
    const key = `${source.id}>${target.id}>${name}>${nth}>${edge.apart ? "back" : ""}`;
    if (!found.has(key))
      found.set(key, { id: found.size, source, target, edges: [], back: Boolean(edge.apart) });
    found.get(key).edges.push(edge);
  }
  return [...found.values()];
}
const wires = findWires();
// The use that a line shows: that between the copies on top.
function edgeOnTop(wire) {
  if (wire.edges.length === 1) return wire.edges[0];
  const shown = (id) => onTop(leaderOf(id)).id === id;
  const into = wire.edges.filter((edge) => shown(edge.target));
  return into.find((edge) => shown(edge.source)) || into[0] || wire.edges[0];
}

/* A constant that several scopes use, such as one mask for all layers, and a parameter that very many use stand in each
   of them: no lines across the page. */
const SHARED = 6;
for (const wire of wires) wire.source.wires.push(wire);
for (const node of leaders) {
  const homes = new Set(node.wires.map((wire) => wire.target.home)).size;
  const everywhere = !node.op && homes > (node.gradient === undefined ? 1 : SHARED);
  for (const wire of node.wires) wire.home = everywhere ? wire.target.home : node.home;
}

// ---------------------------------------------------------------- scopes and what is in them

const scopeSet = new Set(leaders.flatMap((node) => around(node.home)));
const nodesOf = new Map([...scopeSet].map((scope) => [scope, []]));
for (const node of leaders) for (const scope of around(node.home)) nodesOf.get(scope).push(node);
const nodesIn = (scope) => nodesOf.get(scope);

const members = new Map([["", []], ...[...scopeSet].map((scope) => [scope, []])]);
for (const node of leaders) {
  const homes = new Set(node.wires.length ? node.wires.map((wire) => wire.home) : [node.home]);
  for (const home of homes) members.get(home).push({ key: `n${node.id}`, node, first: node.id });
}
for (const scope of scopeSet)
  members.get(outer(scope)).push({ key: `s${scope}`, scope, first: nodesIn(scope)[0].id });
for (const list of members.values()) list.sort((a, b) => a.first - b.first);

const wiresOf = new Map(["", ...scopeSet].map((scope) => [scope, []]));
for (const wire of wires) {
  for (const scope of new Set(["", ...around(wire.home), ...around(wire.target.home)]))
    wiresOf.get(scope).push(wire);
}

// The child of `scope` that holds a node at home in `home`; null if it is outside.
function childOf(scope, id, home) {
  if (!within(home, scope)) return null;
  if (home === scope) return `n${id}`;
  const rest = scope ? home.slice(scope.length + 1) : home;
  return `s${scope ? `${scope}/` : ""}${rest.split("/")[0]}`;
}
// What stands for a node on the screen: its leader, or the outermost closed scope around it.
function visible(node, open, home = leaderOf(node.id).home) {
  const closed = around(home).find((scope) => !open.has(scope));
  return closed ? `s${closed}` : `n${leaderOf(node.id).id}`;
}
