"""Convolution and pooling a few rows of images at a time: windows fit the cache, no one keeps them.

As in the ops' own kernels, the batch is the last axis in memory, (C, length, …, N), of results too:
so the next layer copies long runs.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...ops.convolution import (
    check_shapes,
    conv1d,
    conv2d,
    max_pool,
    padded,
    paddings,
    per_axis,
    places_of,
    spread_products,
)
from ..limits import LIMITS
from ..overlay import faster, of_one_dtype
from ..threads import in_cache, run

SUMS = 4  # gradients of weights, each of some blocks, so that the order of sums is fixed


def windows_of(x, size, stride, padding, dilation=1, fill=0.0):
    """The positions of windows, and for each entry of a window a view (C, length, …, N) of all."""
    places = places_of(x.shape, size, stride, padding, dilation)
    whole = padded(x, places, fill)
    return places, [whole[at] for at in places.slices]


def columns_of(views, rows, groups):
    """The windows of some rows as columns, (groups, C K / groups, L N)."""
    C, *rest = views[0][:, rows].shape
    columns = np.empty((C, len(views), *rest), views[0].dtype)
    for k, view in enumerate(views):
        columns[:, k] = view[:, rows]
    return columns.reshape(groups, C * len(views) // groups, -1)


# ---------------------------------------------------------------- convolution


def forward(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    check_shapes(x.ndim - 2, x, weight, bias, groups)
    places, views = windows_of(x, weight.shape[2:], stride, padding, dilation)
    filters = weight.reshape(groups, len(weight) // groups, -1)
    made = np.empty((*filters.shape[:2], places.out[0], views[0][0, 0].size), x.dtype)

    def work(rows):
        own = made[:, :, rows].reshape(*filters.shape[:2], -1)
        np.matmul(filters, columns_of(views, rows, groups), own)
        if bias is not None:
            own += bias.reshape(groups, -1, 1)

    run(work, in_cache(places.out[0], len(views) * views[0].size))
    return np.moveaxis(made.reshape(len(weight), *places.out, len(x)), -1, 0)


fast_conv1d = faster(conv1d, of_one_dtype, LIMITS.small_entries)(forward)
fast_conv2d = faster(conv2d, of_one_dtype, LIMITS.small_entries)(forward)


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
    places, views = windows_of(x, weight_shape[2:], stride, padding, dilation)
    rows_of_g = np.moveaxis(g, 0, -1).reshape(groups, -1, places.out[0], views[0][0, 0].size)
    sums = np.zeros((SUMS, groups, rows_of_g.shape[1], prod(weight_shape[1:])), g.dtype)
    parts = in_cache(places.out[0], len(views) * views[0].size)

    def work(i):
        for rows in parts[i::SUMS]:
            own = rows_of_g[:, :, rows].reshape(*rows_of_g.shape[:2], -1)
            sums[i] += np.matmul(own, columns_of(views, rows, groups).swapaxes(1, 2))

    run(work, range(min(SUMS, len(parts))))
    return sums.sum(axis=0).reshape(weight_shape)


# ---------------------------------------------------------------- pooling


@faster(max_pool, of_one_dtype, 8 * LIMITS.small_entries)
def fast_max_pool(x, size, stride=None, padding=0):
    _, views = windows_of(x, size, size if stride is None else stride, padding, fill=-np.inf)
    out = np.empty(views[0].shape, x.dtype)

    def work(channels):
        own = out[channels]
        own[...] = views[0][channels]
        for view in views[1:]:
            np.maximum(own, view[channels], out=own)

    run(work, in_cache(len(out), len(views) * out.size))
    return np.moveaxis(out, -1, 0)


@fast_max_pool.vjp("x")
def _(g, x, out, size, stride, padding):
    """The gradient, as bits, times whether an entry is the first that equals the largest."""
    stride = size if stride is None else stride
    places, views = windows_of(x, size, stride, padding, fill=-np.inf)
    g, largest = np.moveaxis(g, 0, -1), np.moveaxis(out, 0, -1)
    bits = f"i{g.itemsize}"
    total = np.empty((x.shape[1], *places.padded, len(x)), g.dtype)

    def work(channels):
        sums, sent = total[channels], np.ascontiguousarray(g[channels]).view(bits)
        wanted = np.ones(sent.shape, bool)  # of which windows no entry is found yet
        sums[...] = 0
        for is_it in (np.equal, lambda entry, _: np.isnan(entry)):  # NaN equals nothing
            for view, at in zip(views, places.slices, strict=True):
                is_first = is_it(view[channels], largest[channels]) & wanted
                sums[at] += np.multiply(sent, is_first).view(g.dtype)
                wanted ^= is_first
            if not wanted.any():
                return

    run(work, in_cache(len(total), total.size))
    return np.moveaxis(total[places.inside], -1, 0)
