"""Figures that say how a head attends, and what flows across layers.

In all of them A (..., n, m) holds attention weights, each row summing to 1 (to 0 if it may attend
nowhere), and axis −3, where there is one, is the heads. Raw attention is not an explanation: hold
it against `rollout` and `gradient_times_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ...engine.errors import ArgumentError, ShapeError
from ...engine.types import Array


@dataclass(frozen=True, eq=False)
class Reading:
    """One figure a head, and what it says; `np.asarray` gives the figures."""

    name: str
    figures: Array  # one a head
    verdicts: Sequence[str]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.figures, dtype=dtype)

    def __str__(self) -> str:
        pairs = enumerate(zip(self.figures, self.verdicts, strict=True))
        return "\n".join(f"head {h}: {self.name} {x:.3f}, {said}" for h, (x, said) in pairs)


def by_head(A: ArrayLike, call: str) -> Array:
    """The weights as (batch, heads, n, m), whatever axes are missing.

    Raises: ShapeError with fewer than two axes or without entries.
    """
    array = np.asarray(A, dtype=np.float64)
    if array.ndim < 2 or array.size == 0:
        raise ShapeError(f"{call}(A): A must be (..., n, m) and not empty, got shape {array.shape}")
    if array.ndim == 2:
        array = array[None]
    return array.reshape(-1, *array.shape[-3:])


def visible(A: Array, allowed: Array | None = None) -> Array:
    """Cells that a row may attend to: those that a mask allows, if it is known.

    Otherwise those up to its own if no row looks ahead, or else all.
    """
    if allowed is not None:
        return allowed
    n, m = A.shape[-2:]
    seen = np.tri(n, m, m - n, dtype=bool)
    ahead = (np.where(seen, 0.0, A) > 0).any(axis=(-2, -1), keepdims=True)
    return np.asarray(np.where(ahead, True, seen))


def row_entropy(A: Array) -> Array:
    """Of each row −Σ_j A_ij log A_ij, in nats."""
    return np.asarray(-(A * np.log(np.where(A > 0, A, 1.0))).sum(-1))


def evenness(A: Array, allowed: Array | None = None) -> tuple[Array, Array]:
    """The entropy of each head, and its share of the largest possible; A (batch, heads, n, m)."""
    found = row_entropy(A).mean(axis=(0, -1)) + 0.0
    largest = np.log(np.maximum(visible(A, allowed).sum(-1), 1)).mean(axis=(0, -1))
    return found, np.divide(found, largest, out=np.zeros_like(found), where=largest > 0)


def entropy(A: ArrayLike) -> Reading:
    r"""How evenly a head's rows spread: H_i = −Σ_j A_ij log A_ij, mean over the rows, in nats.

    The verdict holds it against the largest there could be, the mean over rows of log(cells the row
    may see), which under a causal mask are those up to its own: focused below half of it, diffuse
    above 95 %.

    Shapes: A (..., n, m) → one figure a head.
    >>> print(entropy(np.full((1, 4, 4), 0.25)))
    head 0: entropy 1.386, 100% of the largest possible: diffuse
    >>> print(entropy(np.eye(4)))
    head 0: entropy 0.000, 0% of the largest possible: focused
    """
    return entropy_where(by_head(A, "entropy"))


def entropy_where(A: Array, allowed: Array | None = None) -> Reading:
    """`entropy` of A (batch, heads, n, m); allowed: where its mask lets rows look, if known."""
    found, shares = evenness(A, allowed)
    kinds = ["focused" if s < 0.5 else "diffuse" if s > 0.95 else "between" for s in shares]
    pairs = zip(shares, kinds, strict=True)
    verdicts = [f"{share:.0%} of the largest possible: {kind}" for share, kind in pairs]
    return Reading("entropy", found, verdicts)


def sparsity(A: ArrayLike, threshold: float = 0.01) -> Reading:
    r"""The share of a head's weights below a threshold: #{A_ij < threshold} / (n m).

    Weights that a causal mask forbids are left out, since no head had a choice in them. Sparse:
    more than half.

    Raises: ArgumentError unless 0 < threshold ≤ 1.
    >>> print(sparsity(np.eye(4)))
    head 0: sparsity 0.600, 60% of weights below 0.01: sparse
    """
    if not 0 < threshold <= 1:
        raise ArgumentError(f"sparsity: threshold must lie in (0, 1], got {threshold}")
    return sparsity_where(by_head(A, "sparsity"), threshold)


def sparsity_where(A: Array, threshold: float = 0.01, allowed: Array | None = None) -> Reading:
    """`sparsity` of A (batch, heads, n, m); allowed: as for `entropy_where`."""
    seen = visible(A, allowed)
    counts = np.maximum(seen.sum(axis=(0, 2, 3)), 1)
    shares = ((A < threshold) & seen).sum(axis=(0, 2, 3)) / counts
    below = f"of weights below {threshold:g}"
    verdicts = [f"{share:.0%} {below}: {'sparse' if share > 0.5 else 'dense'}" for share in shares]
    return Reading("sparsity", shares, verdicts)


# ---------------------------------------------------------------- across layers


def _square(layers: Sequence[ArrayLike], call: str) -> list[Array]:
    """Each layer as (batch, heads, n, n), all of one n."""
    found = [by_head(A, call) for A in layers]
    shapes = {A.shape[-2:] for A in found}
    if len(shapes) != 1 or len({*shapes.pop()}) != 1:
        given = ", ".join(str(np.shape(A)) for A in layers)
        raise ShapeError(f"{call}: every layer must be (..., n, n) with the same n, got {given}")
    return found


def rollout(layers: Sequence[ArrayLike], residual: float = 0.5) -> Array:
    r"""Attention rollout: how much of each input token is in each output token, by attention alone.

        R = Â_L … Â_1,    Â = (1 − r) mean_h A + r I,  rows made to sum to 1

    Args: layers: A of each layer, first to last. residual: r, the share of the residual stream.
    Shapes: each A (..., h, n, n) or (n, n) → (n, n), mean over a batch; rows sum to 1.
    Raises: ArgumentError without layers; ShapeError where they do not fit.
    Source: Abnar & Zuidema 2020, section 3, arXiv:2005.00928.
    >>> rollout([np.full((2, 2), 0.5)] * 2)
    array([[0.625, 0.375],
           [0.375, 0.625]])
    """
    if not layers:
        raise ArgumentError("rollout(layers): needs the weights of at least one layer")
    maps = _square(layers, "rollout")
    total = np.eye(maps[0].shape[-1])
    for A in maps:
        mixed = (1 - residual) * A.mean(axis=1) + residual * np.eye(A.shape[-1])
        total = mixed / mixed.sum(-1, keepdims=True) @ total
    return np.asarray(total.mean(axis=0))


def gradient_times_attention(A: Any, dA: Any) -> Array:  # an array, or a list of them
    r"""Attention weighted by what it does to the loss; across layers if given lists of them.

        one layer:  mean_h (A ⊙ ∂L/∂A)⁺;    layers:  R ← R + mean_h (A ⊙ ∂L/∂A)⁺ R,  from R = I

    L is what the reader wants explained, such as a logit: positive entries raise it. For a loss,
    pass −∂L/∂A.

    Shapes: A and dA (..., h, n, m) → (n, m), mean over a batch; lists of (..., h, n, n) → (n, n).
    Source: Chefer, Gur & Wolf 2021, eqs. (5)–(6), arXiv:2103.15679.
    >>> gradient_times_attention(np.full((2, 2), 0.5), [[2.0, -2.0], [0.0, 4.0]])
    array([[1., 0.],
           [0., 2.]])
    """
    call = "gradient_times_attention"
    if isinstance(A, list | tuple) and np.ndim(A[0]) >= 2:
        layers = [*zip(_square(A, call), _square(dA, call), strict=True)]
        total = np.eye(layers[0][0].shape[-1])
        for one, slope in layers:
            total = total + np.maximum(one * slope, 0).mean(axis=1) @ total
        return np.asarray(total.mean(axis=0))
    if np.shape(A) != np.shape(dA):
        raise ShapeError(f"{call}: A is {np.shape(A)} but dA {np.shape(dA)}")
    return np.asarray(np.maximum(by_head(A, call) * by_head(dA, call), 0).mean(axis=(0, 1)))
