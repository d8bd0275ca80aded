"""Ops that move entries without computing: their backward moves them back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.errors import ArgumentError, DTypeError
from ..engine.op import Axes, Call, as_array, call
from .notation import along, axes_of, function_at, letters, reshaped, shape_product, span
from .select import moving, scatter_add

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


def _x(rng: np.random.Generator, *shape: int) -> NDArray[np.float64]:
    return np.asarray(rng.uniform(-2, 2, shape))


def _reshape_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 2, 3, 5), (6, 5))
    yield call(_x(rng, 2, 3, 5), (-1,))
    yield call(_x(rng, 6), (2, -1))
    yield call(_x(rng), (1, 1))
    yield call(_x(rng, 1), ())
    yield call(_x(rng, 0, 3), (3, 0))


@moving(
    lambda out: reshaped(out.shape, "<x>"), lambda x: reshaped(x.shape, "<g>"), _reshape_samples
)
def reshape(x, shape: int | Sequence[int]):
    """Gives the same entries in another shape, in row-major order; one -1 is worked out.

    >>> reshape(np.arange(6.0), (2, -1)).shape
    (2, 3)
    """
    return as_array(x).reshape(shape)


@reshape.vjp("x")
def _(g, x_shape):
    """The gradient is given the shape of the input, and nothing else changes."""
    return g.reshape(x_shape)


def axes_order(ndim: int, axes: Sequence[int] | None) -> list[int]:
    """The old position of each new axis."""
    return list(range(ndim))[::-1] if axes is None else [int(axis) % ndim for axis in axes]


def inverse_order(axes: list[int]) -> tuple[int, ...]:
    """The new position of each old axis."""
    return tuple(axes.index(k) for k in range(len(axes)))


def _turned(name, axes):
    if list(axes) == [1, 0]:
        return rf"{name}^\top"
    return function_at("transpose", axes, name)


def _every_axis(x, axes):
    if axes is None or np.ndim(axes) != 1 or len(axes) == np.ndim(x):
        return None
    swap = f"; write x.swapaxes({axes[0]}, {axes[1]}) to swap two" if len(axes) == 2 else ""
    return f"axes don't match array: it takes all {np.ndim(x)} of x's, got {len(axes)}{swap}"


def _transpose_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 2, 3, 5))
    yield call(_x(rng, 2, 3, 5), (1, 2, 0))
    yield call(_x(rng, 2, 3, 5), (0, -1, 1))
    yield call(_x(rng, 3))
    yield call(_x(rng))
    yield call(_x(rng, 0, 3))


@moving(
    lambda x, axes: _turned("<x>", axes_order(x.ndim, axes)),
    lambda x, axes: _turned("<g>", inverse_order(axes_order(x.ndim, axes))),
    _transpose_samples,
    requires=_every_axis,
)
def transpose(x, axes: Sequence[int] | None = None):
    """Puts the axes in another order, reversed when none is given.

    >>> transpose(np.zeros((2, 3, 5)), (1, 2, 0)).shape
    (3, 5, 2)
    """
    return np.transpose(x, axes)


@transpose.vjp("x")
def _(g, axes):
    """The axes of the gradient are put back in the order of the input's."""
    return np.transpose(g, inverse_order(axes_order(g.ndim, axes)))


def _swapped(name, x, axis1, axis2):
    """The transpose of each matrix, if these are the last two axes."""
    first, second = sorted((axis1 % x.ndim, axis2 % x.ndim))
    if (first, second) == (x.ndim - 2, x.ndim - 1):
        return rf"{name}^\top"
    return function_at("swap", (first, second), name)


def _swapaxes_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 2, 3, 5), -1, -2)
    yield call(_x(rng, 2, 3), 0, 1)
    yield call(_x(rng, 3), 0, 0)
    yield call(_x(rng, 0, 3), 0, 1)


@moving(
    lambda x, axis1, axis2: _swapped("<x>", x, axis1, axis2),
    lambda x, axis1, axis2: _swapped("<g>", x, axis1, axis2),
    _swapaxes_samples,
)
def swapaxes(x, axis1: int, axis2: int):
    """Exchanges two axes; of the last two, this is the transpose of each matrix.

    >>> swapaxes(np.zeros((2, 3, 5)), -1, -2).shape
    (2, 5, 3)
    """
    return as_array(x).swapaxes(axis1, axis2)


@swapaxes.vjp("x")
def _(g, axis1, axis2):
    """The same two axes of the gradient are exchanged back."""
    return g.swapaxes(axis1, axis2)


def _expand_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 3, 5), 1)
    yield call(_x(rng, 3, 5), (0, -1))
    yield call(_x(rng), 0)
    yield call(_x(rng, 0), -1)


