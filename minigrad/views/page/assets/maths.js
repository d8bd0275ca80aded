// ---------------------------------------------------------------- formulas: trees in, MathML elements out

// The symbol of a node, as the derivation has it: no two nodes' are alike.
function symbol(node) {
  const made = build(record.formulas[node.symbol]);
  made.setAttribute("data-of", node.id);
  return made;
}
const partial = (of) => ml("mrow", ml("mo", { form: "prefix" }, "∂"), of);
const gradientBy = (by) => ml("mfrac", partial(ml("mi", "L")), partial(by));
const gradientSymbol = (node) => gradientBy(symbol(node));

// `slots` says what stands for each placeholder of the formula.
function build(tree, slots) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, ...rest] = tree;
  if (tag === "slot") return slots ? slots(rest[0]) : ml("mi", rest[0]);
  if (tag === "room") return ml("mspace", { width: "0.17em" });
  if (tag === "shape") return ml("mi.shape", rest[0]);
  const attributes = rest[0]?.constructor === Object ? rest.shift() : {};
  const children = rest.map((child) => build(child, slots));
  if (["msup", "msub", "msubsup"].includes(tag) && children[0].localName === "mfrac")
    children[0] = ml("mrow", ml("mo.tall", "("), children[0], ml("mo.tall", ")"));
  if (tag === "mrow" && children.some((child) => child.localName === "mfrac"))
    children.filter((child) => child.localName === "mo" && "()[]".includes(child.textContent))
      .forEach((child) => child.classList.add("tall"));
  return ml(tag, attributes, children);
}
const math = (...children) => ml("math", { display: "block" }, ml("mrow", children));
const inlineMath = (...children) => ml("math", children);
const equals = () => ml("mo", "=");
const separated = (all) => all.map((one, i) => (i ? [ml("mo", ","), one] : one));

/* What stands for an op's inputs, output and gradient: symbols, or their shapes. The inputs of concatenate are arrays0,
   arrays1, ...; its formula says "arrays" for all of them. */
function slotsOf(node, shapes) {
  const shown = (one) => (shapes ? ml("mi.shape", tupleOf(one)) : symbol(one));
  return (name) => {
    if (name === "out") return shown(node);
    if (name === "g") return shapes ? shown(node) : gradientSymbol(node);
    const exact = node.into.filter((edge) => edge.input === name);
    const all = exact.length ? exact : node.into.filter((edge) => edge.input.replace(/\d+$/, "") === name);
    const used = all.map((edge) => shown(nodes[edge.source]));
    if (used.length > 4) used.splice(3, used.length - 4, ml("mi", "…"));
    return used.length > 1 ? ml("mrow", separated(used)) : used[0] || ml("mi", name);
  };
}
/* A rule of an op: what it makes equals a formula, and below it what defines its signs; and the same of shapes.
   `about` stands before the formula, made for each of the two. */
function ruleFor(node, name, formula, made, sign, about = () => []) {
  const tree = record.formulas[formula];
  const signs = ((node.where || {})[name] || []).map((one) => math(build(record.formulas[one], slotsOf(node))));
  const line = math(name ? gradientSymbol(made) : symbol(made), sign, about(), build(tree, slotsOf(node)));
  return [
    signs.length ? el("div.lines", line, signs) : line,
    math(ml("mi.shape", tupleOf(made)), equals(), about(), build(tree, slotsOf(node, true))),
  ];
}
const forwardRule = (node) => ruleFor(node, "", node.tex, node, equals());
function backwardRule(node, { input, source, over }) {
  const formula = (node.vjp || {})[input];
  if (formula === undefined) return null;
  const made = nodes[source];
  const sign = made.uses.length > 1 ? ml("mo", { lspace: "0.28em", rspace: "0.28em" }, "+=") : equals();
  const axes = () => separated(over.split(",").map((letter) => ml("mi", letter)));
  return ruleFor(node, input, formula, made, sign, () => over && ml("munder", ml("mo", "∑"), ml("mrow", axes())));
}

/* What this machine's fonts do not know of formulas, as classes by which page.css makes up for it. A font made for them
   says where scripts stand and how brackets grow; others leave superscripts above the letter and brackets small. */
function fitFonts() {
  const { classList, dataset } = document.documentElement;
  if (dataset.fonts) return; // as they were when the page was drawn first
  dataset.fonts = "known";
  const probe = ml("math", { style: "font-size: 60px" },
    ml("msup", ml("mi", "V"), ml("mi", "T")),
    ml("mrow", ml("mo", "("), ml("mspace", { height: "90px", depth: "90px" }), ml("mo", ")")),
  );
  document.body.append(probe);
  const [letter, script] = [...probe.querySelectorAll("mi")].map((one) => one.getBoundingClientRect());
  const bracket = probe.querySelector("mo").getBoundingClientRect();
  probe.remove();
  classList.toggle("high-scripts", script.bottom <= letter.top + letter.height * 0.12);
  classList.toggle("small-brackets", bracket.height <= 120);
}
