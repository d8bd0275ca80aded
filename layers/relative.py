"""Relative positions: what a score gains from how far apart its two tokens are.

Each is an AttentionOption, to be given as `position=`: it adds to the scores, one to O as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import minigrad as mg

from .arrays import Array
from .attention import repeat_heads, split_heads
from .attention_option import AttentionOption, TokenPositions, add_bias
from .initialisers import Seed, generator
from .linear import check_sizes, draw_affine, linear
from .module import Module, as_named_tensor, named
from .position import mark_constant, positions_of, sinusoidal_encoding

__all__ = ["RelativePosition", "TransformerXLPosition"]


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

    def forward(self, Q: Array, K: Array, i: Any, j: Any, scale: float) -> Any:
        E = mg.matmul(Q, mg.swapaxes(self.a_K, 0, 1)).named("E")  # (..., n, 2k + 1): q_i · a
        rows = self._row(Q.shape[-2], K.shape[-2], i, j)
        return mg.scale(gather_columns(E, rows), scale).named("S_relative")  # (..., n, m)

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Any:
        return named("S_biased", add_bias(S, self(Q, K, at.i, at.j, at.scale)))

    def values(self, O: Array, A: Array, at: TokenPositions) -> Any:
        if self.a_V is None:
            return O
        n, m = A.shape[-2:]
        rows = self._row(n, m, at.i, at.j)
        a = mg.take(self.a_V, rows, axis=0).named("V_relative")  # (n, m, d_v) or (B, n, m, d_v)
        own = mg.einsum("...ij,ijd->...id" if rows.ndim == 2 else "b...ij,bijd->b...id", A, a)
        return named("O_relative", add_bias(O, own))

    def _row(self, n: int, m: int, i: Any, j: Any) -> NDArray[Any]:
        k, to = self.max_distance, distances(n, m, i, j)
        return mark_constant(np.asanyarray(np.clip(to, -k, k) + k), i, j)


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

    def forward(self, Q: Array, K: Array, i: Any, j: Any, scale: float) -> Any:
        delta = -distances(Q.shape[-2], K.shape[-2], i, j)  # (n, m): i − j
        low, high = int(delta.min(initial=0)), int(delta.max(initial=0))
        d_model, h = self.W_R.shape[0], self.u.shape[0]
        PE = sinusoidal_encoding(
            np.arange(low, high + 1), d_model, interleaved=False, dtype=self.W_R.dtype
        )
        PE, columns = (mark_constant(x, i, j) for x in (PE, delta - low))
        R_flat = linear(as_named_tensor(Q, "PE", PE), self.W_R).named("R_flat")  # (D, h·d_k)
        R = split_heads(R_flat, h).named("R")  # (h, D, d_k): a key a distance
        K = repeat_heads(K, max(1, h // K.shape[-3]))  # (..., h, m, d_k)
        Q_v = mg.add(Q, self.v).named("Q_v")
        E = mg.matmul(Q_v, mg.swapaxes(R, -1, -2)).named("E")  # (..., h, n, D): (q_i + v) · r
        G = mg.matmul(self.u, mg.swapaxes(K, -1, -2)).named("G")  # (..., h, 1, m): u · k_j
        return mg.scale(mg.add(gather_columns(E, columns), G), scale).named("S_relative")

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Any:
        return named("S_biased", add_bias(S, self(Q, K, at.i, at.j, at.scale)))


def distances(n: int, m: int, i: Any = None, j: Any = None) -> NDArray[Any]:
    """j − i for each of n queries and m keys: (n, m), or (B, n, m) if either has a batch."""
    i, j = positions_of(n, i), positions_of(m, j)
    return np.asanyarray(j[..., None, :] - i[..., :, None])


def gather_columns(E: Array, columns: NDArray[Any]) -> Any:
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
