"""Attention, written as the paper writes it: one head, and many."""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .hand_derived import multi_head_steps, self_attention_steps
from .linear import check_sizes, draw_affine, linear
from .mask import fit_mask, with_head_axis
from .module import Module

__all__ = [
    "MultiHeadAttention",
    "SelfAttention",
    "merge_heads",
    "repeat_heads",
    "scaled_dot_product_attention",
    "softmax_backward",
    "split_heads",
]


def attend(Q: Any, K: Any, V: Any, mask: Any) -> tuple[Any, Any, Any]:
    """softmax(Q Kᵀ / √d_k + M) V, step by step; returns O, A and S."""
    S_raw = named("S_raw", mg.matmul(Q, mg.swapaxes(K, -1, -2)))  # (..., n, m)
    S = S_masked = named("S", mg.scale(S_raw, 1 / sqrt(Q.shape[-1])))  # (..., n, m)   eq. (1)
    if mask is not None:
        S_masked = named("S_masked", mg.mask_add(S, fit_mask(mask, S)))  # (..., n, m)
    A = named("A", mg.softmax(S_masked))  # (..., n, m)   rows sum to 1
    O = named("O", mg.matmul(A, V))  # (..., n, d_v)
    return O, A, S


def scaled_dot_product_attention(
    Q: Any, K: Any, V: Any, mask: Any = None, *, return_scores: bool = False
) -> tuple[Any, ...]:
    """Values, averaged by how well their keys match each query; recorded on Tensors, not on arrays.

        O = A V,    A = softmax(S + M),    S = Q Kᵀ / √d_k

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to S; with heads, the
            first axis of a 3-D mask is the batch. A row that may attend nowhere gives zeros.
        return_scores: return S too, scaled and not yet masked.
    Returns: (O, A), or (O, A, S).
    Shapes:  Q (B, n, d_k), K (B, m, d_k), V (B, m, d_v) → O (B, n, d_v), A and S (B, n, m);
             an axis of heads may follow B, and B may be missing.
    Raises:  ShapeError where these do not fit; ArgumentError if the mask holds NaN or +inf.
    Source:  Vaswani et al. 2017, eq. (1), arXiv:1706.03762.

    >>> Q, K, V = np.zeros((1, 2, 5)), np.ones((1, 3, 5)), np.arange(3.0).reshape(1, 3, 1)
    >>> O, A = scaled_dot_product_attention(Q, K, V, mask=np.array([True, True, False]))
    >>> O[0, 0], A[0, 0]
    (array([0.5]), array([0.5, 0.5, 0. ]))
    """
    Q, K, V = (x if isinstance(x, mg.Tensor) else np.asarray(x) for x in (Q, K, V))
    O, A, S = attend(Q, K, V, mask)
    return (O, A, S) if return_scores else (O, A)


def softmax_backward(
    grad_output: NDArray[Any], softmax_output: NDArray[Any], axis: int = -1
) -> NDArray[Any]:
    """The gradient through A = softmax(S), from ∂A and A alone:  ∂S = A ⊙ (∂A − rowsum(∂A ⊙ A)).

    >>> softmax_backward(np.array([1.0, 0.0]), np.array([0.25, 0.75]))
    array([ 0.1875, -0.1875])
    """
    rowsum = np.sum(grad_output * softmax_output, axis=axis, keepdims=True)
    return np.asarray(softmax_output * (grad_output - rowsum))


