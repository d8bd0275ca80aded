"""Sparse gradients: zero except at an index, and how they are added to another gradient.

The gradient that a slice sends back to its array is mostly zeros. So its rule gives the values and
where they belong, and the traversal adds them in place: the gradients of n slices then cost as much
as one array, not as much as n.
"""

from __future__ import annotations

import numpy as np

from .types import Gradient

__all__ = ["dense", "is_basic"]


def dense(gradient: Gradient) -> Gradient:
    """The gradient as an array.

    >>> dense(np.zeros(2))
    array([0., 0.])
    """
    return gradient.onto(None) if hasattr(gradient, "onto") else gradient


def is_basic(index: object) -> bool:
    """Whether NumPy answers this index with a view, so that no entry is picked twice."""
    parts = index if isinstance(index, tuple) else (index,)
    kinds = (int, np.integer, slice, type(None), type(Ellipsis))
    return all(isinstance(part, kinds) and not isinstance(part, bool | np.bool_) for part in parts)
