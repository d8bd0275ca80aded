"""Reductions of many entries to one, over one axis or more; and the running sum along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Axes, Declare, op
from .dtypes import accumulation_dtype, as_array, cast_back, floating, masked, widen, widen_half
from .functions import BLOCK
from .notation import Formula, axes_of, below
from .samples import Samples, each_of_x, of_shapes, reductions
from .shape import inverse_order

__all__ = ["cumsum", "max", "mean", "min", "norm", "prod", "std", "sum", "var"]


def shape_with_ones(shape: tuple[int, ...], axis: Axes) -> tuple[int, ...]:
    """The shape with the reduced axes at length 1."""
    if axis.__class__ is int:
        axis %= len(shape) or 1
        return shape and (*shape[:axis], 1, *shape[axis + 1 :])
    reduced = axes_of(len(shape), axis)
    return tuple([1 if k in reduced else n for k, n in enumerate(shape)])


def count(shape: tuple[int, ...], axis: Axes) -> int:
    """How many entries are reduced to one."""
    return math.prod([shape[k] for k in axes_of(len(shape), axis)])


def along(formula: str) -> Formula:
    """A formula in which @ is the subscript of the axes, and # how many entries they hold."""

    def tex(x: Any, axis: Axes) -> str:
        return formula.replace("@", below(x.ndim, axis)).replace("#", str(count(x.shape, axis)))

    return tex


def reduction(
    tex: str,
    vjp_tex: str,
    flops: int | Callable[..., int],
    samples: Samples = reductions,
    **declaration: Any,
) -> Declare:
    """Declare an op of x that reduces many entries to one.

    Args: tex, vjp_tex: see `along`.  flops: a number is of each entry of x.
    """
    return op(
        tex=along(tex),
        vjp_tex={"x": along(vjp_tex)},
        flops=flops if callable(flops) else each_of_x(flops),
        samples=samples,
        **declaration,
    )


# ---------------------------------------------------------------- sum, mean


@reduction(r"\operatorname{sum}@(<x>)", r"\operatorname{broadcast}@(<g>)", 1)
def sum(x, axis: Axes = None, keepdims: bool = False):
    """Adds up the entries over an axis, several, or all.

    >>> sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4., 6.])
    """
    x = as_array(x)
    wide = accumulation_dtype(x, axis)
    total = x.sum(axis=axis, dtype=wide, keepdims=keepdims)
    return total if wide is None else total.astype(x.dtype)


@sum.vjp("x")
def _(g, x_shape, axis):
    """Every entry that was added gets the gradient of its sum, as it is."""
    return np.broadcast_to(g.reshape(shape_with_ones(x_shape, axis)), x_shape)


@reduction(
    r"\operatorname{mean}@(<x>)", r"\tfrac{1}{n} \operatorname{broadcast}@(<g>), \quad n = #", 1
)
def mean(x, axis: Axes = None, keepdims: bool = False):
    """Averages the entries over an axis, several, or all.

    >>> mean(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([2., 3.])
    """
    x = as_array(x)
    wide = accumulation_dtype(x, axis)
    average = np.mean(x, axis=axis, dtype=wide, keepdims=keepdims)
    return average if wide is None else average.astype(x.dtype)


@mean.vjp("x")
def _(g, x_shape, axis):
    """Every entry gets the gradient of its mean, divided by the number of entries."""
    each = cast_back(widen_half(g) / count(x_shape, axis), g)  # no count above 65504 is a float16
    return np.broadcast_to(each.reshape(shape_with_ones(x_shape, axis)), x_shape)


# ---------------------------------------------------------------- var, std

_MU = r", \quad \mu = \operatorname{broadcast}@(\operatorname{mean}@(<x>)), \quad n = # - <ddof>"
_VARIANCE = r"\tfrac{1}{n} \operatorname{sum}@((<x> - \mu)^{\circ 2})"


SPREADS = of_shapes(
    ([3, 2, 5],), ([3, 2, 5], 0), ([3, 2, 5], (0, 2)), ([3, 2, 5], -1, 1, True), ([0, 3], 1),
)  # fmt: skip


def centred(x, axis):
    """x less its mean; float16 in float32."""
    return widen_half(x) - mean(widen_half(x), axis, True)


@reduction(
    _VARIANCE + _MU,
    r"\tfrac{2}{n} \operatorname{broadcast}@(<g>) \odot (<x> - \mu)" + _MU,
    4,
    SPREADS,
)
def var(x, axis=None, ddof=0, keepdims=False):
    """Takes the variance over an axis, several, or all: Σ (x - mean(x))² / (n - ddof).

    Raises: ArgumentError unless n - ddof is above 0.

    >>> var(np.array([1.0, 2.0, 6.0]), ddof=1)
    np.float64(7.0)
    """
    x = floating(x)
    n = count(x.shape, axis)
    if not n - ddof > 0:
        raise ArgumentError(f"n - ddof must be above 0, got n = {n} and ddof = {ddof}")
    away = centred(x, axis)
    return cast_back(sum(away * away, axis, keepdims) / (n - ddof), x)


