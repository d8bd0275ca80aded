"""What differs between a run and the one before it."""

from __future__ import annotations

import numpy as np

from ..engine.types import Array
from .addresses import keys_of
from .run import Run

__all__ = ["alike", "differences", "moved"]


def alike(before: Run, run: Run) -> bool:
    """Whether both have the same graph."""
    return _form(before) == _form(run)


def moved(before: Run, run: Run) -> dict[int, int]:
    """Which entry of the run each entry of the one before is."""
    if alike(before, run):
        return {entry.id: entry.id for entry in run.trace.entries}
    now = {key: i for i, key in keys_of(run.trace).items()}
    return {i: now[key] for i, key in keys_of(before.trace).items() if key in now}


def differences(before: Run, run: Run) -> dict[int, list[float | None]]:
    """By how much each value and gradient differs, relative to its size before."""
    found = {}
    for then, now in moved(before, run).items():
        other, entry = before.trace.entries[then], run.trace.entries[now]
        if other.shape == entry.shape:
            noise = {other.state, entry.state} <= {"zero", "cancels", "none"}
            gradient = 0.0 if noise else _gap(other.gradient, entry.gradient)
            pair = [_gap(other.value, entry.value), gradient]
            if any(pair):
                found[entry.id] = pair
    return found


def _form(run: Run) -> tuple[object, ...]:
    trace = run.trace
    entries = [(e.kind, e.op, e.path, e.shape, e.gradient is None) for e in trace.entries]
    edges = [(e.source, e.target, e.input, e.contribution is None) for e in trace.edges]
    return entries, edges, trace.forward_steps, trace.backward_steps


def _gap(old: Array | None, new: Array | None) -> float | None:
    """‖new − old‖ / ‖old‖ over finite entries; None if either is missing, 0 if they are equal."""
    if old is None or new is None or old.dtype.kind not in "fiub":
        return None
    if np.array_equal(old, new, equal_nan=old.dtype.kind == "f"):
        return 0.0
    before, after = np.asarray(old, float), np.asarray(new, float)
    both = np.isfinite(before) & np.isfinite(after)
    size = float(np.linalg.norm(before[both]))
    gap = float(np.linalg.norm(after[both] - before[both]))
    return gap / size if size and gap else 1.0
