"""Attention, written as the paper writes it: the formula, one head of it, and many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import GradientError, explained

from .arrays import Array, Mask, SameArray
from .attention_call import AttentionCall
from .cache import ContextCache, KVCache
from .hand_derived import Step, multi_head_steps, self_attention_steps
from .initialisers import Seed, generator
from .linear import Weight, check_sizes, linear
from .module import Module, as_array, named
from .options import (
    AttentionOption,
    DropWeights,
    Norms,
    Options,
    SoftCap,
    draw_weights,
    set_heads,
    set_options,
)
from .renamed import renamed

__all__ = ["MultiHeadAttention", "SelfAttention", "merge_heads", "split_heads"]


def attend(
    Q: SameArray,
    K: Array,
    V: Array,
    M: Array | None = None,
    *,
    scale: float | None = None,
    options: Sequence[AttentionOption] = (),
    at: Any = None,
    at_stage: Callable[[str, Array], Array] = named,
) -> tuple[SameArray, SameArray]:
    """O = A V,    A = softmax(S + M),    S = Q Kᵀ / √d_k: the output and the weights.

    Args:
        M: a mask, as `fit_mask` makes it.  scale: in place of 1/√d_k.
        options: what else is done to S, A and O (see options.py); `at` has the positions of tokens.
        at_stage: called with the scores' symbol, "S_raw", "S" or "S_masked", and with the scores;
            what it returns is used in their place. Unless given, it names them.
    Shapes: Q (..., n, d_k), K (..., m, d_k), V (..., m, d_v) → O (..., n, d_v), A (..., n, m)
    """
    S = at_stage("S_raw", mg.matmul(Q, mg.swapaxes(K, -1, -2)))  # (..., n, m)
    scale = 1 / sqrt(Q.shape[-1]) if scale is None else scale
    S = at_stage("S", mg.scale(S, scale))  # (..., n, m)   eq. (1)
    for option in options:
        S = option.scores(S, Q, K, at)  # (..., n, m)
    if M is not None:
        S = at_stage("S_masked", mg.mask_add(S, M))  # (..., n, m)
    A = dropped = named("A", mg.softmax(S))  # (..., n, m)   rows sum to 1
    for option in options:
        dropped = option.weights(dropped)  # (..., n, m)
    O = named("O", mg.matmul(dropped, V))  # (..., n, d_v)
    for option in options:
        O = option.values(O, dropped, at)  # (..., n, d_v)
    return O, A


def attend_in_tiles(
    Q: mg.Tensor, K: Array, V: Array, M: Array | None, call: AttentionCall
) -> mg.Tensor:
    """softmax(Q Kᵀ / √d_k + M) V as one node, whose memory grows with n; there are no weights.

    A key-value head serves its group of query heads as a view. The call's rule hides keys, as M.
    """
    lead, layer = Q.shape[:-1], call.layer
    group = layer.n_heads // layer.n_kv_heads
    if group > 1:
        Q = group_heads(Q, group)
        K = mg.expand_dims(K, -3)
        V = mg.expand_dims(V, -3)
        M = M if M is None or M.ndim < 3 else group_heads(M, group)
    O: Any = mg.scaled_dot_product_attention(
        Q, K, V, M, scale=layer.scale, rule=call.rule, method="tiled"
    )
    return named("O", mg.reshape(O, (*lead, O.shape[-1])) if group > 1 else O)  # (..., n, d_v)


class Attention(Module):
    """The forward of one head and of many, and what is kept of the last one.

    A subclass defines how X is projected, and how the heads' outputs are merged.

    Attributes:
        attention_weights: A; None after attention in tiles, where no A exists.
        cache: the arrays of the last forward on an array.
        keep_intermediates: set it True, and a forward on a Tensor keeps them too.
    """

    attention_weights: NDArray[np.floating] | None
    keep_intermediates = False
    kept_X: Array | None = None
    rounding: AttentionOption | None = None  # of the scores: see quantized.py
    n_heads = n_kv_heads = 1
    many_heads = False  # whether Q, K, V and A have an axis of heads
    W_O: Weight | None
    b_O: mg.Tensor | None
    steps: Callable[..., list[Step]]  # the backward steps derived by hand
    project: Callable[[mg.Tensor, AttentionCall], tuple[mg.Tensor, Array, Array]]
    merge: Callable[[mg.Tensor], mg.Tensor]

    def forward(
        self,
        X: mg.Tensor,
        mask: Mask | None = None,
        *,
        context: Array | None = None,
        positions: ArrayLike | None = None,
        cache: KVCache | ContextCache | None = None,
        return_weights: bool = False,
    ) -> mg.Tensor | tuple[mg.Tensor, mg.Tensor | None]:
        call = AttentionCall(self, X, mask, context, positions, cache, return_weights)
        Q, K, V = self.project(X, call)  # (..., n, d_k), (..., m, d_k), (..., m, d_v)
        Q, K, V = call.prepare(Q, K, V)  # as options and cache change them
        O, A = self._attend(Q, K, V, call.mask(Q, K), call)  # (..., n, d_v), (..., n, m)
        C = self.merge(O)  # (B, n, h·d_v)
        out = O  # (B, n, d_v)
        if self.W_O is not None:
            out = named("out", linear(C, self.W_O, self.b_O, call.method))  # (B, n, d_model)
        call.keep(Q=Q, K=K, V=V, A=A, O=O, C=C)
        return (out, A) if return_weights else out

    def _attend(
        self, Q: mg.Tensor, K: Array, V: Array, M: Array | None, call: AttentionCall
    ) -> tuple[mg.Tensor, mg.Tensor | None]:
        if call.method != "exact":
            return attend_in_tiles(Q, K, V, M, call), None
        group = self.n_heads // self.n_kv_heads  # query heads of one key-value head
        K, V = repeat_heads(K, group), repeat_heads(V, group)  # (B, h, m, d_k or d_v)
        return attend(Q, K, V, M, scale=self.scale, options=call.options, at=call)

    @property
    def options(self) -> list[AttentionOption]:
        """What changes this layer's attention beside its formula, in the order in which it acts."""
        options = (
            None if self.q_norm is None else Norms(self.q_norm, self.k_norm),
            self.position,
            None if self.softcap is None else SoftCap(self.softcap),
            self.rounding,
            None if self.drop is None else DropWeights(self.drop),
        )
        return [option for option in options if option is not None]

    @property
    def cache(self) -> dict[str, NDArray[np.generic] | None]:
        """X, Q, K, V, A, O, C (the heads' outputs side by side) and mask of the last forward.

        Arrays, without a graph. Q and K are those whose products the scores are; A is None in
        tiles, mask where there was none.
        Raises: GradientError unless that forward was given an array, or `keep_intermediates` was
            set before it.
        """
        if self.keep_intermediates and self.kept_X is not None:
            return {s: getattr(self, f"kept_{s}", None) for s in (*"XQKVAOC", "mask")}
        if self._kept is None:
            raise GradientError(
                f"{type(self).__name__}.cache: a forward on a Tensor keeps nothing alive; call the "
                "layer on an array, or set layer.keep_intermediates = True before"
            )
        return self._kept

    intermediates = cache


