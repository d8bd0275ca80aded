"""What the heads of attention do, in figures that can be compared between runs of any length.

Of each head: the entropy of its rows, the share of negligible weights, and the distribution of the
weight over distances from the query.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..engine.errors import ArgumentError, ShapeError
from .record import Array

__all__ = [
    "Head", "are_weights", "by_head", "divergence", "entropy", "heads", "key_offsets",
    "row_entropy", "sparsity", "visible",
]  # fmt: skip

MOST_WEIGHTS = 1 << 16  # of one call that are measured
DISTANCE_BOUNDS = (1, 2, 4, 8, 16, 64)  # where a distance counts as the next farther one
DISTANCES = 2 + 2 * len(DISTANCE_BOUNDS)  # the first of all keys, its own, so many back or ahead


def by_head(A: ArrayLike, call: str) -> Array:
    """The weights as (batch, heads, n, m), whatever axes are missing.

    Raises: ShapeError with fewer than two axes or without entries.
    """
    array = np.asarray(A, dtype=np.float64)
    if array.ndim < 2 or array.size == 0:
        raise ShapeError(f"{call}(A): A must be (..., n, m) and not empty, got shape {array.shape}")
    return array.reshape(-1, *(1, *array.shape)[-3:])


def visible(A: Array, allowed: ArrayLike | None) -> Array:
    """Cells that a row may attend to: those allowed; or up to its own if no row looks ahead."""
    if allowed is not None:
        return np.broadcast_to(np.asarray(allowed, bool), A.shape)
    n, m = A.shape[-2:]
    ahead = (np.triu(A, m - n + 1) > 0).any(axis=(-2, -1), keepdims=True)
    return np.broadcast_to(ahead | np.tri(n, m, m - n, dtype=bool), A.shape)


def row_entropy(A: Array) -> Array:
    return np.asarray(-(A * np.log(np.where(A > 0, A, 1.0))).sum(-1))


def entropy(A: ArrayLike) -> Array:
    r"""How evenly a head's rows spread: H_i = −Σ_j A_ij log A_ij, mean over the rows, in nats.

    Shapes: A (..., n, m) → one figure a head.

    >>> entropy(np.full((1, 4, 4), 0.25)).round(3), entropy(np.eye(4))
    (array([1.386]), array([0.]))
    """
    return np.asarray(row_entropy(by_head(A, "entropy")).mean(axis=(0, -1)) + 0.0)


def sparsity(A: ArrayLike, threshold: float = 0.01, allowed: ArrayLike | None = None) -> Array:
    """The share of a head's weights below a threshold, of those that a mask allows.

    Raises: ArgumentError unless 0 < threshold ≤ 1.

    >>> sparsity(np.eye(4))  # never looks ahead, so half of it is a mask's
    array([0.6])
    """
    if not 0 < threshold <= 1:
        raise ArgumentError(f"sparsity: threshold must lie in (0, 1], got {threshold}")
    weights = by_head(A, "sparsity")
    seen = visible(weights, allowed)
    small = (weights < threshold) & seen
    return np.asarray(small.sum(axis=(0, 2, 3)) / np.maximum(seen.sum(axis=(0, 2, 3)), 1))


class Head(NamedTuple):
    """What one head did.

    entropy: in nats, the mean over rows.  distances: shares, see `DISTANCES`.
    """

    entropy: float
    sparsity: float
    distances: tuple[float, ...]


def heads(A: Array, path: str) -> dict[str, Head]:
    """Figures of each head that is not masked whole; none if A's rows are no weights.

    Shapes: A (n, m), (batch, n, m) or (batch, heads, n, m).

    >>> [(name, head)] = heads(np.eye(4), "attention/A").items()
    >>> name, head.entropy, head.distances[1], head.sparsity
    ('attention/A[0]', 0.0, 1.0, 0.6)
    """
    if not 2 <= A.ndim <= 4 or A.shape[-1] < 2 or not A.size or A.dtype.kind != "f":
        return {}
    A = by_head(A[:, None] if A.ndim == 3 else A, "heads")
    A = A[: max(1, MOST_WEIGHTS // A[0].size)]
    if not are_weights(A) or A.min() < 0:
        return {}
    places = _places(*A.shape[-2:])
    each: dict[str, Head] = {}
    for h, figures in enumerate(zip(entropy(A).tolist(), sparsity(A).tolist(), strict=True)):
        weights = A[:, h].sum(axis=0).ravel()
        if weights.any():
            shares = np.bincount(places, weights, DISTANCES) / weights.sum()
            each[f"{path}[{h}]"] = Head(*figures, tuple(shares.tolist()))
    return each


def are_weights(A: Array) -> bool:
    """Whether rows sum to 1, or to 0 where all is masked; NaN is no objection."""
    sums = np.asarray(A, np.float64).sum(axis=-1)
    return not ((abs(sums - 1) > 1e-2) & (abs(sums) > 1e-2)).any()


def key_offsets(n: int, m: int) -> Array:
    """How far ahead of its query each key lies (n, m); queries are the last n of m positions."""
    return np.asarray(np.arange(m) - (np.arange(n)[:, None] + m - n))


@lru_cache(maxsize=64)
def _places(n: int, m: int) -> Array:
    """For each cell (i, j) the number of its distance."""
    away = key_offsets(n, m)
    farther = np.searchsorted(DISTANCE_BOUNDS, np.abs(away), side="right") - 1
    places = np.where(away < 0, 2, 2 + len(DISTANCE_BOUNDS)) + farther
    places[:, 0] = 0
    places[away == 0] = 1
    return places.ravel()


def divergence(p: Array, q: Array) -> float:
    r"""The Jensen–Shannon divergence of two distributions, in bits: 0 if equal, 1 if disjoint.

        JS = ½ KL(p ‖ m) + ½ KL(q ‖ m),    m = ½ (p + q)

    Source: Lin 1991, https://doi.org/10.1109/18.61115.

    >>> divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    """
    both, middle = np.stack([p, q]), (p + q) / 2
    quotients = np.divide(both, middle, out=np.ones_like(both), where=both > 0)
    return max(float((both * np.log2(quotients)).sum()) / 2, 0.0)
