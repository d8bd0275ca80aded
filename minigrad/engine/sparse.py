"""Gradients that are zero but where an index picks, and how they are added to what is there.

What slices of one array send back is mostly zeros. So a rule says what goes where, and the
traversal adds it in place: n slices then cost as much as the array, not n times as much.
"""

from __future__ import annotations

from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

from ..fast.memory import ALONE, FEW, owns, zeros

__all__ = ["SparseGradient", "add_rows", "dense", "is_basic", "names_rows"]


class SparseGradient:
    """Zeros of a shape, with `values` added in at an index, as often as the index names an entry.

    >>> two = SparseGradient(np.array([1.0, 2.0, 4.0]), np.array([0, 0, 2]), (3,))
    >>> two.onto(two.onto(None))
    array([6., 0., 8.])
    """

    __slots__ = ("dtype", "index", "shape", "values")

    def __init__(self, values: Any, index: Any, shape: tuple[int, ...]) -> None:
        self.values, self.index, self.shape, self.dtype = values, index, shape, values.dtype

    def onto(self, total: Any) -> Any:
        """The sum of this and an array, written over it if nobody but the caller has it."""
        fresh = total is None
        if fresh:
            total = zeros(self.shape, self.values)
        elif getrefcount(total) != ALONE or not owns(total):
            total = np.array(total)
        index, values = self.index, self.values
        if is_basic(index):
            if fresh:
                total[index] = values
            else:
                total[index] += values
        elif isinstance(values, np.ndarray) and names_rows(index, total, values):
            add_rows(total, index, values)
        else:
            np.add.at(total, index, values)
        return total


def dense(gradient: Any) -> Any:
    """The gradient as an array.

    >>> dense(SparseGradient(np.array([1.0, 2.0]), slice(2), (3,)))
    array([1., 2., 0.])
    """
    return gradient.onto(None) if gradient.__class__ is SparseGradient else gradient


def is_basic(index: Any) -> bool:
    """Whether NumPy answers this index with a view, so that no entry is picked twice."""
    parts = index if isinstance(index, tuple) else (index,)
    kinds = (int, np.integer, slice, type(None), type(Ellipsis))
    return all(isinstance(part, kinds) and not isinstance(part, bool | np.bool_) for part in parts)


def names_rows(index: Any, total: Any, values: Any) -> bool:
    """Whether the index is an array of integers, one for each of so many rows that sorting pays."""
    kind = getattr(getattr(index, "dtype", None), "kind", "")
    return kind in ("i", "u") and len(total.shape) > 1 and prod(values.shape) > FEW


OFTEN = 8  # rows to a name from which reduceat adds them as fast


def add_rows(total: Any, index: Any, values: Any) -> None:
    """Add each row of values to the one that the index names: sorted by name, in runs."""
    names = np.arange(len(total))[index.reshape(-1)]  # none negative
    order = np.argsort(names, kind="stable")
    names = names[order]
    starts = np.flatnonzero(np.diff(names, prepend=-1))
    rows = values.reshape((len(names), *total.shape[1:]))[order]
    if len(names) > OFTEN * len(starts):
        total[names[starts]] += np.add.reduceat(rows, starts, axis=0)
    else:
        _add_up(rows, starts)
        total[names[starts]] += rows[starts]


def _add_up(rows: Any, starts: Any) -> None:
    """Add each run of rows up in its first: every second one to the one before, until none is."""
    count = len(rows)
    place = np.arange(count) - np.repeat(starts, np.diff(starts, append=count))  # within its run
    left = np.arange(count)
    while place.any():
        odd = np.flatnonzero(place & 1)
        rows[left[odd - 1]] += rows[left[odd]]
        even = place & 1 == 0
        left, place = left[even], place[even] >> 1