class SelfAttention(Attention):
    """Scaled dot-product attention of a sequence with itself, or with a context.

        softmax(Q Kᵀ / √d_k + M) V W_O + b_O
        with  Q = X W_Q + b_Q,    K = X W_K + b_K,    V = X W_V + b_V

    With a context Y, keys and values come from it: K = Y W_K + b_K, V = Y W_V + b_V
    (cross-attention). Call it as layer(X), layer(X, mask) or layer(X, mask, context=Y); with
    return_weights=True it gives (out, A).

    Args:
        d_model, d_k, d_v: width of X; of Q and K; of V.
        use_bias: without, b_Q, b_K, b_V and b_O are None; or which to have, as "QKV". By default
            one head has them, as in the formula above, and many heads have none.
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
        project_out: False leaves out W_O and b_O, and gives O itself.
        options: see Options.
    Attributes: W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O; attention_weights, intermediates: see
             Attention.
    Masks:   True: may attend (PyTorch's key_padding_mask is the opposite); floats are added.
    Shapes:  X (B, n, d_model) or (n, d_model), mask broadcastable to (B, n, m) or a mask rule,
             context (B, m, d_context), positions (n,) or (B, n) → out as X, or (B, n, d_v) without
             W_O; m is n without a context
    Raises:  ShapeError if X, the context or the mask does not fit, or a mask (n, n) could be (B, n)
             too; ArgumentError for a size below 1 or an option out of its range.
    Source:  Vaswani et al. 2017, section 3.2.1, arXiv:1706.03762.

    >>> layer = SelfAttention(d_model=5, d_k=2, d_v=3, rng=np.random.default_rng(0))
    >>> layer(np.zeros((1, 7, 5))).shape
    (1, 7, 5)
    """

    steps = staticmethod(self_attention_steps)

    @renamed("causal")
    def __init__(
        self,
        d_model: int,
        d_k: int,
        d_v: int,
        use_bias: bool | str = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        *,
        project_out: bool = True,
        **options: Unpack[Options],
    ) -> None:
        check_sizes("SelfAttention", d_model=d_model, d_k=d_k, d_v=d_v)
        self.d_model = d_model
        self.d_k, self.d_v = d_k, d_v
        self.dtype, rng = np.dtype(dtype), generator(rng)
        set_options(self, rng, options)
        draw_weights(self, rng, use_bias, project_out)

    def project(self, X: mg.Tensor, call: AttentionCall) -> tuple[mg.Tensor, Array, Array]:
        Q = linear(X, self.W_Q, self.b_Q, call.method).named("Q")  # (B, n, d_k)
        if call.keys_values is not None:
            return Q, *call.keys_values
        K = linear(call.Y, self.W_K, self.b_K, call.method).named("K")  # (B, m, d_k)
        V = linear(call.Y, self.W_V, self.b_V, call.method).named("V")  # (B, m, d_v)
        return Q, K, V

    def merge(self, O: mg.Tensor) -> mg.Tensor:
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
        use_bias: without, which is the default, b_Q, b_K, b_V and b_O are None, as in most models
            today; or which to have, as "QKV".
        rng, dtype, options: as SelfAttention's.
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
    W_O: Weight
    steps = staticmethod(multi_head_steps)

    @renamed("causal")
    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        use_bias: bool | str = False,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        set_heads(self, d_model, n_heads, n_kv_heads, d_k, d_v)
        self.dtype, rng = np.dtype(dtype), generator(rng)
        set_options(self, rng, options)
        draw_weights(self, rng, use_bias)

    def project(self, X: mg.Tensor, call: AttentionCall) -> tuple[mg.Tensor, Array, Array]:
        return project_heads(self, X, call.Y, call.method, call.keys_values)

    def merge(self, O: mg.Tensor) -> mg.Tensor:
        return merge_heads(O).named("C")  # (B, n, h·d_v)


