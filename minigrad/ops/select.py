"""Ops that pick entries. An entry that is picked twice adds up both gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from operator import index as as_integer
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.backward import SparseGradient
from ..engine.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from ..engine.op import DType, checked_array, is_tensor, op
from ..engine.tensor import Operand, SameArray, Tensor, TensorOrArray, mark_constant
from .composed_errors import composed
from .dtypes import as_array, cast_back, masked, widen_half
from .notation import index as index_tex
from .reduce import along
from .samples import each_of_x, no_flops, of_shapes
from .shape import axes_within, moving

__all__ = [
    "argmax",
    "getitem",
    "repeat",
    "scatter_add",
    "split",
    "take",
    "take_along_axis",
    "where",
]


FEW_VALUES = 512  # values that np.add.at adds in less time than their places are computed


def _at(index: Any) -> str:
    """An index as it stands in a formula, in which an array is a symbol."""
    return "<index>" if isinstance(index, np.ndarray) else index_tex(index)


@moving(
    lambda index: f"<x>[{_at(index)}]",
    lambda index: rf"\operatorname{{scatter}}(<g>, [{_at(index)}])",
    of_shapes(
        ([3, 5, 7], 1),
        ([3, 5, 7], (slice(None, None, -1), -1)),
        ([3, 5], (..., slice(1, None, 2), None)),
        ([3, 5], np.array([0, 2, 0])),
        ([], ()),
        ([3, 5, 7], ([0, 0, 2], slice(None), [1, 1, 3])),
        ([3, 5], np.tri(3, 5, dtype=bool)),
        ([3, 5], (slice(0, 0),)),
    ),
)
def getitem(x, index):
    """Picks entries at an index as NumPy does: integers, slices, None, ..., arrays, boolean too.

    Raises: OutOfRangeError outside the array.

    >>> getitem(np.arange(5.0), np.array([0, 0, 3]))
    array([0., 0., 3.])
    """
    return as_array(x)[index]


@getitem.vjp("x")
def _(g, x_shape, index):
    """The gradient goes back to where entries were picked, and adds up if one was picked twice."""
    return put_back(g, index, x_shape)


def put_back(g, index, shape):
    """Zeros of a shape with g added at an index."""
    if g.__class__ is np.ndarray and (g.dtype.char != "e" or is_basic(index)):
        return PickedGradient(g, index, shape)
    return scatter_add(g, index, shape)


@dataclass(eq=False, slots=True)
class PickedGradient(SparseGradient):
    """Zeros of a shape, with `values` added at an index: the backward adds it onto other gradients,
    so that those of n slices cost as much as one array, not as much as n.

    >>> two = PickedGradient(np.array([1.0, 2.0, 4.0]), np.array([0, 0, 2]), (3,))
    >>> two.onto(two.onto(None))
    array([6., 0., 8.])
    """

    values: Any
    index: Any
    shape: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    def onto(self, total: Any, in_place: bool = False) -> Any:
        """The sum of this and `total` (None for zeros), written into `total` if `in_place`."""
        if total is None:
            total = np.zeros(self.shape, self.dtype)
        elif not is_basic(self.index):  # what is picked twice is added up first
            return total + self.onto(None)
        elif not in_place:
            total = np.array(total)
        if is_basic(self.index):
            total[self.index] += self.values
        else:
            _add_at(total, self.index, self.values)
        return total


def _add_at(total, index, values):
    """np.add.at of an array in one piece; of whole rows in less time, and to the same bits."""
    rows = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    width = prod(total.shape[1:])
    is_of_rows = isinstance(rows, np.ndarray) and rows.dtype.kind in "iu"
    if values.size < FEW_VALUES or not is_of_rows or values.size != rows.size * width:
        np.add.at(total, index, values)
        return
    starts = np.arange(0, total.size, width)[rows]
    places = starts.reshape((-1, 1)) + np.arange(width)
    np.add.at(total.reshape(-1), places.ravel(), values.ravel())


def is_basic(index: object) -> bool:
    """Whether NumPy answers this index with a view, so that no entry is picked twice."""
    parts = index if isinstance(index, tuple) else (index,)
    kinds = (int, np.integer, slice, type(None), type(Ellipsis))
    return all(isinstance(part, kinds) and not isinstance(part, bool) for part in parts)


@op(
    tex=lambda index: rf"\operatorname{{scatter}}(<x>, [{_at(index)}])",
    vjp_tex={"x": lambda index: f"<g>[{_at(index)}]"},
    flops=each_of_x(1),
    samples=of_shapes(
        ([3], np.array([0, 2, 0]), (5,)),
        ([2, 3], (slice(None), 1), (2, 5, 3)),
        ([0], slice(0, 0), (5,)),
        ([], 2, (3,)),
    ),
)
def scatter_add(x, index, shape):
    """Adds entries up in an array of zeros, each at its index, as often as the index names it.

    >>> scatter_add(np.array([1.0, 2.0, 4.0]), np.array([0, 0, 2]), (3,))
    array([3., 0., 4.])
    """
    x = as_array(x)
    terms = widen_half(x)
    total = np.zeros(shape, terms.dtype)
    _add_at(total, index, terms)
    return cast_back(total, x)


@scatter_add.vjp("x")
def _(g, index):
    """Each entry gets the gradient of the place where it was added."""
    return g[index]


# ---------------------------------------------------------------- by integers, along an axis


def _integers(indices: Any) -> Any:
    indices = as_array(indices)
    if indices.dtype.kind not in "iu" and indices.size:
        raise DTypeError(f"indices must be integers, got {indices.dtype}")
    return indices.astype(np.intp, copy=False)


@moving(
    along(r"\operatorname{take}@(<x>, <indices>)"),
    along(r"\operatorname{scatter}@(<g>, <indices>)"),
    of_shapes(
        ([3, 5], np.array([[0, 2], [2, 0]]), 0),
        ([3, 5], (1, -1, 1), -1),
        ([3, 5], 2, 1, False),
        ([3, 5], np.array([14, 0, 14])),
        ([3, 5], np.zeros(0, int), 0, False),
    ),
)
def take(x, indices, axis=None, negative=True):
    """Looks up entries at integer indices along an axis, or of the flattened array.

    Args: negative: whether an index may count from the end.
    Raises: OutOfRangeError outside the axis; DTypeError unless the indices are integers.

    >>> take(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0, 1]), axis=0)
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])
    """
    indices = _integers(indices)
    if not negative and indices.size:
        n = np.size(x) if axis is None else np.shape(x)[axis]
        if indices.min() < 0 or indices.max() >= n:
            raise OutOfRangeError(
                f"indices must lie in [0, {n}), got {indices.min()} to {indices.max()}"
            )
    return np.take(x, indices, axis=axis)


@take.vjp("x")
def _(g, x_shape, indices, axis):
    """The gradient goes back to the entries looked up, and adds up where one was taken twice."""
    if axis is None or not x_shape:  # NumPy takes a number for a row of one entry
        return scatter_add(g, _integers(indices), (prod(x_shape),)).reshape(x_shape)
    before = (slice(None),) * (axis % len(x_shape))
    return put_back(g, (*before, _integers(indices)), x_shape)


# ---------------------------------------------------------------- by a condition


@op(
    tex=r"<condition> \mathbin{?} <a> : <b>",
    vjp_tex={"a": r"<g> \odot [<condition>]", "b": r"<g> \odot [\lnot <condition>]"},
    flops=no_flops,
    samples=of_shapes(
        (np.tri(3, 5, dtype=bool), [3, 5], [5]),
        (np.array([True, False]), [3, 1], 0.0),
        (np.True_, [], [3]),
        (np.zeros((0, 3), bool), [0, 3], [3]),
    ),
)
def where(condition, a, b):
    """Takes the first array's entries where the condition holds, and the second's elsewhere.

    >>> where(np.array([True, False]), np.array([1.0, 2.0]), 0.0)
    array([1., 0.])
    """
    if a is None or b is None:
        raise DTypeError("a and b must both be given, got None")
    return np.where(condition, a, b)


@where.vjp("a")
def _(g, condition):
    """The gradient passes where the condition holds and stops elsewhere."""
    return masked(g, as_array(condition))


@where.vjp("b")
def _(g, condition):
    """The gradient passes where the condition does not hold and stops elsewhere."""
    return masked(g, np.logical_not(condition))


# ---------------------------------------------------------------- composed of these


@composed
def repeat(x: Operand, repeats: int | Sequence[int], axis: int | None = None) -> TensorOrArray:
    """Each entry so many times along an axis; without one, of the flattened array.

    Raises: ShapeError without such an axis, or for as many numbers as it has no entries.

    >>> repeat(np.array([1.0, 2.0]), 2)
    array([1., 1., 2., 2.])
    """
    shape = np.shape(x)
    n = np.size(x) if axis is None else shape[axes_within(axis, len(shape))[0]]
    return take(x, np.repeat(np.arange(n), repeats), axis)


@composed
def take_along_axis(x: SameArray, indices: Any, axis: int | None = -1) -> SameArray:
    """Entries of each row by indices of its own; with axis=None, of the flattened array.

    Raises: DTypeError unless the indices are integers; ShapeError unless they have as many axes as
        x; OutOfRangeError outside the axis.

    >>> take_along_axis(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1], [0]]), axis=1)
    array([[2.],
           [3.]])
    """
    indices = _integers(indices)
    if axis is None:
        return take(x, indices)
    shape = np.shape(x)
    if indices.ndim != len(shape):
        raise ShapeError(f"indices need as many axes as x, got {indices.shape} and {shape}")
    places = [mark_constant(place) for place in np.ogrid[tuple(map(slice, shape))]]
    places[axes_within(axis, len(shape))[0]] = indices
    return getitem(x, tuple(places))


@composed
def split(x: SameArray, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[SameArray]:
    """Parts of an array along an axis: so many equal ones, or cut at these indices.

    Raises: ArgumentError if the axis does not divide evenly; ShapeError without such an axis;
        DTypeError for anything but integers.

    >>> [part.shape for part in split(np.zeros((2, 6)), 3, axis=1)]
    [(2, 2), (2, 2), (2, 2)]
    """
    whole: Any = x if is_tensor(x) else checked_array(getitem, x)
    (axis,) = axes_within(axis, whole.ndim)
    length = whole.shape[axis]
    cuts: Any = indices_or_sections
    if np.ndim(cuts) == 0:
        sections = as_integer(cuts)
        if sections < 1 or length % sections:
            raise ArgumentError(f"axis {axis} has {length} entries, not a multiple of {sections}")
        cuts = [length // sections * k for k in range(1, sections)]
    before = (slice(None),) * axis
    ends = pairwise([0, *map(as_integer, cuts), length])
    return [whole[(*before, slice(start, end))] for start, end in ends]


@composed
def argmax(x: Operand, axis: int | None = None, keepdims: bool = False) -> NDArray[np.intp]:
    """Where the largest entry is, along an axis or in the flattened array. No gradient flows.

    >>> argmax(np.array([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    array([1, 0])
    """
    array = x.numpy() if isinstance(x, Tensor) else checked_array(getitem, x)
    places: NDArray[np.intp] = np.argmax(array, axis=axis, keepdims=keepdims)
    return places
