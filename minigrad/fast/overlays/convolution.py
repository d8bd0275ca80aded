"""Convolution a few images at a time: their windows fit the cache, and no one keeps them.

Images of shape (N, C, H, W) have their channels last in memory, so that one layer's result has the
layout that the next one reads. A sequence is an image of one column.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.lib.stride_tricks import as_strided

from ...engine.op import Array, DType
from ...ops.convolution import (
    check_shapes,
    conv1d,
    conv2d,
    paddings,
    per_axis,
    places_of,
)
from ..limits import LIMITS
from ..overlay import faster
from ..patches import (
    FEW_CHANNELS,
    SUM_COUNT,
    Axis,
    WindowBlock,
    Windows,
    as_matrix,
    each_block,
)
from ..threads import Scratch

# ---------------------------------------------------------------- arrays as images


def channels_last(x: Array) -> Array:
    """(N, C, H, W) or (N, C, length) as a view (N, H, W, C)."""
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x.transpose(0, 2, 1)[:, :, None]


def empty_images(shape: tuple[int, ...], dtype: DType) -> Array:
    """An array (N, C, …) with channels last in memory."""
    N, C, *lengths = shape
    return np.moveaxis(np.empty((N, *lengths, C), dtype), -1, 1)


def axes_of(
    shape: tuple[int, ...], size: tuple[int, ...], stride: Any, padding: Any, dilation: Any
) -> list[Axis]:
    """The windows along both axes of images of this shape."""
    n = len(size)
    out = places_of(shape, size, stride, padding, dilation).out
    pads = paddings(padding, size, stride, dilation)
    steps, gaps = per_axis(stride, n, "stride"), per_axis(dilation, n, "dilation")
    axes = [
        Axis(-before, *rest)
        for (before, _), *rest in zip(pads, steps, gaps, size, out, strict=True)
    ]
    return [*axes, Axis(0, 1, 1, 1, 1)][:2]


def grouped(weight: Array, groups: int) -> Array:
    """(O, C / G, K, L) as (G, K, L, C / G, O / G)."""
    weight = weight.reshape(*weight.shape, *[1] * (4 - weight.ndim))
    O, C, K, L = weight.shape
    return weight.reshape(groups, O // groups, C, K, L).transpose(0, 3, 4, 2, 1)


# ---------------------------------------------------------------- products with windows


def multiply(view: Array, kernels: Array, out: Array, scratch: Scratch) -> None:
    """out ← the sum over each window of its entries times the kernels', group by group.

    view (n, rows, columns, K, L, C), kernels (G, K, L, C / G, O / G), out (n, rows, columns, O)
    """
    G, *_, C, O = kernels.shape
    if C == O == 1:
        view, kernel, out = by_rows(view, kernels[..., 0, 0].transpose(1, 2, 0), out)
        np.einsum("nhwklc,klc->nhwc", view, kernel, out=out)
        return
    for g in range(G):
        windows = as_matrix(view[..., g * C : g * C + C], scratch)
        kernel, own = kernels[g].reshape(-1, O), out[..., g * O : g * O + O]
        if own.flags.c_contiguous:
            np.dot(windows, kernel, own.reshape(-1, O))
        else:
            made = scratch.array("product", (len(windows), O), out.dtype)
            own[...] = np.dot(windows, kernel, made).reshape(own.shape)


def spread(g: Array, kernels: Array, view: Array, scratch: Scratch) -> None:
    """view += the kernels times g, entry by entry of a window, group by group.

    g (n, rows, columns, O), kernels (G, K, L, C / G, O / G), view (n, rows, columns, K, L, C)
    """
    G, *size, C, O = kernels.shape
    if C == O == 1:
        view, kernel, g = by_rows(view, kernels[..., 0, 0].transpose(1, 2, 0), g)
        made = scratch.array("product", g.shape, g.dtype)
        for k, l in np.ndindex(*size[:2]):
            view[..., k, l, :] += np.multiply(g, kernel[k, l], made)
        return
    for i in range(G):
        rows = g[..., i * O : i * O + O].reshape(-1, O)
        kernel, own = kernels[i], view[..., i * C : i * C + C]
        if C < FEW_CHANNELS:
            made = scratch.array("windows", (kernel.size // O, len(rows)), g.dtype)
            np.dot(kernel.reshape(-1, O), rows.T, made)
            made = made.reshape(*own.shape[3:], *own.shape[:3]).transpose(3, 4, 5, 0, 1, 2)
            for k, l in np.ndindex(*size[:2]):
                own[..., k, l, :] += made[..., k, l, :]
            continue
        made = scratch.array("product", (len(rows), C), g.dtype)
        for k, l in np.ndindex(*size[:2]):
            own[..., k, l, :] += np.dot(rows, kernel[k, l].T, made).reshape(*own.shape[:3], C)


def add_products(view: Array, g: Array, total: Array, scratch: Scratch) -> None:
    """total += the sum over all windows of their entries times g, group by group.

    view (n, rows, columns, K, L, C), g (n, rows, columns, O), total (G, K, L, C / G, O / G)
    """
    G, *_, C, O = total.shape
    if C == O == 1:
        kernel = np.zeros((*view.shape[3:5], G), view.dtype)
        view, kernel, g = by_rows(view, kernel, g)
        for k, l in np.ndindex(kernel.shape[:2]):
            np.einsum("nhwc,nhwc->c", view[..., k, l, :], g, out=kernel[k, l])
        total += (
            kernel.reshape(*kernel.shape[:2], -1, G).sum(axis=2).transpose(2, 0, 1)[..., None, None]
        )
        return
    for i in range(G):
        windows = as_matrix(view[..., i * C : i * C + C], scratch)
        own = g[..., i * O : i * O + O].reshape(-1, O)
        made = scratch.array("sum", (windows.shape[1], O), total.dtype)
        total[i] += np.dot(windows.T, own, made).reshape(total.shape[1:])


def by_rows(view: Array, kernel: Array, images: Array) -> tuple[Array, Array, Array]:
    """One channel's windows with a kernel of its own: a row of them as so many channels more."""
    n, rows, columns, K, L, C = view.shape
    if view.strides[2] != C * view.strides[5] or not images.flags.c_contiguous:
        return view, kernel, images
    strides = (*view.strides[:2], 0, *view.strides[3:])
    return (
        as_strided(view, (n, rows, 1, K, L, columns * C), strides),
        np.tile(kernel, columns),
        images.reshape(n, rows, 1, columns * C),
    )


