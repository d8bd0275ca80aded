"""Memory layout: what splitting and merging heads does to strides, and when NumPy must copy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigrad.errors import explained

from .arrays import Mask
from .attention import MultiHeadAttention, attend, merge_heads, split_heads
from .mask import entries_of, fit_mask

__all__ = ["Layout", "LayoutRow", "attend_per_head", "explain_layout", "per_head_weights"]


class LayoutRow(NamedTuple):
    """One array on the way: strides are in entries, and `copied` tells whether memory moved."""

    step: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    contiguous: bool
    copied: bool


class Layout(list[LayoutRow]):
    """The rows of `explain_layout`; printed as a table."""

    def __str__(self) -> str:
        titles = ("step", "shape", "strides", "contiguous", "memory")
        cells = [titles] + [
            (r.step, str(r.shape), str(r.strides), "yes" if r.contiguous else "no",
             "copied" if r.copied else "same")
            for r in self
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)

    __repr__ = __str__


@explained
def explain_layout(x: ArrayLike, n_heads: int) -> Layout:
    """How one array (B, L, d_model) lies in memory while its heads are split and merged again.

    Splitting only renames strides: reshape keeps the array contiguous, and the swap of axes makes a
    view whose rows of one head lie d_model apart. Merging swaps back, and is free too; but the
    output of attention is a new array, contiguous head by head, and merging that must copy.

    Shapes:  x (B, L, d_model) or (L, d_model)
    Raises:  ValueError if n_heads does not divide d_model.

    >>> explain_layout(np.zeros((2, 5, 6)), n_heads=3)
    step                              shape         strides         contiguous  memory
    projected                         (2, 5, 6)     (30, 6, 1)      yes         same
    reshaped: heads apart             (2, 5, 3, 2)  (30, 6, 2, 1)   yes         same
    swapped: heads first              (2, 3, 5, 2)  (30, 2, 6, 1)   no          same
    made contiguous                   (2, 3, 5, 2)  (30, 10, 2, 1)  yes         copied
    attended: a new array, as O is    (2, 3, 5, 2)  (30, 10, 2, 1)  yes         copied
    swapped back: tokens first        (2, 5, 3, 2)  (30, 2, 10, 1)  no          same
    merged: reshape of a strided view (2, 5, 6)     (30, 6, 1)      yes         copied
    """
    flat = np.ascontiguousarray(x)
    *lead, width = flat.shape
    if n_heads < 1 or width % n_heads:
        raise ValueError(
            f"explain_layout: n_heads must divide the last axis, got {n_heads} and {width}"
        )
    apart = flat.reshape(*lead, n_heads, width // n_heads)
    first = split_heads(flat, n_heads)
    O = np.array(first, order="C")
    back = O.swapaxes(-3, -2)
    steps = [
        ("projected", flat, flat),
        ("reshaped: heads apart", apart, flat),
        ("swapped: heads first", first, apart),
        ("made contiguous", np.ascontiguousarray(first), first),
        ("attended: a new array, as O is", O, first),
        ("swapped back: tokens first", back, O),
        ("merged: reshape of a strided view", merge_heads(O), back),
    ]
    return Layout(_row(step, array, before) for step, array, before in steps)


@explained
def per_head_weights(layer: MultiHeadAttention) -> list[tuple[NDArray[np.floating], ...]]:
    """W_Q, W_K, W_V and W_O of each head by itself: columns of the fused ones, and rows of W_O.

    Heads that share keys and values get the same W_K and W_V.

    >>> from layers import MultiHeadAttention
    >>> [W.shape for W in per_head_weights(MultiHeadAttention(6, n_heads=3))[0]]
    [(6, 2), (6, 2), (6, 2), (2, 6)]
    """
    group = layer.n_heads // layer.n_kv_heads
    W_Q, W_K, W_V, W_O = (getattr(layer, f"W_{s}").numpy() for s in "QKVO")

    def part(i: int, width: int) -> slice:
        return slice(i * width, (i + 1) * width)

    return [
        (
            W_Q[:, part(i, layer.d_k)],
            W_K[:, part(i // group, layer.d_k)],
            W_V[:, part(i // group, layer.d_v)],
            W_O[part(i, layer.d_v)],
        )
        for i in range(layer.n_heads)
    ]


@explained
def attend_per_head(
    layer: MultiHeadAttention, X: NDArray[np.floating], mask: Mask | None = None
) -> NDArray[np.floating]:
    """What a plain MultiHeadAttention computes, head by head with weights of their own:

        out = Σ_i softmax(X W_Q^i (X W_K^i)ᵀ / √d_k + M) X W_V^i W_O^i

    The fused layer gives the same to machine precision; here nothing is recorded.
    Raises: ValueError for a layer with biases, or with options: is_causal too is given as a mask.

    >>> from layers import MultiHeadAttention
    >>> layer, X = MultiHeadAttention(6, n_heads=3, rng=0), np.ones((1, 5, 6))
    >>> bool(np.allclose(attend_per_head(layer, X), layer(X).numpy(), rtol=1e-14))
    True
    """
    biases = [layer.b_Q, layer.b_K, layer.b_V, layer.b_O]
    if any(b is not None for b in biases):
        raise ValueError("attend_per_head: the layer must have no biases")
    options = [type(option).__name__ for option in layer.options if not option.idle]
    given = {"causal": layer.causal, "window": layer.window, "scale": layer.scale is not None}
    options += [name for name, is_given in given.items() if is_given]
    if options:
        raise ValueError(
            f"attend_per_head: the layer must have no options, got {', '.join(options)}; a causal "
            "one's mask goes as mask=create_causal_mask(n)"
        )
    total, n = np.zeros(X.shape, X.dtype), X.shape[-2]
    M = None if mask is None else fit_mask(entries_of(mask, n, n), (*X.shape[:-1], n))
    for W_Q, W_K, W_V, W_O in per_head_weights(layer):
        O, _ = attend(X @ W_Q, X @ W_K, X @ W_V, M)  # (B, n, d_v)
        total = total + O @ W_O
    return total


def _row(step: str, array: NDArray[np.generic], before: NDArray[np.generic]) -> LayoutRow:
    strides = tuple(s // array.itemsize for s in array.strides)
    copied = not np.shares_memory(array, before)
    return LayoutRow(step, array.shape, strides, bool(array.flags.c_contiguous), copied)
