"""Attention as the paper writes it: the formula, one head of it, and many.

A call of a layer goes this way: `LayerCall.__call__` (call.py) makes a leaf of an array and enters
the layer's scope; `forward` projects Q, K and V; `joined` (masking.py) makes one mask of the
layer's own and the call's; `attend` is the formula. Of many heads, `heads_of` splits each
projection, and the heads are merged again before W_O.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, GradientError, ShapeError

from .basic import Dropout, Seed, check_sizes, draw_affine, generator, linear
from .cache import KVCache
from .call import ArrayOrTensor, SameArray, array_or_tensor, named
from .hand_derived import multi_head_steps, self_attention_steps
from .masking import (
    Mask,
    MaskRule,
    Positions,
    check_square,
    entries,
    for_scores,
    joined,
    rules_apart,
)
from .module import Module
from .positions import Position

__all__ = [
    "MultiHeadAttention",
    "SelfAttention",
    "attend",
    "merge_heads",
    "scaled_dot_product_attention",
    "split_heads",
]

Attended: TypeAlias = tuple[Any, Any, Any]  # O, the weights A or None, the mask or None


def attend(
    Q: SameArray,
    K: ArrayOrTensor,
    V: ArrayOrTensor,
    mask: Mask | None = None,
    *,
    drop: Callable[[Any], Any] | None = None,
    rounded: Callable[[Any], Any] | None = None,
    return_scores: bool = False,
) -> tuple[SameArray, ...]:
    """O = A V,    A = softmax(S + M),    S = Q Kᵀ / √d_k: the output and the weights.

    Args:
        mask: M, True (may attend) or floats to add, broadcastable to S; or a rule of positions.
        drop: what drops weights in training.  rounded: what S passes through (see quantized.py).
        return_scores: return (O, A, S).
    Shapes: Q (..., n, d_k), K (..., m, d_k), V (..., m, d_v) → O (..., n, d_v), A (..., n, m)
    Raises: ShapeError for a mask that does not broadcast to S.
    Source: Vaswani et al. 2017, eq. (1), arXiv:1706.03762.

    >>> Q = K = V = np.eye(2)
    >>> O, A = attend(Q, K, V, mask=np.tri(2, dtype=bool))
    >>> A.round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]])
    """
    S_raw = named("S_raw", mg.matmul(Q, mg.swapaxes(K, -1, -2)))  # (..., n, m)
    S = named("S", mg.scale(S_raw, 1 / sqrt(Q.shape[-1])))  # (..., n, m)   eq. (1)
    R = S if rounded is None else named("S_rounded", rounded(S))
    S_masked = R if mask is None else named("S_masked", mg.mask_add(R, for_scores(mask, S.shape)))
    A = named("A", mg.softmax(S_masked))  # rows sum to 1; a row that sees no key is 0
    P = A if drop is None else named("A_dropped", drop(A))
    O = named("O", mg.matmul(P, V))  # (..., n, d_v)
    return (O, A, S) if return_scores else (O, A)


def scaled_dot_product_attention(
    Q: Any,
    K: Any,
    V: Any,
    mask: Mask | None = None,
    *,
    return_scores: bool = False,
) -> tuple[Any, ...]:
    """`attend` under the name it has in texts: (O, A), or (O, A, S).

    Raises: ShapeError for what does not fit, or for a mask (n, n) of n sequences that may be one of
        padding.

    >>> O, A = scaled_dot_product_attention(np.zeros((1, 2, 2)), np.eye(2)[None], np.eye(2)[None])
    >>> O[0, 0]
    array([0.5, 0.5])
    """
    Q, K, V = map(array_or_tensor, (Q, K, V))
    call = "scaled_dot_product_attention"
    if min(Q.ndim, K.ndim, V.ndim) < 2:
        raise ShapeError(f"{call}: each is (..., n, d), got {Q.shape}, {K.shape}, {V.shape}")
    check_square(call, mask, Q.shape[:-2][:1], Q.shape[-2])
    return attend(Q, K, V, mask, return_scores=return_scores)


class Attention(Module):
    """What one head and many keep of the last call.

    Attributes: attention_weights: A, (B, n, m) or (B, h, n, m); None after tiles, which have none.
    """

    symbols: ClassVar[tuple[str, ...]] = (*"XQKVAO", "mask")
    attention_weights: NDArray[Any] | None
    W_Q: Any

    @property
    def cache(self) -> dict[str, NDArray[Any] | None]:
        """X, Q, K, V, A, O, the mask, and C of many heads, of the last call, as arrays.

        Raises: GradientError unless that call was given an array.
        """
        if vars(self)["kept_X"] is None:
            raise GradientError(
                f"{type(self).__name__}.cache: a call on a Tensor keeps nothing alive; call the "
                "layer on an array"
            )
        return {symbol: vars(self)[f"kept_{symbol}"] for symbol in self.symbols}

    def keep(self, **last: ArrayOrTensor | None) -> None:
        """Note what the last call made, in vars(self), so that none becomes a parameter."""
        for symbol in self.symbols:
            x = last.get(symbol)
            array = x.numpy() if isinstance(x, mg.Tensor) else x
            if symbol == "A":
                vars(self)["attention_weights"] = array
            vars(self)[f"kept_{symbol}"] = array if self._given_array else None

    def expect(self, steps: Callable[..., Any], *others: Any, **symbols: Any) -> None:
        """Say that the steps derived by hand hold for this call, or which layers they leave out."""
        kinds = [type(x).__name__ for x in (*others, self.W_Q) if isinstance(x, Module)]
        if kinds:
            what = f"{type(self).__name__} with {' and '.join(kinds)}"
            mg.expect_gradients(what, out=symbols["out"])
        else:
            mg.expect_gradients(steps, self, **symbols)


class SelfAttention(Attention):
    """One head: each token attends to every token of its sequence.

        out = softmax(Q Kᵀ / √d_k + M) V W_O + b_O
        with  Q = X W_Q + b_Q,    K = X W_K + b_K,    V = X W_V + b_V

    `forward` takes arrays too, `backward(grad_output)` then returns ∂L/∂X, and the gradients are
    grad_W_Q and so on. MultiHeadAttention(d_model, 1) is one head with positions, a cache, …

    Args:
        d_model, d_k, d_v: width of X; of Q and K; of V.
        use_bias: without, every b is None.  project_out: without, out is O, and there is no W_O.
        mask: a rule of positions that always holds, as `causal`.
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
    Call:   layer(X, mask=None, return_weights=False) → out, or (out, A).
    Shapes: X (B, n, d_model) or (n, d_model), mask broadcastable to (B, n, n) → as X
    Raises: ShapeError if X or the mask does not fit, or a mask (n, n) of n sequences may be one of
        padding; ArgumentError for a size below 1.
    Source: Vaswani et al. 2017, section 3.2.1, arXiv:1706.03762.

    >>> SelfAttention(d_model=5, d_k=2, d_v=3, rng=0)(np.zeros((1, 7, 5))).shape
    (1, 7, 5)
    """

    products = ("W_Q", "W_K", "W_V", "W_O")

    def __init__(
        self,
        d_model: int,
        d_k: int,
        d_v: int,
        use_bias: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        *,
        project_out: bool = True,
        mask: MaskRule | None = None,
    ) -> None:
        check_sizes("SelfAttention", d_model=d_model, d_k=d_k, d_v=d_v)
        self.keep()
        self.d_model, self.mask = d_model, checked_rule(self, mask)
        self.dtype, rng = np.dtype(dtype), generator(rng)
        self.W_Q, self.b_Q = draw_affine(rng, use_bias, dtype, d_model, d_k)
        self.W_K, self.b_K = draw_affine(rng, use_bias, dtype, d_model, d_k)
        self.W_V, self.b_V = draw_affine(rng, use_bias, dtype, d_model, d_v)
        self.W_O: Any = None
        self.b_O: Any = None
        if project_out:
            self.W_O, self.b_O = draw_affine(rng, use_bias, dtype, d_v, d_model)

    def forward(
        self, X: ArrayOrTensor, mask: Mask | None = None, *, return_weights: bool = False
    ) -> Any:
        i = np.arange(check_input(self, X, mask))
        Q = linear(X, self.W_Q, self.b_Q).named("Q")  # (B, n, d_k)
        K = linear(X, self.W_K, self.b_K).named("K")  # (B, n, d_k)
        V = linear(X, self.W_V, self.b_V).named("V")  # (B, n, d_v)
        M = joined(i, i, self.mask, mask)  # (B, n, n)
        O, A = attend(Q, K, V, M)  # (B, n, d_v), (B, n, n)
        out = O if self.W_O is None else linear(O, self.W_O, self.b_O).named("out")
        self.keep(X=X, Q=Q, K=K, V=V, A=A, O=O, mask=M)
        if mg.listening():
            self.expect(self_attention_steps, X=X, mask=M, out=out)
        return (out, A) if return_weights else out


class MultiHeadAttention(Attention):
    """Attention in h heads at once, each of width d_k = d_model / h, merged and projected.

        out = C W_O + b_O,    C = merge(O),    O = softmax(Q Kᵀ / √d_k + M) V  in each head,
        Q = split(X W_Q + b_Q),    K = split(Y W_K + b_K),    V = split(Y W_V + b_V)

    Y is X, or a context (cross-attention). With fewer key-value heads than query heads, each serves
    h / n_kv_heads of them, in order (grouped-query attention; one for all is multi-query).

    Args:
        use_bias: without, every b is None.
        mask: a rule of positions that always holds: `causal`, `causal & window(64)`.
        position: what positions do: a Rotary turns Q and K; an ALiBi or T5Bias adds to the scores.
        dropout: in training, the probability with which each weight is dropped.
        d_context: width of Y; d_model unless given.
        attend: another way to average: `in_tiles`, which never holds the (n, m) scores and so has
            no weights to look at; or one of efficient.py.
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
    Call: layer(X, mask=None, context=None, positions=None, cache=None, return_weights=False).
        context: Y. positions: of X's tokens, (n,) or (B, n); below 0 is padding. cache: a KVCache;
        of a context it holds K and V from the first call on.
    Shapes: X (B, n, d_model) or (n, d_model), Y (B, m, d_context); mask (n, m), (B, n, m), or
        broadcastable to (B, h, n, m) → as X
    Raises: ShapeError if X, Y, positions or the mask does not fit, or a mask (n, n) of n sequences
        may be one of padding; ArgumentError for sizes below 1, or heads that do not divide.
    Source: Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762; groups: Ainslie et al. 2023,
        arXiv:2305.13245.

    >>> layer = MultiHeadAttention(d_model=6, n_heads=3, rng=0)
    >>> layer(np.zeros((1, 7, 6)), context=np.ones((1, 4, 6))).shape, layer.attention_weights.shape
    ((1, 7, 6), (1, 3, 7, 4))
    """

    products = ("W_Q", "W_K", "W_V", "W_O")
    symbols = (*"XQKVAOC", "mask")

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        use_bias: bool = False,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        *,
        mask: MaskRule | None = None,
        position: Position | None = None,
        dropout: float = 0.0,
        d_context: int | None = None,
        attend: Callable[..., Attended] | None = None,
    ) -> None:
        h, h_kv = n_heads, n_heads if n_kv_heads is None else n_kv_heads
        self.d_context = d_model if d_context is None else d_context
        check_sizes("MultiHeadAttention", d_model=d_model, d_context=self.d_context)
        check_sizes("MultiHeadAttention", n_heads=h, n_kv_heads=h_kv)
        if d_model % h or h % h_kv:
            raise ArgumentError(
                "MultiHeadAttention: n_heads must divide d_model, and n_kv_heads n_heads, got "
                f"d_model={d_model}, n_heads={h}, n_kv_heads={h_kv}"
            )
        if not isinstance(position, Position | None):
            kind = type(position).__name__
            raise ArgumentError(f"MultiHeadAttention: position must be a Position, got {kind}")
        self.keep()
        self.d_model, d_k = d_model, d_model // h
        self.n_heads, self.n_kv_heads = h, h_kv
        self.mask, self.position = checked_rule(self, mask), position
        self.attend = attend or exactly
        self.dtype, rng = np.dtype(dtype), generator(rng)
        self.drop = Dropout(dropout, rng) if dropout else None
        self.W_Q, self.b_Q = draw_affine(rng, use_bias, dtype, d_model, h * d_k)
        self.W_K, self.b_K = draw_affine(rng, use_bias, dtype, self.d_context, h_kv * d_k)
        self.W_V, self.b_V = draw_affine(rng, use_bias, dtype, self.d_context, h_kv * d_k)
        self.W_O, self.b_O = draw_affine(rng, use_bias, dtype, h * d_k, d_model)

    def forward(
        self,
        X: ArrayOrTensor,
        mask: Mask | None = None,
        *,
        context: ArrayOrTensor | None = None,
        positions: ArrayLike | None = None,
        cache: KVCache | None = None,
        return_weights: bool = False,
    ) -> Any:
        n = check_input(self, X, mask)
        Y = X if context is None else check_context(self, context, X)
        start = 0 if cache is None or context is not None else len(cache)
        i: Positions = np.arange(start, start + n)
        if positions is not None:
            i = check_positions(self, positions, X)
        j = i if context is None else np.arange(Y.shape[-2])

        Q = self.heads_of("Q", X, self.n_heads, i)  # (B, h, n, d_k)
        K: ArrayOrTensor
        V: ArrayOrTensor
        if context is not None and cache is not None and cache.K is not None:
            K, V = cache.kept(X.shape[:-2], self.n_kv_heads)
        else:
            K = self.heads_of("K", Y, self.n_kv_heads, j)  # (B, h_kv, m, d_k)
            V = self.heads_of("V", Y, self.n_kv_heads)  # (B, h_kv, m, d_k)
            if cache is not None:
                K, V, j = cache.append(K, V, j)
        group = self.n_heads // self.n_kv_heads
        K, V = repeat_heads(K, group), repeat_heads(V, group)  # (B, h, m, d_k)

        bias = None if self.position is None else self.position.bias(Q, K, i, j)
        masks = self.mask, mask, bias
        O, A, M = self.attend(Q, K, V, i, j, *masks, drop=self.drop)  # (B, h, n, d_k), (B, h, n, m)
        C = merge_heads(O).named("C")  # (B, n, d_model)
        out = linear(C, self.W_O, self.b_O).named("out")  # (B, n, d_model)
        self.keep(X=X, Q=Q, K=K, V=V, A=A, O=O, C=C, mask=M)
        if mg.listening():
            position, drop = self.position, self.drop
            rules = [entries(rule, i, j) for rule in rules_apart(masks)[0]]
            self.expect(
                multi_head_steps,
                self.attend,
                position if position is not None and position.reads_queries else None,
                drop if drop is not None and drop.training else None,
                X=X, context=context if context is None else Y, mask=M, out=out,
                rules=rules if A is None else None,  # tiles build no M that holds them
                turns=None if position is None else position.turns(i, j, X.dtype),
                n_heads=self.n_heads, n_kv_heads=self.n_kv_heads,
            )  # fmt: skip
        return (out, A) if return_weights else out

    def heads_of(
        self, symbol: str, X: ArrayOrTensor, heads: int, at: Positions | None = None
    ) -> Any:
        """X's queries, keys or values, split into heads; Q and K are turned to their positions."""
        flat = linear(X, getattr(self, f"W_{symbol}"), getattr(self, f"b_{symbol}"))
        x = split_heads(flat.named(f"{symbol}_flat"), heads).named(symbol)
        return x if at is None or self.position is None else self.position.turn(x, at, symbol)


