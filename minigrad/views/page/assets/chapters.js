// ---------------------------------------------------------------- chapters: the hand-derived steps, and what was measured

const gradientOf = ({ sign }) => gradientBy(build(record.formulas[sign]));
const measured = ({ ok, difference }) =>
  ok === null
    ? el("span.muted", "not measured")
    : el(`span.${ok ? "agrees" : "differs"}`, "difference ", number("difference", difference, digits(difference, 2)), ok ? " ✓" : " ✗");
const foundAt = ({ node }) => (node === null ? Infinity : nodes[node].knownAt);
const isHere = (step) => step.gradients.some((gradient) => foundAt(gradient) === state.at);

// The gradients that this backward step finds, as a person derived them.
function byHand(at) {
  const lines = record.chapters.flatMap((call) => call.steps).flatMap((step) =>
    step.gradients.filter((gradient) => foundAt(gradient) === at).map((gradient) =>
      el(`li.${gradient.ok === false ? "wrong" : "right"}`,
        button(`By hand, step ${step.number}: ${step.title}`, () => showTab("chapters", step), { class: "link" }),
        " ",
        inlineMath(gradientOf(gradient)),
        " ",
        measured(gradient),
      ),
    ),
  );
  return lines.length > 0 && el("ul.by-hand", lines);
}

function firstWrong({ steps: all, first_wrong: [i, j] }) {
  const step = all[i];
  const { index, engine, by_hand, difference, tolerance, sign } = step.gradients[j];
  return el("div.verdict.wrong", { role: "alert" },
    el("p", el("strong", `First wrong step: ${step.number}, ${step.title}.`), " ", inlineMath(gradientOf({ sign })), " differs:"),
    el("p",
      `at ${index.length ? `[${index.join(", ")}]` : ""} the engine has `,
      number("engine", engine),
      ", the formula gives ",
      number("by-hand", by_hand),
      "; relative difference ",
      number("difference", difference, digits(difference, 2)),
      `, allowed ${digits(tolerance, 1)}.`,
    ),
  );
}
function lineOf(gradient) {
  const { symbol: name, shape, shapes, formula, rms, node, ok } = gradient;
  const shown = { class: "link", "aria-label": `show the step that finds the gradient of ${name}` };
  return el(`div.line-of.${ok === false ? "wrong" : ""}`,
    el("div.formula",
      math(gradientOf(gradient), equals(), build(record.formulas[formula])),
      el("div.shapes", math(ml("mi.shape", shape), equals(), build(record.formulas[shapes]))),
    ),
    el("div.verdict-of",
      measured(gradient),
      el("span.muted", "rms ", number("by-hand-rms", rms)),
      Number.isFinite(foundAt(gradient)) && button("show", () => show(node), shown),
    ),
  );
}
const BADGES = { right: "✓ agrees", wrong: "✗ differs", open: "not measured" };
function chapterStep(step) {
  return el(`article.chapter.${step.state}.${isHere(step) ? "here" : ""}`, { "data-step": step.number },
    el("header",
      el("span.numeral", String(step.number)),
      el("div",
        el("h3", step.title),
        el("div.forward-of",
          step.forward.map(([equation, shapes]) => [
            el("div", math(build(record.formulas[equation]))),
            el("div.shapes", math(build(record.formulas[shapes]))),
          ]),
        ),
      ),
      el("span.badge", BADGES[step.state]),
    ),
    step.gradients.map(lineOf),
  );
}
function chaptersPanel() {
  const calls = record.chapters;
  const none = "No layer in this record says by which formulas its gradients must hold, or no backward ran through one.";
  if (!calls.length) return [panelHead("", "Derived by hand", none)];
  const shown = calls.map((call) => {
    const inside = [call.first_wrong && firstWrong(call), call.steps.map(chapterStep)];
    if (calls.length === 1) return el("div", inside);
    const tally = el(`span.tally.${call.first_wrong ? "wrong" : "right"}`, call.tally);
    const open = call.steps.some(isHere) || Boolean(call.first_wrong);
    return el("details.call", { open }, el("summary", el("bdi", call.scope), tally), inside);
  });
  const about = "Each step of the backward pass as a person derives it, its shapes put in, and how far the engine was from it in this run: the largest gap over the formula's largest entry.";
  return [panelHead("Derived by hand", "Backward, in formulas", about), shown];
}
