"""Products of matrices by the fastest way there is, stacks as one; results in memory used again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ...ops.products import as_rows, linear, matmul
from ..blas_sums import column_sums
from ..limits import LIMITS
from ..memory import empty, empty_as
from ..threads import in_slices, one_threaded_blas, product


def best_product(a: Any, b: Any) -> Any:
    """a @ b."""
    if a.__class__ is not ndarray or b.__class__ is not ndarray:
        return np.matmul(a, b)
    if a.size + b.size > LIMITS.small_entries:
        return _large_product(a, b)
    if a.ndim == b.ndim == 2:
        return a.dot(b)  # in a third of the time
    if a.ndim == b.ndim == 3 and len(a) == len(b) == 1:
        return a[0].dot(b[0])[None]
    return np.matmul(a, b)


def _large_product(a: Any, b: Any) -> Any:
    """A stack of matrices by one matrix as a single product; the result in memory used again.

    A product of two stacks has the layout of b: heads that were split are merged without a copy.
    """
    if b.ndim == 2 < a.ndim and a.flags.c_contiguous and a.size:
        rows = a.reshape(-1, a.shape[-1])
        return _large_product(rows, b).reshape(*a.shape[:-1], b.shape[-1])
    if min(a.ndim, b.ndim) < 2 or a.shape[:-2] != b.shape[:-2] or a.dtype is not b.dtype:
        return np.matmul(a, b)
    shape = (*a.shape[:-1], b.shape[-1])
    if a.ndim == 2 and LIMITS.serial_product < a.size * shape[-1] < LIMITS.lone_product:
        with one_threaded_blas:
            return a.dot(b, empty(shape, a.dtype))
    if a.ndim == 2:
        return a.dot(b, empty(shape, a.dtype))
    by_rows = b.strides[-1] == b.itemsize < min(b.strides[:-1])  # each row of b in one piece
    out = empty_as(b, shape) if by_rows else empty(shape, a.dtype)
    if a.size * shape[-1] < LIMITS.shared_product:
        return np.matmul(a, b, out)
    axis = next((k for k, n in enumerate(shape[:-2]) if n > 1), 0)
    parts = [np.moveaxis(x, axis, 0) for x in (a, b, out)]

    def work(part: slice) -> None:
        np.matmul(parts[0][part], parts[1][part], parts[2][part])

    in_slices(work, shape[axis], out.size)
    return out


matmul.fast(above=LIMITS.small_entries)(best_product)


@matmul.fast.vjp("a")
def _(g, a_shape, b):
    if b.ndim == 1 or len(a_shape) == 1:
        return matmul.rules["a"].function(g, a_shape, b)
    return best_product(g, b.mT)


@matmul.fast.vjp("b")
def _(g, a, b_shape):
    if a.ndim == 1 or len(b_shape) == 1:
        return matmul.rules["b"].function(g, a, b_shape)
    if len(b_shape) == 2 < a.ndim and a.size and g.size:  # sum over the stack inside one product
        return best_product(a.reshape((-1, b_shape[0])).T, g.reshape((-1, b_shape[1])))
    large = g.__class__ is ndarray and g.size > LIMITS.small_entries
    if large and g.ndim > 2 and b_shape[-1] > b_shape[-2]:
        return best_product(g.mT, a).mT  # b is likely Kᵀ, a transposed view: so is this
    return best_product(a.mT, g)


# ---------------------------------------------------------------- linear


@linear.fast(above=LIMITS.small_entries)
def _(x, W, b=None, shared=False):
    fits = getattr(W, "ndim", 0) == 2 and x.ndim > 0
    if not fits or (b is not None and getattr(b, "shape", ()) != W.shape[1:]):
        return linear.kernel(x, W, b)  # which says what is wrong
    out = _along_last(x, W, shared)
    if b is None:
        return out
    fits = out.__class__ is ndarray and out.ndim and b.dtype == out.dtype
    return np.add(out, b, out if fits else None)


def _along_last(x: Any, W: Any, shared: bool) -> Any:
    """x W over the last axis of x."""
    if not shared and x.__class__ is ndarray and x.size + W.size <= LIMITS.small_entries:
        return np.matmul(x, W)
    return _product(as_rows(x), W, shared).reshape(x.shape[:-1] + W.shape[1:])


def _product(a: Any, b: Any, shared: bool) -> Any:
    """On the threads of attention in tiles, if it is to share them."""
    threads = shared and a.__class__ is ndarray is b.__class__
    return product(a, b) if threads else best_product(a, b)


@linear.fast.vjp("x")
def _(g, W, shared):
    return _along_last(g, W.T, shared)


@linear.fast.vjp("W")
def _(g, x, shared):
    return _product(as_rows(x).T, as_rows(g), shared)


@linear.fast.vjp("b")
def _(g, shared):
    if shared and g.__class__ is ndarray:
        with one_threaded_blas:  # or BLAS would wake its own threads
            return column_sums(as_rows(g))
    return column_sums(as_rows(g))
