"""Attention on scores that a core's cache holds at once: one tile, no plan and no threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..parallel import ALONE, one_threaded_blas, scratch
from .tiles import check_mask
from .walk import as_mask, common_dtype, factor, to_add

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
    S = _matmul(q * q.dtype.type(factor(scale, q.shape[-1])), k.swapaxes(-1, -2))
    if mask is not None:
        check_mask(mask)
        shape = np.broadcast_shapes(S.shape, mask.shape)
        S = S if S.shape == shape else np.array(np.broadcast_to(S, shape))
        S += to_add(mask, S.dtype)
    if is_causal:
        S += to_add(np.tri(*S.shape[-2:], dtype=bool), S.dtype)
    S -= S.max(axis=-1, keepdims=True, initial=np.finfo(S.dtype).min)  # no -inf - -inf
    np.exp(S, out=S)
    total = S.sum(axis=-1, keepdims=True)
    if not total.all():
        total[total == 0] = 1  # of queries that see no key
    S /= total
    return S


def backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, A: Any, scale: float | None, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂O Vᵀ - rowsum(∂O ⊙ O)),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q."""
    wants_q, wants_k, wants_v = needed
    dv = _product(A.swapaxes(-1, -2), g, v) if wants_v else None
    if not (wants_q or wants_k):
        return None, None, dv
    with scratch() as memory:
        dS = memory.array("P", (*out.shape[:-1], A.shape[-1]), A.dtype)
        _matmul(g, v.swapaxes(-1, -2), dS)
        dS -= np.einsum("...nd,...nd->...n", g, out)[..., None]
        dS *= A
        dS *= A.dtype.type(factor(scale, q.shape[-1]))
        dq = _product(dS, k, q) if wants_q else None
        return dq, _product(dS.swapaxes(-1, -2), q, k) if wants_k else None, dv


def _product(a: Any, b: Any, like: Any) -> Any:
    """a @ b, laid out in memory as `like` is: so merging heads is a view."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty_like(like, a.dtype, shape=(*lead, a.shape[-2], b.shape[-1]))
    return _matmul(a, b, out)


def _matmul(a: Any, b: Any, out: Any = None) -> Any:
    """On one thread, as all that goes with attention in tiles."""
    if a.shape[-2] * a.shape[-1] * b.shape[-1] <= ALONE:
        return np.matmul(a, b, out=out)
    with one_threaded_blas:
        return np.matmul(a, b, out=out)
