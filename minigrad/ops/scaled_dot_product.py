"""Scaled dot-product attention: step by step, to look inside, or in tiles, for long sequences."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..engine.context import current
from ..engine.errors import ArgumentError, GradientError
from ..engine.tensor import Tensor
from ..fast.tiles import tiled
from ..fast.tiles.tiled import KEPT, attention_weights, tiled_attention
from .linalg import matmul

__all__ = ["attention_method", "scaled_dot_product_attention"]


# Entries of the score matrices from which "auto" goes in tiles. On two cores, a layer forward
# and backward under a causal mask, exact / tiled, over (heads in all, n, width of a head): (8, 128,
# 64) 0.75, (32, 64, 16) 0.7, (64, 128, 32) 1.2, (4, 512, 64) 1.2, (1, 1024, 64) 1.5, (32, 256, 64)
# 1.1; the longer the more: (1, 4096, 64) 2.6. Below, BLAS's own threads win, in the projections.
TILED_FROM = 1 << 20


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    method: str = "auto",
) -> Any:
    """Scaled dot-product attention: softmax(q kᵀ · scale + mask) v.

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to (..., n, m).
        is_causal: query i sees keys j ≤ i only (on top of the mask).
        scale: 1/√d_k unless given.
        method: "exact" records every step; "tiled" is one node, in memory that grows with n, and
            skips what the mask closes; "auto" takes the faster one (see `attention_method`). They
            agree to rounding.
    Shapes: q (..., n, d_k), k (..., m, d_k), v (..., m, d_v) → (..., n, d_v)
    Raises: ShapeError where these do not fit; ArgumentError for an unknown method; GradientError
        for "tiled" with a mask that requires a gradient.
    Source: Vaswani et al. 2017, eq. (1), arXiv:1706.03762.

    >>> q = k = v = np.eye(3)[None]
    >>> scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]
    array([1., 0., 0.])
    """
    if method == "auto":
        method = _method_for(q, k, v, mask)
    if method == "exact":
        A = attention_weights(q, k, mask, is_causal, scale)  # (..., n, m)
        return matmul(A, v)  # (..., n, d_v)
    if method != "tiled":
        raise ArgumentError(
            'scaled_dot_product_attention: method must be "auto", "exact" or "tiled", '
            f"got {method!r}"
        )
    if _needs(mask):
        raise GradientError(
            'scaled_dot_product_attention: no gradient flows into the mask with method="tiled"; '
            'use "exact", or pass mask.detach()'
        )
    keep = KEPT if current().recording and any(map(_needs, (q, k, v))) else 0
    return tiled_attention(q, k, v, mask, is_causal=is_causal, scale=scale, keep=keep)


def attention_method(heads: int, n: int, m: int, mask: Any = None, method: str = "auto") -> str:
    """What a method comes to for so many heads (in all of the batch) of n queries and m keys.

    "auto" takes "tiled" where it is faster, but "exact" for a mask that requires a gradient. Who
    listens makes no difference: a trace shows, and `compile` writes, what runs without them.
    "tiled" itself comes to "one tile" where there are few scores: BLAS then keeps its own threads.

    >>> attention_method(8, 128, 128), attention_method(8, 1024, 1024)
    ('exact', 'tiled')
    >>> attention_method(8, 128, 128, method="tiled")
    'one tile'
    """
    scores = heads * n * m
    if method == "auto":
        return "tiled" if scores >= TILED_FROM and not _needs(mask) else "exact"
    return "one tile" if method == "tiled" and scores <= tiled.ONE_TILE else method


def _method_for(q: Any, k: Any, v: Any, mask: Any) -> str:
    shapes = [np.shape(x) for x in (q, k, v)]
    try:
        heads = prod(np.broadcast_shapes(*(shape[:-2] for shape in shapes)))
        return attention_method(heads, shapes[0][-2], shapes[1][-2], mask)
    except (ValueError, IndexError):  # the op says what is wrong
        return "exact"


def _needs(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad
