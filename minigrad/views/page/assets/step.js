// ---------------------------------------------------------------- the panel beside the graph: a step, a leaf, or the whole

const stat = (name, ...value) => [el("dt", name), el("dd", ...value)];
const section = (title, ...content) => el("section.block", title && el("h3", title), ...content);
const nodeLink = (node, actions) =>
  button(inlineMath(symbol(node)), () => actions.choose(node.id), { class: "link", title: fullName(node) });

function stateBadge(node) {
  const { name, glyph, words } = stateOf(node);
  return el(`span.state.${name}`,
    el("span", { "aria-hidden": true }, `${glyph} `),
    name === "none" ? `no gradient: ${node.why}` : name === "cancels" ? `${words}: ${node.why}` : words,
  );
}
function stepHead(node, kicker, kind) {
  const place = node.place ? node.place.split(/[\\/]/).slice(-2).join("/") : "";
  return el("header.step-head",
    el(`p.kicker.${kind}`, kicker),
    el("h2", inlineMath(symbol(node)), el("span.what", node.op || node.kind)),
    el("p.where",
      el("bdi", node.scope || "top level"),
      place && " · ",
      place && el("code", { title: node.place }, place),
    ),
  );
}
const LONG = 32; // letters of a formula that is set smaller, to fit the panel
const wordsOf = ({ says }) => says !== undefined && el("p.says", record.sentences[says]);
function rule([formula, shapes], note, says) {
  for (const one of [formula, ...formula.querySelectorAll("math")])
    if (one.textContent.length > LONG) one.classList.add("long");
  return el("div.rule",
    says,
    formula,
    el("div.shapes", el("span.hint", "shapes"), shapes),
    note && el("p.note", note),
  );
}
const gradientName = (node) => `gradient of ${labelOf(node)}`;
const gradientCaption = (node) => inlineMath(gradientSymbol(node));
const valueCard = (node) =>
  node.value === undefined
    ? null
    : heatCard(node.value, `value of ${labelOf(node)}`, "value", { caption: inlineMath(symbol(node)) });
function gradientCard(node) {
  if (node.gradient === undefined || isAhead(node, state.at)) return null;
  return heatCard(node.gradient, gradientName(node), "gradient", { caption: gradientCaption(node) });
}
const cards = (...all) => el("div.cards", ...all);

// A setting as people write it: of a number four digits.
function settingOf(text) {
  const plain = text.replace(/^np\.\w+\((.*)\)$/, "$1");
  const x = Number(plain);
  return plain === "" || Number.isNaN(x) ? plain : digits(x);
}
function facts(node, actions) {
  const rows = [...stat("shape", shapeOf(node)), ...stat("dtype", node.dtype)];
  if (node.flops !== undefined) rows.push(...stat("FLOPs", counted(node.flops)));
  if (node.saved)
    rows.push(
      ...stat(
        "saved",
        node.saved.flatMap((s, i) => [
          i ? ", " : "",
          s.node === null ? s.name : nodeLink(nodes[s.node], actions),
        ]),
        ` · ${counted(node.saved_bytes || 0)} bytes`,
      ),
    );
  for (const [name, text] of Object.entries(node.settings || {})) rows.push(...stat(name, settingOf(text)));
  rows.push(...stat("gradient", stateBadge(node)));
  if (node.ratio !== undefined)
    rows.push(...stat("there / here", "×", number("ratio", node.ratio, digits(node.ratio, 3))));
  if (node.reach !== undefined)
    rows.push(
      ...stat(
        "beside the loss",
        "×",
        number("reach", node.reach, digits(node.reach, 2)),
        " in norm, along the path that most of it took",
      ),
    );
  if (node.unresponsive) rows.push(...stat("answers little", node.unresponsive));
  if (node.broken) rows.push(...stat("value", el("span.differs", "‼ holds NaN or ∞")));
  return el("dl.facts", rows);
}

