"""Ops that move entries without computing."""

from __future__ import annotations

import numpy as np

from ...ops import (
    broadcast_to,
    concatenate,
    expand_dims,
    flip,
    pad,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    swapaxes,
    transpose,
    tril,
    triu,
)
from ...ops.shape import _widths
from ..program import Unfit
from ..translation import Untranslatable, translation

FIRST, LAST = -(2**63), 2**63 - 1  # what a slice that is open means by its ends


@translation(reshape)
def _(to, x, shape):
    return to.Reshape(x, to.sizes(_target(x, shape if np.ndim(shape) else (shape,))))


def _target(x, shape):
    """A shape in which 0 is the input's own length there, and one that no formula gives is -1."""
    unfit = [n for n in shape if isinstance(n, Unfit)]
    lengths = [-1 if len(unfit) == 1 and n is unfit[0] and -1 not in shape else n for n in shape]
    if all(isinstance(n, int) for n in lengths) or 0 in lengths:
        return lengths
    own = [*x.shape, *[None] * len(lengths)]
    return [
        0 if not isinstance(n, int) and n == m else n for n, m in zip(lengths, own, strict=False)
    ]


@translation(broadcast_to)
def _(to, x, shape):
    return to.Expand(x, to.sizes(shape if np.ndim(shape) else (shape,)))


@translation(transpose)
def _(to, x, axes):
    order = reversed(range(x.ndim)) if axes is None else to.axes(axes, x.ndim)
    order = [*order]
    return to.Transpose(x, perm=order) if order else to.Identity(x)


@translation(swapaxes)
def _(to, x, axis1, axis2):
    order = [*range(x.ndim)]
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return to.Transpose(x, perm=order)


@translation(expand_dims)
def _(to, x, axis, out):
    return to.Unsqueeze(x, sorted(to.axes(axis, len(out.shape))))


@translation(squeeze)
def _(to, x, axis):
    axes = [k for k, n in enumerate(x.shape) if n == 1] if axis is None else to.axes(axis, x.ndim)
    return to.Squeeze(x, axes) if axes else to.Identity(x)


@translation(concatenate)
def _(to, arrays, axis, out):
    parts = [to.cast(x, out.dtype) for x in arrays]
    if axis is None:
        parts = [to.Reshape(x, [-1]) for x in parts]
    return to.Concat(*parts, axis=0 if axis is None else int(axis))


@translation(stack)
def _(to, arrays, axis, out):
    axis = int(axis) % len(out.shape)
    parts = [to.Unsqueeze(to.cast(x, out.dtype), [axis]) for x in arrays]
    return to.Concat(*parts, axis=axis)


@translation(pad)
def _(to, x, pad_width, constant_values, mode):
    try:
        before, after = zip(*_widths(pad_width, x.ndim), strict=True)
    except (TypeError, ValueError):
        raise Untranslatable("has widths that depend on the sizes") from None
    widths = [*before, *after]
    if mode == "constant":
        return to.Pad(x, widths, to.value(constant_values, x.dtype), mode="constant")
    if mode != "symmetric":
        return to.Pad(x, widths, mode=mode)
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        ends = [part(to, x, axis, first), x, part(to, x, axis, last, from_end=True)]
        used = [p for p, n in zip(ends, (first, 1, last), strict=True) if n]
        x_shape, x = x.shape, to.Concat(*used, axis=axis) if len(used) > 1 else x
        x.shape = x_shape
    return x


def part(to, x, axis, length, from_end=False):
    """The first or last entries of an axis, in the opposite order."""
    if from_end:
        return to.Slice(x, [-1], [-length - 1], [axis], [-1])
    ends = to.sizes([length - 1]), to.constant(np.array([FIRST]))
    return to.Slice(x, *ends, [axis], [-1])


@translation(flip)
def _(to, x, axis):
    axes = to.axes(axis, x.ndim)
    n = len(axes)
    if not n:
        return to.Identity(x)
    return to.Slice(x, [-1] * n, [FIRST] * n, axes, [-1] * n)


@translation(roll)
def _(to, x, shift, axis):
    flat = to.Reshape(x, [-1]) if axis is None else x
    shifts = shift if np.ndim(shift) else (shift,)
    axes = [0] if axis is None else to.axes(axis, x.ndim)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    for by, k in zip(shifts, axes, strict=True):
        n = to.Reshape(to.Size(flat, dtype=np.int64), [1]) if axis is None else to.size(x.shape[k])
        cut = to.Sub(n, to.Mod(to.size(by), n))  # where the entry stands that comes first
        last, first = to.Slice(flat, cut, [LAST], [k]), to.Slice(flat, [0], cut, [k])
        flat = to.Concat(last, first, axis=k)
    return flat if axis is not None else to.Reshape(flat, to.sizes(x.shape))


@translation(repeat)
def _(to, x, repeats, axis):
    if not isinstance(repeats, int | np.integer):
        array = getattr(repeats, "array", None)
        if array is None:
            raise Untranslatable("repeats entries as often as values say")
        flat = to.Reshape(x, [-1]) if axis is None else x
        n = len(array) if array.ndim else None
        if n is None:
            return _repeated(to, flat, int(array), 0 if axis is None else axis % x.ndim)
        at = np.repeat(np.arange(n), array)
        return to.Gather(flat, at, axis=0 if axis is None else int(axis))
    flat = to.Reshape(x, [-1]) if axis is None else x
    return _repeated(to, flat, int(repeats), 0 if axis is None else axis % x.ndim)


def _repeated(to, x, repeats, axis):
    """Each entry so often: a new axis behind it, as long as that, and both as one."""
    ones = to.Unsqueeze(x, [axis + 1])
    shape = to.Shape(ones, dtype=np.int64)
    before, after = to.Slice(shape, [0], [axis + 1]), to.Slice(shape, [axis + 2], [LAST])
    wide = to.Expand(ones, to.Concat(before, [repeats], after, axis=0))
    return to.Reshape(wide, to.Concat(to.Slice(before, [0], [axis]), [-1], after, axis=0))


@translation(tril)
def _(to, x, k):
    return to.Trilu(x, np.asarray(int(k)), upper=0)


@translation(triu)
def _(to, x, k):
    return to.Trilu(x, np.asarray(int(k)), upper=1)
