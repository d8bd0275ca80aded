"""Ops that move entries without computing: their backward moves them back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import ArrayLike

from ..engine.errors import ArgumentError, DTypeError, ShapeError
from ..engine.op import Declare, op
from ..engine.tensor import Operand, TensorOrArray
from .composed_errors import composed
from .dtypes import as_array
from .notation import Formula, below, index, shape_product
from .samples import Samples, no_flops, of_shapes

__all__ = [
    "broadcast_to",
    "concatenate",
    "expand_dims",
    "moveaxis",
    "pad",
    "ravel",
    "reshape",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
]


def moving(
    tex: str | Formula,
    vjp_tex: str | Formula,
    samples: Samples,
    *,
    name: str = "x",
    **declaration: Any,
) -> Declare:
    """Declare an op that puts the entries of its one input elsewhere and computes nothing."""
    return op(tex=tex, vjp_tex={name: vjp_tex}, flops=no_flops, samples=samples, **declaration)


def reshaped(shape: Sequence[int], what: str) -> str:
    """The formula of entries in another shape."""
    return rf"\operatorname{{reshape}}_{{{shape_product(shape)}}}({what})"


@moving(
    lambda out: reshaped(out.shape, "<x>"),
    lambda x: reshaped(x.shape, "<g>"),
    of_shapes(([2, 3, 5], (6, 5)), ([2, 3, 5], (-1,)), ([], (1, 1)), ([1], ()), ([0, 3], (3, 0))),
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


# ---------------------------------------------------------------- axes in another order


def inverse_order(axes: Sequence[int] | None, ndim: int) -> list[int] | None:
    """The order that undoes one."""
    if axes is None:
        return None
    order = [int(k) % ndim for k in axes]
    return [order.index(k) for k in range(ndim)]


def _transposed(of: str, x: Any, axes: Sequence[int] | None) -> str:
    if axes is None:
        return rf"{of}^\top" if x.ndim == 2 else rf"\operatorname{{transpose}}({of})"
    numbers = ",".join(str(int(k) % x.ndim) for k in axes)
    return rf"\operatorname{{transpose}}_{{{numbers}}}({of})"


def _every_axis(x: Operand, axes: Any) -> str | None:
    if not isinstance(axes, tuple | list) or len(axes) == np.ndim(x):
        return None
    swap = f"; write x.swapaxes({axes[0]}, {axes[1]}) to swap two" if len(axes) == 2 else ""
    return f"axes don't match array: it takes all {np.ndim(x)} of x's, got {len(axes)}{swap}"


@moving(
    lambda x, axes: _transposed("<x>", x, axes),
    lambda x, axes: _transposed("<g>", x, inverse_order(axes, x.ndim)),
    of_shapes(([2, 3, 5],), ([2, 3, 5], (1, -1, 0)), ([],), ([0, 3],)),
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
    return np.transpose(g, inverse_order(axes, g.ndim))


def _swapped(of: str) -> Formula:
    """The transpose of each matrix, if these are the last two axes."""

    def tex(x: Any, axis1: int, axis2: int) -> str:
        at = below(x.ndim, (axis1, axis2))
        last = at == below(x.ndim, (-2, -1))
        return rf"{of}^\top" if last else rf"\operatorname{{swap}}{at}({of})"

    return tex


@moving(
    _swapped("<x>"),
    _swapped("<g>"),
    of_shapes(([2, 3, 5], -1, -2), ([2, 3], 0, 1), ([2, 3, 5], 0, 2), ([0, 3], 0, 1)),
)
def swapaxes(x, axis1: int, axis2: int):
    """Exchanges two axes; of the last two, this is the transpose of each matrix.

    >>> swapaxes(np.zeros((2, 3, 5)), -1, -2).shape
    (2, 5, 3)
    """
    return x.swapaxes(axis1, axis2) if hasattr(x, "swapaxes") else np.swapaxes(x, axis1, axis2)


@swapaxes.vjp("x")
def _(g, axis1, axis2):
    """The same two axes of the gradient are exchanged back."""
    return g.swapaxes(axis1, axis2)


# ---------------------------------------------------------------- more entries


@moving(
    lambda out: rf"\operatorname{{broadcast}}_{{{shape_product(out.shape)}}}(<x>)",
    "<g>",
    of_shapes(([3, 1], (2, 3, 5)), ([], (2, 3)), ([3], (3,)), ([1, 3], (0, 3))),
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


def pad_widths(pad_width: ArrayLike, ndim: int) -> list[tuple[int, int]]:
    """NumPy's shorthand for pad widths, as one pair an axis."""
    widths = np.asarray(pad_width)
    if widths.dtype.kind not in "iu":
        raise DTypeError(f"pad_width must be integers, got {widths.dtype}")
    return [(int(before), int(after)) for before, after in np.broadcast_to(widths, (ndim, 2))]


def _pad_tex(x: Any, pad_width: ArrayLike) -> str:
    widths = ", ".join(f"{a}+{b}" for a, b in pad_widths(pad_width, x.ndim))
    return rf"\operatorname{{pad}}_{{{widths}}}(<x>, <constant_values>)"


def _inside(shape: Sequence[int], pad_width: ArrayLike) -> tuple[slice, ...]:
    """The index of what lies within the border."""
    pairs = zip(pad_widths(pad_width, len(shape)), shape, strict=True)
    return tuple(slice(before, before + n) for (before, _), n in pairs)