// What was held against something at this step, such as its rules against a numeric derivative of its own kernel.
function checksOf(node) {
  return (node.checks || []).map(({ ok, mark: about, said, method, difference, tolerance }) => {
    const how = [method, ok ? "" : `allowed ${digits(tolerance, 1)}`].filter(Boolean).join(", ");
    return el(`p.measured.${ok ? "agrees" : "differs"}`, { role: ok ? null : "alert" },
      `${about}${ok ? "✓" : "✗"} ${said}${how && ` (${how})`}, difference `,
      number("step-difference", difference, digits(difference, 2)),
    );
  });
}

// Where a value is used more than once its gradients add, and may cancel.
function sumOfUses(node, actions) {
  const sent = node.uses.filter((edge) => edge.sent !== undefined);
  if (sent.length < 2 || node.gradient === undefined) return null;
  const norm = (array) => (typeof array.rms === "number" ? array.rms : NaN);
  const total = sent.reduce((sum, edge) => sum + norm(arrays[edge.sent]), 0);
  const ratio = norm(arrays[node.gradient]) / total;
  const rows = sent.map((edge) =>
    el("li",
      el(`span.chip.bin${edge.bin}`, brief(rmsOf(edge.sent))),
      " from ",
      nodeLink(nodes[edge.target], actions),
      el("span.muted", ` ${nodes[edge.target].op}`),
    ),
  );
  return section(`Σ  Used ${sent.length} times, so ${sent.length} gradients add`,
    el("ul.terms", rows),
    el("p.note",
      "‖Σg‖ / Σ‖g‖ = ",
      number("cancellation", ratio, Number.isFinite(ratio) ? digits(ratio, 3) : "–"),
      ": 1 if they agree, 0 if they cancel",
    ),
  );
}

function forwardPanel(node, step, actions) {
  const inputs = [...new Set(node.into.map((edge) => edge.source))].map((id) => nodes[id]);
  return [
    stepHead(node, `Forward ${step.number} of ${step.of}`, "forward"),
    node.tex !== undefined && rule(forwardRule(node), "", wordsOf(node)),
    section("Makes", cards(valueCard(node), gradientCard(node))),
    inputs.length > 0 && section("From", cards(inputs.map(valueCard))),
    sumOfUses(node, actions),
    section("", facts(node, actions)),
  ];
}
function backwardPanel(node, step, actions) {
  const [wanted, not] = [
    node.into.filter((edge) => edge.sent !== undefined),
    node.into.filter((edge) => edge.sent === undefined),
  ];
  const sends = wanted.map((edge) => {
    const source = nodes[edge.source];
    const note = edge.over ? `summed over the axes along which ${labelOf(source)} was broadcast` : "";
    const caption = el("span",
      "to ",
      inlineMath(symbol(source)),
      source.uses.filter((use) => use.sent !== undefined).length > 1 ? ", a term" : "",
    );
    const formulas = backwardRule(node, edge);
    return {
      rule: formulas.length > 0 && rule(formulas, note, wordsOf(edge)),
      card: heatCard(edge.sent, `gradient sent to ${labelOf(source)}`, "sent", { caption }),
    };
  });
  return [
    stepHead(node, `Backward ${step.number} of ${step.of}`, "backward"),
    answerOf(step),
    ...checksOf(node),
    byHand(step.at, actions),
    el("div.rules", sends.map((one) => one.rule)),
    section("Incoming", cards(gradientCard(node), valueCard(node))),
    sends.length > 0 && section("Sends back", cards(sends.map((one) => one.card))),
    not.length > 0 &&
      el("p.note",
        "No gradient wanted: ",
        not.flatMap((edge, i) => [
          i ? ", " : "",
          nodeLink(nodes[edge.source], actions),
          ` (${nodes[edge.source].why || "none"})`,
        ]),
      ),
    sumOfUses(node, actions),
    section("", facts(node, actions)),
  ];
}
function leafPanel(node, actions) {
  return [
    stepHead(node, node.kind, "leaf"),
    section("", cards(valueCard(node), gradientCard(node))),
    sumOfUses(node, actions),
    section("Used by",
      el("ul.terms",
        node.uses.map((edge) =>
          el("li",
            nodeLink(nodes[edge.target], actions),
            el("span.muted", ` ${nodes[edge.target].op || "detached"}`),
          ),
        ),
      ),
    ),
    section("", facts(node, actions)),
  ];
}
