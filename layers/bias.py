"""Biases of the scores: a number for each distance, learned (T5) or fixed (ALiBi)."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg

from .arrays import Array
from .attention_option import AttentionOption, TokenPositions, add_bias
from .linear import check_sizes
from .module import Module, named
from .position import mark_constant
from .relative import distances

__all__ = ["ALiBi", "T5Bias", "alibi_slopes", "t5_bucket"]


class T5Bias(Module, AttentionOption):
    """A learned number for each head and bucket of distances, added to the score.

        S_ij = q_i · k_j + b_{bucket(j − i)}      (T5 itself does not scale: `scale=1`)

    Args:
        bidirectional: half of the buckets for later keys; False puts all of those in bucket 0.
        n_buckets, max_distance: as `t5_bucket`.
    Attributes: table (n_buckets, h), 0 at first.
    Source:  Raffel et al. 2020, section 2.1, arXiv:1910.10683.

    >>> queries, keys = np.zeros((5, 2)), np.zeros((7, 2))
    >>> T5Bias(n_heads=3)(queries, keys).shape
    (3, 5, 7)
    """

    def __init__(
        self,
        n_heads: int,
        n_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_sizes("T5Bias", n_heads=n_heads, n_buckets=n_buckets, max_distance=max_distance)
        self.n_buckets, self.max_distance = n_buckets, max_distance
        self.bidirectional = bidirectional
        self.table = mg.tensor(np.zeros((n_buckets, n_heads), dtype), requires_grad=True)

    def forward(self, Q: Array, K: Array, i: Any = None, j: Any = None) -> Any:
        to = distances(Q.shape[-2], K.shape[-2], i, j)
        bucket = t5_bucket(to, self.n_buckets, self.max_distance, self.bidirectional)
        b = mg.take(self.table, mark_constant(bucket, i, j), axis=0)  # (n, m, h) or (B, n, m, h)
        return mg.transpose(b, (2, 0, 1) if b.ndim == 3 else (0, 3, 1, 2)).named("b")  # (h, n, m)

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Any:
        return named("S_biased", add_bias(S, self(Q, K, at.i, at.j)))


class ALiBi(Module, AttentionOption):
    """A penalty that grows with the distance, at its own rate in each head; nothing is learned.

        S_ij = q_i · k_j / √d_k − m_h |i − j|

    Attributes: heads: which of them it is for; all, unless ranks share them.
    Source:  Press, Smith, Lewis 2022, arXiv:2108.12409.

    >>> queries = keys = np.zeros((2, 3))
    >>> ALiBi(n_heads=2)(queries, keys)
    array([[[ 0.        , -0.0625    ],
            [-0.0625    ,  0.        ]],
    <BLANKLINE>
           [[ 0.        , -0.00390625],
            [-0.00390625,  0.        ]]])
    """

    def __init__(self, n_heads: int) -> None:
        self.n_heads, self.heads = n_heads, slice(None)
        alibi_slopes(n_heads)

    def forward(self, Q: Array, K: Array, i: Any = None, j: Any = None) -> Any:
        slopes = alibi_slopes(self.n_heads)[self.heads, None, None]  # (h, 1, 1)
        far = np.abs(distances(Q.shape[-2], K.shape[-2], i, j))
        penalty = slopes * -(far if far.ndim == 2 else far[:, None])  # (h, n, m) or (B, h, n, m)
        return mark_constant(penalty.astype(Q.dtype, copy=False), i, j)

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Any:
        return named("S_biased", add_bias(S, self(Q, K, at.i, at.j)))


def alibi_slopes(n_heads: int) -> NDArray[Any]:
    """The rate m of each head:  2^(−8 k / h) for k = 1 to h, where h is a power of two.

    Otherwise those of the next lower power p, then every other one of 2 p heads.

    >>> alibi_slopes(4).tolist(), alibi_slopes(3).tolist()
    ([0.25, 0.0625, 0.015625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    check_sizes("alibi_slopes", n_heads=n_heads)
    p = 2 ** int(np.log2(n_heads))
    own = 2.0 ** (-8.0 / p * np.arange(1, p + 1))
    between = 2.0 ** (-8.0 / (2 * p) * np.arange(1, 2 * p, 2))
    return np.concatenate((own, between[: n_heads - p]))


def t5_bucket(
    distance: ArrayLike, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> NDArray[Any]:
    """The bucket of each distance j − i: near ones have their own, far ones share, by logarithm.

    >>> t5_bucket([0, 1, -1, -7, -8, -15, -1000]).tolist()
    [0, 17, 1, 7, 8, 9, 15]
    >>> t5_bucket([0, 1, -1, -15, -16, -1000], bidirectional=False).tolist()
    [0, 0, 1, 15, 16, 31]
    """
    to = np.asanyarray(distance)
    half = n_buckets // 2 if bidirectional else n_buckets
    later = half * (to > 0) if bidirectional else 0
    far = np.abs(to) if bidirectional else np.maximum(-to, 0)
    exact = half // 2  # distances below have a bucket each
    # In float32, as T5 computes it: at a bucket's edge the rounding decides.
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact))
    steps = ratio / np.float32(log(max_distance / exact)) * np.float32(half - exact)
    shared = np.minimum(exact + steps.astype(np.int64), half - 1)
    return np.asanyarray(later + np.where(far < exact, far, shared))
