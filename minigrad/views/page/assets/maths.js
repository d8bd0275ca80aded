// ---------------------------------------------------------------- formulas: trees in, MathML elements out

// The symbol of a node, as the derivation has it: no two nodes' are alike.
function symbol(node) {
  const made = build(record.formulas[node.symbol]);
  made.setAttribute("data-of", node.id);
  return made;
}
const gradientSymbol = (node) => gradientBy(symbol(node));
function gradientBy(by) {
  return ml("mfrac",
    ml("mrow", ml("mo", { form: "prefix" }, "∂"), ml("mi", "L")),
    ml("mrow", ml("mo", { form: "prefix" }, "∂"), by),
  );
}

// `slots` says what stands for each placeholder of the formula.
function build(tree, slots) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, ...rest] = tree;
  if (tag === "slot") return slots ? slots(rest[0]) : ml("mi", rest[0]);
  if (tag === "room") return room();
  if (tag === "shape") return ml("mi", { class: "shape" }, rest[0]);
  const attributes =
    rest.length && typeof rest[0] === "object" && !Array.isArray(rest[0]) ? rest.shift() : {};
  const children = rest.map((child) => build(child, slots));
  if (["msup", "msub", "msubsup"].includes(tag) && children[0].localName === "mfrac")
    children[0] = bracketed(children[0]);
  const tall = tag === "mrow" && children.some((child) => child.localName === "mfrac");
  if (tall)
    children.filter((child) => child.localName === "mo" && "()[]".includes(child.textContent))
      .forEach((child) => child.classList.add("tall"));
  return ml(tag, attributes, ...children);
}
const bracketed = (inside) =>
  ml("mrow", ml("mo", { class: "tall" }, "("), inside, ml("mo", { class: "tall" }, ")"));
const math = (...children) => ml("math", { display: "block" }, ml("mrow", ...children));
const inlineMath = (...children) => ml("math", ...children);
const equals = () => ml("mo", "=");
const room = () => ml("mspace", { width: "0.17em" });

// What stands for an op's inputs, output and gradient: symbols, or their shapes. concatenate's inputs are arrays0, arrays1, ...;
// its formula says "arrays" for all of them.
function slotsOf(node, shapes) {
  const shown = (one) => (shapes ? ml("mi", { class: "shape" }, tupleOf(one)) : symbol(one));
  return (name) => {
    if (name === "out") return shown(node);
    if (name === "g") return shapes ? shown(node) : gradientSymbol(node);
    const exact = node.into.filter((edge) => edge.input === name);
    const used = (
      exact.length ? exact : node.into.filter((edge) => edge.input.replace(/\d+$/, "") === name)
    ).map((edge) => shown(nodes[edge.source]));
    if (used.length > 1) {
      const some = used.length > 4 ? [...used.slice(0, 3), ml("mi", "…"), used[used.length - 1]] : used;
      return ml("mrow", ...some.flatMap((one, i) => (i ? [ml("mo", ","), one] : [one])));
    }
    return used[0] || ml("mi", name);
  };
}
// A formula, and below it what defines its signs.
function whole(node, name, formula) {
  const lines = ((node.where || {})[name] || []).map((one) =>
    math(build(record.formulas[one], slotsOf(node))),
  );
  return lines.length ? el("div.lines", formula, lines) : formula;
}
function forwardRule(node) {
  const tree = record.formulas[node.tex];
  return [
    whole(node, "", math(symbol(node), equals(), build(tree, slotsOf(node)))),
    math(ml("mi", { class: "shape" }, tupleOf(node)), equals(), build(tree, slotsOf(node, true))),
  ];
}
function backwardRule(node, edge) {
  const name = edge.input;
  const rule = (node.vjp || {})[name];
  if (rule === undefined) return [];
  const source = nodes[edge.source];
  const tree = record.formulas[rule];
  const sign = source.uses.length > 1 ? ml("mo", { lspace: "0.28em", rspace: "0.28em" }, "+=") : equals();
  const over = () =>
    edge.over.split(",").flatMap((letter, i) => [...(i ? [ml("mo", ",")] : []), ml("mi", letter)]);
  const sum = () => (edge.over ? [ml("munder", ml("mo", "∑"), ml("mrow", ...over()))] : []);
  return [
    whole(node, name, math(gradientSymbol(source), sign, ...sum(), build(tree, slotsOf(node)))),
    math(ml("mi", { class: "shape" }, tupleOf(source)), equals(), ...sum(), build(tree, slotsOf(node, true))),
  ];
}

/* What this machine's fonts know of formulas. One made for them says where scripts stand and how brackets grow; others
   leave superscripts above the letter and brackets small, and page.css makes up for it. */
function formulaFonts() {
  const probe = ml(
    "math",
    { style: "font-size: 60px" },
    ml("msup", ml("mi", "V"), ml("mi", "T")),
    ml("mrow", ml("mo", "("), ml("mspace", { height: "90px", depth: "90px" }), ml("mo", ")")),
  );
  document.body.append(probe);
  const [letter, script] = [...probe.querySelectorAll("mi")].map((one) => one.getBoundingClientRect());
  const { height } = probe.querySelector("mo").getBoundingClientRect();
  probe.remove();
  return { scripts: script.bottom > letter.top + letter.height * 0.12, brackets: height > 120 };
}
