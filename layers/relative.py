"""Relative positions: what a score gains from how far apart its two tokens are.

Each is an AttentionOption, to be given as `position=`: it adds to the scores, one to O as well.
"""

from __future__ import annotations

from math import log
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, explained

from .arrays import Array
from .attention import repeat_heads, split_heads
from .initialisers import Seed, generator
from .linear import check_sizes, draw_affine, linear
from .module import Module, as_named_tensor, named
from .options import AttentionOption, TokenPositions, add_bias
from .position import mark_constant, positions_of, sinusoidal_encoding

__all__ = [
    "ALiBi",
    "RelativePosition",
    "T5Bias",
    "TransformerXLPosition",
    "alibi_slopes",
    "t5_bucket",
]

Positions: TypeAlias = ArrayLike | None
"""Of queries or keys: (n,) or (B, n); None counts from 0."""


class RelativePosition(Module, AttentionOption):
    """A learned vector for each distance, clipped at ±k, that is scored like a key.

        S_ij = q_i · (k_j + a^K_{j−i}) / √d_k,    o_i = Σ_j A_ij (v_j + a^V_{j−i})

    Args:
        max_distance: k; farther tokens share the vectors of ±k.
        d_v: width of V, to learn vectors for the values too; None leaves them out.
    Attributes: a_K (2k + 1, d_k), a_V (2k + 1, d_v) or None; row k is distance 0.
    Source:  Shaw, Uszkoreit, Vaswani 2018, eqs. (3) to (5), arXiv:1803.02155.

    >>> from layers import SelfAttention
    >>> layer = SelfAttention(5, d_k=2, d_v=3, position=RelativePosition(2, max_distance=4))
    >>> layer(np.ones((1, 7, 5))).shape
    (1, 7, 5)
    """

    def __init__(
        self,
        d_k: int,
        max_distance: int,
        d_v: int | None = None,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_sizes("RelativePosition", d_k=d_k, max_distance=max_distance)
        rng, rows = generator(rng), 2 * max_distance + 1
        self.max_distance = max_distance
        self.a_K, _ = draw_affine(rng, False, dtype, rows, d_k)
        self.a_V = None if d_v is None else draw_affine(rng, False, dtype, rows, d_v)[0]

    def forward(self, Q: Array, K: Array, i: Positions, j: Positions, scale: float) -> Array:
        E = mg.matmul(Q, mg.swapaxes(self.a_K, 0, 1)).named("E")  # (..., n, 2k + 1): q_i · a
        rows = self._row(Q.shape[-2], K.shape[-2], i, j)
        return mg.scale(gather_columns(E, rows), scale).named("S_relative")  # (..., n, m)

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Array:
        return named("S_biased", add_bias(S, self(Q, K, at.i, at.j, at.scale)))

    def values(self, O: Array, A: Array, at: TokenPositions) -> Array:
        if self.a_V is None:
            return O
        n, m = A.shape[-2:]
        rows = self._row(n, m, at.i, at.j)
        a = mg.take(self.a_V, rows, axis=0).named("V_relative")  # (n, m, d_v) or (B, n, m, d_v)
        sums = mg.einsum("...ij,ijd->...id" if rows.ndim == 2 else "b...ij,bijd->b...id", A, a)
        return named("O_relative", add_bias(O, sums))

    def _row(self, n: int, m: int, i: Positions, j: Positions) -> NDArray[np.integer]:
        k = self.max_distance
        return mark_constant(np.clip(distances(n, m, i, j), -k, k) + k, i, j)


class TransformerXLPosition(Module, AttentionOption):
    """A sinusoid of the distance, projected to a key for each head, and two learned queries.

        S_ij = (q_i · k_j + q_i · r_{i−j} + u · k_j + v · r_{i−j}) / √d_k,    r_δ = W_R PE(δ)

    Args:    d_model: width of the sinusoid.  n_heads, d_k: of the layer.
    Attributes: W_R (d_model, h · d_k); u, v (h, 1, d_k), both 0 at first.
    Source:  Dai et al. 2019, section 3.3, arXiv:1901.02860.

    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, n_heads=3, position=TransformerXLPosition(6, 3, 2))
    >>> layer(np.ones((1, 7, 6))).shape
    (1, 7, 6)
    """

    def __init__(
        self, d_model: int, n_heads: int, d_k: int, rng: Seed = None, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("TransformerXLPosition", d_model=d_model, n_heads=n_heads, d_k=d_k)
        sinusoidal_encoding(1, d_model)
        self.W_R, _ = draw_affine(generator(rng), False, dtype, d_model, n_heads * d_k)
        self.u = mg.tensor(np.zeros((n_heads, 1, d_k), dtype), requires_grad=True)
        self.v = mg.tensor(np.zeros((n_heads, 1, d_k), dtype), requires_grad=True)

    @property
    def n_heads(self) -> int:
        return self.u.shape[0]

    def forward(self, Q: Array, K: Array, i: Positions, j: Positions, scale: float) -> Array:
        delta = -distances(Q.shape[-2], K.shape[-2], i, j)  # (n, m): i − j
        low, high = int(delta.min(initial=0)), int(delta.max(initial=0))
        d_model, h = self.W_R.shape[0], self.u.shape[0]
        PE = sinusoidal_encoding(
            np.arange(low, high + 1), d_model, interleaved=False, dtype=self.W_R.dtype
        )
        PE = mark_constant(PE, i, j)
        columns = mark_constant(delta - low, i, j)
        R_flat = linear(as_named_tensor(Q, "PE", PE), self.W_R).named("R_flat")  # (D, h·d_k)
        R = split_heads(R_flat, h).named("R")  # (h, D, d_k): a key a distance
        K = repeat_heads(K, h // K.shape[-3]) if h > 1 else K  # (..., h, m, d_k)
        Q_v = mg.add(Q, self.v).named("Q_v")
        E = mg.matmul(Q_v, mg.swapaxes(R, -1, -2)).named("E")  # (..., h, n, D): (q_i + v) · r
        G = mg.matmul(self.u, mg.swapaxes(K, -1, -2)).named("G")  # (..., h, 1, m): u · k_j
        return mg.scale(mg.add(gather_columns(E, columns), G), scale).named("S_relative")

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Array:
        return named("S_biased", add_bias(S, self(Q, K, at.i, at.j, at.scale)))


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
        t5_bucket(0, n_buckets, max_distance, bidirectional)
        self.n_buckets, self.max_distance = n_buckets, max_distance
        self.bidirectional = bidirectional
        self.table = mg.tensor(np.zeros((n_buckets, n_heads), dtype), requires_grad=True)

    @property
    def n_heads(self) -> int:
        return self.table.shape[1]

    def forward(self, Q: Array, K: Array, i: Positions = None, j: Positions = None) -> Array:
        distance = distances(Q.shape[-2], K.shape[-2], i, j)
        bucket = t5_bucket(distance, self.n_buckets, self.max_distance, self.bidirectional)
        b = mg.take(self.table, mark_constant(bucket, i, j), axis=0)  # (n, m, h) or (B, n, m, h)
        return mg.transpose(b, (2, 0, 1) if b.ndim == 3 else (0, 3, 1, 2)).named("b")  # (h, n, m)

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Array:
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

    def forward(self, Q: Array, K: Array, i: Positions = None, j: Positions = None) -> Array:
        slopes = alibi_slopes(self.n_heads)[self.heads, None, None]  # (h, 1, 1)
        far = np.abs(distances(Q.shape[-2], K.shape[-2], i, j))
        penalty = slopes * -(far if far.ndim == 2 else far[:, None])  # (h, n, m) or (B, h, n, m)
        return mark_constant(penalty.astype(Q.dtype, copy=False), i, j)

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Array:
        return named("S_biased", add_bias(S, self(Q, K, at.i, at.j)))


@explained
def alibi_slopes(n_heads: int) -> NDArray[np.float64]:
    """The rate m of each head:  2^(−8 k / h) for k = 1 to h, where h is a power of two.

    Otherwise those of the next lower power p, then every other one of 2 p heads.

    >>> alibi_slopes(4).tolist(), alibi_slopes(3).tolist()
    ([0.25, 0.0625, 0.015625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    check_sizes("alibi_slopes", n_heads=n_heads)
    p = 2 ** int(np.log2(n_heads))
    slopes = 2.0 ** (-8.0 / p * np.arange(1, p + 1))
    between = 2.0 ** (-8.0 / (2 * p) * np.arange(1, 2 * p, 2))
    return np.concatenate((slopes, between[: n_heads - p]))


@explained
def t5_bucket(
    distance: ArrayLike, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> NDArray[np.integer]:
    """The bucket of each distance j − i: near ones have their own, far ones share, by logarithm.

    Raises: ArgumentError where no bucket is left for near ones, or none lies beyond them.

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
    if exact < 1 or max_distance <= exact:
        raise ArgumentError(
            f"t5_bucket: {n_buckets} buckets must leave some for near distances, and max_distance "
            f"must be more than these {exact}, got {max_distance}"
        )
    # In float32, as T5 computes it: at a bucket's edge the rounding decides.
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact))
    steps = ratio / np.float32(log(max_distance / exact)) * np.float32(half - exact)
    shared = np.minimum(exact + steps.astype(np.int64), half - 1)
    return np.asanyarray(later + np.where(far < exact, far, shared))


def distances(n: int, m: int, i: Positions = None, j: Positions = None) -> NDArray[np.integer]:
    """j − i for each of n queries and m keys: (n, m), or (B, n, m) if either has a batch."""
    i, j = positions_of(n, i), positions_of(m, j)
    return j[..., None, :] - i[..., :, None]


def gather_columns(E: Array, columns: NDArray[np.integer]) -> Array:
    """Entry (.., i, columns[i, j]) of E, for every i and j.

    Shapes: E (..., n, D), columns (n, m) or (B, n, m) → (..., n, m)
    """
    rows = np.arange(E.shape[-2])[:, None]
    if columns.ndim == 2:
        return mg.getitem(E, (..., mg.mark_constant(rows), columns))
    batch = np.arange(E.shape[0]).reshape(-1, 1, 1)
    if E.ndim == 3:
        return mg.getitem(E, (batch, rows, columns))
    heads = np.arange(E.shape[1])[:, None, None]
    return mg.getitem(E, (batch[..., None], heads, rows, columns[:, None]))
