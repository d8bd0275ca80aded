"""Scaled dot-product attention as a function, and softmax's gradient by hand."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad import mask_rules, masks
from minigrad.errors import ArgumentError, explained

from .arrays import Array, Mask
from .attention import attend, repeat_heads
from .mask import entries_of, fit_mask, with_head_axis, with_visible
from .module import as_array, matrices, named
from .options import soft_cap
from .position import mark_constant

__all__ = ["online_softmax_attention", "scaled_dot_product_attention", "softmax_backward"]


@explained
def scaled_dot_product_attention(
    Q: Array,
    K: Array,
    V: Array,
    mask: Mask | None = None,
    *,
    return_scores: bool | str = False,
    is_causal: bool = False,
    offset: int | NDArray[np.integer] = 0,
    scale: float | None = None,
    softcap: float | None = None,
    softcap_first: bool = True,
) -> tuple[Array, ...]:
    """Values, averaged by how well their keys match each query; recorded on Tensors, not on arrays.

        O = A V,    A = softmax(S + M),    S = Q Kᵀ / √d_k

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to S, or a mask rule;
            with heads, the first axis of a 3-D mask is the batch. A row that may attend nowhere
            gives zeros.
        return_scores: return scores too: True those scaled and not yet masked, or a stage's name:
            "S_raw" = Q Kᵀ, "S", "S_capped", "S_masked"; a step left out changes nothing.
        is_causal: query i sees keys j ≤ i + offset only, on top of the mask.
        offset: how many keys come before the first query: one number, or one for each batch (B,).
        scale: 1/√d_k unless given.
        softcap: c, to take c tanh(S / c) for S; None or 0 leaves S as it is.
        softcap_first: False caps S + M instead, so that a forbidden key keeps a weight of e^−c.
    Returns: (O, A), or (O, A, scores).
    Shapes:  Q (B, n, d_k), K (B, m, d_k), V (B, m, d_v) → O (B, n, d_v), A and S (B, n, m);
             an axis of heads may follow B, and B may be missing. After B, K and V may have fewer
             heads than Q: each serves as many, in order.
    Raises:  ShapeError where these do not fit, or a mask (n, m) could be (B, m) too; ArgumentError
             if the mask holds NaN or +inf, or for another stage.
    Source:  Vaswani et al. 2017, eq. (1), arXiv:1706.03762.

    >>> Q, K, V = np.zeros((1, 2, 5)), np.ones((1, 3, 5)), np.arange(3.0).reshape(1, 3, 1)
    >>> O, A = scaled_dot_product_attention(Q, K, V, mask=np.array([True, True, False]))
    >>> O[0, 0], A[0, 0]
    (array([0.5]), array([0.5, 0.5, 0. ]))
    """
    stage = "S" if return_scores is True else return_scores
    last = ["S_capped", "S_masked"] if softcap_first else ["S_masked", "S_capped"]
    stages = ["S_raw", "S", *last]
    if stage and stage not in stages:
        raise ArgumentError(
            "scaled_dot_product_attention: return_scores must be a bool, "
            f'"S_raw", "S", "S_capped" or "S_masked", got {return_scores!r}'
        )
    call = "scaled_dot_product_attention(Q, K, V, mask)"
    Q, K = matrices(call, Q=Q, K=K)
    V = as_array(V)
    n, m = Q.shape[-2], K.shape[-2]
    M = _entries(call, mask, Q, m)
    if is_causal:
        seen = _causal(n, m, offset)
        if Q.ndim == 4:
            M, seen = with_head_axis(M), with_head_axis(seen)
        recorded = any(isinstance(x, mg.Tensor) for x in (Q, K, V))
        M = with_visible(M, seen, recorded=recorded)
    h, h_kv = (x.shape[-3] if x.ndim == 4 else 1 for x in (Q, K))
    group = h // h_kv if h_kv and h % h_kv == 0 else 1
    K, V = repeat_heads(K, group), repeat_heads(V, group)
    M = None if M is None else fit_mask(M, (*Q.shape[:-1], m), Q)
    kept: list[Array] = []
    kept_stages = stages[: stages.index(stage) + 1] if stage else []  # the last one that there is
    capped_stage = "S" if softcap_first or M is None else "S_masked"

    def at_stage(symbol: str, S: Array) -> Array:
        S = named(symbol, S)
        if symbol in kept_stages:
            kept[:] = [S]
        if softcap and symbol == capped_stage:  # the cap follows this stage
            S = at_stage("S_capped", soft_cap(S, softcap))
        return S

    O, A = attend(Q, K, V, M, scale=scale, at_stage=at_stage)
    return O, A, *kept


def _entries(call: str, mask: Mask | None, Q: Array, m: int) -> Array | None:
    """The mask's entries, checked unless they are a rule's."""
    if mask is None:
        return None
    if not isinstance(mask, mask_rules.MaskRule):
        masks.check_meaning(call, mask, Q.shape[:-2], Q.shape[-2], m)
    return entries_of(mask, Q.shape[-2], m)


def _causal(n: int, m: int, offset: int | NDArray[np.integer]) -> NDArray[np.bool_] | None:
    """Which of m keys each of n queries sees, the first after `offset` keys; None if all."""
    if isinstance(offset, int | np.integer):
        seen = mask_rules.Causal().shifted(int(offset)).array(n, m)
        return None if seen.all() else mark_constant(seen)
    i = np.arange(n) + np.asanyarray(offset)[..., None]  # (n,) or (B, n)
    seen = i[..., None] >= np.arange(m)
    return None if seen.all() else seen


@explained
def online_softmax_attention(
    Q: Array, K: Array, V: Array, mask: Mask | None = None, *, scale: float | None = None
) -> Array:
    """O = softmax(Q Kᵀ / √d_k + M) V, one key after the other: no row of scores is ever whole.

        s = q · k_j / √d_k + M_j,    m′ = max(m, s),    c = e^(m − m′),    p = e^(s − m′),
        l ← c l + p,    o ← c o + p v_j;    and in the end  O = o / l

    What was summed under the old maximum m is multiplied by c when a larger score comes. This is
    how attention in tiles goes over keys, there many at a time.

    Args:    as `scaled_dot_product_attention`, whose O this is.
    Shapes:  Q (..., n, d_k), K (..., m, d_k), V (..., m, d_v) → (..., n, d_v)
    Raises:  ShapeError for a mask that does not fit.
    Source:  Milakov & Gimelshein 2018, arXiv:1805.02867.

    >>> Q, K, V = np.ones((1, 2, 5)), np.ones((1, 3, 5)), np.arange(3.0).reshape(1, 3, 1)
    >>> online_softmax_attention(Q, K, V).ravel()
    array([1., 1.])
    """
    call = "online_softmax_attention(Q, K, V, mask)"
    Q, K, V = matrices(call, Q=Q, K=K, V=V)
    shape = (*Q.shape[:-1], K.shape[-2])
    M = _entries(call, mask, Q, shape[-1])
    M = None if M is None else fit_mask(M, shape, Q)
    scale = 1 / sqrt(Q.shape[-1]) if scale is None else scale
    m: Any = np.full((*shape[:-1], 1), -np.inf, Q.dtype)  # (..., n, 1): the largest score so far
    l: Any = np.zeros_like(m)  # (..., n, 1): the sum of e^(s − m)
    o: Any = np.zeros((*shape[:-1], V.shape[-1]), Q.dtype)  # (..., n, d_v): of the values by it
    for j in range(shape[-1]):
        k = K[..., j : j + 1, :]  # (..., 1, d_k)
        v = V[..., j : j + 1, :]  # (..., 1, d_v)
        s = mg.scale(mg.sum(Q * k, axis=-1, keepdims=True), scale)  # (..., n, 1)
        if M is not None:
            s = mg.mask_add(s, M[..., min(j, M.shape[-1] - 1)][..., None])
        larger = mg.maximum(m, s)
        top = mg.where(larger == -np.inf, 0.0, larger)  # no key is seen yet: −inf − −inf is NaN
        c = mg.exp(m - top)  # (..., n, 1)
        p = mg.exp(s - top)  # (..., n, 1)
        l = c * l + p  # (..., n, 1)
        o = c * o + p * v  # (..., n, d_v)
        m = larger
    return o / mg.where(l == 0, 1.0, l)  # a row that sees no key is zero


@explained
def softmax_backward(
    grad_output: NDArray[np.floating], softmax_output: NDArray[np.floating], axis: int = -1
) -> NDArray[np.floating]:
    """The gradient through A = softmax(S), from ∂A and A alone:  ∂S = A ⊙ (∂A − rowsum(∂A ⊙ A)).

    >>> softmax_backward(np.array([1.0, 0.0]), np.array([0.25, 0.75]))
    array([ 0.1875, -0.1875])
    """
    rowsum = np.sum(grad_output * softmax_output, axis=axis, keepdims=True)
    return np.asarray(softmax_output * (grad_output - rowsum))