@var.vjp("x")
def _(g, x, axis, ddof):
    """The gradient is multiplied by twice each difference from the mean, then averaged alike."""
    share = 2 / (count(x.shape, axis) - ddof)
    return g.reshape(shape_with_ones(x.shape, axis)) * share * centred(x, axis)


@reduction(
    rf"\sqrt{{{_VARIANCE}}}" + _MU,
    r"\tfrac{1}{n} \operatorname{broadcast}@(<g> \oslash <out>) \odot (<x> - \mu)" + _MU,
    lambda x, out: 4 * x.size + out.size,
    SPREADS,
    kinks=lambda out: np.equal(out, 0),
)
def std(x, axis=None, ddof=0, keepdims=False):
    """Takes the standard deviation over an axis, several, or all: the root of `var`.

    Where all entries are equal it is 0, and so is the gradient.  Raises: as var.

    >>> std(np.array([1.0, 5.0]))
    np.float64(2.0)
    """
    x = floating(x)
    return cast_back(np.sqrt(var.kernel(widen(x), axis, ddof, keepdims)), x)


@std.vjp("x")
def _(g, x, out, axis, ddof):
    """The gradient is multiplied by the difference from the mean, over the deviation, averaged."""
    slope = widen_half(g) / np.where(out == 0, 1, out) / (count(x.shape, axis) - ddof)
    kept = np.where(out == 0, 0, slope).reshape(shape_with_ones(x.shape, axis))
    return kept * centred(x, axis)


# ---------------------------------------------------------------- norm


@reduction(
    r"\sqrt{\operatorname{sum}@(<x>^{\circ 2})}",
    r"\operatorname{broadcast}@(<g> \oslash <out>) \odot <x>",
    lambda x, out: 2 * x.size + out.size,
    kinks=lambda out: np.equal(out, 0),
)
def norm(x, ord=None, axis=None, keepdims=False):
    """Takes the Euclidean length over an axis, several, or all: √Σ x². At 0 its gradient is 0.

    Args: ord: None, or 2 along one axis, as np.linalg.norm has it.
    Raises: ArgumentError for another norm; write abs(x).sum(axis) or abs(x).max(axis).

    >>> norm(np.array([3.0, 4.0]))
    np.float64(5.0)
    """
    x = floating(x)
    one_axis = x.ndim == 1 if axis is None else np.ndim(axis) == 0
    if ord is not None and not (ord == 2 and one_axis):
        raise ArgumentError(
            f"ord must be None, or 2 along one axis, got {ord!r}; "
            "write abs(x).sum(axis) or abs(x).max(axis)"
        )
    wide = widen(x)
    return cast_back(np.sqrt((wide * wide).sum(axis=axis, keepdims=keepdims)), x)


@norm.vjp("x")
def _(g, x, out, axis):
    """The gradient is multiplied by each entry and divided by the length."""
    slope = np.where(out == 0, 0, widen_half(g) / np.where(out == 0, 1, out))
    return slope.reshape(shape_with_ones(x.shape, axis)) * x


# ---------------------------------------------------------------- prod


ZEROS = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]])  # one in a row, and two


@reduction(
    r"\operatorname{prod}@(<x>)",
    r"\operatorname{broadcast}@(<g>) \odot \operatorname{prod\,of\,others}@(<x>)",
    1,
    of_shapes(
        ([2, 2, 3],),
        ([2, 2, 3], -1),
        ([2, 2, 3], (0, 2)),
        (ZEROS, 1, True),
        ([0, 3], 1),
    ),
)
def prod(x, axis=None, keepdims=False):
    """Multiplies all entries over an axis, several, or all.

    >>> prod(np.array([2.0, 3.0, 4.0]))
    np.float64(24.0)
    """
    return np.prod(x, axis=axis, keepdims=keepdims)