class SelfAttention(Module):
    """Scaled dot-product attention of a sequence with itself.

        softmax(Q Kᵀ / √d_k + M) V W_O + b_O
        with  Q = X W_Q + b_Q,    K = X W_K + b_K,    V = X W_V + b_V

    Args:
        d_model, d_k, d_v: width of X; of Q and K; of V.
        use_bias: without, b_Q, b_K, b_V and b_O are None.
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
        method: "exact" records every step; "auto" chooses (today: always exact).
    Attributes: W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O; attention_weights: A of the last forward.
    Shapes:  X (B, n, d_model) or (n, d_model), mask broadcastable to (B, n, n) → out as X
    Raises:  ShapeError if X or the mask does not fit; ArgumentError for a size below 1 or a method
             that does not exist.
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
        use_bias: bool = True,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
        *,
        method: str = "exact",
    ) -> None:
        check_sizes("SelfAttention", d_model=d_model, d_k=d_k, d_v=d_v)
        _check_method("SelfAttention", method)
        self.d_model, self.d_k, self.d_v, self.method = d_model, d_k, d_v, method
        self.attention_weights: Any = None
        self.dtype = np.dtype(dtype)
        drawn = partial(draw_affine, np.random.default_rng(rng), use_bias, dtype)
        self.W_Q, self.b_Q = drawn(d_model, d_k)
        self.W_K, self.b_K = drawn(d_model, d_k)
        self.W_V, self.b_V = drawn(d_model, d_v)
        self.W_O, self.b_O = drawn(d_v, d_model)

    def forward(self, X: Any, mask: Any = None) -> Any:
        _check_input("SelfAttention(X)", X, self.d_model)
        Q = linear(X, self.W_Q, self.b_Q).named("Q")  # (B, n, d_k)
        K = linear(X, self.W_K, self.b_K).named("K")  # (B, n, d_k)
        V = linear(X, self.W_V, self.b_V).named("V")  # (B, n, d_v)
        O, A, _ = attend(Q, K, V, mask)  # (B, n, d_v), (B, n, n)
        out = linear(O, self.W_O, self.b_O).named("out")  # (B, n, d_model)

        self.attention_weights = A.numpy()
        mg.expect(self_attention_steps, X=X, mask=mask, **_own_symbols(self, mask))
        return out


class MultiHeadAttention(Module):
    """Attention in h heads at once, each of width d_k = d_model / h, merged and projected.

        C W_O + b_O,    C = merge(O),    O = softmax(Q Kᵀ / √d_k + M) V  in each head,
        Q = split(X W_Q + b_Q),    K = split(X W_K + b_K),    V = split(X W_V + b_V)

    With fewer key-value heads than query heads, each serves h / n_kv_heads of them in order
    (grouped-query attention; one for all is multi-query).

    Args:
        n_kv_heads: n_heads unless given.
        use_bias: without, b_Q, b_K, b_V and b_O are None.
        rng: draws the weights (Xavier); a Generator, a seed, or None for fresh entropy.
        method: "exact" records every step; "auto" chooses (today: always exact).
    Attributes: W_Q, W_O (d_model, d_model); W_K, W_V (d_model, n_kv_heads · d_k); b_Q, b_K, b_V,
             b_O; attention_weights: A of the last forward, (B, h, n, n).
    Shapes:  X (B, n, d_model) or (n, d_model); mask (n, n), (B, n, n), (B, 1, n), or broadcastable
             to (B, h, n, n) → out as X
    Raises:  ArgumentError if n_heads does not divide d_model, or n_kv_heads n_heads; otherwise as
             SelfAttention.
    Source:  Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762; groups: Ainslie et al. 2023,
             arXiv:2305.13245.

    >>> layer = MultiHeadAttention(d_model=6, n_heads=3, rng=np.random.default_rng(0))
    >>> layer(np.zeros((1, 7, 6))).shape, layer.attention_weights.shape
    ((1, 7, 6), (1, 3, 7, 7))
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        use_bias: bool = False,
        rng: Any = None,
        dtype: DTypeLike = np.float64,
        *,
        method: str = "exact",
    ) -> None:
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        sizes = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        check_sizes("MultiHeadAttention", **sizes)
        for part, whole in (("n_heads", "d_model"), ("n_kv_heads", "n_heads")):
            if sizes[whole] % sizes[part]:
                numbers = f"{sizes[part]} and {sizes[whole]}"
                raise ArgumentError(
                    f"MultiHeadAttention: {part} must divide {whole}, got {numbers}"
                )
        _check_method("MultiHeadAttention", method)
        self.d_model, self.n_heads, self.n_kv_heads = d_model, n_heads, n_kv_heads
        self.d_k = self.d_v = d_k = d_model // n_heads
        self.method = method
        self.attention_weights: Any = None
        self.dtype = np.dtype(dtype)
        drawn = partial(draw_affine, np.random.default_rng(rng), use_bias, dtype)
        self.W_Q, self.b_Q = drawn(d_model, n_heads * d_k)
        self.W_K, self.b_K = drawn(d_model, n_kv_heads * d_k)
        self.W_V, self.b_V = drawn(d_model, n_kv_heads * d_k)
        self.W_O, self.b_O = drawn(n_heads * d_k, d_model)

    def forward(self, X: Any, mask: Any = None) -> Any:
        _check_input("MultiHeadAttention(X)", X, self.d_model)
        Q_flat = linear(X, self.W_Q, self.b_Q).named("Q_flat")  # (B, n, h·d_k)
        K_flat = linear(X, self.W_K, self.b_K).named("K_flat")  # (B, n, h_kv·d_k)
        V_flat = linear(X, self.W_V, self.b_V).named("V_flat")  # (B, n, h_kv·d_v)
        Q = split_heads(Q_flat, self.n_heads).named("Q")  # (B, h, n, d_k)
        K = split_heads(K_flat, self.n_kv_heads).named("K")  # (B, h_kv, n, d_k)
        V = split_heads(V_flat, self.n_kv_heads).named("V")  # (B, h_kv, n, d_v)
        group = self.n_heads // self.n_kv_heads
        K_each, V_each = repeat_heads(K, group), repeat_heads(V, group)  # (B, h, n, d_k or d_v)
        O, A, _ = attend(Q, K_each, V_each, with_head_axis(mask))  # (B, h, n, d_v), (B, h, n, n)
        C = merge_heads(O).named("C")  # (B, n, h·d_v)
        out = linear(C, self.W_O, self.b_O).named("out")  # (B, n, d_model)

        self.attention_weights = A.numpy()
        heads = {"n_heads": self.n_heads, "n_kv_heads": self.n_kv_heads}
        mg.expect(multi_head_steps, X=X, mask=mask, **heads, **_own_symbols(self, mask))
        return out


