"""Attention on few scores: one tile, no schedule, and BLAS's own threads, as in the exact form."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.mask_rules import MaskRule
from ...ops.masks import check_mask
from ...ops.softmax import softmax
from ..memory import empty_as
from ..threads import scratch
from .mask_tiles import to_add
from .schedule import as_mask, common_dtype, factor, leading

__all__ = ["backward", "forward", "weights"]


def forward(q: Any, k: Any, v: Any, mask: Any, rule: MaskRule | None, scale: Any) -> Any:
    """O, and A = softmax(q kᵀ · scale + mask)."""
    dtype = common_dtype(q, k, v)
    q, k, v = (np.asarray(x, dtype) for x in (q, k, v))
    A = weights(q, k, mask, rule, scale)
    return _matmul(A, v, q), A


def weights(q: Any, k: Any, mask: Any, rule: MaskRule | None, scale: Any) -> Any:
    """A = softmax(q kᵀ · scale + mask): (..., n, m)."""
    mask = None if mask is None else as_mask(mask)
    S = np.matmul(q * q.dtype.type(factor(scale, q.shape[-1])), k.swapaxes(-1, -2))
    n, m = S.shape[-2:]
    if mask is not None:
        check_mask(mask)
        lead = leading(S, mask)
        S = S if S.shape[:-2] == lead else np.array(np.broadcast_to(S, (*lead, n, m)))
        S += to_add(mask, S.dtype)
    if rule is not None:
        S += to_add(rule.array(n, m), S.dtype)
    return softmax(S)


def backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, A: Any, scale: Any, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂O Vᵀ - rowsum(∂O ⊙ O)),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q."""
    needs_q, needs_k, needs_v = needed
    dv = _matmul(A.swapaxes(-1, -2), g, v) if needs_v else None
    if not (needs_q or needs_k):
        return None, None, dv
    with scratch() as memory:
        dS = memory.array("dS", (*out.shape[:-1], A.shape[-1]), A.dtype)  # times the scale
        g = g * A.dtype.type(factor(scale, q.shape[-1]))
        np.matmul(g, v.swapaxes(-1, -2), out=dS)
        dS -= np.einsum("...nd,...nd->...n", g, out)[..., None]
        dS *= A
        dq = _matmul(dS, k, q) if needs_q else None
        return dq, _matmul(dS.swapaxes(-1, -2), q, k) if needs_k else None, dv


def _matmul(a: Any, b: Any, like: Any) -> Any:
    """a @ b, laid out in memory as `like` is: so merging heads is a view."""
    out = empty_as(like, (*leading(a, b), a.shape[-2], b.shape[-1]), a.dtype)
    return np.matmul(a, b, out=out)
