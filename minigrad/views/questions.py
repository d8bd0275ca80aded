"""Questions on the backward pass of a run, for readers who predict gradients before they see them.

The page asks each at its step; a sheet lists them, with the answers at its end. All numbers are
those of the record: there is no question on what the run did not compute. The same run gives the
same questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..files import write
from ..recording.record import Edge, Entry, facts_of
from ..recording.trace import TraceRecord
from .derivation.markdown import aligned, code, escaped
from .derivation.symbols import symbols
from .fold import Fold, folded
from .formula import Formula, fill, latex, number, parse, slots
from .formula.products import gradient
from .labels import picture_name, summary
from .model import AnnotatedTrace
from .plain import one_line, sized

__all__ = ["Choice", "GradientQuestion", "questions", "write_exercises"]

SIGN_CHOICES = ("negative", "zero", "positive")
SIZE_CHOICES = 3  # choices, each ten times the one before
CANDIDATES = 4  # leaves of which the largest gradient is to be found
CLEAR_LEAD = 1.05  # how many times larger than the next the largest is at least
ROUNDING_SHARE = 1e-4  # of the largest entry: what is smaller may be rounding
TRIES = 100  # to find an entry that is not tiny
SHEET_ENTRIES = 24  # entries of an array that is printed on the sheet
SHEET_INTRO = (
    "Each question is about one step of the backward pass below: predict, then turn to the answers "
    "at the end, which are the numbers of the run. Places in an array count from 0."
)

NO_QUESTION = "No gradient of this run can be asked for."


class Choice(NamedTuple):
    """A multiple choice, and which choice is right, counted from 0."""

    asks: str
    choices: tuple[str, ...]
    right: int


@dataclass(frozen=True)
class GradientQuestion:
    """What a backward step sends, or which leaf's gradient is the largest of the whole pass."""

    asks: str
    parts: tuple[Choice, ...]
    answer: str
    step: int | None = None  # the entry whose backward step it is about
    number: int = 0  # of that step
    edge: int | None = None  # along which the gradient is sent: its place in the record
    index: tuple[int, ...] = ()  # of the entry in question
    value: float = 0.0  # that entry, or the rms of the largest gradient


def questions(trace: TraceRecord, fold: Fold | None = None) -> list[GradientQuestion]:
    """One for each backward step that sent a finite gradient, in one of alike blocks; the largest.

    >>> import minigrad as mg
    >>> x = mg.tensor([3.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * -2.0).backward()
    >>> one = questions(t)[1]
    >>> one.asks, one.parts[0].choices[one.parts[0].right], one.value
    ('multiply sends a gradient to x. What is its entry [0]?', 'negative', -2.0)
    """
    return [*_of_steps(trace, fold or folded(trace, True)), *_of_the_whole(trace)]


def _of_steps(trace: TraceRecord, fold: Fold) -> Iterator[GradientQuestion]:
    places = {id(edge): i for i, edge in enumerate(trace.edges)}
    seen: set[int] = set()
    for count, step in enumerate(trace.backward_steps, 1):
        edges = [edge for edge in trace.into(trace[step]) if _can_be_asked(trace, edge)]
        if edges and fold.leader(step) not in seen:
            seen.add(fold.leader(step))
            edge = edges[count % len(edges)]
            yield _of_entry(trace, edge, count, places[id(edge)])


def _can_be_asked(trace: TraceRecord, edge: Edge) -> bool:
    """Whether the run kept what the edge sent, as numbers that are more than rounding."""
    sent = edge.contribution
    if not isinstance(sent, np.ndarray) or sent.dtype.kind != "f" or not sent.size:
        return False
    return facts_of(sent).finite and trace[edge.source].state != "cancels"


def _of_entry(trace: TraceRecord, edge: Edge, count: int, place: int) -> GradientQuestion:
    """Sign and size of one entry that an edge sent."""
    rng, sent = np.random.default_rng(count), edge.contribution
    facts = facts_of(sent)
    least = ROUNDING_SHARE * max(abs(facts.low or 0.0), abs(facts.high or 0.0))
    for position in rng.integers(sent.size, size=TRIES):
        index = tuple(map(int, np.unravel_index(position, sent.shape)))
        value = float(sent[index])
        if value == 0 or abs(value) >= least:
            break
    parts = [Choice("Its sign", SIGN_CHOICES, int(np.sign(value)) + 1)]
    if value:
        right = int(rng.integers(SIZE_CHOICES))
        sizes_asked = (
            f"about {sized(abs(value) * 10.0 ** (i - right))}" for i in range(SIZE_CHOICES)
        )
        parts.append(Choice("Its size", tuple(sizes_asked), right))
    user, source = trace[edge.target], trace[edge.source]
    which = f"its entry {list(index)}" if index else "it"
    asks = f"{_called(user)} sends a gradient to {_called(source)}. What is {which}?"
    return GradientQuestion(
        asks,
        tuple(parts),
        f"{value:.4g}".replace("-", "−"),
        step=user.id,
        number=count,
        edge=place,
        index=index,
        value=value,
    )