@moving(
    lambda out, axis: function_at("expand", axes_of(out, axis), "<x>"),
    lambda out, axis: function_at("squeeze", axes_of(out, axis), "<g>"),
    _expand_samples,
)
def expand_dims(x, axis: int | tuple[int, ...]):
    """Adds axes of length 1 at these positions of the result.

    >>> expand_dims(np.zeros((3, 5)), (0, -1)).shape
    (1, 3, 5, 1)
    """
    return np.expand_dims(x, axis)


@expand_dims.vjp("x")
def _(g, x_shape):
    """The new axes of length 1 are taken out of the gradient."""
    return g.reshape(x_shape)


def _dropped(x, axis):
    """The axes of length 1 that `squeeze` drops."""
    return axes_of(x, axis) if axis is not None else [k for k, n in enumerate(x.shape) if n == 1]


def _squeeze_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 1, 3, 1, 5))
    yield call(_x(rng, 1, 3, 1, 5), 2)
    yield call(_x(rng, 1, 3, 1, 5), (0, -2))
    yield call(_x(rng))
    yield call(_x(rng, 1, 0))


@moving(
    lambda x, axis: function_at("squeeze", _dropped(x, axis), "<x>"),
    lambda x, axis: function_at("expand", _dropped(x, axis), "<g>"),
    _squeeze_samples,
)
def squeeze(x, axis: Axes = None):
    """Drops axes of length 1: the given ones, or all.

    >>> squeeze(np.zeros((1, 3, 1)), 0).shape
    (3, 1)
    """
    return np.squeeze(x, axis)


@squeeze.vjp("x")
def _(g, x_shape):
    """The dropped axes of length 1 are put back into the gradient."""
    return g.reshape(x_shape)


def _broadcast_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 3, 1), (2, 3, 5))
    yield call(_x(rng, 5), (3, 5))
    yield call(_x(rng), (2, 3))
    yield call(_x(rng, 3), (3,))
    yield call(_x(rng, 1, 3), (0, 3))


@moving(
    lambda out: rf"\operatorname{{broadcast}}_{{{shape_product(out.shape)}}}(<x>)",
    r"<g>",
    _broadcast_samples,
)
def broadcast_to(x, shape: int | Sequence[int]):
    """Repeats the array along new axes and axes of length 1, without copying.

    >>> broadcast_to(np.array([1.0, 2.0]), (3, 2)).shape
    (3, 2)
    """
    return np.broadcast_to(x, shape)


@broadcast_to.vjp("x")
def _(g):
    """The gradient is summed over the axes along which the array was repeated."""
    return g  # the edge rule sums over the axes that were broadcast


# ---------------------------------------------------------------- several arrays


def part_bounds(arrays_shape: Sequence[tuple[int, ...]], axis: int | None) -> list[tuple[int, int]]:
    """Where the entries of each array begin and end along the axis that they are joined along."""
    sizes = [prod(shape) if axis is None else shape[axis] for shape in arrays_shape]
    return [(end - n, end) for n, end in zip(sizes, accumulate(sizes), strict=True)]


def _concatenate_tex(out, axis):
    along_axis = "" if axis is None else f"_{{{letters(out.ndim)[axis]}}}"
    return rf"\operatorname{{concat}}{along_axis}(<arrays>)"


def _concatenate_vjp_tex(i, arrays, axis, out):
    part = span(*part_bounds([x.shape for x in arrays], axis)[i])
    taken = f"<g>[{along(axis or 0, out.ndim, part)}]"
    if axis is not None:
        return taken
    return reshaped(arrays[i].shape, taken)


def _concatenate_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call((_x(rng, 2, 3), _x(rng, 5, 3)))
    yield call([_x(rng, 2, 3), _x(rng, 2, 1), _x(rng, 2, 0)], axis=-1)
    yield call((_x(rng, 3),), axis=0)
    yield call((_x(rng, 2, 3), _x(rng)), axis=None)


@moving(_concatenate_tex, _concatenate_vjp_tex, _concatenate_samples, name="arrays", variadic=True)
def concatenate(arrays, axis=0):
    """Joins a sequence of arrays along an axis they already have; with axis=None, flattened first.

    >>> concatenate((np.zeros((2, 3)), np.ones((5, 3)))).shape
    (7, 3)
    """
    return np.concatenate(arrays, axis)


@concatenate.vjp("arrays")
def _(g, i, arrays_shape, axis):
    """Each array gets the part of the gradient that lies where it was put."""
    start, stop = part_bounds(arrays_shape, axis)[i]
    whole = (slice(None),) * ((axis or 0) % g.ndim)
    return g[(*whole, slice(start, stop))].reshape(arrays_shape[i])


