"""Gradients that are zero in theory: what moves a value in a direction that a later op cannot see.

The rounding that such a gradient consists of is no small gradient, and no vanishing one. A value is
moved in a random direction, and the ops that it reaches are run again, each with its own kernel;
where every way on ends at an op whose result does not move, the gradient is zero, and those ops
are why. What an op declares as its invariance is the reason in words. What is used only for such
values has a gradient of zero for the same reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.errors import MinigradError
from ..engine.op import EXPLAINED
from .record import Entry, rms
from .recorder import Recorder

__all__ = ["explain_zeros"]

STILL = 1e3  # rounding units of float64 that a result may move by and yet stand still
ROUNDED = 32  # the same of its own dtype, as what the record kept is rounded to that
STEP = 1e-14  # of the complex step: its square is lost
MOST = 64  # ops run again for a leaf before it is left as it is


def explain_zeros(trace: Recorder) -> None:
    """Find values whose gradient is zero in theory, and note why: leaves, and what seems to vanish.

    What was used comes last, so that the reasons of its uses are known.
    """
    for entry in reversed(trace.entries):
        if entry.gradient_rms is None:
            continue
        uses = [trace.entries[edge.target] for edge in trace.uses(entry)]
        reached = [use for use in uses if use.gradient_rms is not None]
        if reached and entry.id not in trace.roots and all(e.state == "cancels" for e in reached):
            entry.why = reached[0].why
        elif (entry.op is None or entry.state == "vanishing") and _is_rounding(trace, entry):
            entry.why = _why_unseen(trace, entry)


def _is_rounding(trace: Recorder, leaf: Entry) -> bool:
    """Whether a gradient is no larger than the rounding of what it was summed from."""
    if not isinstance(leaf.gradient, np.ndarray) or leaf.gradient.dtype.kind != "f":
        return False
    came = [trace.entries[edge.target].gradient_rms or 0.0 for edge in trace.uses(leaf)]
    eps = float(np.finfo(leaf.gradient.dtype).eps)
    return leaf.gradient_rms is not None and leaf.gradient_rms <= 1e4 * eps * max(came, default=0)


def _why_unseen(trace: Recorder, leaf: Entry) -> str:
    """Which ops keep it from the loss; empty if it is not kept, or nobody can tell."""
    rng = np.random.default_rng(leaf.id)
    moves: dict[int, Any] = {leaf.id: rng.uniform(0.5, 1.5, leaf.shape)}
    reasons: list[Entry] = []
    waiting, seen = [leaf.id], {leaf.id}
    while waiting:
        one = min(waiting)  # what it was computed from is known by then
        waiting.remove(one)
        if one != leaf.id:
            other = {i: rng.uniform(0.5, 1.5, m.shape) * rms(m) for i, m in moves.items()}
            move, usual = (_move(trace, trace.entries[one], way) for way in (moves, other))
            if move is None or not rms(usual) or len(moves) > MOST:
                return ""
            own = ROUNDED * float(np.finfo(trace.entries[one].dtype).eps)
            if rms(move) <= max(STILL * np.finfo(float).eps, own) * rms(usual):
                reasons.append(trace.entries[one])
                continue
            moves[one] = move
        ahead = {edge.target for edge in trace.uses(trace.entries[one])} - seen
        ahead = {i for i in ahead if trace.entries[i].gradient_rms is not None}
        if not ahead and one in trace.roots:
            return ""
        waiting, seen = [*waiting, *ahead], seen | ahead
    ops = dict.fromkeys(call.op for one in reasons if (call := trace.call_of(one)) is not None)
    unseen = [f"{op.name} does not see {op.invariance or 'it'}" for op in ops]
    return ", ".join(unseen)


def _move(trace: Recorder, entry: Entry, moves: dict[int, Any]) -> Any:
    """How an op's result moves with its inputs, by the complex step; None if that cannot be had."""
    call = trace.call_of(entry)
    if call is None or not call.op.analytic:
        return None
    values = trace.inputs_of(call)
    steps = [moves.get(-1 if k is None else k) for k in call.sources]
    wide = [x if m is None else x + 1j * STEP * m for x, m in zip(values, steps, strict=True)]
    try:
        with np.errstate(all="ignore"):
            return np.imag(call.run(wide)) / STEP
    except (*EXPLAINED, MinigradError):  # an op of one's own may take no complex numbers
        return None
