"""A training run as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...recording.flow import FlowRecord, FlowRow
from ...recording.requests import distances_of, divergence
from ..plain import one_line, shaped, sized
from ..terminal import Column, Paint, bar, finished, grid, wide

__all__ = ["flow_table", "last_note"]

RUN_COLUMNS = (
    Column("row", shrink="start"),
    Column("shape", drop=2),
    Column("value", right=True, drop=6),
    Column("gradient, first", right=True, drop=5),
    Column("last", right=True),
    Column("1e-8 … 1e4", drop=4),
    Column("update/weight", right=True),
    Column("cosine", right=True, drop=7),
    Column("saturated", right=True, drop=8),
    Column("", shrink="end"),
)
HEAD_FIGURES = ("entropy", "sparsity", "scores")
HEAD_COLUMNS = (
    Column("head of attention", shrink="start"),
    Column("entropy", right=True),
    Column("sparsity", right=True, drop=2),
    Column("rms of scores", right=True, drop=3),
    Column("from the baseline", right=True, drop=1),
)
NO_STEP_ENDED = (
    "no step has ended: without an optimizer of minigrad.optim, flow.log(...) ends each, after the "
    "update"
)
NOTES = {
    "cancels": "cancels to 0 in theory",
    "frozen": "frozen",
    "unused": "unused",
    "detached": "detached: used, but no gradient comes back",
    "no_grad": "used under no_grad alone",
    "zero": "gradient exactly 0",
    "not given": "not given to the optimizer",
    "symmetric": "all units are copies",
    "stale": "old gradient not cleared",
}


def flow_table(flow: FlowRecord, width: int | None = None) -> str:
    """A line for each parameter and each value, in the order of the forward pass."""
    paint = Paint()
    rows = [_cells(flow, row, paint) for row in flow.rows.values()]
    head = paint.bold(one_line(summary(flow)))
    in_training = bool(flow.samples or not flow.requests)
    body = [grid(RUN_COLUMNS, rows, wide(width))] if rows and in_training else []
    if flow.requests:
        body += [grid(HEAD_COLUMNS, _heads(flow), wide(width))]
    if flow.samples and not flow.steps:
        body += [textwrap.fill(NO_STEP_ENDED, max(wide(width), 20))]
    return finished("\n".join([head, *(body or ["no step was looked at"])]))


def _heads(flow: FlowRecord) -> list[list[str]]:
    """A line for each head of attention, over all requests that were looked at."""
    usual = {} if flow.baseline is None else _mean_distances(flow.baseline)
    found = []
    for path, mean in _mean_distances(flow).items():
        rows = [sample.rows[path] for sample in flow.requests if path in sample.rows]
        figures = [sized(median(row[name] for row in rows)) for name in HEAD_FIGURES]
        apart = f"{divergence(mean, usual[path]):.2f} bits" if path in usual else ""
        found.append([one_line(path), *figures, apart])
    return found


def _mean_distances(flow: FlowRecord) -> dict[str, NDArray[Any]]:
    """Of each head the distribution over distances, mean over requests."""
    found: dict[str, list[NDArray[Any]]] = {}
    for sample in flow.requests:
        for path, row in sample.rows.items():
            found.setdefault(path, []).append(distances_of(row))
    return {path: np.mean(several, axis=0) for path, several in found.items()}


def summary(flow: FlowRecord) -> str:
    """How many steps, how many looked at, and what was logged first and last."""
    steps, seen = flow.steps, len(flow.requests)
    said = f"{steps} step{'s' * (steps != 1)}, {len(flow.samples)} looked at"
    if seen and steps:
        said += f"; {seen} request{'s' * (seen != 1)} looked at"
    elif seen:
        requests = flow.requests[-1].step + 1
        said = f"{requests} request{'s' * (requests != 1)}, {seen} looked at"
    for name in flow.log_names:
        numbers = [x for _, x in flow.logs(name)]
        said += f"; {name} {sized(numbers[0])} → {sized(numbers[-1])}"
    return said


def last_note(flow: FlowRecord, path: str) -> str:
    """The note on a row in the latest sample with a note on it or a gradient other than zero."""
    for sample in reversed(flow.samples):
        if path in sample.notes or sample.rows.get(path, {}).get("gradient"):
            return sample.notes.get(path, "")
    return ""


def _cells(flow: FlowRecord, row: FlowRow, paint: Paint) -> list[str]:
    def middle(figure: str, text: Callable[[float], str]) -> str:
        found = [x for _, x in flow.series(row.path, figure)]
        return text(median(found)) if found else ""

    latest = next((s.rows[row.path] for s in reversed(flow.samples) if row.path in s.rows), {})
    gradients: list[float | None] = [x for _, x in flow.series(row.path, "gradient")] or [None]
    note = last_note(flow, row.path)
    stuck = latest.get("saturated") if row.saturates.startswith("units") else None
    dead = f"{stuck:.0%} of {row.saturates}" if stuck else ""
    return [
        one_line(row.path),
        shaped(row.shape),
        *map(sized, (latest.get("value"), gradients[0], gradients[-1])),
        bar(gradients[-1]),
        middle("ratio", sized),
        middle("cosine", "{:.2f}".format),
        middle("saturated", "{:.0%}".format),
        paint("dim" if note in ("cancels", "frozen") else "alarm", NOTES.get(note, note) or dead),
    ]
