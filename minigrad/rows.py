"""Arrays as rows, all axes but the last as one, and their sums by BLAS.

A product with ones adds several at a time and in parts: it is faster than `np.add.reduce`, and
loses less to rounding.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy import ndarray

__all__ = ["as_rows", "column_sums", "row_sums", "sums"]

_ONES = {np.dtype(kind): np.ones(1 << 14, kind) for kind in (np.float32, np.float64)}


def as_rows(x: Any) -> Any:
    """All axes but the last as one: (..., d) → (rows, d).

    >>> as_rows(np.zeros((2, 3, 5))).shape, as_rows(np.zeros(5)).shape
    ((6, 5), (1, 5))
    """
    if x.ndim == 2:
        return x
    return x.reshape((-1 if x.size else prod(x.shape[:-1]), x.shape[-1]))


def column_sums(x: Any, axes: int | None = None) -> Any:
    """The sum over the first axes, all but the last unless told how many.

    >>> column_sums(np.ones((2, 3, 5))), column_sums(np.ones((2, 3, 2)), 1).shape
    (array([6., 6., 6., 6., 6.]), (3, 2))
    """
    axes = x.ndim - 1 if axes is None else axes
    if (ones := _ones_for(x)) is None:
        return sums(x, tuple(range(axes)))
    shape = x.shape[axes:]
    rows = x.reshape(-1, prod(shape))
    if len(rows) <= len(ones):
        total = ones[: len(rows)].dot(rows)
    else:
        parts = [rows[i : i + len(ones)] for i in range(0, len(rows), len(ones))]
        total = column_sums(np.array([ones[: len(part)].dot(part) for part in parts]))
    return total if len(shape) == 1 else total.reshape(shape)


def row_sums(x: Any) -> Any:
    """The sum of each row of a plain array, the last axis kept at length 1.

    >>> row_sums(np.ones((2, 3, 5))).shape
    (2, 3, 1)
    """
    ones, width = _ones_for(x), x.shape[-1]
    if ones is None or width > len(ones):
        return np.einsum("...i->...", x)[..., None]
    return x.reshape(-1, width).dot(ones[:width]).reshape(*x.shape[:-1], 1)


def sums(x: Any, axis: Any) -> Any:
    """NumPy's sum; of float16 in float32, as in float16 2048 ones and one more are 2048.

    >>> sums(np.ones((2050, 2), np.float16), 0).tolist()
    [2050.0, 2050.0]
    """
    if x.__class__ is ndarray and x.dtype == np.float16:
        return x.sum(axis=axis, dtype=np.float32).astype(x.dtype)
    return x.sum(axis=axis)


def _ones_for(x: Any) -> Any:
    """What to multiply x by; None for what BLAS does not take as it lies."""
    if x.__class__ is ndarray and x.flags.c_contiguous and x.size:
        return _ONES.get(x.dtype)
    return None
