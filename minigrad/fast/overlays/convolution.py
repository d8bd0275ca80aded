"""Convolution of images at stride 1, by rows of the result: windows are views.

As in the op's own kernel, the batch is the last axis in memory, and results are (C, height, width,
N) there: so the next layer copies long runs. Products run on the threads of BLAS, and no others
beside them: those of BLAS spin for a while after each product, and would take the cores from ours.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...ops.convolution import (
    check_shapes,
    conv2d,
    paddings,
    per_axis,
    places_of,
    spread_products,
)
from ..overlay import faster, of_one_dtype


def rows_of(x, size, padding, dilation, groups):
    """The positions of windows, and what they show: for each entry of a window along the width, a
    view (height, groups, K, C / groups, width, N).

    In memory the rows of the input come first: then K of them are one matrix, which is not copied.
    """
    places = places_of(x.shape, size, 1, padding, dilation)
    N, C = x.shape[:2]
    height, width = places.padded
    whole = np.zeros((height, C, width, N), x.dtype)
    whole.swapaxes(0, 1)[places.inside] = np.moveaxis(x, 0, -1)
    row, channel, *rest = whole.strides
    gap = per_axis(dilation, 2, "dilation")[0] * row
    shape = places.out[0], groups, size[0], C // groups, width, N
    rows = as_strided(whole, shape, (row, C // groups * channel, gap, channel, *rest))
    return places, [rows[:, :, :, :, at[2]] for at in places.slices[: size[1]]]


def as_matrices(rows):
    """(height, groups, K · C / groups, width · N), a view."""
    height, groups, K, C, width, N = rows.shape
    return rows.reshape(height, groups, K * C, width * N)


def has_windows(x, weight, bias, stride, padding, dilation, groups):
    """Not of one entry each, which the op does not copy."""
    is_dense = {*per_axis(stride, 2, "stride")} == {1}
    return is_dense and prod(np.shape(weight)[2:]) > 1 and of_one_dtype(x, weight, bias)


@faster(conv2d, has_windows)
def fast_conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    check_shapes(2, x, weight, bias, groups)
    O, C, K, L = weight.shape
    places, views = rows_of(x, (K, L), padding, dilation, groups)
    filters = weight.reshape(groups, O // groups, C, K, L).transpose(4, 0, 1, 3, 2)
    filters = filters.reshape(L, groups, O // groups, K * C)
    height, width = places.out
    y = np.empty((groups, O // groups, height, width * len(x)), x.dtype)
    y_rows = y.transpose(2, 0, 1, 3)
    np.matmul(filters[0], as_matrices(views[0]), y_rows)
    for filter, view in zip(filters[1:], views[1:], strict=True):
        y_rows += np.matmul(filter, as_matrices(view))
    if bias is not None:
        y_rows += bias.reshape(groups, -1, 1)
    return np.moveaxis(y.reshape(O, height, width, len(x)), -1, 0)


@fast_conv2d.vjp("x")
def _(g, x_shape, weight, stride, padding, dilation, groups):
    """The convolution of the gradient with the filters turned around."""
    O, C, *size = weight.shape
    gaps = per_axis(dilation, 2, "dilation")
    reaches = [gap * (k - 1) for gap, k in zip(gaps, size, strict=True)]
    pads = [*zip(reaches, paddings(padding, size, 1, dilation), strict=True)]
    if not all(before == after <= reach for reach, (before, after) in pads):
        return spread_products(g, x_shape, weight, stride, padding, dilation, groups)
    turned = weight[:, :, ::-1, ::-1].reshape(groups, O // groups, C, *size)
    filters = turned.swapaxes(1, 2).reshape(groups * C, O // groups, *size)
    around = [reach - before for reach, (before, _) in pads]
    return fast_conv2d.kernel(g, filters, None, 1, around, dilation, groups)


@fast_conv2d.vjp("weight")
def _(g, x, weight_shape, padding, dilation, groups):
    O, C, K, L = weight_shape
    places, views = rows_of(x, (K, L), padding, dilation, groups)
    height, width = places.out
    g_rows = np.moveaxis(g, 0, -1).reshape(groups, O // groups, height, width * len(x))
    g_rows = g_rows.transpose(2, 0, 1, 3)
    d = [np.matmul(g_rows, as_matrices(view).swapaxes(2, 3)).sum(axis=0) for view in views]
    return np.stack(d).reshape(L, O, K, C).transpose(1, 3, 2, 0)
