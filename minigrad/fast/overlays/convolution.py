"""Convolution a few rows of images at a time, which stay in cache: windows are views.

As in the ops' own kernels, the batch is the last axis in memory, and results are (C, length, …, N)
there: so the next layer copies long runs. Products run on the threads of BLAS, and no others beside
them: those of BLAS spin for a while after each product, and would take the cores from ours.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...ops.convolution import (
    check_shapes,
    conv1d,
    conv2d,
    paddings,
    per_axis,
    places_of,
    spread_products,
)
from ..overlay import faster, of_one_dtype
from ..threads import in_cache

# ---------------------------------------------------------------- convolution


def rows_of(x, size, stride, padding, dilation, groups):
    """The positions of windows, and what they show, by rows of the result: for each entry of a
    window along all axes but the first, a view (rows, groups, k, C / groups, length, …, N).

    In memory the rows of the input come first: then k of them are one matrix, which is not copied.
    """
    places = places_of(x.shape, size, stride, padding, dilation)
    N, C = x.shape[:2]
    (length, *others) = places.padded
    whole = np.zeros((length, C, *others, N), x.dtype)
    whole.swapaxes(0, 1)[places.inside] = np.moveaxis(x, 0, -1)
    row, channel, *rest = whole.strides
    step, gap = (per_axis(v, len(size), "")[0] * row for v in (stride, dilation))
    shape = places.out[0], groups, size[0], C // groups, *others, N
    rows = as_strided(whole, shape, (step, C // groups * channel, gap, channel, *rest))
    entries = places.slices[: len(places.slices) // size[0]]
    return places, [rows[(slice(None),) * 4 + at[2:]] for at in entries]


def as_matrices(rows):
    """(rows, groups, k · C / groups, length · … · N), a view where the stride is 1."""
    return rows.reshape(*rows.shape[:2], rows.shape[2] * rows.shape[3], -1)


def forward(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    check_shapes(x.ndim - 2, x, weight, bias, groups)
    O, C, k = weight.shape[:3]
    places, views = rows_of(x, weight.shape[2:], stride, padding, dilation, groups)
    filters = weight.reshape(groups, O // groups, C, k, -1).transpose(4, 0, 1, 3, 2)
    filters = filters.reshape(len(views), groups, O // groups, k * C)
    made = np.empty((groups, O // groups, places.out[0], prod(places.out[1:]) * len(x)), x.dtype)
    turned = made.transpose(2, 0, 1, 3)

    for rows in in_cache(places.out[0], made.size):
        own = turned[rows]
        np.matmul(filters[0], as_matrices(views[0][rows]), own)
        for filter, view in zip(filters[1:], views[1:], strict=True):
            own += np.matmul(filter, as_matrices(view[rows]))
        if bias is not None:
            own += bias.reshape(groups, -1, 1)
    return np.moveaxis(made.reshape(O, *places.out, len(x)), -1, 0)


def has_windows(x, weight, bias, stride, padding, dilation, groups):
    """Not of one entry each, which the op does not copy."""
    return prod(weight.shape[2:]) > 1 and of_one_dtype(x, weight, bias)


fast_conv1d = faster(conv1d, has_windows)(forward)
fast_conv2d = faster(conv2d, has_windows)(forward)


@fast_conv1d.vjp("x")
@fast_conv2d.vjp("x")
def _(g, x_shape, weight, stride, padding, dilation, groups):
    """With stride 1, the convolution of the gradient with the filters turned around."""
    O, C, *size = weight.shape
    gaps = per_axis(dilation, len(size), "dilation")
    reaches = [gap * (k - 1) for gap, k in zip(gaps, size, strict=True)]
    pads = [*zip(reaches, paddings(padding, size, stride, dilation), strict=True)]
    fits = all(before == after <= reach for reach, (before, after) in pads)
    if not fits or {*per_axis(stride, len(size), "stride")} != {1}:
        return spread_products(g, x_shape, weight, stride, padding, dilation, groups)
    turned = np.flip(weight, axis=(*range(2, weight.ndim),)).reshape(groups, O // groups, C, *size)
    filters = turned.swapaxes(1, 2).reshape(groups * C, O // groups, *size)
    around = [reach - before for reach, (before, _) in pads]
    return forward(g, filters, None, 1, around, dilation, groups)


@fast_conv1d.vjp("weight")
@fast_conv2d.vjp("weight")
def _(g, x, weight_shape, stride, padding, dilation, groups):
    places, views = rows_of(x, weight_shape[2:], stride, padding, dilation, groups)
    O, C, k, *others = weight_shape
    rows_of_g = np.moveaxis(g, 0, -1).reshape(groups, O // groups, places.out[0], -1)
    rows_of_g = rows_of_g.transpose(2, 0, 1, 3)
    sums = np.zeros((len(views), groups, O // groups, k * C), g.dtype)
    for rows in in_cache(places.out[0], x.size):
        for total, view in zip(sums, views, strict=True):
            columns = as_matrices(view[rows]).swapaxes(2, 3)
            total += np.matmul(rows_of_g[rows], columns).sum(axis=0)
    found = sums.reshape(*others, O, k, C)
    return np.moveaxis(found, (-3, -1, -2), (0, 1, 2))
