"""Positions: added to tokens, turned into queries and keys, or added to scores.

Sinusoidal and learned ones are layers before attention. The others are given to it as `position=`:
a Position says how Q and K turn, and what is added to the scores of queries at i and keys at j.
"""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError

from .basic import Seed, check_sizes, draw_affine, generator, parameter
from .call import Array, ArrayOrTensor
from .masking import Positions, with_head_axis
from .module import Module

__all__ = [
    "ALiBi",
    "LearnedPosition",
    "Position",
    "RelativePosition",
    "Rotary",
    "SinusoidalPosition",
    "T5Bias",
    "TransformerXLPosition",
    "alibi_slopes",
    "llama3_frequencies",
    "rotary_frequencies",
    "sinusoidal_encoding",
    "t5_bucket",
]


# ---------------------------------------------------------------- added to tokens


def sinusoidal_encoding(
    positions: int | ArrayLike, d_model: int, base: float = 10000.0
) -> NDArray[np.float64]:
    """PE(p, 2k) = sin(p / base^(2k / d)),    PE(p, 2k + 1) = cos(p / base^(2k / d)).

    Args:   positions: an array (...), or their number n, for 0 to n − 1.
    Shapes: → (..., d_model)
    Source: Vaswani et al. 2017, section 3.5, arXiv:1706.03762.

    >>> sinusoidal_encoding(2, 4).round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    _check_even("sinusoidal_encoding", d_model)
    at = np.arange(positions) if isinstance(positions, int) else np.asarray(positions)
    angles = at[..., None] / base ** (np.arange(0, d_model, 2) / d_model)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(*at.shape, d_model)


class SinusoidalPosition(Module):
    """X + PE(positions); see sinusoidal_encoding.

    >>> SinusoidalPosition(4)(np.zeros((1, 7, 4))).shape
    (1, 7, 4)
    """

    def __init__(self, d_model: int) -> None:
        _check_even("SinusoidalPosition", d_model)
        self.d_model = d_model

    def forward(self, X: mg.Tensor, positions: ArrayLike | None = None) -> mg.Tensor:
        at = np.arange(X.shape[-2]) if positions is None else positions
        PE = mg.mark_constant(sinusoidal_encoding(at, self.d_model).astype(X.dtype))
        return mg.add(X, mg.tensor(PE, name="PE")).named("X")


class LearnedPosition(Module):
    """X + P[positions], with a learned row for each position, drawn N(0, 0.02²), as in GPT-2.

    Shapes: P (max_len, d_model), X (B, n, d_model) → as X
    Raises: OutOfRangeError for a position that has no row.

    >>> LearnedPosition(7, 4, rng=0)(np.zeros((1, 5, 4))).shape
    (1, 5, 4)
    """

    def __init__(
        self, max_len: int, d_model: int, rng: Seed = None, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("LearnedPosition", max_len=max_len, d_model=d_model)
        self.dtype = np.dtype(dtype)
        self.P = parameter(generator(rng).normal(0.0, 0.02, (max_len, d_model)), dtype)

    def forward(self, X: mg.Tensor, positions: ArrayLike | None = None) -> mg.Tensor:
        at = np.arange(X.shape[-2]) if positions is None else np.maximum(positions, 0)
        rows = mg.take(self.P, mg.mark_constant(at), axis=0, negative=False)
        return mg.add(X, rows).named("X")


# ---------------------------------------------------------------- within attention


class Position(Module):
    """What the positions of two tokens do to attention; a subclass writes one of these methods."""

    reads_queries = False  # whether what it adds depends on Q

    def turns(self, i: Positions, j: Positions, dtype: Any) -> tuple[Array, ...] | None:
        """Of a rotation, cos and sin of the angles of queries at i, and of keys at j."""
        return None

    def turn(self, x: Any, at: Positions, symbol: str = "x") -> Any:
        """Queries or keys, turned to these positions: (B, h, n, d)."""
        return x

    def bias(
        self, Q: mg.Tensor, K: ArrayOrTensor, i: Positions, j: Positions
    ) -> ArrayOrTensor | None:
        """What is added to the scores, (1, h, n, m) or (B, h, n, m); None if nothing."""
        return None


class Rotary(Position):
    """Turns pairs (x_k, x_{k + d/2}) by p θ_k, so that a score depends on the distance alone.

        (R(i) q) · (R(j) k) = q · R(j − i) k,    θ_k = base^(−2k / d)

    Args:    d: width of a head.  frequencies: θ, (d / 2,), in place of those of `base`: see
             llama3_frequencies.
    Source:  Su et al. 2021, section 3.4, arXiv:2104.09864.

    >>> Rotary(4).turn(mg.tensor(np.ones((1, 4))), np.array([3])).numpy().round(4)
    array([[-1.1311,  0.9696, -0.8489,  1.0295]])
    """

    def __init__(
        self, d: int, base: float = 10000.0, frequencies: NDArray[np.floating] | None = None
    ) -> None:
        self.theta = rotary_frequencies(d, base) if frequencies is None else frequencies

    def turns(self, i: Positions, j: Positions, dtype: Any) -> tuple[Array, ...]:
        return *self.tables(i, dtype), *self.tables(j, dtype)

    def tables(self, at: Positions, dtype: Any) -> tuple[Array, ...]:
        """cos and sin of p θ, (..., d / 2)."""
        angles = at[..., None] * self.theta
        return tuple(mg.mark_constant(f(angles).astype(dtype)) for f in (np.cos, np.sin))

    def turn(self, x: Any, at: Positions, symbol: str = "x") -> Any:
        if x.shape[-1] != 2 * len(self.theta):
            raise ArgumentError(
                f"Rotary: it turns heads of width {2 * len(self.theta)}, got {x.shape[-1]}"
            )
        tables = zip(("cos", "sin"), self.tables(at, x.dtype), strict=True)
        cos, sin = (mg.tensor(table, name=name) for name, table in tables)
        if x.ndim == 4:
            cos, sin = with_head_axis(cos), with_head_axis(sin)
        a, b = mg.split(x, 2, axis=-1)
        return mg.concatenate((a * cos - b * sin, a * sin + b * cos), axis=-1).named(
            f"{symbol}_rot"
        )


def rotary_frequencies(d: int, base: float = 10000.0) -> NDArray[np.floating]:
    """θ_k = base^(−2k / d), for each of the d / 2 pairs.

    >>> rotary_frequencies(4).tolist()
    [1.0, 0.01]
    """
    _check_even("rotary_frequencies", d)
    return np.asarray(base ** (-np.arange(0, d, 2) / d))


def llama3_frequencies(
    d: int,
    base: float = 500000.0,
    factor: float = 8.0,
    low: float = 1.0,
    high: float = 4.0,
    length: int = 8192,
) -> NDArray[np.floating]:
    """Slow pairs slowed by `factor`, for contexts beyond `length`.

    A pair that turns fewer than `low` times within it is slowed, one that turns more than `high`
    times is left alone; between, both are mixed.
    Source: Llama 3, arXiv:2407.21783, as its checkpoints' rope_scaling says.

    >>> (llama3_frequencies(64) / rotary_frequencies(64, 500000.0))[[0, -1]]
    array([1.   , 0.125])
    """
    theta = rotary_frequencies(d, base)
    kept = np.clip((length * theta / (2 * pi) - low) / (high - low), 0.0, 1.0)
    return np.asarray((1 - kept) * theta / factor + kept * theta)


class ALiBi(Position):
    """S_ij − m_h |i − j|, with a rate m_h for each head.

    Source: Press et al. 2022, arXiv:2108.12409.

    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, 3, position=ALiBi(3), rng=0)
    >>> layer(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
    """

    def __init__(self, n_heads: int) -> None:
        self.n_heads = n_heads

    def bias(self, Q: mg.Tensor, K: ArrayOrTensor, i: Positions, j: Positions) -> ArrayOrTensor:
        slopes = alibi_slopes(self.n_heads)[:, None, None]
        return mg.mark_constant(np.asarray(-slopes * abs(distances(i, j)), Q.dtype))


def alibi_slopes(n_heads: int) -> NDArray[np.float64]:
    """2^(−8k / h); where h is no power of two, those of the one below, and every other of the next.

    >>> alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    check_sizes("alibi_slopes", n_heads=n_heads)
    p = 2 ** int(np.log2(n_heads))
    between = 2.0 ** (-4.0 / p * np.arange(1, 2 * p, 2))
    return np.concatenate((2.0 ** (-8.0 / p * np.arange(1, p + 1)), between[: n_heads - p]))


class T5Bias(Position):
    """S_ij + b_{h, bucket(j − i)}, learned, 0 at first.

    Args:   n_buckets, max_distance, bidirectional: as t5_bucket takes them.
    Shapes: table (n_buckets, n_heads)
    Source: Raffel et al. 2020, section 2.1, arXiv:1910.10683.

    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, 3, position=T5Bias(3), rng=0)
    >>> layer(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
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
        self.buckets = n_buckets, max_distance, bidirectional
        self.table = parameter(np.zeros((n_buckets, n_heads)), dtype)

    def bias(self, Q: mg.Tensor, K: ArrayOrTensor, i: Positions, j: Positions) -> mg.Tensor:
        bucket = mg.mark_constant(t5_bucket(distances(i, j)[:, 0], *self.buckets))
        b = mg.take(self.table, bucket, axis=0)  # (1, n, m, h) or (B, n, m, h)
        return mg.transpose(b, (0, 3, 1, 2)).named("b")


def t5_bucket(
    distance: ArrayLike, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> NDArray[np.integer]:
    """The bucket of each distance j − i: near ones have their own, far ones share by logarithm.

    Args: bidirectional: half of the buckets for later keys; else these share bucket 0.

    >>> t5_bucket([0, 1, -1, -7, -8, -15, -1000]).tolist()
    [0, 17, 1, 7, 8, 9, 15]
    """
    to = np.asarray(distance)
    half = n_buckets // 2 if bidirectional else n_buckets
    far = abs(to) if bidirectional else np.maximum(-to, 0)
    exact = half // 2  # distances below have a bucket each
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact))  # as T5 rounds it
    steps = ratio / np.float32(log(max_distance / exact)) * np.float32(half - exact)
    shared = np.minimum(exact + steps.astype(int), half - 1)
    bucket = np.where(far < exact, far, shared)
    return np.where(to > 0, half + bucket, bucket) if bidirectional else bucket


class RelativePosition(Position):
    """S_ij + q_i · a_{j − i} / √d_k, with a learned vector for each distance up to ±max_distance.

    Source: Shaw et al. 2018, eq. (4), arXiv:1803.02155; theirs for values added nothing (table 4).

    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, 3, position=RelativePosition(d_k=2, max_distance=4), rng=0)
    >>> layer(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
    """

    reads_queries = True

    def __init__(
        self, d_k: int, max_distance: int, rng: Seed = None, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("RelativePosition", d_k=d_k, max_distance=max_distance)
        self.max_distance = max_distance
        self.a_K, _ = draw_affine(generator(rng), False, dtype, 2 * max_distance + 1, d_k)

    def bias(self, Q: mg.Tensor, K: ArrayOrTensor, i: Positions, j: Positions) -> mg.Tensor:
        E = mg.matmul(Q, mg.swapaxes(self.a_K, 0, 1)).named("E")  # (..., n, 2k + 1): q_i · a
        k = self.max_distance
        rows = np.clip(distances(i, j), -k, k) + k
        return mg.scale(gathered(E, rows), 1 / sqrt(Q.shape[-1])).named("S_relative")


class TransformerXLPosition(Position):
    """S_ij + (q_i · r_{i − j} + u · k_j + v · r_{i − j}) / √d_k,    r_δ = W_R PE(δ).

    Source: Dai et al. 2019, section 3.3, arXiv:1901.02860.

    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, 3, position=TransformerXLPosition(6, 3, d_k=2), rng=0)
    >>> layer(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
    """

    reads_queries = True

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_k: int,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.W_R, _ = draw_affine(generator(rng), False, dtype, d_model, n_heads * d_k)
        self.u = parameter(np.zeros((n_heads, 1, d_k)), dtype)
        self.v = parameter(np.zeros((n_heads, 1, d_k)), dtype)

    def bias(self, Q: mg.Tensor, K: ArrayOrTensor, i: Positions, j: Positions) -> mg.Tensor:
        delta = -distances(i, j)  # (1, 1, n, m) or (B, 1, n, m)
        low, d_model = delta.min(), self.W_R.shape[0]
        h, _, d_k = self.u.shape
        PE = sinusoidal_encoding(np.arange(low, delta.max() + 1), d_model).astype(Q.dtype)
        R = mg.reshape(mg.matmul(mg.mark_constant(PE), self.W_R), (-1, h, d_k))  # a key for each
        E = mg.matmul(mg.add(Q, self.v), mg.transpose(R, (1, 2, 0)))  # (..., n, D): (q + v) · r
        G = mg.matmul(self.u, mg.swapaxes(K, -1, -2))  # (..., 1, m): u · k
        return mg.scale(gathered(E, delta - low) + G, 1 / sqrt(d_k)).named("S_relative")


def distances(i: Positions, j: Positions) -> NDArray[np.integer]:
    """j − i of each query and key: (1, 1, n, m), or (B, 1, n, m)."""
    d = j[..., None, :] - i[..., :, None]
    return d.reshape(-1, 1, *d.shape[-2:])


def gathered(E: mg.Tensor, columns: NDArray[np.integer]) -> mg.Tensor:
    """Entry columns[..., i, j] of each row i of E: (..., n, m)."""
    columns = columns if E.ndim == 4 else columns[0]
    columns = np.broadcast_to(columns, (*E.shape[:-1], columns.shape[-1]))
    return mg.take_along_axis(E, mg.mark_constant(columns), axis=-1)


def _check_even(call: str, d: int) -> None:
    check_sizes(call, d=d)
    if d % 2:
        raise ArgumentError(f"{call}: the width must be even, for pairs, got {d}")
