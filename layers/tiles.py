"""Attention in tiles, in the place of `attend`: the (n, m) scores are never whole."""

from __future__ import annotations

from functools import reduce
from math import sqrt
from operator import and_
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.errors import ArgumentError

from .call import Array
from .masking import Mask, MaskRule, Positions, for_scores, joined, rules_apart

__all__ = ["in_tiles", "online_softmax"]


def in_tiles(
    Q: Any, K: Any, V: Any, i: Positions, j: Positions, *masks: Mask | None, drop: Any = None
) -> tuple[Any, None, Any]:
    """softmax(Q Kᵀ / √d_k + M) V as one node, whose memory grows with n; there are no weights.

        MultiHeadAttention(d_model, n_heads, mask=causal, attend=in_tiles)

    A rule is evaluated tile by tile, at the tokens' positions; tiles in which no key is seen are
    skipped.

    Raises: ArgumentError with dropout, which needs the weights.
    Source: Dao et al. 2022, arXiv:2205.14135.

    >>> from layers import MultiHeadAttention, causal
    >>> layer = MultiHeadAttention(6, 3, mask=causal, attend=in_tiles, rng=0)
    >>> layer(np.zeros((1, 5, 6))).shape, layer.attention_weights
    ((1, 5, 6), None)
    """
    if drop is not None:
        raise ArgumentError("in_tiles: dropout needs the weights, which tiles never hold")
    rule = None
    rules, others = rules_apart(masks)
    if rules and all(at.ndim == 1 and (np.diff(at) == 1).all() for at in (i, j)):
        both = reduce(and_, rules)
        rule = MaskRule(_from_first, both.name, (both, int(i[0]), int(j[0])))
        masks = tuple(others)
    M = joined(i, j, *masks)
    if M is not None:
        M = for_scores(M, (*Q.shape[:-1], K.shape[-2]))
    O = mg.tiled_attention(Q, K, V, M, rule)
    return O.named("O"), None, M


def _from_first(i: Positions, j: Positions, rule: MaskRule, first_i: int, first_j: int) -> Any:
    """A rule for queries and keys of which the first ones are at these positions."""
    return rule(i + first_i, j + first_j)


def online_softmax(Q: Array, K: Array, V: Array) -> Array:
    """O = softmax(Q Kᵀ / √d_k) V, one key after the other: no row of scores is ever whole.

        s = q · k_j / √d_k,    m′ = max(m, s),    c = e^(m − m′),    p = e^(s − m′),
        l ← c l + p,    o ← c o + p v_j;    and in the end  O = o / l

    What was summed under the old maximum m is multiplied by c when a larger score comes. This is
    how attention in tiles goes over keys, there many at a time.

    Shapes:  Q (..., n, d_k), K (..., m, d_k), V (..., m, d_v) → (..., n, d_v)
    Source:  Milakov & Gimelshein 2018, arXiv:1805.02867.

    >>> Q, K, V = np.ones((1, 2, 5)), np.ones((1, 3, 5)), np.arange(3.0).reshape(1, 3, 1)
    >>> online_softmax(Q, K, V).ravel()
    array([1., 1.])
    """
    m: Any = -np.inf
    l: Any = 0.0
    o: Any = 0.0
    for j in range(K.shape[-2]):
        k, v = K[..., j : j + 1, :], V[..., j : j + 1, :]  # (..., 1, d)
        s = (Q * k).sum(axis=-1, keepdims=True) / sqrt(Q.shape[-1])  # (..., n, 1)
        larger = np.maximum(m, s)
        c, p = np.exp(m - larger), np.exp(s - larger)
        l = c * l + p  # (..., n, 1)
        o = c * o + p * v  # (..., n, d_v)
        m = larger
    return np.asarray(o / l)
