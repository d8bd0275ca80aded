"""Pooling entry by entry of a window: each is a view of the images, and no window is laid out.

Results have the layout of the images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...engine.op import Array
from ...ops.convolution import avg_pool, max_pool, places_of
from ...ops.dtypes import ONE_BY_ONE, cast_back, floating, widen_half
from ..limits import LIMITS
from ..memory import empty_as
from ..overlay import faster
from ..threads import in_slices


class Pools:
    """Where the entries of pooling's windows are, in images with their border."""

    def __init__(self, shape: tuple[int, ...], size: Any, stride: Any, padding: Any) -> None:
        places = places_of(shape, size, size if stride is None else stride, padding)
        self.shape = (*shape[:2], *places.padded)
        self.out = (*shape[:2], *places.out)
        self.inside = (slice(None), *places.inside)
        self.entries = [(slice(None), *at) for at in places.slices]
        self.disjoint = stride is None or stride == size  # no entry is in two windows

    def padded(self, x: Array, fill: float) -> Array:
        """The images with their border."""
        if self.shape == x.shape:
            return x
        whole = empty_as(x, self.shape)
        whole.fill(fill)
        whole[self.inside] = x
        return whole


def reduced(
    x: Array, pools: Pools, fill: float, take: np.ufunc, dtype: DTypeLike | None = None
) -> Array:
    """The entries of each window taken together, two at a time, in x's dtype or another."""
    whole = pools.padded(x, fill)
    views = [whole[at] for at in pools.entries]
    out = empty_as(x, pools.out, dtype)

    def work(part: slice) -> None:
        made = out[part]
        made[...] = views[0][part]
        for view in views[1:]:
            take(made, view[part], out=made)

    in_slices(work, len(x), x.size)
    return out


def has_bits(x: Array, *_: object) -> bool:
    """Whether entries of this dtype are passed on as bits."""
    return x.dtype.char in "efd"


@faster(max_pool, above=LIMITS.small_entries, when=has_bits)
def fast_max_pool(x, size, stride=None, padding=0):
    return reduced(x, Pools(x.shape, size, stride, padding), -np.inf, np.maximum)


@faster(avg_pool, above=LIMITS.small_entries)
def fast_avg_pool(x, size, stride=None, padding=0):
    x = floating(x)
    pools = Pools(x.shape, size, stride, padding)
    of_float32 = np.float64 if len(pools.entries) > ONE_BY_ONE else None
    out = reduced(x, pools, 0, np.add, {"e": np.float32, "f": of_float32}.get(x.dtype.char))
    out /= len(pools.entries)
    return cast_back(out, x)


def spread(pools: Pools, g: Array, put: Callable[[slice, list[Array]], None]) -> Array:
    """The gradient of the images: zeros, into whose views `put` writes what the windows send."""
    total = empty_as(g, pools.shape)
    views = [total[at] for at in pools.entries]

    def work(part: slice) -> None:
        total[part] = 0
        put(part, [view[part] for view in views])

    in_slices(work, len(g), total.size)
    return total[pools.inside]


@fast_max_pool.vjp("x")
def _(g, x, out, size, stride, padding):
    pools = Pools(x.shape, size, stride, padding)
    g = g if pools.disjoint else widen_half(g)
    whole, bits = pools.padded(x, -np.inf), f"i{g.itemsize}"
    images = [whole[at] for at in pools.entries]

    def put(part: slice, targets: list[Array]) -> None:
        left, largest = g[part].copy(order="K"), out[part]  # what has not found its entry yet
        taken = np.empty_like(left, bool)
        for image, target in zip(images, targets, strict=True):
            np.equal(image[part], largest, taken)
            if pools.disjoint:
                sent = target.view(bits)
                np.multiply(left.view(bits), taken, sent)
            else:
                sent = np.multiply(left.view(bits), taken)
                target += sent.view(g.dtype)
            left.view(bits)[...] ^= sent
        if left.any():  # of windows that hold NaN, which equals nothing
            for image, target in zip(images, targets, strict=True):
                sent = np.multiply(left.view(bits), np.isnan(image[part]))
                target += sent.view(g.dtype)
                left.view(bits)[...] ^= sent

    return spread(pools, g, put)


@fast_avg_pool.vjp("x")
def _(g, x_shape, size, stride, padding):
    pools, wide = Pools(x_shape, size, stride, padding), widen_half(g)

    def put(part: slice, targets: list[Array]) -> None:
        share = wide[part] / len(pools.entries)
        for target in targets:
            target += share

    return spread(pools, wide, put)