def _of_the_whole(trace: TraceRecord) -> Iterator[GradientQuestion]:
    """Which leaf's gradient is the largest, unless two are nearly equal."""
    leaves = [e for e in trace.entries if e.learns and e.state not in ("none", "non-finite")]
    by_size = sorted(leaves, key=lambda e: -(e.gradient_rms or 0.0))
    some = list({one_line(e.path): e for e in reversed(by_size)}.values())[::-1][:CANDIDATES]
    rms = [e.gradient_rms or 0.0 for e in some]
    if len(some) < 2 or some[0] is not by_size[0] or rms[0] < CLEAR_LEAD * rms[1]:
        return
    listed = sorted(some, key=lambda e: e.id)
    names = tuple(one_line(e.path) for e in listed)
    part = Choice("The largest is that of", names, listed.index(some[0]))
    answer = "by rms " + ", ".join(f"{one_line(e.path)} {sized(e.gradient_rms)}" for e in some)
    yield GradientQuestion(
        "Which of these gradients is the largest, by rms?", (part,), answer, value=rms[0]
    )


def _called(entry: Entry) -> str:
    name = one_line(entry.label, 60)
    return f"{name} ({entry.op})" if entry.op and entry.op != name else name


# ---------------------------------------------------------------- as a sheet


def write_exercises(trace: TraceRecord, path: str | Path) -> Path:
    """Write the questions as Markdown with their answers at the end, whole or not at all."""
    return write(path, exercises_text(trace), "exercises")


def exercises_text(trace: TraceRecord) -> str:
    """The sheet: each question with its rule as a hint, and small arrays that the rule names."""
    trace.analyze()
    model = AnnotatedTrace(trace)
    found = questions(trace, model.fold)
    names = symbols(trace, range(len(trace.entries)), None)
    parts = ["# Predict the gradients", f"{picture_name(model)}: {summary(model)}.", SHEET_INTRO]
    answers = []
    for n, question in enumerate(found, 1):
        parts.append(f"## {n}. {_heading(model, question)}")
        parts += [escaped(question.asks), *_hint(trace, question, names)]
        parts += [f"- {one.asks}: {', '.join(map(escaped, one.choices))}" for one in question.parts]
        right = ", ".join(escaped(one.choices[one.right]) for one in question.parts)
        answers.append(f"{n}. {right}: {escaped(question.answer)}")
    parts += ["## Answers", "\n".join(answers)] if found else [NO_QUESTION]
    return "\n\n".join(parts) + "\n"


def _heading(model: AnnotatedTrace, question: GradientQuestion) -> str:
    if question.step is None:
        return "The whole pass"
    scope = model.scope_of(model.trace[question.step])
    where = f", in {code(scope)}" if scope else ""
    return f"Backward step {question.number} of {len(model.trace.backward_steps)}{where}"


def _hint(trace: TraceRecord, question: GradientQuestion, names: dict[int, Formula]) -> list[str]:
    """What the rule does with the gradient, its formula, and small arrays that it names."""
    if question.edge is None:
        return []
    edge = trace.edges[question.edge]
    user, rule = trace[edge.target], parse(trace[edge.target].vjp_tex.get(edge.input, ""))
    known = {e.input: (names[e.source], trace[e.source].value) for e in trace.into(user)}
    known["out"] = names[user.id], user.value
    known["g"] = gradient(names[user.id]), user.gradient
    values = {name: number(text) for name, text in user.settings.items()}
    values |= {name: symbol for name, (symbol, _) in known.items()}
    formula = latex(gradient(names[edge.source])), latex(fill(rule, values)), ""
    said = [f"Hint: {escaped(says)}"] if (says := user.rule_says(edge.input)) else []
    given = [known[name] for name in slots(rule) if name in known]
    rows = [(latex(symbol), shown, "") for symbol, value in given if (shown := _matrix(value))]
    whole = len(rows) == len(given)
    return [*said, aligned([formula]), *([f"Here\n\n{aligned(rows)}"] if rows and whole else [])]


def _matrix(value: object) -> str:
    """A small array as a matrix; stacked ones beside one another; nothing for a larger one."""
    if (
        not isinstance(value, np.ndarray)
        or not 0 < value.size <= SHEET_ENTRIES
        or value.dtype.kind != "f"
    ):
        return ""
    stack = value.reshape((-1, *value.shape[-2:])) if value.ndim > 1 else value.reshape((1, 1, -1))
    rows = ([" & ".join(f"{x:.3g}" for x in row) for row in one] for one in stack)
    bodies = map(" \\\\ ".join, rows)
    written = [rf"\begin{{bmatrix}}{body}\end{{bmatrix}}" for body in bodies]
    return r",\ ".join(written) if value.ndim else f"{float(value):.3g}"