# ---------------------------------------------------------------- forward


def suits(x: Array, weight: Array, bias: Array | None = None) -> bool:
    """Whether all are plain arrays of one dtype that BLAS takes."""
    given = [x, weight] if bias is None else [x, weight, bias]
    return (
        x.dtype.char in "fd"
        and x.dtype.isnative
        and all(one.__class__ is ndarray and one.dtype == x.dtype for one in given)
    )


def suits_sequences(x: Array, weight: Array, bias: Array | None = None, *_: object) -> bool:
    return x.ndim == 3 and suits(x, weight, bias)


def suits_images(x: Array, weight: Array, bias: Array | None = None, *_: object) -> bool:
    return x.ndim == 4 and suits(x, weight, bias)


def convolve(
    images: Array, axes: list[Axis], kernels: Array, out: Array, bias: Array | None = None
) -> None:
    """out ← the products of the windows of images with kernels, plus the bias."""
    windows = Windows(images, *axes)

    def work(_: int, block: WindowBlock, scratch: Scratch) -> None:
        own = out[block]
        multiply(windows.view(block, scratch), kernels, own, scratch)
        if bias is not None:
            own += bias

    each_block(windows, work, out.size * prod(kernels.shape[1:4]))


def forward(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    check_shapes(x.ndim - 2, x, weight, bias, groups)
    axes = axes_of(x.shape, weight.shape[2:], stride, padding, dilation)
    lengths = [axis.length for axis in axes][: x.ndim - 2]
    out = empty_images((len(x), len(weight), *lengths), x.dtype)
    convolve(channels_last(x), axes, grouped(weight, groups), channels_last(out), bias)
    return out


fast_conv1d = faster(conv1d, above=LIMITS.small_entries, when=suits_sequences)(forward)
fast_conv2d = faster(conv2d, above=LIMITS.small_entries, when=suits_images)(forward)


# ---------------------------------------------------------------- backward


@fast_conv1d.vjp("x")
@fast_conv2d.vjp("x")
def spread_products(g, x_shape, weight, stride, padding, dilation, groups):
    axes = axes_of(x_shape, weight.shape[2:], stride, padding, dilation)
    gradients, kernels = channels_last(g), grouped(weight, groups)
    d_x = empty_images(x_shape, g.dtype)
    images, macs = channels_last(d_x), g.size * prod(weight.shape[1:])
    if axes[0].step == axes[1].step == 1 and x_shape[1] >= FEW_CHANNELS:
        turned = kernels[:, ::-1, ::-1].swapaxes(3, 4)
        around = [
            Axis(-axis.reach(0, 1)[1] + 1, 1, axis.gap, axis.size, length)
            for axis, length in zip(axes, images.shape[1:3], strict=True)
        ]
        convolve(gradients, around, turned, images)
        return d_x
    windows = Windows(images, *axes)
    images[...] = 0

    def work(_: int, block: WindowBlock, scratch: Scratch) -> None:
        windows.add(block, lambda view: spread(gradients[block], kernels, view, scratch), scratch)

    each_block(windows, work, macs, whole=True)
    return d_x


@fast_conv1d.vjp("weight")
@fast_conv2d.vjp("weight")
def window_products(g, x, weight_shape, stride, padding, dilation, groups):
    axes = axes_of(x.shape, weight_shape[2:], stride, padding, dilation)
    windows, gradients = Windows(channels_last(x), *axes), channels_last(g)
    O, C, *size = weight_shape
    totals = np.zeros((SUM_COUNT, groups, *(*size, 1)[:2], C, O // groups), g.dtype)

    def work(part: int, block: WindowBlock, scratch: Scratch) -> None:
        add_products(windows.view(block, scratch), gradients[block], totals[part], scratch)

    each_block(windows, work, g.size * prod(weight_shape[1:]))
    total = totals.sum(axis=0).transpose(0, 4, 3, 1, 2)
    return np.ascontiguousarray(total).reshape(weight_shape)


@fast_conv1d.vjp("bias")
@fast_conv2d.vjp("bias")
def _(g):
    rows = np.ascontiguousarray(channels_last(g))
    return np.einsum("ri->i", rows.reshape(-1, rows.shape[3]))
