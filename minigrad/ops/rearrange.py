"""Ops that pick entries again and again, or in each row by itself: repeat, take_along_axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..engine.errors import DTypeError
from ..engine.op import Call, as_array, call, widen_half
from .notation import axes_of, function_at, reshaped
from .select import moving, scatter_add, take

__all__ = ["repeat", "take_along_axis"]


def _along_axes(function: str, of: str) -> Callable[..., str]:
    """The formula of a function of x or g along some axes; no subscript stands for all of them."""
    return lambda x, axis: function_at(function, [] if axis is None else axes_of(x, axis), of)


def _repeat_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (2, 3))
    yield call(x, 2)
    yield call(x, 3, axis=0)
    yield call(x, np.array([0, 2, 1]), axis=1)
    yield call(np.zeros((0, 3)), 2, axis=1)


@moving(_along_axes("repeat", "<x>"), _along_axes(r"sum\,of\,repeats", "<g>"), _repeat_samples)
def repeat(x, repeats, axis: int | None = None):
    """Repeats each entry so many times along an axis; without one, of the flattened array.

    >>> repeat(np.array([1.0, 2.0]), 2)
    array([1., 1., 2., 2.])
    """
    return np.repeat(x, repeats, axis)


@repeat.vjp("x")
def _(g, x_shape, repeats, axis):
    """The gradients of all repeats of an entry are added up."""
    axis = axis if x_shape else None  # NumPy takes a number for a row of one entry
    n = int(np.prod(x_shape)) if axis is None else x_shape[axis]
    if np.ndim(repeats) == 0:
        lead = () if axis is None else x_shape[: axis % len(x_shape)]
        copies = g.reshape((*lead, n, repeats, *g.shape[len(lead) + 1 :]))
        if len(lead) + 2 < copies.ndim:
            return widen_half(copies).sum(axis=len(lead) + 1)
        ones = np.ones(repeats, g.dtype)  # a product adds short rows faster than a sum does
        return np.matmul(copies, ones).reshape(x_shape)
    return take.rules["x"].function(g, x_shape, np.repeat(np.arange(n), repeats), axis)


# ---------------------------------------------------------------- by an index of entries


def along(indices, shape, axis):
    """The index of all entries that indices name along one axis."""
    grid = list(np.ogrid[tuple(map(slice, shape))])
    grid[axis] = indices
    return tuple(grid)


def _along_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (3, 5))
    yield call(x, rng.integers(0, 5, (3, 2)), 1)
    yield call(x, rng.integers(-3, 3, (4, 5)), axis=0)
    yield call(x, np.array([14, 0, 14]), axis=None)
    yield call(x, np.zeros((3, 0), int), axis=1)


def _picked_tex(axis):
    return function_at("pick", [] if axis is None else [axis], "<x>, <indices>")


def _unpicked_tex(x, axis):
    scattered = function_at("scatter", [axis or 0], "<g>, <indices>")
    return reshaped(x.shape, scattered) if axis is None else scattered


@moving(_picked_tex, _unpicked_tex, _along_samples)
def take_along_axis(x, indices, axis: int = -1):
    """Picks entries in each row by indices of its own; with axis=None, of the flattened array.

    Raises: DTypeError unless the indices are integers; OutOfRangeError outside the axis.

    >>> take_along_axis(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1], [0]]), axis=1)
    array([[2.],
           [3.]])
    """
    if as_array(indices).dtype.kind not in "iu":
        raise DTypeError(f"indices must be integers, got {as_array(indices).dtype}")
    return np.take_along_axis(as_array(x), as_array(indices), axis)


@take_along_axis.vjp("x")
def _(g, x_shape, indices, axis):
    """The gradient goes back to the places that each row picked, and is zero elsewhere."""
    if axis is None:
        return scatter_add(g, as_array(indices), (int(np.prod(x_shape)),)).reshape(x_shape)
    return scatter_add(g, along(as_array(indices), x_shape, axis), x_shape)
