"""Multi-head layers of the attention that grows with n; their weights are MultiHeadAttention's."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .attention import draw_weights
from .efficient import linear_attention, linformer_attention, performer_attention
from .heads import merge_heads, split_heads
from .kernels import orthogonal_features
from .linear import check_sizes, linear
from .module import Module
from .options import check_input

__all__ = ["LinearAttention", "LinformerAttention", "PerformerAttention"]


class LinearAttention(Module):
    """Linear attention in h heads: cost and memory grow with n.

        C W_O + b_O,    C = merge(O),    O = linear_attention(Q, K, V)  in each head,
        Q = split(X W_Q + b_Q),    K = split(X W_K + b_K),    V = split(X W_V + b_V)

    Args:
        causal: token i sees tokens j ≤ i only.
        use_bias: without, b_Q, b_K, b_V and b_O are None; or which to have, as "QKV".
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
    Attributes: W_Q, W_K, W_V, W_O (d_model, d_model); b_Q, b_K, b_V, b_O.
    Shapes:  X (B, n, d_model) or (n, d_model) → as X
    Raises:  ShapeError if X does not fit; ArgumentError for a size below 1, or if n_heads does not
             divide d_model.
    Source:  Katharopoulos et al. 2020, arXiv:2006.16236.

    >>> LinearAttention(d_model=6, n_heads=3, causal=True, rng=0)(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        causal: bool = False,
        use_bias: bool | str = False,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.causal = causal
        _take_sizes(self, d_model, n_heads, use_bias, rng, dtype)

    def forward(self, X: Any) -> Any:
        Q, K, V = _heads(self, X)  # (B, h, n, d)
        O = linear_attention(Q, K, V, self.causal)  # (B, h, n, d)
        return _merged(self, O)  # (B, n, d_model)


class PerformerAttention(Module):
    """FAVOR+ attention in h heads: softmax's weights estimated, at a cost that grows with n.

        C W_O + b_O,    C = merge(O),    O = performer_attention(Q, K, V, features)  in each head,
        Q = split(X W_Q + b_Q),    K = split(X W_K + b_K),    V = split(X W_V + b_V)

    Args:
        n_features: random features a head; more of them, less error.
        rng: draws weights (Xavier), then features; a Generator, a seed, or None for fresh entropy.
        causal, use_bias: as LinearAttention.
    Attributes: features (n_features, d), one draw for all heads, no parameter: `redraw(rng)` draws
             others, and `state_dict` leaves them out; otherwise as LinearAttention.
    Shapes:  X (B, n, d_model) or (n, d_model) → as X
    Raises:  as LinearAttention.
    Source:  Choromanski et al. 2021, arXiv:2009.14794.

    >>> layer = PerformerAttention(d_model=6, n_heads=3, n_features=5, rng=0)
    >>> layer(np.zeros((1, 7, 6))).shape, layer.features.shape
    ((1, 7, 6), (5, 2))
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_features: int,
        causal: bool = False,
        use_bias: bool | str = False,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_sizes("PerformerAttention", n_features=n_features)
        self.n_features, self.causal = n_features, causal
        rng = np.random.default_rng(rng)
        _take_sizes(self, d_model, n_heads, use_bias, rng, dtype)
        self.redraw(rng)

    def redraw(self, rng: Any = None) -> None:
        """Draw other features: a new estimate, independent of the last."""
        self.features = orthogonal_features(self.n_features, self.d_k, rng).astype(self.dtype)

    def forward(self, X: Any) -> Any:
        Q, K, V = _heads(self, X)  # (B, h, n, d)
        O = performer_attention(Q, K, V, self.features, self.causal)  # (B, h, n, d)
        return _merged(self, O)  # (B, n, d_model)


class LinformerAttention(Module):
    """Linformer attention in h heads: each query sees k mixtures of the tokens.

        C W_O + b_O,    C = merge(O),    O = softmax(Q (E K)ᵀ / √d) (F V)  in each head,
        Q = split(X W_Q + b_Q),    K = split(X W_K + b_K),    V = split(X W_V + b_V)

    Args:
        seq_len: the longest sequence; a shorter one of n takes the first n columns of E and F.
        k: mixtures. E and F serve all heads (the paper's headwise sharing), drawn N(0, 1/k).
        rng: draws W (Xavier), then E and F; a Generator, a seed, or None for fresh entropy.
        use_bias: as LinearAttention.
    Attributes: E, F (k, seq_len); otherwise as LinearAttention.
    Shapes:  X (B, n, d_model) or (n, d_model), n ≤ seq_len → as X
    Raises:  as LinearAttention; ShapeError too for a longer sequence.
    Source:  Wang et al. 2020, arXiv:2006.04768.

    >>> LinformerAttention(d_model=6, n_heads=3, seq_len=7, k=2, rng=0)(np.zeros((1, 5, 6))).shape
    (1, 5, 6)
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        seq_len: int,
        k: int,
        use_bias: bool | str = False,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_sizes("LinformerAttention", seq_len=seq_len, k=k)
        self.seq_len, self.k = seq_len, k
        rng = np.random.default_rng(rng)
        _take_sizes(self, d_model, n_heads, use_bias, rng, dtype)
        E, F = rng.normal(0.0, 1 / sqrt(k), (2, k, seq_len)).astype(self.dtype)
        self.E, self.F = (mg.tensor(x, requires_grad=True) for x in (E, F))

    def forward(self, X: Any) -> Any:
        Q, K, V = _heads(self, X)  # (B, h, n, d)
        n = X.shape[-2]
        if n > self.seq_len:
            raise ShapeError(
                f"LinformerAttention(X): n must be at most seq_len, got {n} > {self.seq_len}\n"
                f"  X: {X.shape}   {X.path}".rstrip()
            )
        O = linformer_attention(Q, K, V, self.E[:, :n], self.F[:, :n])  # (B, h, n, d)
        return _merged(self, O)  # (B, n, d_model)


def _take_sizes(
    layer: Any, d_model: int, n_heads: int, use_bias: bool | str, rng: Any, dtype: DTypeLike
) -> None:
    """Check and note a layer's sizes, and draw W_Q, W_K, W_V, W_O and their biases."""
    call = type(layer).__name__
    check_sizes(call, d_model=d_model, n_heads=n_heads)
    if d_model % n_heads:
        raise ArgumentError(f"{call}: n_heads must divide d_model, got {n_heads} and {d_model}")
    layer.d_model = layer.d_context = d_model
    layer.n_heads, layer.d_k, layer.d_v = n_heads, d_model // n_heads, d_model // n_heads
    layer.dtype = np.dtype(dtype)
    draw_weights(layer, np.random.default_rng(rng), use_bias, n_heads, n_heads)


def _heads(layer: Any, X: Any) -> tuple[Any, Any, Any]:
    """Q, K and V of every head, (B, h, n, d)."""
    check_input(layer, "(X)", "X", X, layer.d_model)
    Q_flat = linear(X, layer.W_Q, layer.b_Q).named("Q_flat")  # (B, n, d_model)
    K_flat = linear(X, layer.W_K, layer.b_K).named("K_flat")  # (B, n, d_model)
    V_flat = linear(X, layer.W_V, layer.b_V).named("V_flat")  # (B, n, d_model)
    Q = split_heads(Q_flat, layer.n_heads).named("Q")  # (B, h, n, d)
    K = split_heads(K_flat, layer.n_heads).named("K")  # (B, h, n, d)
    V = split_heads(V_flat, layer.n_heads).named("V")  # (B, h, n, d)
    return Q, K, V


def _merged(layer: Any, O: Any) -> Any:
    """The heads' outputs side by side, and projected."""
    C = merge_heads(O).named("C")  # (B, n, d_model)
    return linear(C, layer.W_O, layer.b_O).named("out")  # (B, n, d_model)
