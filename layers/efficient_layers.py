"""Multi-head layers of attention whose cost grows with n, with MultiHeadAttention's weights."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError, checked_keywords, explained

from .arrays import Array, Mask
from .attention import group_heads, merge_heads, project_heads
from .attention_call import keys_from
from .cache import KernelState
from .efficient import (
    linear_attention,
    linformer_attention,
    orthogonal_features,
    performer_attention,
)
from .initialisers import Seed, generator
from .linear import check_sizes, linear
from .mask import entries_of, with_head_axis
from .module import Module, named, with_shapes
from .options import draw_weights, set_context, set_heads
from .renamed import renamed

__all__ = ["LinearAttention", "LinformerAttention", "PerformerAttention"]


class HeadOptions(TypedDict, total=False):
    """What these layers take by keyword, as MultiHeadAttention does."""

    use_bias: bool | str
    rng: Seed
    dtype: DTypeLike
    n_kv_heads: int | None
    d_context: int | None


class _Heads(Module):
    """Heads that project as MultiHeadAttention's do, and what is done with their outputs."""

    n_heads: int
    n_kv_heads: int

    def _draw(self, d_model: int, n_heads: int, options: HeadOptions) -> np.random.Generator:
        """Check and note the sizes, draw the weights, and return the generator for more."""
        checked_keywords(type(self).__name__, options, HeadOptions.__annotations__)
        set_heads(self, d_model, n_heads, options.get("n_kv_heads"))
        set_context(self, options.get("d_context"))
        self.dtype = np.dtype(options.get("dtype", np.float64))
        rng = generator(options.get("rng"))
        draw_weights(self, rng, options.get("use_bias", False))
        return rng

    def _project(
        self, X: mg.Tensor, mask: Mask | None, context: Array | None
    ) -> tuple[mg.Tensor, Array, Array, Array | None]:
        """Q (B, h, n, d), K and V (B, h_kv, m, d) of every head, and the mask with a head axis.

        Where a key-value head serves a group of query heads, the group is a further axis:
        Q (B, h_kv, h / h_kv, n, d), K and V (B, h_kv, 1, m, d).
        """
        Y = keys_from(self, X, context)
        Q, K, V = project_heads(self, X, Y)  # (B, h or h_kv, n or m, d)
        M = None if mask is None else entries_of(mask, X.shape[-2], Y.shape[-2])
        M = with_head_axis(M)  # (B, 1, 1, m)
        group = self.n_heads // self.n_kv_heads
        if group == 1:
            return Q, K, V, M
        if M is not None and M.ndim > 2:
            M = mg.expand_dims(M, -3)
        Q = group_heads(Q, group).named("Q_groups")  # (B, h_kv, h / h_kv, n, d)
        K = mg.expand_dims(K, -3).named("K_groups")  # (B, h_kv, 1, m, d)
        V = mg.expand_dims(V, -3).named("V_groups")  # (B, h_kv, 1, m, d)
        return Q, K, V, M

    def _merge(self, O: Array) -> mg.Tensor:
        """The heads' outputs side by side, and projected."""
        if self.n_kv_heads < self.n_heads:
            *lead, h_kv, group, n, d = O.shape
            O = mg.reshape(O, (*lead, h_kv * group, n, d))  # (B, h, n, d)
        C = named("C", merge_heads(O))  # (B, n, d_model)
        return linear(C, self.W_O, self.b_O).named("out")  # (B, n, d_model)


class _Kernel(_Heads):
    """Heads that attend by feature maps, and may be causal, and then decode from running sums."""

    causal: bool
    _attend: Callable[[Array, Array, Array, Array | None, KernelState | None], Array]

    def forward(
        self,
        X: mg.Tensor,
        mask: Mask | None = None,
        *,
        context: Array | None = None,
        cache: KernelState | None = None,
    ) -> mg.Tensor:
        Q, K, V, M = self._project(X, mask, context)  # (B, h, n, d), (B, h_kv, m, d)
        return self._merge(self._attend(Q, K, V, M, cache))  # (B, n, d_model)

    def new_cache(self) -> KernelState:
        """An empty state for decoding."""
        return KernelState()


class LinearAttention(_Kernel):
    """Linear attention in h heads: cost and memory grow with n.

        C W_O + b_O,    C = merge(O),    O = linear_attention(Q, K, V)  in each head,
        Q = split(X W_Q + b_Q),    K = split(X W_K + b_K),    V = split(X W_V + b_V)

    With a context Y, keys and values come from it; with fewer key-value heads than query heads,
    each serves several, as in MultiHeadAttention, and is summed over once for all of them.

    Args:
        is_causal: token i sees tokens j ≤ i only. Then cache=KernelState() decodes token by token,
            at a cost and in memory that do not grow.
        heads: use_bias, rng, dtype, n_kv_heads, d_context: as MultiHeadAttention's.
    Attributes: W_Q, W_O (d_model, d_model); W_K, W_V (d_context, n_kv_heads · d); b_Q, b_K, b_V,
             b_O.
    Shapes:  X (B, n, d_model) or (n, d_model), context (B, m, d_context), mask of keys (B, 1, m),
             (1, m) or (m,) → as X
    Raises:  ShapeError if X, the context or the mask does not fit; ArgumentError for a size below
             1, heads that do not divide, a cache where tokens have no order.
    Source:  Katharopoulos et al. 2020, arXiv:2006.16236.

    >>> LinearAttention(d_model=6, n_heads=3, is_causal=True, rng=0)(np.zeros((1, 7, 6))).shape
    (1, 7, 6)
    """

    @renamed("causal")
    def __init__(
        self, d_model: int, n_heads: int, is_causal: bool = False, **heads: Unpack[HeadOptions]
    ) -> None:
        self.causal = is_causal
        self._draw(d_model, n_heads, heads)

    def _attend(
        self, Q: Array, K: Array, V: Array, mask: Array | None, cache: KernelState | None
    ) -> Array:
        return linear_attention(Q, K, V, self.causal, mask=mask, cache=cache)  # (B, h, n, d)


