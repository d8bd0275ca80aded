"""Ops that pick entries: what was picked gets its gradient back, twice if picked twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy import ndarray

from ..engine.errors import ArgumentError, DTypeError, ShapeError
from ..engine.op import Call, call, op
from ..engine.sparse import SparseGradient, dense
from ..engine.tensor import Tensor
from .elementwise import each
from .samples import arrayed

__all__ = ["getitem", "scatter_add", "split", "take"]


def _getitem_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (3, 5, 7))
    yield call(x, 1)
    yield call(x, (slice(None), -1))
    yield call(x, (Ellipsis, slice(1, None, 2), None))
    yield call(x, (slice(None, None, -1), 2))
    yield call(x, np.array([0, 2, 0]))
    yield call(x, ([0, 0, 2], slice(None), [1, 1, 3]))
    yield call(x, x > 0)
    yield call(x, np.array([True, False, True]))
    yield call(x, (slice(0, 0),))
    yield call(np.asarray(1.5), ())


@op(
    tex=r"<x>[\text{index}]",
    vjp_tex={"x": r"\operatorname{scatter}(<g>)"},
    flops=each(0),
    samples=_getitem_samples,
)
def getitem(x, index):
    """Entries at an index as in NumPy: integers, slices, None, ..., integer and boolean arrays.

    Raises: OutOfRangeError outside the array.

    >>> getitem(np.arange(5.0), np.array([0, 0, 3]))
    array([0., 0., 3.])
    """
    return arrayed(x)[index]


@getitem.vjp("x")
def _(g, x_shape, index):
    return _scattered(g, index, x_shape)


def _scattered(g: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """What an index sends back: of a plain array no zeros are written before they are needed."""
    return (
        SparseGradient(g, index, shape) if g.__class__ is ndarray else scatter_add(g, index, shape)
    )


def _scatter_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (3,)), np.array([0, 2, 0]), (5,))
    yield call(rng.uniform(-2, 2, (2, 3)), (slice(None), 1), (2, 5, 3))
    yield call(np.zeros(0), slice(0, 0), (5,))
    yield call(np.asarray(1.5), 2, (3,))


@op(
    tex=r"\operatorname{scatter}(<x>)",
    vjp_tex={"x": r"<g>[\text{index}]"},
    flops=lambda x: np.size(x),
    samples=_scatter_samples,
)
def scatter_add(x, index, shape):
    """Zeros of a shape, with x added in at an index, as often as the index names an entry.

    >>> scatter_add(np.array([1.0, 2.0, 4.0]), np.array([0, 0, 2]), (3,))
    array([3., 0., 4.])
    """
    return dense(SparseGradient(arrayed(x), index, shape))


@scatter_add.vjp("x")
def _(g, index):
    return g[index]


def _take_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (3, 5))
    yield call(x, np.array([[0, 2], [2, 0]]), axis=0)
    yield call(x, [1, -1, 1], axis=-1)
    yield call(x, 2, axis=1)
    yield call(x, np.array([14, 0, 14]))
    yield call(x, np.zeros((0,), int), axis=0)


@op(
    tex=r"<x>[\text{indices}]",
    vjp_tex={"x": r"\operatorname{scatter}(<g>)"},
    flops=each(0),
    samples=_take_samples,
)
def take(x, indices, axis=None):
    """Entries at integer indices along an axis, or of the flattened array. An embedding look-up.

    Raises: OutOfRangeError outside the axis; DTypeError unless the indices are integers.

    >>> take(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0, 1]), axis=0)
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])
    """
    indices = arrayed(indices)
    if indices.dtype.kind not in "iu" and np.size(indices):
        raise DTypeError(f"indices must be integers, got {indices.dtype}")
    return np.take(x, indices.astype(np.intp, copy=False), axis=axis)


@take.vjp("x")
def _(g, x_shape, indices, axis):
    indices = arrayed(indices).astype(np.intp, copy=False)
    if axis is None:
        return scatter_add(g, indices, (int(np.prod(x_shape)),)).reshape(x_shape)
    lead = (slice(None),) * (axis % len(x_shape))
    return _scattered(g, (*lead, indices) if lead else indices, x_shape)


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts of an array along an axis: so many equal ones, or cut at these indices.

    Raises: ArgumentError if the axis does not divide evenly; ShapeError without such an axis.

    >>> [part.shape for part in split(np.zeros((2, 6)), 3, axis=1)]
    [(2, 2), (2, 2), (2, 2)]
    """
    shape, ndim = np.shape(x), np.ndim(x)
    if not -ndim <= axis < ndim:
        raise ShapeError(f"split(x, sections): axis {axis} is out of bounds for shape {shape}")
    length = shape[axis]
    if np.ndim(indices_or_sections) == 0:
        sections = int(indices_or_sections)
        if sections < 1 or length % sections:
            raise ArgumentError(
                f"split(x, sections): axis {axis} has {length} entries, "
                f"not a multiple of {sections}"
            )
        cuts = list(range(0, length + 1, length // sections)) if length else [0] * (sections + 1)
    else:
        cuts = [0, *(int(c) for c in indices_or_sections), length]
    lead = (slice(None),) * (axis % ndim)
    whole = x if isinstance(x, Tensor) else np.asarray(x)
    return [whole[(*lead, slice(a, b))] for a, b in pairwise(cuts)]
