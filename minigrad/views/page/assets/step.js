// ---------------------------------------------------------------- the panel beside the graph: a step, or a leaf

const section = (title, ...content) => el("section.block", title && el("h3", title), ...content);
const nodeLink = (node) =>
  button(inlineMath(symbol(node)), () => choose(node.id), { class: "link", title: fullName(node) });
const listed = (all) => all.map((one, i) => (i ? [", ", one] : one));

const panelHead = (kicker, title, ...lead) =>
  el("header.step-head", kicker && el("p.kicker", kicker), el("h2", title), lead.length > 0 && el("p.lead", lead));

function stateBadge({ state: name, why }) {
  const [glyph, words] = states[name];
  const said = { none: `no gradient: ${why}`, cancels: `${words}: ${why}` }[name] || words;
  return el(`span.state.${name}`, el("span", { "aria-hidden": true }, `${glyph} `), said);
}
function stepHead(node, kicker, kind) {
  const place = (node.place || "").split(/[\\/]/).slice(-2).join("/");
  return el("header.step-head",
    el(`p.kicker.${kind}`, kicker),
    el("h2", inlineMath(symbol(node)), el("span.what", node.op || node.kind)),
    el("p.where",
      el("bdi", node.scope || "top level"),
      place && [" · ", el("code", { title: node.place }, place)],
    ),
  );
}
const passHead = (node, { number: n, of }, pass) => stepHead(node, `${pass} ${n} of ${of}`, pass.toLowerCase());
const LONG = 32; // letters of a formula that is set smaller, to fit the panel
const wordsOf = ({ says }) => says !== undefined && el("p.says", record.sentences[says]);
function rule([formula, shapes], note, says) {
  for (const one of [formula, ...formula.querySelectorAll("math")])
    if (one.textContent.length > LONG) one.classList.add("long");
  const hint = el("span.hint", "shapes");
  return el("div.rule", says, formula, el("div.shapes", hint, shapes), note && el("p.note", note));
}
const cards = (...all) => el("div.cards", ...all);
const valueCard = (node) =>
  node.value !== undefined &&
  heatCard(node.value, `value of ${labelOf(node)}`, "value", inlineMath(symbol(node)));
const gradientCard = (node) =>
  node.gradient !== undefined && !isAhead(node, state.at) &&
  heatCard(node.gradient, `gradient of ${labelOf(node)}`, "gradient", inlineMath(gradientSymbol(node)));
const inputCards = (node) => cards([...new Set(node.into.map((edge) => edge.source))].map((id) => valueCard(nodes[id])));

// A setting as people write it: of a number four digits.
const settingOf = (text) => (text === "" || Number.isNaN(Number(text)) ? text : digits(Number(text)));
function facts(node) {
  const { flops, saved, ratio, reach } = node;
  const kept = ({ name, node: id }) => (id === null ? name : nodeLink(nodes[id]));
  const times = (name, x, places) => x !== undefined && ["×", number(name, x, digits(x, places))];
  const known = [
    ["shape", shapeOf(node)],
    ["dtype", node.dtype],
    ["FLOPs", flops !== undefined && counted(flops)],
    ["saved", saved && [listed(saved.map(kept)), ` · ${counted(node.saved_bytes || 0)} byte${node.saved_bytes === 1 ? "" : "s"}`]],
    ...Object.entries(node.settings || {}).map(([name, text]) => [name, [settingOf(text)]]),
    ["gradient", stateBadge(node)],
    ["there / here", times("ratio", ratio, 3)],
    ["beside the loss", reach !== undefined && [times("reach", reach, 2), " in norm, along the path that most of it took"]],
    ["answers little", node.unresponsive],
    ["value", node.broken && el("span.differs", "‼ holds NaN or ∞")],
  ];
  return section("", el("dl.facts", known.filter(([, x]) => x).map(([name, x]) => [el("dt", name), el("dd", x)])));
}

// What was held against something at this step, such as its rules against a numeric derivative of its own kernel.
function checksOf(node) {
  return (node.checks || []).map(({ ok, mark: about, said, method, difference, tolerance }) => {
    const how = [method, !ok && `allowed ${digits(tolerance, 1)}`].filter(Boolean).join(", ");
    return el(`p.measured.${ok ? "agrees" : "differs"}`, { role: ok ? null : "alert" },
      `${about}${ok ? "✓" : "✗"} ${said}${how && ` (${how})`}, difference `,
      number("step-difference", difference, digits(difference, 2)),
    );
  });
}

// Where a value is used more than once its gradients add, and may cancel.
function sumOfUses(node) {
  const sent = sentOf(node.uses);
  if (sent.length < 2 || node.gradient === undefined) return null;
  const norm = (array) => (typeof rmsOf(array) === "number" ? rmsOf(array) : NaN);
  const ratio = norm(node.gradient) / sent.reduce((sum, edge) => sum + norm(edge.sent), 0);
  const term = (edge) => {
    const by = nodes[edge.target];
    return el("li", el(`span.chip.bin${edge.bin}`, brief(rmsOf(edge.sent))), " from ", nodeLink(by), el("span.muted", ` ${by.op}`));
  };
  return section(`Σ  Used ${sent.length} times, so ${sent.length} gradients add`,
    el("ul.terms", sent.map(term)),
    el("p.note",
      "‖Σg‖ / Σ‖g‖ = ",
      number("cancellation", ratio, Number.isFinite(ratio) ? digits(ratio, 3) : "–"),
      ": 1 if they agree, 0 if they cancel",
    ),
  );
}

function forwardPanel(node, step) {
  return [
    passHead(node, step, "Forward"),
    node.tex !== undefined && rule(forwardRule(node), "", wordsOf(node)),
    section("Makes", cards(valueCard(node), gradientCard(node))),
    node.into.length > 0 && section("From", inputCards(node)),
    sumOfUses(node),
    facts(node),
  ];
}
function ruleOf(node, edge) {
  const note = edge.over && `summed over the axes along which ${labelOf(nodes[edge.source])} was broadcast`;
  const formulas = backwardRule(node, edge);
  return formulas && rule(formulas, note, wordsOf(edge));
}
function sentCard(edge) {
  const source = nodes[edge.source];
  const caption = el("span", "to ", inlineMath(symbol(source)), sentOf(source.uses).length > 1 && ", a term");
  return heatCard(edge.sent, `gradient sent to ${labelOf(source)}`, "sent", caption);
}
function backwardPanel(node, step) {
  const sent = sentOf(node.into);
  const not = node.into.filter((edge) => edge.sent === undefined).map((edge) => nodes[edge.source]);
  return [
    passHead(node, step, "Backward"),
    ...checksOf(node),
    byHand(step.at),
    el("div.rules", sent.map((edge) => ruleOf(node, edge))),
    section("Incoming", cards(gradientCard(node), valueCard(node))),
    sent.length > 0 && section("Sends back", cards(sent.map(sentCard))),
    not.length > 0 && el("p.note", "No gradient wanted: ", listed(not.map((one) => [nodeLink(one), ` (${one.why || "none"})`]))),
    sumOfUses(node),
    facts(node),
  ];
}
function leafPanel(node) {
  const use = ({ target }) => el("li", nodeLink(nodes[target]), el("span.muted", ` ${nodes[target].op || "detached"}`));
  return [
    stepHead(node, node.kind, "leaf"),
    section("", cards(valueCard(node), gradientCard(node))),
    sumOfUses(node),
    section("Used by", el("ul.terms", node.uses.map(use))),
    facts(node),
  ];
}
