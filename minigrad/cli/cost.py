"""`minigrad cost`: how long a training step takes on many ranks, split one way or another."""

from __future__ import annotations

from argparse import Namespace

from layers.parallel.cost import SPLITS, Machine, Sizes, step_time, stops_paying

from ..engine.errors import ArgumentError
from ..views.terminal import Column, grid, wide
from .output import show

__all__ = ["run"]


def run(arguments: Namespace) -> int:
    a, counts = arguments, _counts(arguments.ranks)
    sizes = Sizes(a.batch, a.tokens, a.d_model, a.layers, a.heads)
    machine = Machine(*(getattr(a, n) or d for n, d in Machine._field_defaults.items()))
    alone = step_time("data", 1, sizes, machine).total
    columns = (Column("ranks", right=True), *(Column(split, right=True) for split in SPLITS))
    rows = []
    for p in counts:
        times = [step_time(split, p, sizes, machine) for split in SPLITS]
        shown = [
            f"{t.total:.3g} s {alone / t.total / p:4.0%}" if t.compute < float("inf") else "–"
            for t in times
        ]
        rows.append([f"{p:,}", *shown])
    most = ", ".join(f"{s} at {stops_paying(s, counts, sizes, machine):,}" for s in SPLITS)
    said = (
        f"{sizes.layers} blocks of width {sizes.d_model:,}, {sizes.weights:,} weights, "
        f"{sizes.batch:,} × {sizes.tokens:,} tokens: {alone:.3g} s a step on one rank.\n"
        "Seconds a step, and the share of p times one rank's speed:"
    )
    show("\n".join([said, grid(columns, rows, wide(None)), f"It stops paying: {most}."]))
    return 0


def _counts(text: str) -> list[int]:
    """8..1024 as 8, 16, 32 … 1024."""
    first, dots, last = text.partition("..")
    if not first.isdecimal() or not int(first) or (dots and not last.isdecimal()):
        raise ArgumentError(f"--ranks must be N or N..M, got {text!r}")
    counts = [int(first)]
    while dots and counts[-1] * 2 <= int(last):
        counts.append(counts[-1] * 2)
    return counts
