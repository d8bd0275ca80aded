"""What `minigrad explain` prints: summary, gradients, weights, costs and files, in this order."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..recording.record import Checks, Entry
from ..recording.trace import Trace
from ..views.attention.heatmap import Grid, sheets
from ..views.data import trace_to_dict
from ..views.plain import of_bytes, one_line
from ..views.table import checks_table
from ..views.terminal import Column, Paint, grid
from .costs import Cost, bytes_of, flops_of
from .sentence import MULTI_HEAD, Lesson, Settings, run

__all__ = ["MOST_HEADS", "Explained", "explained", "filled"]

MOST_TOKENS, MOST_HEADS = 16, 8  # shown unless all are asked for
UNBROKEN: dict[str, Any] = {
    "subsequent_indent": "  ",
    "break_long_words": False,
    "break_on_hyphens": False,
}


@dataclass(frozen=True)
class Explained:
    """One run of a sentence, as text and data."""

    lesson: Lesson
    checks: Checks

    @property
    def trace(self) -> Trace:
        return self.lesson.trace

    @property
    def tokens(self) -> list[str]:
        return self.lesson.tokens

    @property
    def title(self) -> str:
        """What the page is called."""
        s = self.lesson.settings
        return f"{s.layer}: {one_line(' '.join(s.text.split()), 60)}"

    def succeeded(self) -> bool:
        """Whether every gradient that was measured agrees, and every cost."""
        costs = [*flops_of(self.lesson), *bytes_of(self.lesson)]
        return self.checks.ok and all(cost.equal is not False for cost in costs)

    def record(self) -> dict[str, Any]:
        """The trace as plain data, with what the command knows besides under "explain"."""
        lesson = self.lesson
        costs = {"flops": flops_of(lesson), "bytes": bytes_of(lesson)}
        known = {
            **vars(lesson.settings),
            "tokens": lesson.tokens,
            "vocabulary": lesson.vocabulary,
            "loss": lesson.loss,
            "attention_weights": lesson.weights.tolist(),
            **{name: [vars(cost) for cost in rows] for name, rows in costs.items()},
        }
        return trace_to_dict(lesson.trace) | {"explain": known}

    def report(self, files: Sequence[str], width: int, *, ascii: bool, everything: bool) -> str:
        """The whole text; `files` are lines about what was written."""
        lesson, paint = self.lesson, Paint()
        flops, memory = flops_of(lesson), bytes_of(lesson)
        dot = "-" if ascii else "·"
        hint = "a row is the token that asks, a column one it attends to; each row sums to 1"
        hint += f"; {dot} is masked" * lesson.settings.causal
        parts = [
            summary(lesson, width),
            checks_table(self.checks, width, ascii=ascii),
            paint.bold("attention weights A") + "\n" + textwrap.fill(hint, width),
            _weights(lesson, width, ascii, everything),
            _costs("forward FLOPs of the layer", flops, width, ascii, paint),
            _costs("bytes of the layer's arrays", memory, width, ascii, paint)
            + "\n"
            + _saved(lesson, width),
            filled(files, width),
            _verdict(self.checks, [*flops, *memory], width, paint),
        ]
        return "\n\n".join(parts)


def explained(settings: Settings) -> Explained:
    """Run a sentence and hold its gradients against the formulas derived by hand."""
    lesson = run(settings)
    return Explained(lesson, lesson.trace.check())


def summary(lesson: Lesson, width: int) -> str:
    """Tokens, sizes and loss in one sentence."""
    s, n, words = lesson.settings, len(lesson.tokens), len(lesson.vocabulary)
    many = s.layer == MULTI_HEAD
    facts = [
        f"{n} token{'s' * (n > 1)} ({words} different)",
        f"d_model {s.d_model}",
        f"{s.heads} head{'s' * (s.heads > 1)} of {s.d_k}" if many else f"d_k {s.d_k}, d_v {s.d_v}",
        *(["causal"] if s.causal else []),
        *(["biases"] if s.bias else []),
        s.dtype,
        f"seed {s.seed}",
    ]
    title = f"{s.layer} attention" if many else s.layer
    goal = "the next token" if s.causal else "each token itself"
    loss = f"loss {lesson.loss:.4f} predicting {goal}, untrained"
    even = f"guessing evenly gives {math.log(words):.4f}"
    return textwrap.fill(f"{title}: {', '.join(facts)}; {loss}; {even}", width)


def filled(lines: Sequence[str], width: int) -> str:
    """Lines folded between words, so that a path stays whole."""
    return "\n".join(textwrap.fill(line, width, **UNBROKEN) for line in lines)


def _weights(lesson: Lesson, width: int, ascii: bool, everything: bool) -> str:
    """A map for each head, and a note on what is not shown."""
    heads, tokens = len(lesson.weights), lesson.tokens
    shown = heads if everything else min(heads, MOST_HEADS)
    titles = [f"head {head + 1}" for head in range(shown)] if heads > 1 else ["weights"]
    grids = [
        Grid(title, weights, ~lesson.allowed, tokens, tokens)
        for title, weights in zip(titles, lesson.weights[:shown], strict=True)
    ]
    maps, notes = sheets(grids, width, ascii=ascii, most=None if everything else MOST_TOKENS)
    if shown < heads:
        notes.append(f"{shown} of {heads} heads shown")
    if not everything and (shown < heads or len(tokens) > MOST_TOKENS):
        notes.append("--all shows everything, trace.json has it")
    return "\n\n".join([maps, *([textwrap.fill("; ".join(notes), width)] if notes else [])])


def _costs(title: str, costs: list[Cost], width: int, ascii: bool, paint: Paint) -> str:
    columns = (
        Column("step", shrink="end"),
        Column("counted", right=True),
        Column("", drop=1),
        Column("by formula", right=True),
    )
    rows = []
    for cost in costs:
        mark = {True: "=", False: "!=" if ascii else "≠", None: ""}[cost.equal]
        rows.append([
            cost.step,
            f"{cost.counted:,}",
            paint("" if cost.equal is not False else "alarm", mark),
            "left out" if cost.closed is None else f"{cost.closed:,}",
        ])  # fmt: skip
    return paint.bold(title) + "\n" + grid(columns, rows, width)


def _saved(lesson: Lesson, width: int) -> str:
    """What the whole graph keeps for backward."""
    trace = lesson.trace
    kept = {source for entry in trace.entries for _, source in entry.saved if source is not None}
    total = sum(_bytes(trace[i]) for i in kept if trace[i].kind != "parameter")
    what = "kept for backward in the whole graph, each array once and parameters aside"
    return textwrap.fill(f"{what}: {of_bytes(total)}", width)


def _bytes(entry: Entry) -> int:
    return entry.size * np.dtype(entry.dtype).itemsize


def _verdict(checks: Checks, costs: list[Cost], width: int, paint: Paint) -> str:
    measured = [(c.difference.relative, c.symbol) for c in checks.measured if c.difference]
    wrong = checks.first_wrong
    if not measured:
        said, good = "no gradient could be measured", False
    elif wrong is not None and wrong.difference is not None:
        d = wrong.difference
        said = (
            f"first wrong: step {wrong.number}, {wrong.title}, gradient of {wrong.symbol} at "
            f"{list(d.index)}: engine {d.engine:.6g}, formula {d.formula:.6g}, "
            f"relative difference {d.relative:.1e}"
        )
        good = False
    else:
        worst, symbol = max(measured)
        how = f", worst {worst:.1e} at {symbol}" if worst else " to the last bit"
        said, good = f"all {len(measured)} gradients agree{how}", True
    if different := [cost.step for cost in costs if cost.equal is False]:
        said, good = f"{said}; costs differ from the closed form: {', '.join(different)}", False
    return "\n".join(
        paint("good" if good else "alarm", line) for line in textwrap.wrap(said, width)
    )
