"""What `minigrad explain` prints: summary, gradients, weights, costs and files, in this order."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..record import Checks, Entry
from ..views.data import trace_to_dict
from ..views.plain import of_bytes
from ..views.table import checks_table
from ..views.terminal import Column, Paint, grid
from .costs import Cost, bytes_of, flops_of
from .heatmap import heatmap
from .sentence import MULTI_HEAD, Lesson

__all__ = ["record", "report", "succeeded"]

UNBROKEN: dict[str, Any] = {
    "subsequent_indent": "  ",
    "break_long_words": False,
    "break_on_hyphens": False,
}


def report(
    lesson: Lesson,
    checks: Checks,
    files: Sequence[str],
    width: int,
    *,
    ascii: bool,
    everything: bool,
) -> str:
    """The whole text; `files` are lines about what was written."""
    paint = Paint()
    flops, memory = flops_of(lesson), bytes_of(lesson)
    dot = "-" if ascii else "·"
    hint = "a row is the token that asks, a column one it attends to; each row sums to 1"
    hint += f"; {dot} is masked" * lesson.settings.causal
    parts = [
        summary(lesson, width),
        checks_table(checks, width, ascii=ascii),
        paint.bold("attention weights A") + "\n" + textwrap.fill(hint, width),
        heatmap(
            lesson.weights, lesson.tokens, lesson.allowed, width, ascii=ascii, everything=everything
        ),
        _costs("forward FLOPs of the layer", flops, width, ascii, paint),
        _costs("bytes of the layer's arrays", memory, width, ascii, paint)
        + "\n"
        + _saved(lesson, width),
        "\n".join(textwrap.fill(line, width, **UNBROKEN) for line in files),
        _verdict(checks, [*flops, *memory], width, paint),
    ]
    return "\n\n".join(parts)


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


def succeeded(lesson: Lesson, checks: Checks) -> bool:
    """Whether every gradient that was measured agrees, and every cost."""
    return checks.ok and all(
        cost.equal is not False for cost in [*flops_of(lesson), *bytes_of(lesson)]
    )


def record(lesson: Lesson) -> dict[str, Any]:
    """The trace as plain data, with what the command knows besides under "explain"."""
    s = lesson.settings
    costs = {"flops": flops_of(lesson), "bytes": bytes_of(lesson)}
    known = {
        **vars(s),
        "tokens": lesson.tokens,
        "vocabulary": lesson.vocabulary,
        "loss": lesson.loss,
        "attention_weights": lesson.weights.tolist(),
        **{name: [vars(cost) for cost in rows] for name, rows in costs.items()},
    }
    return trace_to_dict(lesson.trace) | {"explain": known}


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
