"""Ops along the last axis, a few rows at a time on both cores; softmax without the maximum where
nothing can overflow.
"""

from __future__ import annotations

import numpy as np

from ...engine.op import Axes
from ...engine.types import Array
from ...ops.products import as_rows
from ...ops.rearrange import sort
from ...ops.reduce import cumsum, max, min
from ...ops.softmax import log_softmax, row_max, row_sum, softmax
from ..by_blocks import by_rows
from ..limits import LIMITS
from ..memory import empty
from ..threads import in_slices

LIKELY_SAFE = 40  # the largest of a few scores, up to which e^x is likely to do
SAFE_RANGE = 1e-4, 1e30  # sums of e^x that neither overflow nor lose small weights to underflow


def of_rows(x: Array, axis: Axes = -1) -> bool:
    """Whether the axis is the last one of a row-major array."""
    last = axis.__class__ is int and axis in (-1, x.ndim - 1)
    return last and x.dtype.char in "fd" and x.flags.c_contiguous


def _weights(x: Array, out: Array) -> None:
    """out ← e^x / Σ e^x; x less its maximum, which takes two passes more, where it must be."""
    if np.abs(x[:: 1 + len(x) // 16].max()) < LIKELY_SAFE:  # a guess that the sums prove or not
        with np.errstate(over="ignore"):
            total = np.einsum("ri->r", np.exp(x, out))[:, None]
        if total.min() > SAFE_RANGE[0] and total.max() < SAFE_RANGE[1]:
            out /= total
            return
    np.subtract(x, row_max(x, -1), out)
    np.exp(out, out)
    out /= row_sum(out, -1)


@softmax.fast(above=LIMITS.small_entries, when=of_rows)
def _(x, axis=-1):
    if x.__class__ is not np.ndarray:  # as compile follows it
        return softmax.kernel(x, axis)
    out = empty(x.shape, x.dtype)
    rows, made = as_rows(x), as_rows(out)
    in_slices(lambda part: _weights(rows[part], made[part]), len(rows), x.size)
    return out


@softmax.fast.vjp("x")
def _(g, out, axis):
    if g.__class__ is not np.ndarray or not g.flags.c_contiguous:
        return softmax.rules["x"].function(g, out, axis)
    d_x = empty(g.shape, g.dtype)
    gradients, weights, made = map(as_rows, (g, out, d_x))

    def work(part: slice) -> None:
        along = np.vecdot(gradients[part], weights[part])[:, None]
        d = np.subtract(gradients[part], along, made[part])
        d *= weights[part]

    in_slices(work, len(weights), g.size)
    return d_x


by_rows(cumsum, log_softmax, max, min, sort)
