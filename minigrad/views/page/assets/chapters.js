// ---------------------------------------------------------------- chapters: the hand-derived steps, and what was measured

const gradientOf = (gradient) => gradientBy(build(record.formulas[gradient.sign]));
const measured = (gradient) =>
  gradient.ok === null
    ? el("span.muted", "not measured")
    : el(
        "span",
        { class: gradient.ok ? "agrees" : "differs" },
        "difference ",
        number("difference", gradient.difference, digits(gradient.difference, 2)),
        gradient.ok ? " ✓" : " ✗",
      );
const stepState = (step) =>
  step.gradients.some((g) => g.ok === false) ? "wrong" : step.gradients.some((g) => g.ok) ? "right" : "open";

// Calls of layers, each with its steps, each with the gradients it finds.
const calls = [...grouped(record.chapters, (gradient) => gradient.call).values()].map((all) => ({
  scope: all[0].scope,
  steps: [...grouped(all, (gradient) => gradient.number).values()].map((gradients) => ({
    ...gradients[0],
    gradients,
  })),
  measured: all.filter((gradient) => gradient.ok !== null).length,
  wrong: all.filter((gradient) => gradient.ok === false).length,
  first_wrong: all.find((gradient) => gradient.ok === false),
}));
// The gradients that this backward step finds, as a person derived them.
function byHand(at, actions) {
  const found = calls.flatMap((call) =>
    call.steps.flatMap((step) =>
      step.gradients.filter((g) => g.node !== null && nodes[g.node].knownAt === at)
        .map((gradient) => ({ step, gradient })),
    ),
  );
  if (!found.length) return null;
  return el("ul.by-hand",
    found.map(({ step, gradient }) =>
      el(
        "li",
        { class: gradient.ok === false ? "wrong" : "right" },
        button(`By hand, step ${step.number}: ${step.title}`, () => actions.tab("chapters", step), {
          class: "link",
        }),
        " ",
        inlineMath(gradientOf(gradient)),
        " ",
        measured(gradient),
      ),
    ),
  );
}

function firstWrong(call) {
  const gradient = call.first_wrong;
  const index = gradient.index.length ? `[${gradient.index.join(", ")}]` : "";
  return el("div.verdict.wrong", { role: "alert" },
    el("p",
      el("strong", `First wrong step: ${gradient.number}, ${gradient.title}.`),
      " ",
      inlineMath(gradientOf(gradient)),
      " differs:",
    ),
    el("p",
      `at ${index} the engine has `,
      number("engine", gradient.engine),
      ", the formula gives ",
      number("by-hand", gradient.by_hand),
      "; relative difference ",
      number("difference", gradient.difference, digits(gradient.difference, 2)),
      `, allowed ${digits(gradient.tolerance, 1)}.`,
    ),
  );
}

function chapterStep(step, state, actions) {
  const kind = stepState(step);
  const here = step.gradients.some((g) => g.node !== null && nodes[g.node].knownAt === state.at);
  const rows = step.gradients.map((gradient) =>
    el(`div.line-of.${gradient.ok === false ? "wrong" : ""}`,
      el("div.formula",
        math(gradientOf(gradient), equals(), build(record.formulas[gradient.formula])),
        el("div.shapes",
          math(
            ml("mi", { class: "shape" }, gradient.shape),
            equals(),
            build(record.formulas[gradient.shapes]),
          ),
        ),
      ),
      el("div.verdict-of",
        measured(gradient),
        el("span.muted", "rms ", number("by-hand-rms", gradient.rms)),
        gradient.node !== null && Number.isFinite(nodes[gradient.node].knownAt) &&
          button("show", () => actions.show(gradient.node), {
            class: "link",
            "aria-label": `show the step that finds the gradient of ${gradient.symbol}`,
          }),
      ),
    ),
  );
  const badge = { right: "✓ agrees", wrong: "✗ differs", open: "not measured" }[kind];
  return el(`article.chapter.${kind}.${here ? "here" : ""}`, { "data-step": step.number },
    el("header",
      el("span.numeral", String(step.number)),
      el("div",
        el("h3", step.title),
        el("div.forward-of",
          step.forward.map((equation) => el("div", math(build(record.formulas[equation])))),
          el("div.shapes", math(build(record.formulas[step.forward_shapes]))),
        ),
      ),
      el("span.badge", badge),
    ),
    rows,
  );
}

function chaptersPanel(state, actions) {
  if (!calls.length) {
    return [
      el("header.step-head",
        el("h2", "Derived by hand"),
        el("p.lead",
          "No layer in this record says by which formulas its gradients must hold, or no backward ran through one.",
        ),
      ),
    ];
  }
  const shown = calls.map((call) => {
    const inside = [
      call.first_wrong && firstWrong(call),
      ...call.steps.map((step) => chapterStep(step, state, actions)),
    ];
    if (calls.length === 1) return el("div", inside);
    const tally =
      call.measured && !call.wrong
        ? `✓ ${call.measured} of ${call.measured} agree`
        : call.measured
          ? `✗ ${call.wrong} of ${call.measured} differ`
          : "not measured";
    const here = call.steps.some((step) =>
      step.gradients.some((g) => g.node !== null && nodes[g.node].knownAt === state.at),
    );
    return el("details.call", { open: here || call.wrong > 0 },
      el("summary",
        el("bdi", call.scope || "layer"),
        el(`span.tally.${call.wrong ? "wrong" : "right"}`, tally),
      ),
      inside,
    );
  });
  return [
    el("header.step-head",
      el("p.kicker", "Derived by hand"),
      el("h2", "Backward, in formulas"),
      el("p.lead",
        "Each step of the backward pass as a person derives it, its shapes put in, and how far the engine was from it in this run: the largest gap over the formula's largest entry.",
      ),
    ),
    ...shown,
  ];
}
