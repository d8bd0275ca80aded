"""Arrays as rows, all axes but the last as one, and their sums by BLAS.

A product with ones adds several at a time and in parts: it is faster than `np.add.reduce`, and
loses less to rounding.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy import ndarray

from ..engine.op import accumulation_dtype
from .limits import LIMITS

__all__ = ["as_rows", "column_sums", "row_sums", "sum_over", "sums"]

ROW = 1 << 14  # entries of a row that one product with ones adds up
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


@cache
def _ones(dtype: Any, size: int) -> Any:
    return np.ones(size, dtype)


def as_rows(x: Any) -> Any:
    """All axes but the last as one: (..., d) → (rows, d).

    >>> as_rows(np.zeros((2, 3, 5))).shape, as_rows(np.zeros(5)).shape
    ((6, 5), (1, 5))
    """
    if x.ndim == 2:
        return x
    return x.reshape(-1 if x.size else prod(x.shape[:-1]), x.shape[-1])


def column_sums(x: Any, axes: int = 1) -> Any:
    """The sum over the first axes.

    >>> column_sums(np.ones((2, 3))), column_sums(np.ones((2, 3, 5)), 2)
    (array([2., 2., 2.]), array([6., 6., 6., 6., 6.]))
    """
    if (ones := _ones_for(x)) is None:
        return sums(x, tuple(range(axes)))
    if axes != 1 or x.ndim != 2:
        shape = x.shape[axes:]
        return column_sums(x.reshape(-1, prod(shape))).reshape(shape)
    count, most = len(x), LIMITS.summed_rows
    if count <= most:
        return ones[:count].dot(x)
    parts = [x[i : i + most] for i in range(0, count, most)]
    found = [ones[: len(part)].dot(part) for part in parts]
    return np.add.reduce(found, axis=0, dtype=np.float64).astype(x.dtype, copy=False)


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
    """NumPy's sum, added up in a wider dtype where it would lose too much.

    >>> sums(np.ones((2050, 2), np.float16), 0).tolist()
    [2050.0, 2050.0]
    """
    wide = accumulation_dtype(x, axis) if x.__class__ is ndarray else None
    if wide is None:
        return x.sum(axis=axis)
    return x.sum(axis=axis, dtype=wide).astype(x.dtype)


def _ones_for(x: Any) -> Any:
    """What to multiply x by; None for what BLAS does not take as it lies."""
    if x.__class__ is not ndarray or not x.size:
        return None
    flags = x.flags
    if x.dtype in _FLOATS and (flags.c_contiguous or (flags.forc and x.ndim == 2)):
        return _ones(x.dtype, ROW)
    return None


def sum_over(x: Any, axes: tuple[int, ...]) -> Any:
    """The sum over some axes, by BLAS where they are the first ones."""
    return column_sums(x, len(axes)) if axes == (*range(len(axes)),) else sums(x, axes)
