"""Normalisation of channels by rows that fit the cache, in whichever order memory holds channels.

With channels last in memory, a row holds all channels of some positions; otherwise it is an
example, (C, H W). A number for each channel is repeated to the width of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from typing import Any

import numpy as np

from ...engine.op import Array
from ...ops.norms import batch_norm, check_channels
from ..limits import LIMITS
from ..memory import empty_as
from ..overlay import faster, of_one_dtype
from ..threads import in_slices

VANISHING = 1e-12  # 1 / σ whose square vanishes in float32
WIDE = 512  # entries that a row has about, where it may be chosen


class Rows:
    """Images (N, C, …) as rows, and numbers of channels as wide as they."""

    def __init__(self, like: Array) -> None:
        self.channels = like.shape[1]
        self.count = like.size // self.channels  # of each channel's entries
        self.last = np.moveaxis(like, 1, -1).flags.c_contiguous
        places = gcd(self.count, 1 << (WIDE // self.channels).bit_length())
        self.repeats = places if self.last else prod(like.shape[2:])
        self.width = self.channels * self.repeats

    def of(self, images: Array) -> Array:
        """A view, or a copy if the layout allows none."""
        images = np.moveaxis(images, 1, -1) if self.last else images
        return images.reshape(-1, self.width)

    def widened(self, values: Array) -> Array:
        """(C,) → (width,)"""
        return np.tile(values, self.repeats) if self.last else np.repeat(values, self.repeats)

    def by_channel(self, sums: Any) -> Array:
        """(…, width) → (…, C), summed."""
        shape = (self.repeats, self.channels) if self.last else (self.channels, self.repeats)
        return sums.reshape(*sums.shape[:-1], *shape).sum(axis=-2 if self.last else -1)

    def total(self, terms: Callable[[slice], Array]) -> Array:
        """Sums over rows, several at once, by channel in float64: `terms(part)` gives those of some
        of the rows, (how many, width).
        """
        found: dict[int, Array] = {}

        def work(part: slice) -> None:
            for first in range(part.start, part.stop, LIMITS.summed_rows):
                found[first] = terms(slice(first, min(first + LIMITS.summed_rows, part.stop)))

        in_slices(work, self.count // self.repeats, self.count * self.channels)
        in_order = [found[first] for first in sorted(found)]
        return self.by_channel(np.sum(in_order, axis=0, dtype=np.float64))


def of_batch(
    x: Array, weight: object, bias: object, mean: object = None, var: object = None, *_: object
) -> bool:
    """Whether the statistics are those of the batch, all is of one dtype, and x has no gaps."""
    dense = x.flags.c_contiguous or np.moveaxis(x, 1, -1).flags.c_contiguous
    if mean is not None or var is not None or not of_one_dtype(x, weight, bias):
        return False
    return x.dtype.char in "fd" and x.ndim > 1 and dense


def _sums(rows: Array) -> Array:
    return np.einsum("ri->i", rows)


def _products(a: Array, b: Array) -> Array:
    return np.einsum("ri,ri->i", a, b)


@faster(batch_norm, above=LIMITS.small_entries, when=of_batch, auxiliary=("centre", "inverse"))
def fast_batch_norm(x, weight, bias, mean=None, var=None, eps=1e-5):
    check_channels(x, weight, bias)
    form = Rows(x)
    rows, dtype = form.of(x), x.dtype
    centre = (form.total(lambda part: _sums(rows[part])[None])[0] / form.count).astype(dtype)
    wide = form.widened(centre)

    def squares(part: slice) -> Array:
        centred = rows[part] - wide
        return _products(centred, centred)[None]

    with np.errstate(over="ignore"):
        spread = form.total(squares)[0] / form.count
    if not np.isfinite(spread).all():  # squares that overflow: in float64
        spread = np.square(np.subtract(rows, wide, dtype=np.float64)).sum(axis=0)
        spread = form.by_channel(spread) / form.count
    inverse = (spread + eps) ** -0.5  # in float64
    factor = form.widened(inverse if weight is None else inverse * weight).astype(dtype)
    shift = None if bias is None else form.widened(bias)
    out = empty_as(x, x.shape)
    made = form.of(out)

    def work(part: slice) -> None:
        y = np.subtract(rows[part], wide, made[part])
        y *= factor
        if shift is not None:
            y += shift

    in_slices(work, len(rows), x.size)
    return out, centre, inverse


@fast_batch_norm.vjp("x", "weight", "bias")
def _(g, x, weight, eps, centre, inverse, needed):
    if np.min(inverse) < VANISHING:
        wanted = zip(("x", "weight", "bias"), needed, strict=True)
        given = {"x": (g, x, weight, None, None, eps), "weight": (g, x, None, None, eps)}
        return tuple(
            batch_norm.rules[name].function(*given.get(name, (g,))) if want else None
            for name, want in wanted
        )
    form = Rows(x)
    rows = form.of(x)
    gradients = form.of(g)
    n = form.count
    wide = form.widened(centre)

    def sums(part: slice) -> Array:
        return np.stack([_sums(gradients[part]), _products(gradients[part], rows[part] - wide)])

    of_g, of_product = form.total(sums)
    d_weight = (of_product * inverse).astype(x.dtype)
    d_bias = of_g.astype(x.dtype)
    d_x = None
    if needed[0]:
        scale = inverse if weight is None else inverse * weight
        along = form.widened((scale * inverse**2 * (of_product / n)).astype(x.dtype))
        factor = form.widened(scale.astype(x.dtype))
        shift = form.widened((scale * (of_g / n)).astype(x.dtype))
        d_x = empty_as(x, x.shape)
        made = form.of(d_x)

        def work(part: slice) -> None:
            y = np.multiply(gradients[part], factor, made[part])
            y -= shift
            y -= (rows[part] - wide) * along

        in_slices(work, len(rows), x.size)
    return d_x, d_weight, d_bias
