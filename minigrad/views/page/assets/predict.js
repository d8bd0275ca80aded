// ---------------------------------------------------------------- predict, then reveal: a question stands before the gradients that answer it

const quiz = { on: false, given: new Map() }; // of each question answered, how many of its parts were right
const questionAt = (step) =>
  record.questions.findIndex((one) => (one.step === null ? step.phase === "overview" : step.phase === "backward" && one.number === step.number));
// Whether what a step shows is still asked for.
const hides = (step) => quiz.on && questionAt(step) >= 0 && !quiz.given.has(questionAt(step));
// In this mode no gradient is shown before the step that finds it.
const isAhead = (node, at) => quiz.on && (at === 0 || node.knownAt > at || (node.knownAt === at && hides(steps[at])));

const right = () => [...quiz.given.values()].reduce((sum, n) => sum + n, 0);
const asked = () => [...quiz.given.keys()].reduce((sum, i) => sum + record.questions[i].parts.length, 0);
const score = () => (asked() ? `score: ${right()} of ${asked()} right` : "");
function setPredicting(on) {
  quiz.on = on;
  byId("predict").setAttribute("aria-pressed", String(on));
  play(false);
  go(on && record.questions.length > 0 && questionAt(steps[state.at]) < 0 ? record.forward.length + 1 : state.at);
}

function choicesOf([asks, choices], part) {
  const choice = (text, i) => el("label", el("input", { type: "radio", name: `part${part}`, value: i, required: true }), ` ${text}`);
  return el("fieldset", el("legend", asks), choices.map(choice));
}
// Sentences of the panel in place of a step's gradients, until they are guessed.
function questionForm(step) {
  const index = questionAt(step);
  const { asks, parts } = record.questions[index];
  const answer = (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    quiz.given.set(index, parts.filter((part, i) => Number(given.get(`part${i}`)) === part[2]).length);
    go(state.at);
    byId("panel").querySelector(".quiz button").focus();
  };
  return el("form.quiz", { "aria-label": "Predict", on: { submit: answer } },
    el("p", asks),
    parts.map(choicesOf),
    el("div.quiz-end", el("button", { type: "submit" }, "Reveal"), button("Skip", () => go(state.at + 1)), el("span.muted", score())),
  );
}
// What was right, above the gradients that are shown now.
function answerOf(step) {
  const index = questionAt(step);
  if (!quiz.on || !quiz.given.has(index)) return null;
  const { parts, answer } = record.questions[index];
  const found = quiz.given.get(index);
  const said = found === parts.length ? "✓ Right." : found ? `${found} of ${parts.length} right.` : "Not so.";
  const solution = parts.map(([, choices, i]) => choices[i]).join(", ");
  return el("div.quiz",
    el("p", { role: "status" }, el("strong", `${said} `), `It is ${solution}: ${answer}.`),
    el("div.quiz-end", button("Next step", () => go(state.at + 1)), el("span.muted", score())),
  );
}
// The whole pass, before its gradients are shown.
const askingWhole = (step) => [panelHead("The whole pass", "Predict"), questionForm(step)];
// A backward step that asks: what came, the rule as a hint, and the question.
function askingPanel(node, step) {
  const along = edges[record.questions[questionAt(step)].edge];
  const formulas = backwardRule(node, along);
  return [
    passHead(node, step, "Backward"),
    questionForm(step),
    el("details.hint-of", el("summary", "Hint: the rule"), formulas ? rule(formulas, "", wordsOf(along)) : wordsOf(along)),
    section("Incoming", cards(gradientCard(node), valueCard(node))),
    section("From", inputCards(node)),
  ];
}
