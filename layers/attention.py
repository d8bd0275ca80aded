"""Attention, written as the paper writes it: the formula, one head of it, and many."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import GradientError

from .attention_call import AttentionCall
from .hand_derived import multi_head_steps, self_attention_steps
from .heads import merge_heads, repeat_heads, split_heads
from .linear import check_sizes, linear
from .module import Module
from .options import Options, draw_weights, set_heads, set_options
from .scoring import attend_in_tiles, masked, named

__all__ = ["MultiHeadAttention", "SelfAttention", "attend", "project_heads"]


def attend(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    *,
    group: int = 1,
    scale: float | None = None,
    adjust: Any = None,
    mix: Any = None,
    note: Any = named,
) -> tuple[Any, Any]:
    """O = A V,    A = softmax(S + M),    S = Q Kᵀ / √d_k: the output and the weights.

    The rest is for layers with options: each key-value head serves `group` query heads, in order;
    `adjust(S)` changes the scores before the mask, `mix(A, V)` stands in for A V, and `note` hears
    each step's symbol. Scores are (n, m) each; those of a step are let go once the next are there.
    """
    if group > 1:
        K, V = repeat_heads(K, group), repeat_heads(V, group)  # (..., m, d_k), (..., m, d_v)
    scale = 1 / sqrt(Q.shape[-1]) if scale is None else scale
    S = note("S_raw", mg.matmul(Q, mg.swapaxes(K, -1, -2)))  # (..., n, m)
    S = note("S", mg.scale(S, scale))  # (..., n, m)   eq. (1)
    if adjust is not None:
        S = adjust(S)  # (..., n, m)
    if mask is not None:
        S = note("S_masked", masked(S, mask))  # (..., n, m)
    A = named("A", mg.softmax(S))  # (..., n, m)   rows sum to 1
    O = named("O", mg.matmul(A, V)) if mix is None else mix(A, V)  # (..., n, d_v)
    return O, A


class Attention(Module):
    """What one head and many share: one forward, and what is shown of the last one.

    A layer says how X is projected, and how the heads' outputs are merged.

    Attributes:
        attention_weights: A; None if that went in tiles, where no A exists.
        keep_intermediates: set it True, and every forward keeps the arrays of `intermediates`.
    """

    attention_weights: Any
    keep_intermediates = False
    kept_X: Any = None
    n_heads = n_kv_heads = 1
    many_heads = False  # whether Q, K, V and A have an axis of heads
    W_O: mg.Tensor
    b_O: mg.Tensor | None
    steps: Callable[..., Any]  # the backward steps derived by hand
    _project: Callable[..., tuple[Any, Any, Any]]
    _merge: Callable[[Any], Any]

    def forward(
        self,
        X: Any,
        mask: Any = None,
        *,
        context: Any = None,
        positions: Any = None,
        cache: Any = None,
        return_weights: bool = False,
    ) -> Any:
        call = AttentionCall(self, X, mask, context, positions, cache, return_weights)
        Q, K, V = self._project(X, call)  # (..., n, d_k), (..., m, d_k), (..., m, d_v)
        Q, K, V = call.apply_positions(Q, K, V)
        by = attend if call.method == "exact" else attend_in_tiles
        O, A = by(Q, K, V, call.mask(), **call.options(Q, K))  # (..., n, d_v), (..., n, m)
        C = self._merge(O)  # (B, n, h·d_v)
        out = linear(C, self.W_O, self.b_O, call.method).named("out")  # (B, n, d_model)
        call.keep(Q=Q, K=K, V=V, A=A, O=O, C=C)
        return (out, A) if return_weights else out

    @property
    def intermediates(self) -> dict[str, Any]:
        """X, Q, K, V, A, O, C (the heads' outputs side by side) and mask of the last forward.

        Arrays, and no graph. Q and K are those that met in the scores; A is None in tiles, mask
        where there was none.
        Raises: GradientError unless `keep_intermediates` was set before that forward.
        """
        if self.kept_X is None:
            raise GradientError(
                f"{type(self).__name__}.intermediates: nothing is kept unless asked for, to hold "
                "no memory; set layer.keep_intermediates = True and call the layer again"
            )
        return {s: getattr(self, f"kept_{s}", None) for s in (*"XQKVAOC", "mask")}


class SelfAttention(Attention):
    """Scaled dot-product attention of a sequence with itself, or with a context.

        softmax(Q Kᵀ / √d_k + M) V W_O + b_O
        with  Q = X W_Q + b_Q,    K = X W_K + b_K,    V = X W_V + b_V

    With a context Y, keys and values come from it: K = Y W_K + b_K, V = Y W_V + b_V
    (cross-attention). Call it as layer(X), layer(X, mask) or layer(X, mask, context=Y); with
    return_weights=True it gives (out, A).

    Args:
        d_model, d_k, d_v: width of X; of Q and K; of V.
        use_bias: without, b_Q, b_K, b_V and b_O are None; or which to have, as "QKV".
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
        options: see Options.
    Attributes: W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O; attention_weights, intermediates: see
             Attention.
    Masks:   True: may attend (PyTorch's key_padding_mask is the opposite); floats are added.
    Shapes:  X (B, n, d_model) or (n, d_model), mask broadcastable to (B, n, m) or a mask rule,
             context (B, m, d_context), positions (n,) or (B, n) → out as X; m is n without a
             context
    Raises:  ShapeError if X, the context or the mask does not fit, or a mask (n, n) could be (B, n)
             too; ArgumentError for a size below 1 or an option out of its range.
    Source:  Vaswani et al. 2017, section 3.2.1, arXiv:1706.03762.

    >>> layer = SelfAttention(d_model=5, d_k=2, d_v=3, rng=np.random.default_rng(0))
    >>> layer(np.zeros((1, 7, 5))).shape
    (1, 7, 5)
    """

    steps = staticmethod(self_attention_steps)

    def __init__(
        self,
        d_model: int,
        d_k: int,
        d_v: int,
        use_bias: bool | str = True,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
        **options: Unpack[Options],
    ) -> None:
        check_sizes("SelfAttention", d_model=d_model, d_k=d_k, d_v=d_v)
        self.d_model, self.d_k, self.d_v = d_model, d_k, d_v
        self.dtype, rng = np.dtype(dtype), np.random.default_rng(rng)
        set_options(self, rng, options)
        draw_weights(self, rng, use_bias)

    def _project(self, X: Any, call: AttentionCall) -> tuple[Any, Any, Any]:
        Y, method = call.Y, call.method  # (B, m, d_context)
        Q = linear(X, self.W_Q, self.b_Q, method).named("Q")  # (B, n, d_k)
        K, V = call.cached_keys_values or (
            linear(Y, self.W_K, self.b_K, method).named("K"),  # (B, m, d_k)
            linear(Y, self.W_V, self.b_V, method).named("V"),  # (B, m, d_v)
        )
        return Q, K, V

    def _merge(self, O: Any) -> Any:
        return O  # (B, n, d_v)


class MultiHeadAttention(Attention):
    """Attention in h heads at once, each of width d_k = d_model / h, merged and projected.

        C W_O + b_O,    C = merge(O),    O = softmax(Q Kᵀ / √d_k + M) V  in each head,
        Q = split(X W_Q + b_Q),    K = split(X W_K + b_K),    V = split(X W_V + b_V)

    With fewer key-value heads than query heads, each serves h / n_kv_heads of them in order
    (grouped-query attention; one for all is multi-query). With a context Y, keys and values come
    from it (cross-attention); called as SelfAttention is.

    Args:
        n_kv_heads: n_heads unless given.
        d_k, d_v: width of a head's queries and keys, d_model / h unless given; of its values, d_k
            unless given.
        use_bias, rng, dtype, options: as SelfAttention's.
    Attributes: W_Q (d_model, h · d_k); W_K, W_V (d_context, n_kv_heads · d_k or d_v); W_O (h · d_v,
             d_model); b_Q, b_K, b_V, b_O; attention_weights (B, h, n, m), intermediates: see
             Attention.
    Masks:   True: may attend (PyTorch's key_padding_mask is the opposite); floats are added.
    Shapes:  X (B, n, d_model) or (n, d_model); mask (n, m), (B, n, m), (B, 1, m), or broadcastable
             to (B, h, n, m), or a mask rule; context (B, m, d_context); positions (n,) or (B, n) →
             out as X
    Raises:  ArgumentError if n_heads does not divide d_model and no d_k is given, or n_kv_heads
             n_heads; otherwise as SelfAttention.
    Source:  Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762; groups: Ainslie et al. 2023,
             arXiv:2305.13245.

    >>> layer = MultiHeadAttention(d_model=6, n_heads=3, rng=np.random.default_rng(0))
    >>> layer(np.zeros((1, 7, 6))).shape, layer.attention_weights.shape
    ((1, 7, 6), (1, 3, 7, 7))
    >>> layer(np.zeros((1, 7, 6)), context=np.ones((1, 4, 6))).shape, layer.attention_weights.shape
    ((1, 7, 6), (1, 3, 7, 4))
    """

    many_heads = True
    steps = staticmethod(multi_head_steps)

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        use_bias: bool | str = False,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        set_heads(self, d_model, n_heads, n_kv_heads, d_k, d_v)
        self.dtype, rng = np.dtype(dtype), np.random.default_rng(rng)
        set_options(self, rng, options)
        draw_weights(self, rng, use_bias)

    def _project(self, X: Any, call: AttentionCall) -> tuple[Any, Any, Any]:
        return project_heads(self, X, call.Y, call.method, call.cached_keys_values)

    def _merge(self, O: Any) -> Any:
        return merge_heads(O).named("C")  # (B, n, h·d_v)


def project_heads(
    layer: Any, X: Any, Y: Any, method: str = "exact", made: Any = None
) -> tuple[Any, Any, Any]:
    """Q of every head, and K and V of every key-value head, unless they are made already."""
    h, h_kv = layer.n_heads, layer.n_kv_heads
    Q = linear(X, layer.W_Q, layer.b_Q, method).named("Q_flat")  # (B, n, h·d_k)
    if made is None:
        K = linear(Y, layer.W_K, layer.b_K, method).named("K_flat")  # (B, m, h_kv·d_k)
        V = linear(Y, layer.W_V, layer.b_V, method).named("V_flat")  # (B, m, h_kv·d_v)
    Q = split_heads(Q, h).named("Q")  # (B, h, n, d_k)
    K, V = made or (
        split_heads(K, h_kv).named("K"),  # (B, h_kv, m, d_k)
        split_heads(V, h_kv).named("V"),  # (B, h_kv, m, d_v)
    )
    return Q, K, V
