"""Scores, weights, and the values they average: what attention does once it has Q, K and V."""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad.errors import ArgumentError

from .heads import group_heads, repeat_heads
from .mask import fit_mask, visible, with_head_axis, with_visible
from .position import settled

__all__ = ["Attended", "attend", "named", "scaled_dot_product_attention", "softmax_backward"]


class Attended(NamedTuple):
    """What attention computed, with the scores that were asked for; in tiles there is only O."""

    O: Any
    A: Any = None
    scores: Any = None


def attend(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    method: str = "exact",
    group: int = 1,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    softcap_first: bool = True,
    drop: Any = None,
    position: Any = None,
    i: Any = None,
    j: Any = None,
    is_causal: bool = False,
    stage: str | None = None,
) -> Attended:
    """softmax(Q Kᵀ / √d_k + M) V by either method, and what else a layer may want of it.

    Each key-value head serves `group` query heads, in order. `drop` is called with A; `position`
    gives biases of S and of O for queries at i and keys at j (see relative.py). `is_causal` is for
    tiles; the exact method takes causality as a mask. Scores are (n, m) each: all but those of
    `stage` are let go once the next are there.
    """
    scale = 1 / sqrt(Q.shape[-1]) if scale is None else scale
    if method != "exact":  # (..., n, d_v)
        return Attended(named("O", attend_in_tiles(Q, K, V, mask, group, scale, is_causal)))
    if group > 1:
        K, V = repeat_heads(K, group), repeat_heads(V, group)  # (..., m, d_k), (..., m, d_v)
    S = named("S_raw", mg.matmul(Q, mg.swapaxes(K, -1, -2)))  # (..., n, m)
    scores = S if stage == "S_raw" else None
    S = named("S", mg.scale(S, scale))  # (..., n, m)   eq. (1)
    scores = S if stage == "S" else scores
    if hasattr(position, "bias"):
        S = named("S_biased", mg.add(S, _like(S, position.bias(Q, K, i, j, scale))))
    for step in ("S_capped", "S_masked") if softcap_first else ("S_masked", "S_capped"):
        S = capped(S, softcap) if step == "S_capped" else masked(S, mask)  # (..., n, m)
        scores = S if stage == step else scores
    A = named("A", mg.softmax(S))  # (..., n, m)   rows sum to 1
    A_kept = A if drop is None else named("A_dropped", drop(A))
    O = named("O", mg.matmul(A_kept, V))  # (..., n, d_v)
    O_more = position.values(A_kept, i, j) if hasattr(position, "values") else None
    if O_more is not None:
        O = named("O_relative", mg.add(O, _like(O, O_more)))
    return Attended(O, A, scores)


def capped(S: Any, softcap: float | None, name: str = "S_capped") -> Any:
    """c tanh(S / c): like S near 0, never beyond ±c. Source: Gemma 2, arXiv:2408.00118."""
    if not softcap:
        return S
    return named(name, mg.scale(mg.tanh(mg.scale(S, 1 / softcap)), softcap))


def masked(S: Any, mask: Any) -> Any:
    """S + M."""
    if mask is None:
        return S
    return named("S_masked", mg.mask_add(S, fit_mask(mask, S.shape, S)))


def attend_in_tiles(
    Q: Any, K: Any, V: Any, mask: Any, group: int, scale: float, is_causal: bool
) -> Any:
    """softmax(Q Kᵀ · scale + M) V as one node; shared key-value heads are views, not copies."""
    shape = (*Q.shape[:-1], K.shape[-2])
    if mask is not None:
        mask = fit_mask(mask, shape)
    if group > 1:
        Q, K, V = group_heads(Q, group), mg.expand_dims(K, -3), mg.expand_dims(V, -3)
        mask = mask if mask is None or mask.ndim < 3 else group_heads(mask, group)
    O = mg.scaled_dot_product_attention(
        Q, K, V, mask, is_causal=is_causal, scale=scale, method="tiled"
    )
    return mg.reshape(O, (*shape[:-1], O.shape[-1])) if group > 1 else O


def scaled_dot_product_attention(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    *,
    return_scores: bool | str = False,
    is_causal: bool = False,
    offset: Any = 0,
    scale: float | None = None,
    softcap: float | None = None,
    softcap_first: bool = True,
) -> tuple[Any, ...]:
    """Values, averaged by how well their keys match each query; recorded on Tensors, not on arrays.

        O = A V,    A = softmax(S + M),    S = Q Kᵀ / √d_k

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to S; with heads, the
            first axis of a 3-D mask is the batch. A row that may attend nowhere gives zeros.
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
    Raises:  ShapeError where these do not fit; ArgumentError if the mask holds NaN or +inf, or
             for another stage.
    Source:  Vaswani et al. 2017, eq. (1), arXiv:1706.03762.

    >>> Q, K, V = np.zeros((1, 2, 5)), np.ones((1, 3, 5)), np.arange(3.0).reshape(1, 3, 1)
    >>> O, A = scaled_dot_product_attention(Q, K, V, mask=np.array([True, True, False]))
    >>> O[0, 0], A[0, 0]
    (array([0.5]), array([0.5, 0.5, 0. ]))
    """
    stage = "S" if return_scores is True else return_scores
    if stage and stage not in ("S_raw", "S", "S_capped", "S_masked"):
        raise ArgumentError(
            "scaled_dot_product_attention: return_scores must be a bool, "
            f'"S_raw", "S", "S_capped" or "S_masked", got {return_scores!r}'
        )
    Q, K, V = (x if isinstance(x, mg.Tensor) else np.asarray(x) for x in (Q, K, V))
    if is_causal:
        i = np.arange(Q.shape[-2]) + np.asarray(offset)[..., None]  # (n,) or (B, n)
        seen = visible(i, np.arange(K.shape[-2]), causal=True)  # (n, m) or (B, n, m)
        if seen is not None:
            seen = settled(seen, None if isinstance(offset, int | np.integer) else offset)
        if Q.ndim == 4:
            mask, seen = with_head_axis(mask), with_head_axis(seen)
        recorded = any(isinstance(x, mg.Tensor) for x in (Q, K, V))
        mask = with_visible(mask, seen, recorded=recorded)
    h, shared = (x.shape[-3] if x.ndim == 4 else 1 for x in (Q, K))
    group = h // shared if shared and h % shared == 0 else 1
    found = attend(
        Q,
        K,
        V,
        mask,
        group=group,
        scale=scale,
        softcap=softcap,
        softcap_first=softcap_first,
        stage=stage or None,
    )
    return tuple(found) if stage else (found.O, found.A)


def softmax_backward(
    grad_output: NDArray[Any], softmax_output: NDArray[Any], axis: int = -1
) -> NDArray[Any]:
    """The gradient through A = softmax(S), from ∂A and A alone:  ∂S = A ⊙ (∂A − rowsum(∂A ⊙ A)).

    >>> softmax_backward(np.array([1.0, 0.0]), np.array([0.25, 0.75]))
    array([ 0.1875, -0.1875])
    """
    rowsum = np.sum(grad_output * softmax_output, axis=axis, keepdims=True)
    return np.asarray(softmax_output * (grad_output - rowsum))


def named(name: str, x: Any) -> Any:
    """The Tensor with its symbol; an array has no name."""
    return x.named(name) if isinstance(x, mg.Tensor) else x


def _like(S: Any, bias: Any) -> Any:
    """A bias in the scores' dtype; of one head, for scores that have no axis of heads."""
    bias = bias if bias.dtype == S.dtype else mg.astype(bias, S.dtype)
    return mg.squeeze(bias, 1) if bias.ndim > S.ndim else bias