@moving(
    _pad_tex,
    lambda x, pad_width: f"<g>[{index(_inside(x.shape, pad_width))}]",
    of_shapes(([2, 3], 1), ([2, 3], ((0, 2), (1, 0))), ([3], (2, 1), -1.0), ([0], 1)),
)
def pad(x, pad_width, constant_values=0):
    """Puts a border of one number around the array, as np.pad does.

    >>> pad(np.ones(2), (1, 2))
    array([0., 1., 1., 0., 0.])
    """
    pad_widths(pad_width, np.ndim(x))  # raises
    if np.ndim(constant_values) != 0 or isinstance(constant_values, str):
        raise ArgumentError("constant_values must be one number")
    return np.pad(x, pad_width, constant_values=constant_values)


@pad.vjp("x")
def _(g, x_shape, pad_width):
    """The border of the gradient is cut off."""
    return g[_inside(x_shape, pad_width)]


# ---------------------------------------------------------------- several arrays


def _part(arrays_shape: Sequence[tuple[int, ...]], axis: int | None, i: int) -> tuple[slice, ...]:
    """The index of array i in what several were joined to."""
    sizes = [prod(shape) if axis is None else shape[axis] for shape in arrays_shape]
    end = [*accumulate(sizes)][i]
    before = (axis or 0) % max(len(arrays_shape[i]), 1)
    return (*[slice(None)] * before, slice(end - sizes[i], end))


def _part_tex(i: int, arrays: Any, axis: int | None) -> str:
    taken = f"<g>[{index(_part([x.shape for x in arrays], axis, i))}]"
    return taken if axis is not None else reshaped(arrays[i].shape, taken)


@moving(
    lambda out, axis: rf"\operatorname{{concat}}{below(out.ndim, axis)}(<arrays>)",
    _part_tex,
    of_shapes(([(2, 3), (5, 3)],), ([(2, 3), (2, 1), (2, 0)], -1), ([(2, 3), ()], None)),
    name="arrays",
    variadic=True,
)
def concatenate(arrays, axis=0):
    """Joins a sequence of arrays along an axis they already have; with axis=None, flattened first.

    >>> concatenate((np.zeros((2, 3)), np.ones((5, 3)))).shape
    (7, 3)
    """
    return np.concatenate(arrays, axis)


@concatenate.vjp("arrays")
def _(g, i, arrays_shape, axis):
    """Each array gets the part of the gradient that lies where it was put."""
    return g[_part(arrays_shape, axis, i)].reshape(arrays_shape[i])


def _slice(ndim: int, axis: int, i: int) -> tuple[Any, ...]:
    return (*[slice(None)] * (axis % ndim), i)


@moving(
    lambda out, axis: rf"\operatorname{{stack}}{below(out.ndim, axis)}(<arrays>)",
    lambda out, axis, i: f"<g>[{index(_slice(out.ndim, axis, i))}]",
    of_shapes(([(2, 3), (2, 3)],), ([(2, 3), (2, 3)], -1), ([(), ()],), ([(0,)], 1)),
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
    return g[_slice(g.ndim, axis, i)]


# ---------------------------------------------------------------- composed of these


def axes_within(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from 0.  Raises: AxisError for one that is not there."""
    if axis.__class__ is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    return normalize_axis_tuple(axis, ndim)


@composed
def ravel(x: Operand) -> TensorOrArray:
    """All entries in one row.

    >>> ravel(np.ones((2, 3))).shape
    (6,)
    """
    return reshape(x, (-1,))


@composed
def expand_dims(x: Operand, axis: int | Sequence[int]) -> TensorOrArray:
    """With axes of length 1 at these positions of the result.  Raises: ShapeError.

    >>> expand_dims(np.zeros((3, 5)), (0, -1)).shape
    (1, 3, 5, 1)
    """
    shape = list(as_array(x).shape)
    ndim = len(shape) + (1 if axis.__class__ is int else np.size(axis))
    for k in sorted(axes_within(axis, ndim)):
        shape.insert(k, 1)
    return reshape(x, tuple(shape))


@composed
def squeeze(x: Operand, axis: int | Sequence[int] | None = None) -> TensorOrArray:
    """Without axes of length 1: without these, or without any.

    Raises: ShapeError for an axis that is longer, or not there.

    >>> squeeze(np.zeros((1, 3, 1)), 0).shape
    (3, 1)
    """
    shape = as_array(x).shape
    ones = [k for k, n in enumerate(shape) if n == 1]
    dropped = ones if axis is None else axes_within(axis, len(shape))
    if not {*dropped} <= {*ones}:
        raise ShapeError(f"axis {axis} of x {shape} is not of length 1")
    return reshape(x, tuple([n for k, n in enumerate(shape) if k not in dropped]))


@composed
def moveaxis(
    x: Operand, source: int | Sequence[int], destination: int | Sequence[int]
) -> TensorOrArray:
    """Axes moved to other positions; the rest stay in order.

    Raises: ShapeError for axes that x has not, or of which there are not as many.

    >>> moveaxis(np.zeros((2, 3, 5)), 0, -1).shape
    (3, 5, 2)
    """
    places = np.empty(range(np.ndim(x)))  # whose shape are the axes' numbers
    return transpose(x, np.moveaxis(places, source, destination).shape)
