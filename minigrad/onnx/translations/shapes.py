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
from ...ops.shape import pad_widths
from ..sizes import Unfit
from ..translation import Untranslatable, declare, translation

# ends of a slice that is open, by its direction
LOWEST_INDEX = np.iinfo(np.int64).min
HIGHEST_INDEX = np.iinfo(np.int64).max


@translation(reshape)
def _(to, x, shape):
    return to.Reshape(x, to.sizes(_target(x, shape if np.ndim(shape) else (shape,))))


def _target(x, shape):
    """A shape for ONNX: 0 stands for the input's length, -1 for one that no formula gives."""
    unfit = [n for n in shape if isinstance(n, Unfit)]
    lengths = [-1 if len(unfit) == 1 and n is unfit[0] and -1 not in shape else n for n in shape]
    if all(isinstance(n, int) for n in lengths) or 0 in lengths:
        return lengths
    own = [*x.shape, *[None] * len(lengths)]
    return [
        0 if not isinstance(n, int) and n == m else n for n, m in zip(lengths, own, strict=False)
    ]


@translation(transpose)
def _(to, x, axes):
    order = [*reversed(range(x.ndim))] if axes is None else to.axes(axes, x.ndim)
    return to.Transpose(x, perm=order) if order else to.Identity(x)


@translation(swapaxes)
def _(to, x, axis1, axis2):
    order = [*range(x.ndim)]
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return to.Transpose(x, perm=order)


declare(
    {
        broadcast_to: lambda to, x, shape: to.Expand(
            x, to.sizes(shape if np.ndim(shape) else (shape,))
        ),
        expand_dims: lambda to, x, axis, out: to.Unsqueeze(
            x, sorted(to.axes(axis, len(out.shape)))
        ),
        tril: lambda to, x, k: to.Trilu(x, np.asarray(int(k)), upper=0),
        triu: lambda to, x, k: to.Trilu(x, np.asarray(int(k)), upper=1),
    }
)


@translation(squeeze)
def _(to, x, axis):
    axes = [k for k, n in enumerate(x.shape) if n == 1] if axis is None else to.axes(axis, x.ndim)
    return to.Squeeze(x, axes) if axes else to.Identity(x)


@translation(concatenate)
def _(to, arrays, axis, out):
    cast = [to.cast(x, out.dtype) for x in arrays]
    parts = [to.along(x, axis)[0] for x in cast]
    return to.Concat(*parts, axis=int(axis or 0))


@translation(stack)
def _(to, arrays, axis, out):
    axis = int(axis) % len(out.shape)
    parts = [to.Unsqueeze(to.cast(x, out.dtype), [axis]) for x in arrays]
    return to.Concat(*parts, axis=axis)


@translation(pad)
def _(to, x, pad_width, constant_values, mode):
    try:
        widths = pad_widths(pad_width, x.ndim)
    except (TypeError, ValueError):
        raise Untranslatable("has widths that depend on the sizes") from None
    if mode != "symmetric":
        ends = [n for side in zip(*widths, strict=True) for n in side]
        value = [to.value(constant_values, x.dtype)] if mode == "constant" else []
        return to.Pad(x, ends, *value, mode=mode)
    for axis, (n, width) in enumerate(zip(x.shape, widths, strict=True)):
        if any(width) and not isinstance(n, int):
            raise Untranslatable("mirrors an axis whose length may change")
        if any(width):
            x = to.Gather(x, np.pad(np.arange(n), width, mode), axis=axis)
    return x


@translation(flip)
def _(to, x, axis):
    axes = to.axes(axis, x.ndim)
    back, ends = [-1] * len(axes), [LOWEST_INDEX] * len(axes)
    return to.Slice(x, back, ends, axes, back) if axes else to.Identity(x)


@translation(roll)
def _(to, x, shift, axis):
    flat, axes = (to.Reshape(x, [-1]), [0]) if axis is None else (x, to.axes(axis, x.ndim))
    shifts = [*shift] if np.ndim(shift) else [shift] * len(axes)
    for by, k in zip(shifts, axes, strict=True):
        n = _length(to, flat, k)
        at = to.Mod(to.Sub(to.Range(0, n, 1), to.size(by)), n)
        flat = to.Gather(flat, at, axis=k)
    return flat if axis is not None else to.Reshape(flat, to.sizes(x.shape))


@translation(repeat)
def _(to, x, repeats, axis):
    x, axis = to.along(x, axis)
    times = getattr(repeats, "array", repeats)
    if times is None or not isinstance(times, int | np.integer | np.ndarray):
        raise Untranslatable("repeats entries as often as values say")
    if np.ndim(times):
        return to.Gather(x, np.repeat(np.arange(np.size(times)), times), axis=axis)
    every = to.Range(0, to.Mul(_length(to, x, axis), int(times)), 1)
    return to.Gather(x, to.Div(every, int(times)), axis=axis)


def _length(to, x, axis):
    """How long an axis is, as a number of the model."""
    return to.Gather(to.Shape(x, dtype=np.int64), np.asarray(axis), axis=0)
