"""Ops that pick entries. An entry that is picked twice adds up both gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod
from operator import index as as_integer
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from ..engine.op import Call, Declare, as_array, call, cast_back, masked, op, widen_half
from ..engine.refusals import explained
from ..engine.tensor import SameArray
from .notation import along, reshaped
from .notation import index as index_tex
from .samples import Samples, each_of_x, no_flops, pairs

__all__ = ["getitem", "scatter_add", "split", "take", "where"]


def moving(
    tex: str | Callable[..., str],
    vjp_tex: str | Callable[..., str],
    samples: Samples,
    *,
    name: str = "x",
    **declaration: Any,
) -> Declare:
    """Declare an op that puts the entries of its one input elsewhere and computes nothing."""
    return op(tex=tex, vjp_tex={name: vjp_tex}, flops=no_flops, samples=samples, **declaration)


def _at(name, index):
    """An index as written in a formula, in which an array is a symbol."""
    return f"<{name}>" if isinstance(index, np.ndarray) else index_tex(index)


def _scatter(at: str, what: str = "<g>") -> str:
    return rf"\operatorname{{scatter}}_{{{at}}}({what})"


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


@moving(
    lambda index: f"<x>[{_at('index', index)}]",
    lambda index: _scatter(_at("index", index)),
    _getitem_samples,
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
    return scatter_add(g, index, x_shape)


def _scatter_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (3,)), np.array([0, 2, 0]), (5,))
    yield call(rng.uniform(-2, 2, (2, 3)), (slice(None), 1), (2, 5, 3))
    yield call(np.zeros(0), slice(0, 0), (5,))
    yield call(np.asarray(1.5), 2, (3,))


@op(
    tex=lambda index: _scatter(_at("index", index), "<x>"),
    vjp_tex={"x": lambda index: f"<g>[{_at('index', index)}]"},
    flops=each_of_x(1),
    samples=_scatter_samples,
)
def scatter_add(x, index, shape):
    """Adds entries up in an array of zeros, each at its index, as often as the index names it.

    >>> scatter_add(np.array([1.0, 2.0, 4.0]), np.array([0, 0, 2]), (3,))
    array([3., 0., 4.])
    """
    x = as_array(x)
    terms = widen_half(x)
    total = np.zeros(shape, terms.dtype)
    np.add.at(total, index, terms)
    return cast_back(total, x)


@scatter_add.vjp("x")
def _(g, index):
    """Each entry gets the gradient of the place where it was added."""
    return g[index]


# ---------------------------------------------------------------- take


def _take_tex(x, indices, axis):
    if axis is None or not x.ndim:
        return f"{reshaped((x.size,), '<x>')}[{_at('indices', indices)}]"
    return f"<x>[{_taken(x, indices, axis)}]"


def _take_vjp_tex(x, indices, axis):
    if axis is None or not x.ndim:
        return reshaped(x.shape, _scatter(_at("indices", indices)))
    return _scatter(_taken(x, indices, axis))


def _taken(x, indices, axis):
    at = _at("indices", indices)
    return along(axis, x.ndim, at) if axis % x.ndim else at


def _take_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (3, 5))
    yield call(x, np.array([[0, 2], [2, 0]]), axis=0)
    yield call(x, [1, -1, 1], axis=-1)
    yield call(x, 2, axis=1, negative=False)
    yield call(x, np.array([14, 0, 14]))
    yield call(x, np.zeros((0,), int), axis=0, negative=False)


@moving(_take_tex, _take_vjp_tex, _take_samples)
def take(x, indices, axis=None, negative=True):
    """Looks up entries at integer indices along an axis, or of the flattened array.

    Args: negative: whether an index may count from the end.
    Raises: OutOfRangeError outside the axis; DTypeError unless the indices are integers.

    >>> take(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0, 1]), axis=0)
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])
    """
    indices = as_array(indices)
    if indices.dtype.kind not in "iu" and indices.size:
        raise DTypeError(f"indices must be integers, got {indices.dtype}")
    if not negative and indices.size:
        n = np.size(x) if axis is None else np.shape(x)[axis]
        if indices.min() < 0 or indices.max() >= n:
            raise OutOfRangeError(
                f"indices must lie in [0, {n}), got {indices.min()} to {indices.max()}"
            )
    return np.take(x, indices.astype(np.intp, copy=False), axis=axis)


@take.vjp("x")
def _(g, x_shape, indices, axis):
    """The gradient goes back to the entries looked up, and adds up where one was taken twice."""
    indices = as_array(indices).astype(np.intp)
    if axis is None or not x_shape:  # NumPy takes a number for a row of one entry
        return scatter_add(g, indices, (prod(x_shape),)).reshape(x_shape)
    return scatter_add(g, (slice(None),) * (axis % len(x_shape)) + (indices,), x_shape)


# ---------------------------------------------------------------- split


@explained
def split(x: SameArray, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[SameArray]:
    """Parts of an array along an axis: so many equal ones, or cut at these indices.

    Raises: ArgumentError if the axis does not divide evenly; ShapeError without such an axis;
        DTypeError for anything but integers.

    >>> [part.shape for part in split(np.zeros((2, 6)), 3, axis=1)]
    [(2, 2), (2, 2), (2, 2)]
    """
    whole: Any = x if hasattr(x, "__apply__") else getitem.array(x)
    shape, ndim = whole.shape, whole.ndim
    try:
        axis = as_integer(axis)
        one = np.ndim(indices_or_sections) == 0
        listed: Any = [indices_or_sections] if one else indices_or_sections
        cuts = [as_integer(c) for c in listed]
    except TypeError as error:
        raise DTypeError(f"split(x, sections, axis): {error}") from None
    if not -ndim <= axis < ndim:
        raise ShapeError(f"split(x, sections): axis {axis} is out of bounds for shape {shape}")
    length = shape[axis]
    if one:
        (sections,) = cuts
        if sections < 1 or length % sections:
            raise ArgumentError(
                f"split(x, sections): axis {axis} has {length} entries, "
                f"not a multiple of {sections}"
            )
        cuts = [length // sections * k for k in range(1, sections)]
    lead = (slice(None),) * (axis % ndim)
    return [whole[(*lead, slice(a, b))] for a, b in pairwise([0, *cuts, length])]


# ---------------------------------------------------------------- where


def _where_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in pairs()(rng):
        a, b = sample.args
        shape = np.broadcast_shapes(np.shape(a), np.shape(b))
        yield call(rng.uniform(size=shape) < 0.5, a, b)
    yield call(np.array([True, False, True]), rng.uniform(size=(2, 1)), 0.0)


@op(
    tex=r"<condition> \mathbin{?} <a> : <b>",
    vjp_tex={"a": r"<g> \odot [<condition>]", "b": r"<g> \odot [\lnot <condition>]"},
    flops=no_flops,
    samples=_where_samples,
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