class PerformerAttention(_Kernel):
    """FAVOR+ attention in h heads: softmax's weights estimated, at a cost that grows with n.

        C W_O + b_O,    C = merge(O),    O = performer_attention(Q, K, V, features)  in each head

    Args:
        n_features: random features a head; more of them, less error.
        is_causal, heads: as LinearAttention; rng draws weights, then features.
    Attributes: features (n_features, d), one draw for all heads, no parameter: `redraw(rng)` draws
             others, and `state_dict` leaves them out. All else is as in LinearAttention.
    Source:  Choromanski et al. 2021, arXiv:2009.14794.

    >>> layer = PerformerAttention(d_model=6, n_heads=3, n_features=5, rng=0)
    >>> layer(np.zeros((1, 7, 6))).shape, layer.features.shape
    ((1, 7, 6), (5, 2))
    """

    @renamed("causal")
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_features: int,
        is_causal: bool = False,
        **heads: Unpack[HeadOptions],
    ) -> None:
        check_sizes("PerformerAttention", n_features=n_features)
        self.n_features, self.causal = n_features, is_causal
        self.redraw(self._draw(d_model, n_heads, heads))

    @explained
    def redraw(self, rng: Seed = None) -> None:
        """Draw other features: a new estimate, independent of the last."""
        self.features = orthogonal_features(self.n_features, self.d_k, rng).astype(self.dtype)

    def _attend(
        self, Q: Array, K: Array, V: Array, mask: Array | None, cache: KernelState | None
    ) -> Array:
        """O (B, h, n, d); a cache holds for these features only."""
        W = mg.tensor(mg.mark_constant(self.features), name="W")  # (r, d)
        return performer_attention(Q, K, V, W, self.causal, mask=mask, cache=cache)


class LinformerAttention(_Heads):
    """Linformer attention in h heads: each query sees k mixtures of the tokens.

        C W_O + b_O,    C = merge(O),    O = softmax(Q (E K)ᵀ / √d) (F V)  in each head

    A mixture of tokens holds later ones too, so there is no causal form, and no cache.

    Args:
        seq_len: the longest sequence; a shorter one of n takes the first n columns of E and F.
        k: mixtures. E and F serve all heads (the paper's headwise sharing), drawn N(0, 1/k).
        heads: as LinearAttention; rng draws the weights, then E and F.
    Attributes: E, F (k, seq_len). All else is as in LinearAttention.
    Raises:  ShapeError too for more than seq_len keys, ArgumentError for is_causal=True.
    Source:  Wang et al. 2020, arXiv:2006.04768.

    >>> LinformerAttention(d_model=6, n_heads=3, seq_len=7, k=2, rng=0)(np.zeros((1, 5, 6))).shape
    (1, 5, 6)
    """

    @renamed("causal")
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        seq_len: int,
        k: int,
        *,
        is_causal: bool = False,
        **heads: Unpack[HeadOptions],
    ) -> None:
        check_sizes("LinformerAttention", seq_len=seq_len, k=k)
        if is_causal:
            raise ArgumentError(
                "LinformerAttention: a mixture of tokens holds later ones too, so there is no "
                "causal form; use LinearAttention, PerformerAttention or a window"
            )
        self.seq_len, self.k = seq_len, k
        rng = self._draw(d_model, n_heads, heads)
        E, F = rng.normal(0.0, 1 / sqrt(k), (2, k, seq_len)).astype(self.dtype)
        self.E, self.F = (mg.tensor(x, requires_grad=True) for x in (E, F))

    def forward(
        self,
        X: mg.Tensor,
        mask: Mask | None = None,
        *,
        context: Array | None = None,
        cache: KernelState | None = None,
    ) -> mg.Tensor:
        if cache is not None:
            raise ArgumentError(
                "LinformerAttention: a mixture of tokens changes with each new one, so there is "
                "nothing to cache"
            )
        Q, K, V, M = self._project(X, mask, context)  # (B, h, n, d), (B, h_kv, m, d)
        m = K.shape[-2]
        if m > self.seq_len:
            text = f"LinformerAttention: keys must be at most seq_len, got {m} > {self.seq_len}"
            raise ShapeError(with_shapes(text, K=K))
        E, F = (x if m == self.seq_len else x[:, :m].named(f"{x.name}_m") for x in (self.E, self.F))
        O = linformer_attention(Q, K, V, E, F, M)  # (B, h, n, d)
        return self._merge(O)  # (B, n, d_model)
