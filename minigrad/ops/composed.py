"""NumPy's functions that are a few ops; and those that look at arrays and record nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index as as_integer
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from numpy.typing import NDArray

from ..engine.array_protocol import data_of
from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import as_array
from ..engine.refusals import explained
from ..engine.tensor import Operand, TensorOrArray
from .arithmetic import multiply
from .products import matmul
from .rearrange import take_along_axis
from .shape import broadcast_to, concatenate, expand_dims, reshape, transpose

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "hstack",
    "moveaxis",
    "outer",
    "ravel",
    "tensordot",
    "tile",
    "topk",
    "vstack",
]


# ---------------------------------------------------------------- shapes


@explained
def ravel(x: Operand) -> TensorOrArray:
    """All entries in one row.

    >>> ravel(np.ones((2, 3))).shape
    (6,)
    """
    return reshape(x, (-1,))


@explained
def moveaxis(
    x: Operand, source: int | Sequence[int], destination: int | Sequence[int]
) -> TensorOrArray:
    """Axes moved to other positions; the rest stay in order.

    Raises: ShapeError for axes that x has not, or of which there are not as many.

    >>> moveaxis(np.ones((2, 3, 5)), 0, -1).shape
    (3, 5, 2)
    """
    try:
        pairs = [normalize_axis_tuple(axes, np.ndim(x)) for axes in (source, destination)]
        moves = sorted(zip(pairs[1], pairs[0], strict=True))
    except (ValueError, IndexError) as error:
        raise ShapeError(f"moveaxis(x, source, destination): {error}") from None
    axes = [k for k in range(np.ndim(x)) if k not in pairs[0]]
    for place, axis in moves:
        axes.insert(place, axis)
    return transpose(x, tuple(axes))


@explained
def vstack(arrays: Sequence[Operand]) -> TensorOrArray:
    """Arrays above each other, along the first axis; rows of one axis count as matrices.

    >>> vstack([np.zeros(3), np.ones((2, 3))]).shape
    (3, 3)
    """
    return concatenate([reshape(x, (1, -1)) if np.ndim(x) < 2 else x for x in arrays])


@explained
def hstack(arrays: Sequence[Operand]) -> TensorOrArray:
    """Arrays beside each other, along the second axis; rows of one axis one after the other.

    >>> hstack([np.zeros((2, 1)), np.ones((2, 3))]).shape
    (2, 4)
    """
    arrays = [reshape(x, (1,)) if np.ndim(x) == 0 else x for x in arrays]
    in_rows = bool(arrays) and np.ndim(arrays[0]) > 1
    return concatenate(arrays, axis=1 if in_rows else 0)


@explained
def tile(x: Operand, reps: int | Sequence[int]) -> TensorOrArray:
    """The array repeated as a whole, so many times along each axis.

    >>> tile(np.array([1.0, 2.0]), (2, 2))
    array([[1., 2., 1., 2.],
           [1., 2., 1., 2.]])
    """
    listed: Any = (reps,) if np.ndim(reps) == 0 else reps
    times = tuple(listed)
    n = max(len(times), np.ndim(x))
    shape = (1,) * (n - np.ndim(x)) + np.shape(x)
    times = (1,) * (n - len(times)) + times
    apart = reshape(x, tuple(k for length in shape for k in (1, length)))
    wide = broadcast_to(apart, tuple(k for pair in zip(times, shape, strict=True) for k in pair))
    return reshape(wide, tuple(r * k for r, k in zip(times, shape, strict=True)))


# ---------------------------------------------------------------- products


@explained
def outer(a: Operand, b: Operand) -> TensorOrArray:
    """Every entry of a times every entry of b: y_ij = a_i b_j.

    >>> outer(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])).shape
    (2, 3)
    """
    return multiply(expand_dims(ravel(a), 1), ravel(b))


@explained
def tensordot(
    a: Operand, b: Operand, axes: int | Sequence[int | Sequence[int]] = 2
) -> TensorOrArray:
    """The sum over pairs of axes: so many last ones of a and first ones of b, or two lists of them.

    Raises: ShapeError where the axes of a pair differ in length, or are not there; ArgumentError.

    >>> tensordot(np.ones((2, 3, 5)), np.ones((5, 3, 7)), axes=([1, 2], [1, 0])).shape
    (2, 7)
    """
    n, m = np.ndim(a), np.ndim(b)
    pair = (range(n - axes, n), range(axes)) if isinstance(axes, int) else axes
    if len(pair) != 2:
        raise ArgumentError(
            f"tensordot(a, b, axes): axes must be a number, or two lists of axes, got {axes!r}"
        )
    first, second = (normalize_axis_tuple(one, k) for one, k in zip(pair, (n, m), strict=True))
    lengths = [tuple(np.shape(x)[k] for k in own) for x, own in ((a, first), (b, second))]
    if lengths[0] != lengths[1]:
        raise ShapeError(
            f"tensordot(a, b, axes): the axes must be as long, got {lengths[0]} and {lengths[1]}\n"
            f"  a: {np.shape(a)}\n  b: {np.shape(b)}"
        )
    rest = [k for k in range(n) if k not in first], [k for k in range(m) if k not in second]
    left, right = transpose(a, (*rest[0], *first)), transpose(b, (*second, *rest[1]))
    shapes = left.shape[: len(rest[0])], right.shape[len(second) :]
    inner = prod(lengths[0])
    rows, columns = (prod(shapes[0]), inner), (inner, prod(shapes[1]))
    return reshape(matmul(reshape(left, rows), reshape(right, columns)), shapes[0] + shapes[1])


# ---------------------------------------------------------------- where entries are


@explained
def argmax(x: Operand, axis: int | None = None, keepdims: bool = False) -> NDArray[np.intp]:
    """Where the largest entry is, along an axis or in the flattened array. No gradient flows.

    >>> argmax(np.array([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    array([1, 0])
    """
    return np.argmax(data_of(x), axis=axis, keepdims=keepdims)


@explained
def argmin(x: Operand, axis: int | None = None, keepdims: bool = False) -> NDArray[np.intp]:
    """Where the smallest entry is, along an axis or in the flattened array. No gradient flows.

    >>> argmin(np.array([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    array([0, 1])
    """
    return np.argmin(data_of(x), axis=axis, keepdims=keepdims)


@explained
def argsort(x: Operand, axis: int | None = -1) -> NDArray[np.intp]:
    """The order in which entries ascend along an axis; equal ones stay in order. No gradient flows.

    >>> argsort(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    """
    return np.argsort(data_of(x), axis=axis, kind="stable")


@explained
def topk(x: Operand, k: int, axis: int = -1) -> tuple[TensorOrArray, NDArray[np.intp]]:
    """The k largest entries along an axis, in descending order, and where they are.

    NaN comes first, as sort has it last. The gradient of each goes to where it was.
    Raises: ArgumentError for more than there are; ShapeError without such an axis.

    >>> topk(np.array([3.0, 1.0, 2.0]), 2)
    (array([3., 2.]), array([0, 2]))
    """
    axis = normalize_axis_index(axis, np.ndim(x))
    length = np.shape(x)[axis]
    k = as_integer(k)
    if not 0 <= k <= length:
        raise ArgumentError(f"topk(x, k): k must lie in [0, {length}], got {k}")
    backwards = (slice(None),) * axis + (slice(None, None, -1),)
    ascending = np.argsort(as_array(data_of(x))[backwards], axis=axis, kind="stable")
    first = length - 1 - np.take(ascending[backwards], np.arange(k), axis=axis)
    return take_along_axis(x, first, axis), first