def _stack_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call((_x(rng, 2, 3), _x(rng, 2, 3)))
    yield call([_x(rng, 2, 3), _x(rng, 2, 3), _x(rng, 2, 3)], axis=-1)
    yield call((_x(rng), _x(rng)))
    yield call((_x(rng, 0),), axis=1)


@moving(
    lambda out, axis: rf"\operatorname{{stack}}_{{{letters(out.ndim)[axis]}}}(<arrays>)",
    lambda out, axis, i: f"<g>[{along(axis, out.ndim, str(i))}]",
    _stack_samples,
    name="arrays",
    variadic=True,
)
def stack(arrays, axis: int = 0):
    """Lays a sequence of arrays of one shape one behind the other, along a new axis.

    >>> stack((np.zeros(3), np.ones(3)), axis=1).shape
    (3, 2)
    """
    return np.stack(arrays, axis)


@stack.vjp("arrays")
def _(g, i, axis):
    """Each array gets its own slice of the gradient along the new axis."""
    return g[(slice(None),) * (axis % g.ndim) + (i,)]


def _pad_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(_x(rng, 2, 3), 1)
    yield call(_x(rng, 2, 3), ((0, 2), (1, 0)))
    yield call(_x(rng, 3), (2, 1), constant_values=-1.0)
    yield call(_x(rng, 0), 1)
    for mode in PAD_MODES[1:]:
        yield call(_x(rng, 3, 5), ((1, 2), (0, 4)), mode=mode)


PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def pad_widths(pad_width: ArrayLike, ndim: int) -> list[tuple[int, int]]:
    """NumPy's shorthand for pad widths, as one pair an axis."""
    widths = np.asarray(pad_width)
    if widths.dtype.kind not in "iu":
        raise DTypeError(f"pad_width must be integers, got {widths.dtype}")
    pairs = np.broadcast_to(widths, (ndim, 2))
    return [(int(before), int(after)) for before, after in pairs]


def _widths_tex(pad_width: ArrayLike, ndim: int) -> str:
    return ", ".join(f"{before}{{+}}{after}" for before, after in pad_widths(pad_width, ndim))


def _pad_tex(x, pad_width, mode, constant_values):
    filling = ", <constant_values>" if constant_values else ""
    filling = filling if mode == "constant" else rf", \text{{{mode}}}"
    return rf"\operatorname{{pad}}_{{{_widths_tex(pad_width, x.ndim)}}}(<x>{filling})"


def _pad_vjp_tex(x, pad_width, mode):
    if mode != "constant":
        return (
            rf"\operatorname{{scatter}}_{{{_widths_tex(pad_width, x.ndim)}}}(<g>, \text{{{mode}}})"
        )
    inside = [
        span(before, before + n) if before + after else "{:}"
        for (before, after), n in zip(pad_widths(pad_width, x.ndim), x.shape, strict=True)
    ]
    return f"<g>[{', '.join(inside)}]"


@moving(_pad_tex, _pad_vjp_tex, _pad_samples)
def pad(x, pad_width, constant_values=0, mode="constant"):
    """Puts a border around the array: of a constant or of its own entries, as np.pad does.

    Args: mode, by keyword: "constant"; "edge", the outermost entry; "reflect", as in a mirror on
        it; "symmetric", as in a mirror behind it; "wrap", from the other side.
    Raises: ArgumentError for another mode.

    >>> pad(np.ones(2), (1, 2))
    array([0., 1., 1., 0., 0.])
    >>> pad(np.array([1.0, 2.0, 3.0]), 2, mode="reflect")
    array([3., 2., 1., 2., 3., 2., 1.])
    """
    if mode not in PAD_MODES:
        raise ArgumentError(f"mode must be one of {', '.join(PAD_MODES)}, got {mode!r}")
    pad_widths(pad_width, np.ndim(x))  # raises
    if mode != "constant":
        return np.pad(x, pad_width, mode)
    if np.ndim(constant_values) != 0 or isinstance(constant_values, str):
        raise ArgumentError("constant_values must be one number; a mode goes by keyword, mode=…")
    return np.pad(x, pad_width, constant_values=constant_values)


@pad.vjp("x")
def _(g, x_shape, pad_width, mode):
    """The border of the gradient is cut off, or goes to the entries that the border repeats."""
    widths = pad_widths(pad_width, len(x_shape))
    if mode == "constant":
        return g[tuple(slice(b, b + n) for (b, _), n in zip(widths, x_shape, strict=True))]
    sources = np.pad(np.arange(prod(x_shape)).reshape(x_shape), pad_width, mode)
    return scatter_add(g, sources, (prod(x_shape),)).reshape(x_shape)
