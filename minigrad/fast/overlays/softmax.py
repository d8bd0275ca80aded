"""Softmax a few rows at a time, without the maximum where nothing can overflow; sums by BLAS."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy import ndarray

from ...engine.op import accumulation_dtype, cast_back, floating
from ...ops.softmax import log_softmax, softmax
from ..blas_sums import row_sums
from ..by_blocks import by_rows
from ..limits import LIMITS
from ..memory import empty, in_place_buffer, out_buffer, row_blocks

__all__ = ["row_dot", "row_sum", "shifted", "total_of"]

SMALL_SCORE = 40  # the largest of a few scores, up to which e^x is likely to do
RANGE = 1e-4, 1e30  # sums of e^x that neither overflow nor lose small weights to underflow


# ---------------------------------------------------------------- sums of rows


def many_rows(x: Any, axis: Any) -> bool:
    """Whether x is a plain array whose rows BLAS goes through several times as fast as sum."""
    return axis == -1 and x.__class__ is ndarray and x.size > LIMITS.small_entries


def row_sum(x: Any, axis: Any = -1) -> Any:
    """The sum along an axis, kept at length 1."""
    return row_sums(x) if many_rows(x, axis) else x.sum(axis=axis, keepdims=True)


def row_dot(a: Any, b: Any, axis: Any = -1) -> Any:
    """The sum of a ⊙ b along an axis, kept at length 1; of rows in one pass."""
    if axis == -1 and a.__class__ is ndarray and a.ndim and a.dtype.char in "fd":
        return np.vecdot(a, b)[..., None]
    return (a * b).sum(axis=axis, keepdims=True)


def shifted(x: Any, axis: Any) -> tuple[Any, Any]:
    """x less its maximum along the axis, and that maximum; a row of only -inf stays -inf."""
    real = np.real(x) if x.dtype.kind == "c" else x
    top = np.maximum.reduce(real, axis=axis, keepdims=True, initial=_limits(x.dtype)[0])
    return np.subtract(x, top, out_buffer(x, top)), top


def total_of(weights: Any, axis: Any) -> Any:
    """Σ e^(x - max x), at least 1: the tiny number is lost in it, unless all of a row was -inf."""
    tiny = _limits(weights.dtype)[1]
    if many_rows(weights, axis):
        return row_sum(weights) + tiny
    wide = accumulation_dtype(weights, axis)
    found = np.add.reduce(weights, axis=axis, dtype=wide, keepdims=True, initial=tiny)
    return cast_back(found, weights)


@cache
def _limits(dtype: Any) -> tuple[float, float]:
    """The lowest finite number of a dtype, and the smallest one above 0."""
    info = np.finfo(dtype)
    return float(info.min), float(info.tiny)


# ---------------------------------------------------------------- softmax


@softmax.fast(above=LIMITS.small_entries)
def _(x, axis=-1):
    if x.dtype.char == "e":
        return softmax.kernel(x, axis)
    x = floating(x)
    if _go_by_blocks(axis, x):
        out = empty(x.shape, x.dtype)
        for rows, weights in row_blocks(x, out):
            _softmax_of_rows(rows, weights)
        return out
    less, _ = shifted(x, axis)
    weights = np.exp(less, in_place_buffer(less))
    weights /= total_of(weights, axis)
    return weights


def _go_by_blocks(axis: Any, *arrays: Any) -> bool:
    """Whether to go through these arrays, all of one form, a few rows at a time."""
    x = arrays[0]
    if not many_rows(x, axis) or x.dtype.char not in "fd":
        return False
    return all(a.flags.c_contiguous and a.shape == x.shape and a.dtype == x.dtype for a in arrays)


def _softmax_of_rows(x: Any, out: Any) -> None:
    """e^x / Σ e^x; x less its maximum, which takes two passes more, only in rows that need it."""
    fine = np.zeros(len(x), bool)
    total = np.empty((len(x), 1), x.dtype)
    if np.abs(x[:: 1 + len(x) // 16].max()) < SMALL_SCORE:  # a guess that the sums prove or not
        with np.errstate(over="ignore"):
            total = row_sums(np.exp(x, out))
        fine = ((total > RANGE[0]) & (total < RANGE[1]))[:, 0]
    if not fine.all():
        rows = ~fine if fine.any() else slice(None)
        less, _ = shifted(x[rows], -1)
        out[rows] = np.exp(less, less)
        total[rows] = total_of(less, -1)
    out /= total


@softmax.fast.vjp("x")
def _(g, out, axis):
    if out.dtype.char == "e":
        return softmax.rules["x"].function(g, out, axis)
    if g.size > LIMITS.small_entries and _go_by_blocks(axis, g, out):
        d_x = empty(g.shape, g.dtype)
        for g_rows, y, d_rows in row_blocks(g, out, d_x):
            np.subtract(g_rows, np.vecdot(g_rows, y)[:, None], d_rows)
            d_rows *= y
        return d_x
    along = row_dot(g, out, axis)
    d_x = np.subtract(g, along, out_buffer(g, along))
    d_x *= out
    return d_x


by_rows(log_softmax)
