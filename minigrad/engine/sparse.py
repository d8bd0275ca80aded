"""Sparse gradients: zero except at an index, and how they are added to another gradient.

The gradient that a slice sends back to its array is mostly zeros. So its rule gives the values and
where they belong, and the traversal adds them in place: the gradients of n slices then cost as much
as one array, not as much as n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .types import Gradient, Index

__all__ = ["SparseGradient", "dense", "is_basic"]


class SparseGradient:
    """Zeros of a shape, with `values` added in at an index, as often as the index names an entry.

    >>> two = SparseGradient(np.array([1.0, 2.0, 4.0]), np.array([0, 0, 2]), (3,))
    >>> two.onto(two.onto(None))
    array([6., 0., 8.])
    """

    __slots__ = ("dtype", "index", "shape", "values")
    add_at: Callable[[Any, Any, Any], None] = staticmethod(np.add.at)  # may be a faster one

    def __init__(self, values: Gradient, index: Index, shape: tuple[int, ...]) -> None:
        self.values = values
        self.index = index
        self.shape = shape
        self.dtype = values.dtype

    def onto(self, total: Gradient, in_place: bool = False) -> Gradient:
        """The sum of this and `total` (None for zeros), written into `total` if `in_place`."""
        fresh = total is None
        if fresh:
            like = self.values if hasattr(self.values, "__array_function__") else None
            total = np.zeros(self.shape, self.dtype, like=like)
        elif not in_place:
            total = np.array(total)
        if not is_basic(self.index):
            self.add_at(total, self.index, self.values)
        elif fresh:
            total[self.index] = self.values
        else:
            total[self.index] += self.values
        return total


def dense(gradient: Gradient) -> Gradient:
    """The gradient as an array.

    >>> dense(SparseGradient(np.array([1.0, 2.0]), slice(2), (3,)))
    array([1., 2., 0.])
    """
    return gradient.onto(None) if gradient.__class__ is SparseGradient else gradient


def is_basic(index: object) -> bool:
    """Whether NumPy answers this index with a view, so that no entry is picked twice."""
    parts = index if isinstance(index, tuple) else (index,)
    kinds = (int, np.integer, slice, type(None), type(Ellipsis))
    return all(isinstance(part, kinds) and not isinstance(part, bool | np.bool_) for part in parts)
