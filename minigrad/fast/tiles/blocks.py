"""Attention to one block of the keys, for who holds them in several: on several machines, say.

    O, row_max, row_sum = attend_block(q, k, v)  # softmax over these keys alone
    dq, dk, dv = attend_block_backward(g, q, k, v, O, row_max, row_sum)  # those over all keys

Results of two blocks of keys, 1 and 2, are one after the other scaled to a common maximum:

    row_max = maximum(max₁, max₂),  weightᵢ = sumᵢ · exp(maxᵢ - row_max)
    row_sum = weight₁ + weight₂,    O = (weight₁ O₁ + weight₂ O₂) / row_sum

and gradients of K and V belong to their block alone, while those of Q are added up over blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.mask_rules import MaskRule
from . import kernels
from .schedule import Schedule, on_threads

__all__ = ["attend_block", "attend_block_backward"]


def attend_block(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    rule: MaskRule | None = None,
    scale: float | None = None,
) -> tuple[Any, Any, Any]:
    """Attention to these keys, with what it takes to join it to attention to others.

    Args: as of `tiled_attention`; `rule.shifted(offset)` where queries and keys begin at different
        positions.
    Returns: O, the shift of the scores (their row maximum, or another number near it), and the sum
        of exp(S - shift): 0 for a query that sees none of these keys.
    Shapes: q (..., n, d_k), k (..., m, d_k), v (..., m, d_v) → (..., n, d_v), (..., n), (..., n)

    >>> v = np.array([[2.0], [4.0]])
    >>> O, row_max, row_sum = attend_block(np.zeros((1, 3)), np.ones((2, 3)), v)
    >>> O, row_sum * np.exp(row_max)
    (array([[3.]]), array([2.]))
    """
    schedule = Schedule(q, k, v, mask, rule, scale)
    out, row_max, row_sum, _ = on_threads(
        schedule, lambda threads: kernels.forward(schedule, threads, 0)
    )
    row_sum[np.isinf(row_sum)] = 0
    rows = (*schedule.shape, schedule.n)
    return out.reshape(*rows, schedule.d_v), row_max.reshape(rows), row_sum.reshape(rows)


def attend_block_backward(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    row_max: Any,
    row_sum: Any,
    mask: Any = None,
    rule: MaskRule | None = None,
    scale: float | None = None,
    needed: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Any, ...]:
    """What these keys contribute to ∂Q, and their own ∂K and ∂V; None where not needed.

    Args: out, row_max, row_sum: of attention to all keys; g: the gradient of that out.
    """
    schedule = Schedule(q, k, v, mask, rule, scale)
    rows = (*schedule.lead, schedule.n)
    g, out = (np.asarray(x).reshape(*rows, schedule.d_v) for x in (g, out))
    row_max, row_sum = (np.asarray(x).reshape(rows) for x in (row_max, row_sum))
    saved = kernels.Saved(out, row_max, np.where(row_sum == 0, np.inf, row_sum), None)

    def work(threads: int) -> Any:
        schedule.plan(threads, 0)
        return kernels.backward(schedule, g, saved, needed)

    return on_threads(schedule, work)  # type: ignore[no-any-return]
