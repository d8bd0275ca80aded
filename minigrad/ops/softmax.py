"""Softmax, its logarithm, and the logarithm of its sum, none of which overflows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..engine.op import Axes, is_tensor, op
from .dtypes import accumulation_dtype, cast_back, floating, widen_half
from .notation import Formula, axes_of, below
from .reduce import reduction, shape_with_ones, sum
from .samples import each_of_x, of_shapes

__all__ = ["log_softmax", "logsumexp", "softmax"]


CALLS: list[tuple[Any, ...]] = [
    ([2, 3, 5],), ([2, 3, 5], 0), ([2, 3, 5], (1, 2)), ([2, 3, 5], None), ([], None), ([3, 0],),
    ([0, 3],),
]  # fmt: skip
ROWS = np.array([[0.5, -800.0, 800.0], [1.0, -np.inf, 0.0], 3 * [-np.inf]])


def by_rows(formula: Callable[[str, str], str]) -> Formula:
    """A formula, from how its softmax and its sum are written: of rows, or along other axes."""

    def tex(x: Any, axis: Axes) -> str:
        axes = axes_of(x.ndim, axis)
        if axes in ((), (x.ndim - 1,)):
            return formula(r"\operatorname{softmax}", r"\operatorname{rowsum}")
        at = below(x.ndim, axes)
        return formula(rf"\operatorname{{softmax}}{at}", rf"\operatorname{{sum}}{at}")

    return tex


def _saturated(out, axis):
    """Rows of which one entry takes nearly all, though others may be attended to."""
    return (out > 0.99).any(axis=axis) & ((out > 0).sum(axis=axis) > 1)


@op(
    tex=by_rows(lambda softmax, _: f"{softmax}(<x>)"),
    vjp_tex={"x": by_rows(lambda _, total: rf"<out> \odot (<g> - {total}(<g> \odot <out>))")},
    flops=each_of_x(5),
    samples=of_shapes(*CALLS, (ROWS,)),
    saturates=("rows saturated", _saturated),
)
def softmax(x, axis: Axes = -1):
    """Turns scores into weights that sum to 1 along an axis: y_i = e^{x_i} / Σ_j e^{x_j}.

    Entries of -inf get 0; a row of nothing but -inf gets zeros, and its gradient is zero, never
    NaN.

    >>> softmax(np.array([[0.0, np.log(3.0)], [-np.inf, -np.inf]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    if getattr(x, "dtype", None) != np.float64:
        x = floating(x)
    if x.dtype.char == "e":  # added up in float32
        return softmax.kernel(x.astype(np.float32), axis).astype(x.dtype)
    weights = np.exp(x - row_max(x, axis))
    return weights / row_sum(weights, axis)


@softmax.vjp("x")
def _(g, out, axis):
    """The gradient loses its average under the weights, then is multiplied by each weight."""
    return out * (g - dot_kept(widen_half(g), out, axis))


limits = cache(np.finfo)  # asking NumPy each time takes longer than a small softmax


def row_max(x, axis):
    """The largest entry along the axis, finite in a row of nothing but -inf."""
    return np.maximum.reduce(x.real, axis=axis, keepdims=True, initial=limits(x.dtype).min)


def row_sum(weights, axis):
    """The sum along the axis, plus the smallest normal number: no row has a sum of 0."""
    wide = None if weights.dtype.char == "d" else accumulation_dtype(weights, axis)
    tiny = limits(weights.dtype).tiny
    total = np.add.reduce(weights, axis=axis, dtype=wide, keepdims=True, initial=tiny)
    return total if wide is None else total.astype(weights.dtype)


def dot_kept(a, b, axis):
    """Σ a ⊙ b along the axis, kept at length 1; of a plain array's rows in one pass."""
    if is_tensor(a):
        return sum(a * b, axis, True)
    if a.dtype == b.dtype and a.dtype.char in "fd" and axis in (-1, b.ndim - 1):
        return np.vecdot(a, b)[..., None]
    return sum.kernel(a * b, axis, True)


@op(
    tex=by_rows(lambda softmax, _: rf"\log {softmax}(<x>)"),
    vjp_tex={"x": by_rows(lambda _, total: rf"<g> - e^{{<out>}} \odot {total}(<g>)")},
    flops=each_of_x(5),
    samples=of_shapes(*CALLS),
)
def log_softmax(x, axis: Axes = -1):
    """Takes the logarithm of softmax along an axis: y_i = x_i - log Σ_j e^{x_j}, without overflow.

    >>> log_softmax(np.array([0.0, np.log(3.0)])).round(4)
    array([-1.3863, -0.2877])
    """
    x = floating(x)
    less, log_total = below_top(widen_half(x), axis)
    less -= log_total
    return cast_back(less, x)


def below_top(x, axis):
    """What x falls below its largest entry along the axis, and the logarithm of Σ e^ of that."""
    less = x - row_max(x, axis)
    return less, np.log(row_sum(np.exp(less), axis))


@log_softmax.vjp("x")
def _(g, out, axis):
    """Each gradient loses the sum of all of them times the entry's own softmax."""
    shares = np.exp(widen_half(out))
    shares *= sum(widen_half(g), axis, True)
    return g - shares


@reduction(
    r"\operatorname{logsumexp}@(<x>)",
    r"\operatorname{broadcast}@(<g>) \odot e^{<x> - \operatorname{broadcast}@(<out>)}",
    4,
)
def logsumexp(x, axis=None, keepdims=False):
    """Takes the logarithm of summed exponentials over an axis, several, or all: log Σ e^x.

    >>> logsumexp(np.array([1000.0, 1000.0])).round(4)
    np.float64(1000.6931)
    """
    x = floating(x)
    top = row_max(x, axis)
    top = np.where(np.isfinite(top), top, 0)  # inf less inf would be NaN
    with np.errstate(divide="ignore"):  # log 0, where nothing but -inf was summed
        total = top + np.log(sum(np.exp(widen_half(x) - top), axis, True))
    return cast_back(total if keepdims else np.squeeze(total, axis), x)


@logsumexp.vjp("x")
def _(g, x, axis):
    """The gradient is shared out by the softmax of the entries."""
    return g.reshape(shape_with_ones(x.shape, axis)) * softmax(x, axis)
