"""Ops that put entries elsewhere, or out: flip, roll, repeat, tril, triu, sort, take_along_axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..engine.errors import DTypeError
from ..engine.op import Axes, Call, Declare, as_array, call, widen_half
from .notation import axes_of, function_at, reshaped
from .select import moving, scatter_add, take

__all__ = ["flip", "repeat", "roll", "sort", "take_along_axis", "tril", "triu"]


def _along_axes(function: str, of: str) -> Callable[..., str]:
    """The formula of a function of x or g along some axes; no subscript stands for all of them."""
    return lambda x, axis: function_at(function, [] if axis is None else axes_of(x, axis), of)


def _turning(name: str, back: str, *settings: Call) -> Declare:
    """The declaration of an op that moves entries, and whose rule moves them by another name."""

    def samples(rng: np.random.Generator) -> Iterator[Call]:
        x = rng.uniform(-2, 2, (3, 5))
        for args, kwargs in settings:
            yield call(x, *args, **kwargs)
        yield call(np.zeros((0, 3)), *settings[0].args)

    return moving(_along_axes(name, "<x>"), _along_axes(back, "<g>"), samples)


@_turning("flip", "flip", call(), call(axis=0), call(axis=(0, -1)))
def flip(x, axis: Axes = None):
    """Puts entries in the opposite order along an axis, several, or all.

    >>> flip(np.array([1.0, 2.0, 3.0]))
    array([3., 2., 1.])
    """
    return np.flip(x, axis)


@flip.vjp("x")
def _(g, axis):
    """The gradient is put in the opposite order along the same axes."""
    return flip(g, axis)


@_turning("roll", "rollback", call(2), call(-1, axis=1), call((1, 2), axis=(0, 1)))
def roll(x, shift, axis: Axes = None):
    """Moves entries on by so many places, the last to the front; without an axis, flattened.

    >>> roll(np.array([1.0, 2.0, 3.0]), 1)
    array([3., 1., 2.])
    """
    return np.roll(x, shift, axis)


@roll.vjp("x")
def _(g, shift, axis):
    """The gradient is moved back by as many places."""
    return roll(g, -shift if np.ndim(shift) == 0 else tuple(-n for n in shift), axis)


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


def _triangle_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (2, 3, 5)))
    yield call(rng.uniform(-2, 2, (5, 3)), 1)
    yield call(rng.uniform(-2, 2, (3, 3)), k=-1)
    yield call(np.zeros((0, 3)))


def _triangle(name: str) -> Declare:
    """The declaration of tril or of triu, each its own rule."""
    function = rf"\operatorname{{{name}}}_{{<k>}}"
    return moving(f"{function}(<x>)", f"{function}(<g>)", _triangle_samples)


@_triangle("tril")
def tril(x, k: int = 0):
    """Makes each matrix zero above its k-th diagonal.

    >>> tril(np.ones((2, 2)))
    array([[1., 0.],
           [1., 1.]])
    """
    return np.tril(x, k)


@tril.vjp("x")
def _(g, k):
    """The gradient is made zero above the same diagonal."""
    return tril(g, k)


@_triangle("triu")
def triu(x, k: int = 0):
    """Makes each matrix zero below its k-th diagonal.

    >>> triu(np.ones((2, 2)))
    array([[1., 1.],
           [0., 1.]])
    """
    return np.triu(x, k)


@triu.vjp("x")
def _(g, k):
    """The gradient is made zero below the same diagonal."""
    return triu(g, k)


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


def _sort_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.permutation(np.linspace(-2.0, 2.0, 30)).reshape(2, 3, 5)
    yield call(x)
    yield call(x, axis=1)
    yield call(x[0], axis=None)
    yield call(np.zeros((0, 3)))


@moving(
    _along_axes("sort", "<x>"),
    _along_axes("unsort", "<g>"),
    _sort_samples,
    analytic=False,
    auxiliary=("order",),
)
def sort(x, axis: int | None = -1):
    """Puts entries in ascending order along an axis; with None, all of them. NaN is last.

    >>> sort(np.array([3.0, 1.0, 2.0]))
    array([1., 2., 3.])
    """
    order = np.argsort(x, axis=axis, kind="stable")
    return np.take_along_axis(as_array(x), order, axis), order


@sort.vjp("x")
def _(g, x_shape, axis, order):
    """The gradient goes back to where each entry stood before it was sorted."""
    return take_along_axis.rules["x"].function(g, x_shape, order, axis)
