"""What the heads of attention do, in figures that can be compared between runs of any length.

Of each head: the entropy of its rows, the share of negligible weights, and the distribution of the
weight over distances from the query.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .data import Array

__all__ = ["DISTANCES", "Head", "divergence", "heads"]

MOST_WEIGHTS = 1 << 16  # of one call that are measured
NEGLIGIBLE = 0.01  # the share of weights below it is the sparsity
DISTANCE_BOUNDS = (1, 2, 4, 8, 16, 64)  # where a distance counts as the next farther one
DISTANCES = (
    "first",
    "self",
    *(f"back {n}" for n in DISTANCE_BOUNDS),
    *(f"ahead {n}" for n in DISTANCE_BOUNDS),
)
"""How far a key lies from its query: the first of all keys, its own, so many back or ahead."""


class Head(NamedTuple):
    """What one head did. entropy: in nats, the mean over rows. distances: shares, as
    `DISTANCES`."""

    entropy: float
    sparsity: float
    distances: tuple[float, ...]


def heads(A: Array) -> list[Head | None] | None:
    """Figures of each head, None of one that is masked whole; None if A's rows are no weights.

    Shapes: A (n, m), (batch, n, m) or (batch, heads, n, m).

    >>> [found] = heads(np.eye(4))
    >>> found.entropy, found.distances[DISTANCES.index("self")], found.sparsity
    (0.0, 1.0, 0.75)
    """
    if not 2 <= A.ndim <= 4 or A.shape[-1] < 2 or not A.size or A.dtype.kind != "f":
        return None
    while A.ndim < 4:
        A = A[None] if A.ndim == 2 else A[:, None]
    A = A[: max(1, MOST_WEIGHTS // A[0].size)].astype(np.float64)
    free = np.asarray(A.any(axis=-1))
    if A.min() < 0 or not free.any() or np.abs(A.sum(axis=-1)[free] - 1).max() > 1e-2:
        return None
    entropy = -(A * np.log(np.maximum(A, 1e-30))).sum(axis=-1)
    return [_head(A[:, h], entropy[:, h], free[:, h]) for h in range(A.shape[1])]


def _head(A: Array, entropy: Array, free: Array) -> Head | None:
    if not free.any():
        return None
    weights = A.sum(axis=0).ravel()
    shares = np.bincount(_places(*A.shape[1:]), weights, len(DISTANCES)) / weights.sum()
    sparsity = float((A[free] < NEGLIGIBLE).mean())
    return Head(float(entropy[free].mean()), sparsity, tuple(shares.tolist()))


@lru_cache(maxsize=64)
def _places(n: int, m: int) -> Array:
    """For each cell (i, j) the number of its distance; queries are the last n of m positions."""
    away = np.arange(m) - (np.arange(n)[:, None] + m - n)
    farther = np.searchsorted(DISTANCE_BOUNDS, np.abs(away), side="right") - 1
    places = np.where(away < 0, 2 + farther, 2 + len(DISTANCE_BOUNDS) + farther)
    places = np.where(away == 0, 1, places)
    places[:, 0] = np.where(away[:, 0] == 0, 1, 0)
    return places.ravel()


def divergence(p: Array, q: Array) -> float:
    r"""The Jensen–Shannon divergence of two distributions, in bits: 0 if equal, 1 if disjoint.

        JS = ½ KL(p ‖ m) + ½ KL(q ‖ m),    m = ½ (p + q)

    Source: Lin 1991, https://doi.org/10.1109/18.61115.

    >>> divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    """
    middle = (p + q) / 2
    total = 0.0
    for one in (p, q):
        held = one > 0
        total += float((one[held] * np.log2(one[held] / middle[held])).sum()) / 2
    return max(total, 0.0)