def project_heads(
    layer: Module,
    X: Array,
    Y: Array,
    method: str = "exact",
    keys_values: tuple[Array, Array] | None = None,
) -> tuple[mg.Tensor, Array, Array]:
    """Q of every head, and K and V of every key-value head, unless these are given."""
    Q = linear(X, layer.W_Q, layer.b_Q, method).named("Q_flat")  # (B, n, h·d_k)
    if keys_values is not None:
        return split_heads(Q, layer.n_heads).named("Q"), *keys_values
    K = linear(Y, layer.W_K, layer.b_K, method).named("K_flat")  # (B, m, h_kv·d_k)
    V = linear(Y, layer.W_V, layer.b_V, method).named("V_flat")  # (B, m, h_kv·d_v)
    Q = split_heads(Q, layer.n_heads).named("Q")  # (B, h, n, d_k)
    K = split_heads(K, layer.n_kv_heads).named("K")  # (B, h_kv, m, d_k)
    V = split_heads(V, layer.n_kv_heads).named("V")  # (B, h_kv, m, d_v)
    return Q, K, V


# ---------------------------------------------------------------- between one wide axis and heads


@explained
def split_heads(x: SameArray, heads: int) -> SameArray:
    """(B, n, heads · d) → (B, heads, n, d): head i takes columns i · d to (i + 1) · d.

    >>> import numpy as np
    >>> split_heads(np.arange(6.0).reshape(1, 6), 2)    # unbatched: (1, 6) → (2, 1, 3)
    array([[[0., 1., 2.]],
           [[3., 4., 5.]]])
    """
    *lead, width = as_array(x).shape
    return mg.swapaxes(mg.reshape(x, (*lead, heads, width // heads)), -3, -2)


@explained
def merge_heads(x: SameArray) -> SameArray:
    """(B, heads, n, d) → (B, n, heads · d): what `split_heads` took apart.

    >>> import numpy as np
    >>> merge_heads(split_heads(np.arange(6.0).reshape(1, 6), 2))
    array([[0., 1., 2., 3., 4., 5.]])
    """
    *lead, heads, n, d = as_array(x).shape
    return mg.reshape(mg.swapaxes(x, -3, -2), (*lead, n, heads * d))


def repeat_heads(x: SameArray, group: int) -> SameArray:
    """(B, heads, n, d) → (B, heads · group, n, d): each head `group` times, in order."""
    if group == 1:
        return x
    *lead, heads, n, d = x.shape
    spread = mg.broadcast_to(mg.expand_dims(x, -3), (*lead, heads, group, n, d))
    return mg.reshape(spread, (*lead, heads * group, n, d))


def group_heads(x: SameArray, group: int) -> SameArray:
    """(B, heads · group, n, d) → (B, heads, group, n, d); one head for all stays one."""
    *lead, heads, n, d = x.shape
    return mg.reshape(x, (*lead, heads // group, group, n, d) if heads > 1 else (*lead, 1, 1, n, d))
