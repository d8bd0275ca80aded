// The panel: the step, the whole pass, and the steps derived by hand.

const toEntry = (entry, text = fullName(entry)) =>
  pointed(link(text, () => choose(entry.id), { "data-of": entry.id }), (on) => mark(on ? [entry.id] : []));
const chip = (inWords, bin) => el(`span.chip ${bin === undefined ? "" : `bin${bin}`}`, inWords);
const tick = (text) => text && el(`span.${text.startsWith("✗") ? "wrong" : "right"}`, text);

function head(entry, kicker, kind) {
  const plain = entry.symbol.replace(/[{}\\]/g, "");
  return el("header.step-head",
    el(`p.kicker.${kind}`, kicker),
    el("h2", entry.label, el("span.what", entry.op && entry.op !== entry.label ? entry.op : entry.op ? "" : entry.kind), kind === "forward" ? "" : tick(entry.marks)),
    el("p.where", [entry.scope, plain !== entry.label && entry.symbol ? ["in formulas ", math(entry.symbol)] : "", entry.place && el("code", entry.place)]
      .filter((one) => given(one)).flatMap((one, i) => [i > 0 && " · ", one])),
    entry.says && el("p.says", entry.says));
}
const facts = (entry, back) => el("dl.facts",
  [["shape", `${shapeOf(entry)} ${entry.dtype}`], ["settings", settingsOf(entry)], ["FLOPs", entry.flops], ["saved for backward", entry.saved],
    ["values", entry.note], ["gradient", back && (entry.state === "none" ? `none: ${entry.why}` : entry.why || entry.state !== "ok" ? [shown.states[entry.state].join(" "), entry.why].filter(Boolean).join(": ") : "")],
    ["Σ", back && entry.sum]]
    .filter(([, x]) => given(x)).map(([name, x]) => [el("dt", name), el("dd", x)]));
const valueCard = (entry) => card(entry.value, toEntry(entry, entry.label), "value", "", entry.id);
const gradientCard = (entry, at) => (isKnown(entry, at) ? card(entry.gradient, math(entry.slope), "gradient", entry.inWords) : null);

function forwardPanel(entry, step) {
  const from = [...new Set(entry.into.map((edge) => edge.source))].map((id) => entries[id]);
  return [
    head(entry, `Forward step ${step.number} of ${step.of}`, "forward"),
    entry.broken && el("p.wrong", "‼ this op made NaN or infinity"),
    entry.equation && rule(entry.symbol, entry.equation, entry.where),
    section("", valueCard(entry)),
    section("from", el("div.cards", from.map(valueCard))),
    facts(entry, false),
  ];
}
function backwardPanel(entry, step) {
  const sent = sentOf(entry.into);
  const parts = sent.map((edge) => {
    const source = entries[edge.source];
    const several = sentOf(source.uses).length > 1;
    return el("div.sent",
      rule(edge.part, edge.equation, edge.where),
      edge.says && el("p.says", edge.says),
      el("p", "to ", toEntry(source, source.label), " ", chip(edge.inWords, edge.bin), edge.gain && el("strong", ` ${edge.gain}`),
        several && el("span.muted", ` one of ${sentOf(source.uses).length} parts that add to its gradient (${source.sum})`)));
  });
  const not = entry.into.filter((edge) => edge.inWords === undefined).map((edge) => entries[edge.source]);
  return [
    head(entry, `Backward step ${step.number} of ${step.of}`, "backward"),
    entry.checks.filter((check) => !check.ok).map((check) => el("p.wrong", { role: "alert" }, saidOf(check))),
    section("the gradient that comes", el("div.cards", card(entry.gradient, math(entry.slope), "gradient", entry.inWords))),
    section("is sent back", parts),
    section("", el("div.cards", sent.map((edge) => card(edge.sent, math(edge.part), "sent", edge.inWords)))),
    not.length > 0 && el("p.note", "no gradient to ", not.flatMap((one, i) => [i > 0 && ", ", toEntry(one, one.label), ` (${one.why || one.kind})`])),
    facts(entry, true),
    checksOf(entry),
  ];
}
const saidOf = ({ symbol, inWords, against }) => `${inWords} from ${against}${symbol ? `, for ∂L/∂${symbol}` : ""}`;
const checksOf = (entry) => entry.checks.some((check) => check.ok) &&
  el("details.checks", el("summary", tick(entry.marks), " what was checked"), el("ul", entry.checks.map((check) => el("li", saidOf(check)))));