def exactly(
    Q: Any, K: Any, V: Any, i: Positions, j: Positions, *masks: Mask | None, **settings: Any
) -> Attended:
    """`attend`, for queries at positions i and keys at j: O, A and the mask."""
    M = joined(i, j, *masks)
    O, A = attend(Q, K, V, M, **settings)
    return O, A, M


# ---------------------------------------------------------------- heads


def split_heads(x: SameArray, heads: int) -> SameArray:
    """(B, n, heads · d) → (B, heads, n, d): head k takes columns k · d to (k + 1) · d.

    >>> split_heads(np.arange(4.0).reshape(1, 1, 4), 2)[0, :, 0].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    *lead, width = x.shape
    if width % heads:
        raise ShapeError(f"split_heads: {heads} heads must divide the last axis, got {x.shape}")
    return mg.swapaxes(mg.reshape(x, (*lead, heads, width // heads)), -3, -2)


def merge_heads(x: SameArray) -> SameArray:
    """(B, heads, n, d) → (B, n, heads · d): what `split_heads` took apart.

    >>> merge_heads(split_heads(np.arange(4.0).reshape(1, 1, 4), 2))
    array([[[0., 1., 2., 3.]]])
    """
    *lead, heads, n, d = x.shape
    return mg.reshape(mg.swapaxes(x, -3, -2), (*lead, n, heads * d))


def repeat_heads(x: SameArray, group: int) -> SameArray:
    """(B, heads, n, d) → (B, heads · group, n, d): each head `group` times, in order."""
    if group == 1:
        return x
    *lead, heads, n, d = x.shape
    spread = mg.broadcast_to(mg.expand_dims(x, -3), (*lead, heads, group, n, d))
    return mg.reshape(spread, (*lead, heads * group, n, d))


# ---------------------------------------------------------------- what both have in common


def checked_rule(layer: Attention, mask: Any) -> MaskRule | None:
    """The layer's own mask. Raises: ArgumentError for an array, which is given to calls."""
    if not isinstance(mask, MaskRule | None):
        raise ArgumentError(
            f"{type(layer).__name__}: mask= is a rule that always holds, as causal; give an array "
            f"to the call: layer(X, mask), got {type(mask).__name__}"
        )
    return mask


