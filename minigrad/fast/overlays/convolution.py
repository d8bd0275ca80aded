"""Convolutions that keep their windows for backward, and pooling that lays none side by side."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...ops.convolution import by_rows, conv1d, conv2d, convolved, max_pool, padded, places_of
from ...ops.dtypes import floating
from ..limits import LIMITS
from .masked import masked


def few_windows(x: Any, weight: Any, *_: Any) -> bool:
    """Whether all windows of x may be kept."""
    return bool(x.nbytes * prod(weight.shape[2:]) <= LIMITS.weights_bytes)


_KEPT: Any = {"above": LIMITS.small_entries, "when": few_windows, "auxiliary": ("columns",)}


@conv1d.fast(**_KEPT)
def _(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return convolved(1, x, weight, bias, stride, padding, dilation, groups)


@conv2d.fast(**_KEPT)
def _(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return convolved(2, x, weight, bias, stride, padding, dilation, groups)


@conv1d.fast.vjp("weight")
@conv2d.fast.vjp("weight")
def _(g, weight_shape, groups, columns):
    turned = np.swapaxes(columns, 1, 2)
    return np.matmul(by_rows(g, groups), turned).reshape(weight_shape)


@max_pool.fast(above=LIMITS.small_entries)
def _(x, size, stride=None, padding=0):
    x = floating(x)
    places = places_of(x.shape, size, size if stride is None else stride, padding)
    whole = padded(x, places, -np.inf)
    out = whole[places.slices[0]].copy()
    for at in places.slices[1:]:
        np.maximum(out, whole[at], out=out)
    return np.moveaxis(out, -1, 0)


@max_pool.fast.vjp("x")
def _(g, x, out, size, stride, padding):
    places = places_of(x.shape, size, size if stride is None else stride, padding)
    whole = padded(x, places, -np.inf)
    out, g = (np.ascontiguousarray(np.moveaxis(y, 0, -1)) for y in (out, g))
    total, left = np.zeros(whole.shape, g.dtype), np.ones(out.shape, bool)
    for at in places.slices:
        first = whole[at] == out
        first &= left
        left ^= first
        total[at] += masked(g, first)
    return np.moveaxis(total[places.inside], -1, 0)