def split_heads(x: Any, heads: int) -> Any:
    """(B, n, heads · d) → (B, heads, n, d): head i takes columns i · d to (i + 1) · d.

    >>> split_heads(np.arange(6.0).reshape(1, 6), 2)    # unbatched: (1, 6) → (2, 1, 3)
    array([[[0., 1., 2.]],
           [[3., 4., 5.]]])
    """
    *lead, width = x.shape
    return mg.swapaxes(mg.reshape(x, (*lead, heads, width // heads)), -3, -2)


def merge_heads(x: Any) -> Any:
    """(B, heads, n, d) → (B, n, heads · d): what `split_heads` took apart.

    >>> merge_heads(split_heads(np.arange(6.0).reshape(1, 6), 2))
    array([[0., 1., 2., 3., 4., 5.]])
    """
    *lead, heads, n, d = x.shape
    return mg.reshape(mg.swapaxes(x, -3, -2), (*lead, n, heads * d))


def repeat_heads(x: Any, group: int) -> Any:
    """(B, heads, n, d) → (B, heads · group, n, d): each head `group` times, in order.

    >>> repeat_heads(np.array([[[1.0]], [[2.0]]]), 2).ravel()
    array([1., 1., 2., 2.])
    """
    if group == 1:
        return x
    *lead, heads, n, d = x.shape
    spread = mg.broadcast_to(mg.expand_dims(x, -3), (*lead, heads, group, n, d))
    return mg.reshape(spread, (*lead, heads * group, n, d))


def named(name: str, x: Any) -> Any:
    """The Tensor with its symbol; an array has no name."""
    return x.named(name) if isinstance(x, mg.Tensor) else x


def _own_symbols(layer: Module, mask: Any) -> dict[str, Any]:
    """The layer's parameters under their symbols; without a mask, S_masked is S."""
    own = {name: value for name, value in vars(layer).items() if isinstance(value, mg.Tensor)}
    return own if mask is not None else {**own, "S_masked": "S"}


def _check_input(call: str, X: Any, d_model: int) -> None:
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) not in (2, 3) or shape[-1] != d_model:
        raise ShapeError(
            f"{call}: X must be (B, n, {d_model}) or (n, {d_model}), got {shape}\n"
            f"  X: {shape}   {getattr(X, 'path', '')}".rstrip()
        )


def _check_method(call: str, method: str) -> None:
    if method == "tiled":
        raise ArgumentError(f'{call}: method "tiled" is not built yet; "exact" computes the same')
    if method not in ("auto", "exact"):
        raise ArgumentError(f'{call}: method must be "exact" or "auto", got {method!r}')