def check_input(layer: Attention, X: ArrayOrTensor, mask: Mask | None) -> int:
    """X's length n. Raises: ShapeError for another X, or a mask that could mean two things."""
    call, width = type(layer).__name__, vars(layer)["d_model"]
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) not in (2, 3) or shape[-1] != width:
        raise ShapeError(f"{call}(X): X must be (B, n, {width}) or (n, {width}), got {shape}")
    if mask is not None and shape[0] == shape[1]:
        check_square(call, mask, shape[:-2], shape[-2])
    return shape[-2]


def check_context(
    layer: MultiHeadAttention, context: ArrayOrTensor, X: ArrayOrTensor
) -> ArrayOrTensor:
    """The context, of the layer's dtype. Raises: ShapeError if it does not fit to X."""
    Y: ArrayOrTensor = array_or_tensor(context, layer.dtype)
    if Y.ndim != X.ndim or Y.shape[-1] != layer.d_context or Y.shape[:-2] != X.shape[:-2]:
        lead = ", ".join([*map(str, X.shape[:-2]), "m"])
        raise ShapeError(
            f"MultiHeadAttention: context must be ({lead}, {layer.d_context}), got {Y.shape}"
        )
    return Y


def check_positions(layer: MultiHeadAttention, positions: ArrayLike, X: ArrayOrTensor) -> Positions:
    """Positions as an array. Raises: ShapeError unless there is one for each token."""
    at = np.asanyarray(positions)
    if at.shape not in (X.shape[-2:-1], X.shape[:-1]) or at.dtype.kind not in "iu":
        raise ShapeError(
            f"MultiHeadAttention: positions must be integers {X.shape[-2:-1]} or {X.shape[:-1]}, "
            f"got {at.dtype} {at.shape}"
        )
    return at
