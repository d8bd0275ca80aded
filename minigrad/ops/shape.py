"""Ops that move entries without computing: their backward moves them back."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, DTypeError
from ..engine.op import Call, call, op
from ..fast.memory import reshaped
from .elementwise import each
from .samples import arrayed

__all__ = [
    "broadcast_to",
    "concatenate",
    "expand_dims",
    "pad",
    "reshape",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
]


def _x(rng: np.random.Generator, *shape: int) -> Any:
    return np.asarray(rng.uniform(-2, 2, shape))


def _reshape_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 2, 3, 5), (6, 5))
    yield call(_x(rng, 2, 3, 5), (-1,))
    yield call(_x(rng, 6), (2, -1))
    yield call(_x(rng), (1, 1))
    yield call(_x(rng, 1), ())
    yield call(_x(rng, 0, 3), (3, 0))


@op(
    tex=r"\operatorname{reshape}(<x>)",
    vjp_tex={"x": r"\operatorname{reshape}(<g>)"},
    flops=each(0),
    samples=_reshape_samples,
)
def reshape(x, shape):
    """The same entries in another shape, in row-major order; one -1 is worked out.

    >>> reshape(np.arange(6.0), (2, -1)).shape
    (2, 3)
    """
    return reshaped(x, shape)


@reshape.vjp("x")
def _(g, x_shape):
    return reshaped(g, x_shape)


def _transpose_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 2, 3, 5))
    yield call(_x(rng, 2, 3, 5), (1, 2, 0))
    yield call(_x(rng, 2, 3, 5), (0, -1, 1))
    yield call(_x(rng, 3))
    yield call(_x(rng))
    yield call(_x(rng, 0, 3))


@op(
    tex=r"\operatorname{transpose}(<x>)",
    vjp_tex={"x": r"\operatorname{transpose}^{-1}(<g>)"},
    flops=each(0),
    samples=_transpose_samples,
)
def transpose(x, axes=None):
    """The axes in another order, reversed when none is given.

    >>> transpose(np.zeros((2, 3, 5)), (1, 2, 0)).shape
    (3, 5, 2)
    """
    return np.transpose(x, axes)


@transpose.vjp("x")
def _(g, axes):
    if axes is None:
        return np.transpose(g)
    n = len(axes)
    back = [0] * n
    for position, axis in enumerate(axes):
        back[axis % n] = position
    return np.transpose(g, tuple(back))


def _swapaxes_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 2, 3, 5), -1, -2)
    yield call(_x(rng, 2, 3), 0, 1)
    yield call(_x(rng, 3), 0, 0)
    yield call(_x(rng, 0, 3), 0, 1)


@op(
    tex=r"<x>^\top",
    vjp_tex={"x": r"<g>^\top"},
    flops=each(0),
    samples=_swapaxes_samples,
)
def swapaxes(x, axis1, axis2):
    """Two axes exchanged; of the last two, the transpose of each matrix.

    >>> swapaxes(np.zeros((2, 3, 5)), -1, -2).shape
    (2, 5, 3)
    """
    return arrayed(x).swapaxes(axis1, axis2)


@swapaxes.vjp("x")
def _(g, axis1, axis2):
    return g.swapaxes(axis1, axis2)


def _expand_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 3, 5), 1)
    yield call(_x(rng, 3, 5), (0, -1))
    yield call(_x(rng), 0)
    yield call(_x(rng, 0), -1)


@op(
    tex=r"\operatorname{expand}(<x>)",
    vjp_tex={"x": r"\operatorname{squeeze}(<g>)"},
    flops=each(0),
    samples=_expand_samples,
)
def expand_dims(x, axis):
    """New axes of length 1 at these positions of the result.

    >>> expand_dims(np.zeros((3, 5)), (0, -1)).shape
    (1, 3, 5, 1)
    """
    return np.expand_dims(x, axis)


@expand_dims.vjp("x")
def _(g, x_shape):
    return g.reshape(x_shape)


def _squeeze_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 1, 3, 1, 5))
    yield call(_x(rng, 1, 3, 1, 5), 2)
    yield call(_x(rng, 1, 3, 1, 5), (0, -2))
    yield call(_x(rng))
    yield call(_x(rng, 1, 0))


@op(
    tex=r"\operatorname{squeeze}(<x>)",
    vjp_tex={"x": r"\operatorname{expand}(<g>)"},
    flops=each(0),
    samples=_squeeze_samples,
)
def squeeze(x, axis=None):
    """Without axes of length 1: the given ones, or all.

    >>> squeeze(np.zeros((1, 3, 1)), 0).shape
    (3, 1)
    """
    return np.squeeze(x, axis)


@squeeze.vjp("x")
def _(g, x_shape):
    return g.reshape(x_shape)


def _broadcast_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 3, 1), (2, 3, 5))
    yield call(_x(rng, 5), (3, 5))
    yield call(_x(rng), (2, 3))
    yield call(_x(rng, 3), (3,))
    yield call(_x(rng, 1, 3), (0, 3))


@op(
    tex=r"\operatorname{broadcast}(<x>)",
    vjp_tex={"x": r"\textstyle\sum_{\text{repeats}} <g>"},
    flops=each(0),
    samples=_broadcast_samples,
)
def broadcast_to(x, shape):
    """The array repeated along new axes and axes of length 1, without copying.

    >>> broadcast_to(np.array([1.0, 2.0]), (3, 2)).shape
    (3, 2)
    """
    return np.broadcast_to(x, shape)


@broadcast_to.vjp("x")
def _(g):
    return g  # the edge rule sums over the axes that were broadcast


def _slab(ndim: int, axis: int, start: int, stop: int) -> tuple[slice, ...]:
    """The index of entries start to stop along one axis."""
    whole = [slice(None)] * ndim
    whole[axis] = slice(start, stop)
    return tuple(whole)


def _concatenate_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call((_x(rng, 2, 3), _x(rng, 5, 3)))
    yield call([_x(rng, 2, 3), _x(rng, 2, 1), _x(rng, 2, 0)], axis=-1)
    yield call((_x(rng, 3),), axis=0)
    yield call((_x(rng, 2, 3), _x(rng)), axis=None)


@op(
    tex=r"[<arrays>]",
    vjp_tex={"arrays": r"<g>[\text{its part}]"},
    flops=each(0),
    samples=_concatenate_samples,
    variadic=True,
)
def concatenate(arrays, axis=0):
    """A sequence of arrays joined along an axis they already have; with axis=None, flattened first.

    >>> concatenate((np.zeros((2, 3)), np.ones((5, 3)))).shape
    (7, 3)
    """
    return np.concatenate(arrays, axis)


@concatenate.vjp("arrays")
def _(g, i, arrays_shape, axis):
    sizes = [prod(shape) if axis is None else shape[axis] for shape in arrays_shape]
    ends = np.cumsum(sizes).tolist()
    if axis is None:
        return g[ends[i] - sizes[i] : ends[i]].reshape(arrays_shape[i])
    return g[_slab(g.ndim, axis, ends[i - 1] if i else 0, ends[i])]


def _stack_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call((_x(rng, 2, 3), _x(rng, 2, 3)))
    yield call([_x(rng, 2, 3), _x(rng, 2, 3), _x(rng, 2, 3)], axis=-1)
    yield call((_x(rng), _x(rng)))
    yield call((_x(rng, 0),), axis=1)


@op(
    tex=r"[<arrays>]",
    vjp_tex={"arrays": r"<g>_i"},
    flops=each(0),
    samples=_stack_samples,
    variadic=True,
)
def stack(arrays, axis=0):
    """A sequence of arrays of one shape, along a new axis.

    >>> stack((np.zeros(3), np.ones(3)), axis=1).shape
    (3, 2)
    """
    return np.stack(arrays, axis)


@stack.vjp("arrays")
def _(g, i, axis):
    return g[(slice(None),) * (axis % g.ndim) + (i,)]


def _pad_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 2, 3), 1)
    yield call(_x(rng, 2, 3), ((0, 2), (1, 0)))
    yield call(_x(rng, 3), (2, 1), constant_values=-1.0)
    yield call(_x(rng, 0), 1)


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """NumPy's shorthand for pad widths, as one pair an axis."""
    widths = np.asarray(pad_width)
    if widths.dtype.kind not in "iu":
        raise DTypeError(f"pad_width must be integers, got {widths.dtype}")
    pairs = np.broadcast_to(widths, (ndim, 2))
    return [(int(before), int(after)) for before, after in pairs]


@op(
    tex=r"\operatorname{pad}(<x>)",
    vjp_tex={"x": r"<g>[\text{inside}]"},
    flops=each(0),
    samples=_pad_samples,
)
def pad(x, pad_width, constant_values=0):
    """The array with a border of a constant; widths as np.pad takes them.

    >>> pad(np.ones(2), (1, 2))
    array([0., 1., 1., 0., 0.])
    """
    if np.ndim(constant_values) != 0:
        raise ArgumentError("constant_values must be one number")
    return np.pad(x, _widths(pad_width, np.ndim(x)), constant_values=constant_values)


@pad.vjp("x")
def _(g, x_shape, pad_width):
    widths = _widths(pad_width, len(x_shape))
    return g[tuple(slice(b, b + n) for (b, _), n in zip(widths, x_shape, strict=True))]