def products_of_others(rows):
    """For each entry of a row, the product of all the others, without a division by it.

    Entries are taken in pairs: the others of an entry are its partner and all other pairs.
    """
    m, n = rows.shape
    if n <= 2:
        return rows[:, ::-1] if n == 2 else np.ones((m, n), rows.dtype)
    if n % 2:
        rows = np.concatenate([rows, np.ones((m, 1), rows.dtype)], axis=1)
    pairs = rows.reshape((m, (n + 1) // 2, 2))
    other_pairs = products_of_others(pairs[:, :, 0] * pairs[:, :, 1])
    others = np.expand_dims(other_pairs, 2) * pairs[:, :, ::-1]
    return others.reshape(rows.shape)[:, :n]


@prod.vjp("x")
def _(g, x, axis):
    """The gradient is multiplied by the product of all the other entries."""
    reduced = axes_of(x.ndim, axis)
    n = count(x.shape, axis)
    order = (*[k for k in range(x.ndim) if k not in reduced], *reduced)
    turned = np.transpose(x, order)  # the entries of each product last
    others = products_of_others(turned.reshape((x.size // n if n else 0, n)))
    others = np.transpose(others.reshape(turned.shape), inverse_order(order, x.ndim))
    return g.reshape(shape_with_ones(x.shape, axis)) * others


# ---------------------------------------------------------------- max, min

_TIES = (
    r"\operatorname{broadcast}@(<g>) \odot t \oslash \operatorname{sum}@(t),"
    r" \quad t = [<x> = \operatorname{broadcast}@(<out>)]"
)


def taken(x, out, axis):
    """Which entries are the one that was taken; where it is NaN, the NaNs."""
    return (x == out.reshape(shape_with_ones(x.shape, axis))) | (x != x)


def _ties(x: Any, out: Any, axis: Axes) -> Any:
    is_tie = taken(as_array(x), as_array(out), axis).sum(axis=axis) > 1
    return is_tie.reshape(np.shape(out))


@reduction(r"\operatorname{max}@(<x>)", _TIES, 1, analytic=False, kinks=_ties)
def max(x, axis: Axes = None, keepdims: bool = False):
    """Takes the largest entry over an axis, several, or all; equal ones share the gradient evenly.

    Where there is a NaN it is the result, and the gradient goes to the NaNs.

    >>> max(np.array([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    array([2., 3.])
    """
    return np.max(x, axis=axis, keepdims=keepdims)


@reduction(r"\operatorname{min}@(<x>)", _TIES, 1, analytic=False, kinks=_ties)
def min(x, axis: Axes = None, keepdims: bool = False):
    """Takes the smallest entry over an axis, several, or all; equal ones share the gradient evenly.

    Where there is a NaN it is the result, and the gradient goes to the NaNs.

    >>> min(np.array([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    array([1., 0.])
    """
    return np.min(x, axis=axis, keepdims=keepdims)


@max.vjp("x")
@min.vjp("x")
def _(g, x, out, axis):
    """The gradient goes to the entry that was taken, and in even shares to equal ones."""
    g = widen_half(g)
    shape = shape_with_ones(x.shape, axis)
    is_taken = taken(x, out, axis)
    ties = np.sum(is_taken, axis=axis, dtype=g.dtype).reshape(shape)
    return masked(g.reshape(shape) / ties, is_taken)


# ---------------------------------------------------------------- the running sum

LONG_ROW = 1024  # entries a row from which adding rows takes less time than np.cumsum's strides


@reduction(
    r"\operatorname{cumsum}@(<x>)",
    r"\operatorname{cumsum\,from\,the\,end}@(<g>)",
    1,
    of_shapes(([2, 3, 5], 1), ([2, 3, 5],), ([2, 3, 5], -1), ([],), ([0, 3], 1)),
)
def cumsum(x, axis=None):
    """Adds entries up along an axis, with each sum on the way; without one, of the flattened array.

    >>> cumsum(np.array([1.0, 2.0, 3.0]))
    array([1., 3., 6.])
    """
    x = as_array(x)
    if x.dtype.kind != "f":
        return np.cumsum(x, axis)
    sums = np.empty_like(x)
    if axis in (-1, x.ndim - 1) and x.ndim > 1:
        parts = x.size // BLOCK + 1
        for rows, own in zip(np.array_split(x, parts), np.array_split(sums, parts), strict=True):
            own[...] = np.cumsum(widen(rows), axis=-1)
        return sums
    if math.prod(shape_with_ones(x.shape, axis)) < LONG_ROW or not x.size:
        return cast_back(np.cumsum(widen(x), axis=axis), x)
    rows = np.moveaxis(x, axis, 0)
    total = np.full_like(widen(rows[0]), -0.0)  # to which a first entry of -0 adds up to -0
    for row, row_of_sums in zip(rows, np.moveaxis(sums, axis, 0), strict=True):
        total += row
        row_of_sums[...] = total
    return sums


@cumsum.vjp("x")
def _(g, x_shape, axis):
    """The gradient is added up from the other end, because an entry is in every sum after it."""
    turn = (slice(None),) * ((axis or 0) % g.ndim) + (slice(None, None, -1),)
    return cumsum(g[turn], axis or 0)[turn].reshape(x_shape)
