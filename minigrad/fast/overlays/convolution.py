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


def columns_of(views, rows):
    """The windows of some rows as columns, (C K, L N), from views of each of their entries."""
    first = views[0][:, rows]
    columns = np.empty((len(first), len(views), *first.shape[1:]), first.dtype)
    for k, view in enumerate(views):
        columns[:, k] = view[:, rows]
    return columns.reshape(len(first) * len(views), -1)


# ---------------------------------------------------------------- convolution


def forward(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    check_shapes(x.ndim - 2, x, weight, bias, groups)
    (N, C), (O, _, *size) = x.shape[:2], weight.shape
    places = places_of(x.shape, tuple(size), stride, padding, dilation)
    whole = padded(x, places)
    views = [whole[at] for at in places.slices]
    filters = weight.reshape(groups, O // groups, -1)
    made = np.empty((groups, O // groups, places.out[0], prod(places.out[1:]) * N), x.dtype)

    def work(rows):
        columns = columns_of(views, rows).reshape(groups, filters.shape[2], -1)
        own = made[:, :, rows].reshape(*filters.shape[:2], -1)
        np.matmul(filters, columns, own)
        if bias is not None:
            own += bias.reshape(groups, -1, 1)

    run(work, in_cache(places.out[0], C * len(views) * prod(places.out) * N))
    return np.moveaxis(made.reshape(O, *places.out, N), -1, 0)


fast_conv1d = faster(conv1d, of_one_dtype, LIMITS.small_entries)(forward)
fast_conv2d = faster(conv2d, of_one_dtype, LIMITS.small_entries)(forward)


@fast_conv1d.vjp("x")
@fast_conv2d.vjp("x")
def _(g, x_shape, weight, stride, padding, dilation, groups):
    """With stride 1, the convolution of the gradient with the filters turned around."""
    O, C, *size = weight.shape
    pads = paddings(padding, tuple(size), stride, dilation)
    gaps = per_axis(dilation, len(size), "dilation")
    around = [gap * (k - 1) - a for gap, k, (a, _) in zip(gaps, size, pads, strict=True)]
    is_even = all(before == after for before, after in pads)
    if {*per_axis(stride, len(size), "stride")} != {1} or min(around) < 0 or not is_even:
        return spread_products(g, x_shape, weight, stride, padding, dilation, groups)
    turned = np.flip(weight, axis=(*range(2, weight.ndim),)).reshape(groups, O // groups, C, *size)
    filters = turned.swapaxes(1, 2).reshape(groups * C, O // groups, *size)
    return forward(g, filters, None, 1, around, dilation, groups)


@fast_conv1d.vjp("weight")
@fast_conv2d.vjp("weight")
def _(g, x, weight_shape, stride, padding, dilation, groups):
    places = places_of(x.shape, weight_shape[2:], stride, padding, dilation)
    whole = padded(x, places)
    views = [whole[at] for at in places.slices]
    gradients = np.ascontiguousarray(np.moveaxis(g, 0, -1))
    gradients = gradients.reshape(groups, -1, places.out[0], gradients[0, 0].size)
    sums = np.zeros((SUMS, *gradients.shape[:2], prod(weight_shape[1:])), g.dtype)
    parts = in_cache(places.out[0], whole.shape[0] * len(views) * g[:, 0].size)

    def work(i):
        for rows in parts[i::SUMS]:
            columns = columns_of(views, rows).reshape(groups, sums.shape[3], -1)
            own = gradients[:, :, rows].reshape(*gradients.shape[:2], -1)
            sums[i] += np.matmul(own, columns.swapaxes(1, 2))

    run(work, range(min(SUMS, len(parts))))
    return sums.sum(axis=0).reshape(weight_shape)


# ---------------------------------------------------------------- pooling


@faster(max_pool, of_one_dtype, LIMITS.small_entries)
def fast_max_pool(x, size, stride=None, padding=0):
    places = places_of(x.shape, size, size if stride is None else stride, padding)
    whole = padded(x, places, -np.inf)
    out = np.empty((len(whole), *places.out, len(x)), x.dtype)

    def work(channels):
        own, (first, *views) = out[channels], [whole[channels][at] for at in places.slices]
        own[...] = first
        for view in views:
            np.maximum(own, view, out=own)

    run(work, in_cache(len(whole), whole.size))
    return np.moveaxis(out, -1, 0)


@fast_max_pool.vjp("x")
def _(g, x, out, size, stride, padding):
    """The gradient, as bits, times whether an entry is the first that equals the largest."""
    places = places_of(x.shape, size, size if stride is None else stride, padding)
    whole, g, out = padded(x, places, -np.inf), np.moveaxis(g, 0, -1), np.moveaxis(out, 0, -1)
    total, bits = np.empty_like(whole), f"i{g.itemsize}"

    def work(channels):
        own, sums, largest = whole[channels], total[channels], out[channels]
        sent = np.ascontiguousarray(g[channels]).view(bits)
        wanted = np.ones(sent.shape, bool)  # of which windows no entry is found yet
        sums[...] = 0
        for is_it in (np.equal, lambda entry, _: np.isnan(entry)):  # NaN equals nothing
            for at in places.slices:
                is_first = is_it(own[at], largest) & wanted
                sums[at] += np.multiply(sent, is_first).view(g.dtype)
                wanted ^= is_first
            if not wanted.any():
                return

    run(work, in_cache(len(whole), whole.size))
    return np.moveaxis(total[places.inside], -1, 0)
