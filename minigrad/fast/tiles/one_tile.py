"""Attention on few scores: one tile, no plan, and BLAS's own threads, as in the exact form."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.attention import check_mask
from ...ops.reduce import softmax
from ..memory import empty_as
from ..threads import scratch
from .walk import as_mask, common_dtype, factor, leading, to_add

__all__ = ["backward", "forward"]


def forward(
    q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float | None, keep: int
) -> tuple[Any, ...]:
    """O, and the by-products of attention in tiles: none but A, if it fits into `keep` bytes."""
    dtype = common_dtype(q, k, v)
    q, k, v = (np.asarray(x, dtype) for x in (q, k, v))
    A = weights(q, k, mask, is_causal, scale)
    return _product(A, v, q), None, None, None, A if A.nbytes <= keep else None


def weights(q: Any, k: Any, mask: Any, is_causal: bool, scale: float | None) -> Any:
    """A = softmax(q kᵀ · scale + mask): (..., n, m)."""
    mask = None if mask is None else as_mask(mask)
    S = np.matmul(q * q.dtype.type(factor(scale, q.shape[-1])), k.swapaxes(-1, -2))
    if mask is not None:
        check_mask(mask)
        lead = leading(S, mask)
        S = S if S.shape[:-2] == lead else np.array(np.broadcast_to(S, (*lead, *S.shape[-2:])))
        S += to_add(mask, S.dtype)
    if is_causal:
        S += to_add(np.tri(*S.shape[-2:], dtype=bool), S.dtype)
    return softmax(S)


def backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, A: Any, scale: float | None, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂O Vᵀ - rowsum(∂O ⊙ O)),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q."""
    wants_q, wants_k, wants_v = needed
    dv = _product(A.swapaxes(-1, -2), g, v) if wants_v else None
    if not (wants_q or wants_k):
        return None, None, dv
    with scratch() as memory:
        dS = memory.array("P", (*out.shape[:-1], A.shape[-1]), A.dtype)  # times the scale
        g = g * A.dtype.type(factor(scale, q.shape[-1]))
        np.matmul(g, v.swapaxes(-1, -2), out=dS)
        dS -= np.einsum("...nd,...nd->...n", g, out)[..., None]
        dS *= A
        dq = _product(dS, k, q) if wants_q else None
        return dq, _product(dS.swapaxes(-1, -2), q, k) if wants_k else None, dv


def _product(a: Any, b: Any, like: Any) -> Any:
    """a @ b, laid out in memory as `like` is: so merging heads is a view."""
    out = empty_as(like, (*leading(a, b), a.shape[-2], b.shape[-1]), a.dtype)
    return np.matmul(a, b, out=out)
