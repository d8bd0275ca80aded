// ---------------------------------------------------------------- boxes and lines as SVG; what a step changes in them

const pen = document.createElement("canvas").getContext("2d");
const FONT = {
  title: "italic 17px Georgia, 'DejaVu Serif', serif",
  op: "500 14px system-ui, sans-serif",
  small: "11.5px system-ui, sans-serif",
  name: "600 13.5px system-ui, sans-serif",
  lane: "10.5px system-ui, sans-serif",
};
const CAP = 60; // the coloured end of a box, with the gradient's size
const STRIP = 30; // cells at most of a strip, which has one for each copy of a block
function widthOf(text, font) {
  pen.font = font;
  return pen.measureText(text).width;
}
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const ops = (n) => `${n} op${n === 1 ? "" : "s"}`;
const below = (node) =>
  node.op ? [node.name ? node.op : "", shapeOf(node)].filter(Boolean).join(" · ") : shapeOf(node);
const hasCap = (node) => node.copies.some((copy) => copy.gradient !== undefined);
const isCopied = (node) => node.copies.length > 1;
// The sign by which formulas call what has no name.
const signOf = (node) => (node.op && !node.name && !isLoss(node) ? symbolOf(node) : "");
const titleOf = (node) =>
  isLoss(node) ? "L" : node.name ? short(node.name, 18) : node.op || role(node) || node.kind;

function sizeOf({ node, scope }) {
  if (scope !== undefined) {
    const inside = nodesIn(scope);
    const strip = inside.some(hasCap);
    return { width: Math.max(176, 16 + headingWidth(scope)), height: strip ? 64 : 46 };
  }
  const title =
    node.name || isLoss(node)
      ? widthOf(titleOf(node), FONT.title)
      : widthOf(titleOf(node), FONT.op) + (node.op ? widthOf(` t${node.id}`, FONT.small) + 12 : 0);
  const mark = node.check ? widthOf(" ✓", FONT.small) : 0;
  const width =
    Math.ceil(Math.max(title, widthOf(below(node), FONT.small) + mark)) + 24 + (hasCap(node) ? CAP : 10);
  return { width, height: (node.op ? 44 : 40) + (isCopied(node) && hasCap(node) ? 8 : 0) };
}
function headingWidth(scope) {
  const fold = folds[scope];
  const name = short(fold ? fold.name : lastName(scope), 30);
  return 28 + widthOf(name, FONT.name) + 10 + (fold ? 96 : 0) + widthOf(ops(999), FONT.small);
}

// ---------------------------------------------------------------- several gradients in one

const rank = (x) => (typeof x === "number" ? x : Infinity); // what is not finite is larger than anything
// The sizes of several gradients: one text, or the least and the largest.
function spreadOf(some) {
  const sizes = some.map((node) => sizeAt(node)).sort((a, b) => rank(a) - rank(b));
  const [low, high] = [sizeText(sizes[0]), sizeText(sizes[sizes.length - 1])];
  return low === high ? [low] : [low, `to ${high}`];
}
const WORST_FIRST = Object.keys(states);
const RED = new Set(["wrong", "non-finite"]);
const worstOf = (some) => WORST_FIRST.find((state) => some.some((node) => node.state === state));
// The state of several nodes: that of all, or the worst and where it is.
function stateText(some) {
  const worst = worstOf(some);
  const those = some.filter((node) => node.state === worst);
  const { words } = stateOf(those[0]);
  return those.length === some.length
    ? words
    : `${those.length} of ${some.length} ${words}: ${those[0].scope}`;
}
const binOf = (some) => Math.max(...some.map((node) => node.bin ?? 0));
// One cell for each copy, or for some of them: the gradient against the step, or the depth.
function strip(copies, x, y, width, height, known, shown) {
  const each = Math.ceil(copies.length / STRIP);
  const cells = count(Math.ceil(copies.length / each)).map((i) => copies.slice(i * each, (i + 1) * each));
  const wide = width / cells.length;
  return svg(
    "g",
    { class: "strip" },
    cells.map((some, i) => {
      const graded = some.filter((copy) => copy.gradient !== undefined && known(copy));
      const look = graded.length ? `bin${binOf(graded)} ${worstOf(graded)}` : "waiting";
      return svg("rect", {
        class: `cell ${look} ${some.includes(shown) ? "on" : ""}`,
        x: x + i * wide,
        y,
        width: Math.max(0.8, wide - (wide > 3 ? 1 : 0)),
        height,
      });
    }),
  );
}
