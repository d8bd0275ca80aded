"""Attention, written as the paper writes it: one head, and many."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError

from .hand_derived import multi_head_steps, self_attention_steps
from .heads import merge_heads, split_heads
from .linear import check_sizes, draw_affine, linear
from .mask import with_head_axis, with_visible
from .module import Module
from .options import (
    Options,
    describes,
    made_before,
    prepared,
    resolved,
    scoring,
    take_options,
    told_apart,
)
from .scoring import attend

__all__ = ["MultiHeadAttention", "SelfAttention"]


class SelfAttention(Module):
    """Scaled dot-product attention of a sequence with itself, or with a context.

        softmax(Q Kᵀ / √d_k + M) V W_O + b_O
        with  Q = X W_Q + b_Q,    K = X W_K + b_K,    V = X W_V + b_V

    With a context Y, keys and values come from it: K = Y W_K + b_K, V = Y W_V + b_V
    (cross-attention). Call it as layer(X), layer(X, mask), layer(X, context) or layer(X, mask=...,
    context=...).

    Args:
        d_model, d_k, d_v: width of X; of Q and K; of V.
        use_bias: without, b_Q, b_K, b_V and b_O are None; or which to have, as "QKV".
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
        method, causal, window, scale, softcap, dropout, position, qk_norm, d_context: see Options.
    Attributes: W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O; attention_weights: A of the last forward,
             None if that went in tiles, where no A exists.
    Shapes:  X (B, n, d_model) or (n, d_model), mask broadcastable to (B, n, m), context (B, m,
             d_context), positions (n,) or (B, n) → out as X; m is n without a context
    Raises:  ShapeError if X, the context or the mask does not fit; ArgumentError for a size below 1
             or an option out of its range.
    Source:  Vaswani et al. 2017, section 3.2.1, arXiv:1706.03762.

    >>> layer = SelfAttention(d_model=5, d_k=2, d_v=3, rng=np.random.default_rng(0))
    >>> layer(np.zeros((1, 7, 5))).shape
    (1, 7, 5)
    """

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
        take_options(self, rng, options)
        self.attention_weights: Any = None
        draw_weights(self, rng, use_bias, 1, 1)

    def forward(
        self,
        X: Any,
        *given: Any,
        mask: Any = None,
        context: Any = None,
        positions: Any = None,
        cache: Any = None,
    ) -> Any:
        mask, context = told_apart(self, X, given, mask, context)
        method = resolved(self, X, context, 1, mask)
        Y = X if context is None else context  # (B, m, d_context)
        Q = linear(X, self.W_Q, self.b_Q, method).named("Q")  # (B, n, d_k)
        if (made := made_before(cache)) is None:
            K = linear(Y, self.W_K, self.b_K, method).named("K")  # (B, m, d_k)
            V = linear(Y, self.W_V, self.b_V, method).named("V")  # (B, m, d_v)
        else:
            K, V = made
        Q, K, V, i, j, seen, is_causal = prepared(self, Q, K, V, context, positions, cache, method)
        M = with_visible(mask, seen, recorded=True)  # (B, n, m)
        O, A = attend(  # (B, n, d_v), (B, n, m)
            Q, K, V, M, method, i=i, j=j, is_causal=is_causal, **scoring(self)
        )[:2]
        out = linear(O, self.W_O, self.b_O, method).named("out")  # (B, n, d_model)

        self.attention_weights = None if A is None else A.numpy()
        if describes(self, context, cache):
            S_masked = "S" if M is None else "S_masked"
            mg.expect_gradients(
                self_attention_steps, self, X=X, mask=M, is_causal=is_causal, S_masked=S_masked
            )
        return out


class MultiHeadAttention(Module):
    """Attention in h heads at once, each of width d_k = d_model / h, merged and projected.

        C W_O + b_O,    C = merge(O),    O = softmax(Q Kᵀ / √d_k + M) V  in each head,
        Q = split(X W_Q + b_Q),    K = split(X W_K + b_K),    V = split(X W_V + b_V)

    With fewer key-value heads than query heads, each serves h / n_kv_heads of them in order
    (grouped-query attention; one for all is multi-query). With a context Y, keys and values come
    from it (cross-attention); called as SelfAttention is.

    Args:
        n_kv_heads: n_heads unless given.
        use_bias: without, b_Q, b_K, b_V and b_O are None; or which to have, as "QKV".
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
        d_k, d_v: width of a head's queries and keys, d_model / h unless given; of its values, d_k
            unless given.
        method, causal, window, scale, softcap, dropout, position, qk_norm, d_context: see Options.
    Attributes: W_Q (d_model, h · d_k); W_K, W_V (d_context, n_kv_heads · d_k or d_v); W_O (h · d_v,
             d_model); b_Q, b_K, b_V, b_O; attention_weights: A of the last forward, (B, h, n, m),
             None if that went in tiles, where no A exists.
    Shapes:  X (B, n, d_model) or (n, d_model); mask (n, m), (B, n, m), (B, 1, m), or broadcastable
             to (B, h, n, m); context (B, m, d_context); positions (n,) or (B, n) → out as X
    Raises:  ArgumentError if n_heads does not divide d_model and no d_k is given, or n_kv_heads
             n_heads; otherwise as SelfAttention.
    Source:  Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762; groups: Ainslie et al. 2023,
             arXiv:2305.13245.

    >>> layer = MultiHeadAttention(d_model=6, n_heads=3, rng=np.random.default_rng(0))
    >>> layer(np.zeros((1, 7, 6))).shape, layer.attention_weights.shape
    ((1, 7, 6), (1, 3, 7, 7))
    >>> layer(np.zeros((1, 7, 6)), np.ones((1, 4, 6))).shape, layer.attention_weights.shape
    ((1, 7, 6), (1, 3, 7, 4))
    """

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
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        sizes = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        check_sizes("MultiHeadAttention", **sizes)
        for part, whole in (("n_heads", "d_model"), ("n_kv_heads", "n_heads")):
            if sizes[whole] % sizes[part] and (whole != "d_model" or d_k is None):
                numbers = f"{sizes[part]} and {sizes[whole]}"
                raise ArgumentError(
                    f"MultiHeadAttention: {part} must divide {whole}, got {numbers}"
                )
        d_k = d_model // n_heads if d_k is None else d_k
        d_v = d_k if d_v is None else d_v
        check_sizes("MultiHeadAttention", d_k=d_k, d_v=d_v)
        self.d_model, self.n_heads, self.n_kv_heads = d_model, n_heads, n_kv_heads
        self.d_k, self.d_v = d_k, d_v
        self.dtype, rng = np.dtype(dtype), np.random.default_rng(rng)
        take_options(self, rng, options)
        self.attention_weights: Any = None
        draw_weights(self, rng, use_bias, n_heads, n_kv_heads)

    def forward(
        self,
        X: Any,
        *given: Any,
        mask: Any = None,
        context: Any = None,
        positions: Any = None,
        cache: Any = None,
    ) -> Any:
        mask, context = told_apart(self, X, given, mask, context)
        method = resolved(self, X, context, self.n_heads, mask)
        Y = X if context is None else context  # (B, m, d_context)
        Q_flat = linear(X, self.W_Q, self.b_Q, method).named("Q_flat")  # (B, n, h·d_k)
        if (made := made_before(cache)) is None:
            K_flat = linear(Y, self.W_K, self.b_K, method).named("K_flat")  # (B, m, h_kv·d_k)
            V_flat = linear(Y, self.W_V, self.b_V, method).named("V_flat")  # (B, m, h_kv·d_v)
            Q = split_heads(Q_flat, self.n_heads).named("Q")  # (B, h, n, d_k)
            K = split_heads(K_flat, self.n_kv_heads).named("K")  # (B, h_kv, m, d_k)
            V = split_heads(V_flat, self.n_kv_heads).named("V")  # (B, h_kv, m, d_v)
        else:
            Q, (K, V) = split_heads(Q_flat, self.n_heads).named("Q"), made
        Q, K, V, i, j, seen, is_causal = prepared(self, Q, K, V, context, positions, cache, method)
        M = with_visible(with_head_axis(mask), with_head_axis(seen), recorded=True)  # (B, 1, n, m)
        group = self.n_heads // self.n_kv_heads
        O, A = attend(  # (B, h, n, d_v), (B, h, n, m)
            Q, K, V, M, method, group, i=i, j=j, is_causal=is_causal, **scoring(self)
        )[:2]
        C = merge_heads(O).named("C")  # (B, n, h·d_v)
        out = linear(C, self.W_O, self.b_O, method).named("out")  # (B, n, d_model)

        self.attention_weights = None if A is None else A.numpy()  # (B, h, n, m)
        if describes(self, context, cache):
            S_masked = "S" if M is None else "S_masked"
            mg.expect_gradients(
                multi_head_steps,
                self,
                n_heads=self.n_heads,
                n_kv_heads=self.n_kv_heads,
                X=X,
                mask=M,
                is_causal=is_causal,
                S_masked=S_masked,
            )
        return out


def draw_weights(
    layer: Any, rng: np.random.Generator, use_bias: bool | str, heads: int, kv_heads: int
) -> None:
    """W_Q, W_K, W_V and W_O for so many heads of queries, and of keys and values; their biases."""
    biases = use_bias if isinstance(use_bias, str) else "QKVO" if use_bias else ""
    if set(biases) - set("QKVO"):
        raise ArgumentError(
            f'{type(layer).__name__}: use_bias must be a bool or some of "QKVO", got {use_bias!r}'
        )
    d_k, d_v = layer.d_k, layer.d_v
    sizes = {
        "Q": (layer.d_model, heads * d_k),
        "K": (layer.d_context, kv_heads * d_k),
        "V": (layer.d_context, kv_heads * d_v),
        "O": (heads * d_v, layer.d_model),
    }
    for name, (n_in, n_out) in sizes.items():
        W, b = draw_affine(rng, name in biases, layer.dtype, n_in, n_out)
        setattr(layer, f"W_{name}", W)
        setattr(layer, f"b_{name}", b)