function leafPanel(entry) {
  return [
    head(entry, entry.kind, "leaf"),
    section("", el("div.cards", valueCard(entry), gradientCard(entry, state.at))),
    section("used by", el("ul", [...new Set(entry.uses.map((edge) => edge.target))].map((id) => el("li", toEntry(entries[id]))))),
    facts(entry, isKnown(entry, state.at)),
    isKnown(entry, state.at) && checksOf(entry),
  ];
}

// ---------------------------------------------------------------- the whole pass

const SIGNS = { true: "✓", false: "✗", null: "–" };
const verdictsOf = () => shown.verdicts.map(([said, ok]) =>
  el(`p.verdict.${{ true: "right", false: "wrong", null: "open" }[ok]}`, { role: ok === false ? "alert" : null }, `${SIGNS[ok]} ${said}`,
    ok === false && firstWrong() && [" ", link("show it", () => choose(firstWrong().id))]));
const firstWrong = () => entries.find((entry) => entry.checks.some((check) => !check.ok)) || entries.find((entry) => entry.broken);
function leafRow(entry) {
  const bar = el("i", { class: `bin${entry.bin}` });
  bar.style.width = entry.bin === undefined ? 0 : `${(entry.bin + 1) * 12.5}%`;
  return el("tr", el("th", { scope: "row" }, toEntry(entry, entry.label)), el("td.muted", shapeOf(entry)),
    el("td.track", bar), el("td.figure", entry.state === "none" ? el("span.muted", entry.why) : entry.inWords), el("td", tick(entry.marks)));
}
function wholePanel() {
  const leaves = entries.filter((entry) => !entry.op && (entry.needs || entry.kind === "parameter"));
  const way = record.way && link("show the way", () => {
    mark(record.way.flatMap((id) => [edges[id].source, edges[id].target]), record.way);
  });
  return [
    el("h2", shown.headline), record.way && el("p", way),
    el("p.muted", shown.summary),
    el("p.note", "→ walks forward through the ops, then backward: each step shows its rule and the gradients that it sends."),
    ...verdictsOf(),
    section("gradients of parameters and inputs", el("table.leaves", [...Map.groupBy(leaves, (entry) => entry.scope)].map(([scope, inside]) =>
      el("tbody", scope && el("tr.scope", el("th", { scope: "rowgroup", colspan: 5 }, scope)), inside.map(leafRow))))),
  ];
}

// ---------------------------------------------------------------- the steps derived by hand

function chaptersPanel() {
  const lineOf = (check) => el(`div.line.${check.ok === false ? "wrong" : ""}`,
    math(check.equation),
    el("span.said", el("span.muted", `${shapeOf(check)}, rms ${check.rms} `), check.ok === null ? el("span.muted", `– ${check.inWords}`) : tick(check.inWords),
      given(check.entry) && Number.isFinite(entries[check.entry].knownAt) && [" ", link("show", () => { state.tab = "step"; go(entries[check.entry].knownAt); })]));
  const stepOf = (step) => el("article.chapter",
    el("header", el("span.numeral", String(step[0].number)), el("h3", step[0].title)), el("div.line", math(step[0].forward)), step.map(lineOf));
  const callOf = (call) => {
    const right = call.every((check) => check.ok !== false);
    return el("details.call", { open: chapters.length === 1 || !right },
      el("summary", `${call[0].scope || "layer"} `, tick(right ? "✓" : "✗ differs")),
      grouped(call, (check) => check.number).map(stepOf));
  };
  return [
    el("h2", "Derived by hand"),
    el("p.note", "Each step of the backward pass as a person derives it, and how far the run was from it: the largest gap over the formula's largest entry."),
    chapters.map(callOf),
  ];
}
