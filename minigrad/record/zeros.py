"""Which gradients are zero in theory: they consist of rounding, and do not vanish.

To find them a value is moved, and the ops that it reaches are run again. If every path ends at an
op whose result does not move, the gradient is zero because of those ops.
"""

from __future__ import annotations

import numpy as np

from ..check import kernel_of
from ..engine.op import EXPLAINED, registry
from .checks import arguments
from .record import Array, Entry, Record, rms

__all__ = ["why_zero"]

STILL = 1e3  # rounding units: a result that moves by no more does not move
MOST_RERUNS = 64  # ops that are run again for one value


def why_zero(record: Record, entry: Entry, state: str) -> str:
    """Why a gradient that is no larger than rounding is zero in theory; empty if it is not."""
    g = entry.gradient
    uses = [record.entries[edge.target] for edge in entry.uses if edge.contribution is not None]
    if not uses or entry.id in record.roots:
        return ""
    if all(use.state == "zero in theory" for use in uses):
        return uses[0].why
    if g is None or g.dtype.kind != "f" or (entry.op and state != "vanishing"):
        return ""
    came = max(use.gradient_rms or 0.0 for use in uses)
    is_rounding = rms(g) <= STILL * 10 * float(np.finfo(g.dtype).eps) * came
    return _unseen_by(record, entry) if is_rounding else ""


def _unseen_by(record: Record, leaf: Entry) -> str:
    """The ops whose results do not move with it, in words; empty if it is seen, or unknown."""
    rng = np.random.default_rng(leaf.id)

    def drawn(like: Array) -> Array:
        """A move of the same size in another direction."""
        move = rng.random(like.shape, np.float32) + np.float32(0.5)
        return move.astype(like.dtype, copy=False) * like.dtype.type(rms(like))

    moves = {leaf.id: drawn(np.ones(leaf.shape, leaf.dtype))}
    still: dict[str, None] = {}
    for entry in record.entries[leaf.id + 1 :]:  # all that it was computed from comes before it
        inputs = {e.input: moves[e.source] for e in entry.takes if e.source in moves}
        if not inputs or entry.gradient is None:
            continue
        move = _move(record, entry, inputs)
        usual = _move(record, entry, {name: drawn(m) for name, m in inputs.items()})
        if not rms(usual) or len(moves) > MOST_RERUNS:
            return ""
        if rms(move) <= STILL * np.finfo(entry.dtype).eps * rms(usual):
            still[f"{entry.op} does not see it"] = None
        elif entry.id in record.roots:
            return ""
        else:
            moves[entry.id] = move
    return ", ".join(still)


def _move(record: Record, entry: Entry, moves: dict[str, Array]) -> Array:
    """By how much an op's result moves with its inputs; empty if its kernel refuses them."""
    op, inputs = registry[entry.op], arguments(record, entry)
    moved = [x + moves[name] if name in moves else x for name, x in inputs.items()]
    if entry.value is None or np.dtype(entry.dtype).itemsize < 4 or not op.analytic:
        return np.zeros(0)  # a kink may lie beside it
    try:
        with np.errstate(all="ignore"):
            return np.nan_to_num(kernel_of(op, [*entry.settings.values()])(moved) - entry.value)
    except EXPLAINED:
        return np.zeros(0)
