"""Ops that take many entries to one, over one axis or more; and the running sum along an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import (
    Axes,
    Call,
    Declare,
    accumulation_dtype,
    as_array,
    call,
    cast_back,
    masked,
    op,
    widen,
    widen_half,
)
from .notation import axes_of, axis_letters, axis_subscript, entries, letters, shape_product
from .samples import Samples, each_of_x, reductions

__all__ = ["cumsum", "max", "mean", "min", "sum", "var"]


def shape_with_ones(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    """The shape with the reduced axes at length 1."""
    if axis is None:
        return (1,) * len(shape)
    reduced = {a % len(shape) for a in ((axis,) if np.ndim(axis) == 0 else axis)} if shape else ()
    return tuple(1 if i in reduced else n for i, n in enumerate(shape))


def count(shape: tuple[int, ...], axis: Any) -> int:
    """How many entries are reduced to one."""
    return prod(n for n, k in zip(shape, shape_with_ones(shape, axis), strict=True) if k == 1)


def reduction(
    tex: str | Callable[..., str],
    vjp_tex: str | Callable[..., str],
    flops: Any,
    samples: Samples = reductions,
    **more: Any,
) -> Declare:
    """Declare an op of x that takes many entries to one, or adds them up on the way.

    Args: tex, vjp_tex: its formula and that of its rule.  flops: operations for each entry of x,
        or a function as `op` takes it.  more: as `op` takes it.
    """
    return op(
        tex=tex,
        vjp_tex={"x": vjp_tex},
        flops=flops if callable(flops) else each_of_x(flops),
        samples=samples,
        **more,
    )


# ---------------------------------------------------------------- formulas of reductions


def sign_tex(sign: str) -> Callable[..., str]:
    """The formula of a sum or product: one sign before the entries."""
    return lambda x, axis: (
        rf"{sign}_{{{axis_letters(x, axis)}}} <x>{entries(x)}" if axes_of(x, axis) else "<x>"
    )


def function_tex(function: str) -> Callable[..., str]:
    """A function of x over some of its axes, or of all of x."""

    def tex(x, axis):
        where = axis_subscript(x, axis)
        return rf"\{function}{where}\, <x>{entries(x)}" if where else rf"\{function}(<x>)"

    return tex


def broadcast_tex(x: Any, axis: Any, what: str = "<g>") -> str:
    """The formula of a result's gradient, broadcast to the entries that were reduced."""
    return rf"\operatorname{{broadcast}}{axis_subscript(x, axis)}({what})"


def centred_tex(x: Any, axis: Any) -> str:
    """x less its mean."""
    return rf"(<x> - \operatorname{{mean}}{axis_subscript(x, axis)}(<x>))"


# ---------------------------------------------------------------- sum, mean


@reduction(sign_tex(r"\sum"), lambda x, axis: broadcast_tex(x, axis), 1)
def sum(x, axis: Axes = None, keepdims: bool = False):
    """Adds up the entries over an axis, several, or all.

    >>> sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4., 6.])
    """
    x = as_array(x)
    wide = accumulation_dtype(x, axis)
    if wide is None:
        return x.sum(axis=axis, keepdims=keepdims)
    return x.sum(axis=axis, dtype=wide, keepdims=keepdims).astype(x.dtype)


@sum.vjp("x")
def _(g, x_shape, axis):
    """Every entry that was added gets the gradient of its sum, as it is."""
    return np.broadcast_to(g.reshape(shape_with_ones(x_shape, axis)), x_shape)


@reduction(
    function_tex(r"operatorname{mean}"),
    lambda x, axis: rf"\tfrac1n {broadcast_tex(x, axis)}, \quad n = {count(x.shape, axis)}",
    1,
)
def mean(x, axis: Axes = None, keepdims: bool = False):
    """Averages the entries over an axis, several, or all.

    >>> mean(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([2., 3.])
    """
    x = as_array(x)
    wide = accumulation_dtype(x, axis)
    if wide is None:
        return np.mean(x, axis=axis, keepdims=keepdims)
    return np.mean(x, axis=axis, dtype=wide, keepdims=keepdims).astype(x.dtype)


@mean.vjp("x")
def _(g, x_shape, axis):
    """Every entry gets the gradient of its mean, divided by the number of entries."""
    return np.broadcast_to(
        g.reshape(shape_with_ones(x_shape, axis)) / count(x_shape, axis), x_shape
    )


# ---------------------------------------------------------------- variance


def _var_tex(x, axis, ddof):
    if ddof:
        squares = rf"{centred_tex(x, axis)}^{{\circ 2}}"
        n = count(x.shape, axis)
        return (
            rf"\tfrac{{1}}{{n - <ddof>}} \sum_{{{axis_letters(x, axis)}}} {squares}, \quad n = {n}"
        )
    return function_tex(r"operatorname{var}")(x, axis)


def _var_vjp_tex(x, axis, ddof):
    n = "n - <ddof>" if ddof else "n"
    back = rf"\tfrac{{2}}{{{n}}} {broadcast_tex(x, axis)} \odot {centred_tex(x, axis)}"
    return rf"{back}, \quad n = {count(x.shape, axis)}"


def _var_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield from reductions(rng)
    yield call(rng.uniform(-1, 1, (3, 5)), axis=1, ddof=1)


@reduction(_var_tex, _var_vjp_tex, 4, _var_samples)
def var(x, axis=None, ddof=0, keepdims=False):
    """Takes the variance over an axis, several, or all: Σ (x - mean(x))² / (n - ddof).

    Raises: ArgumentError unless n - ddof is above 0.

    >>> var(np.array([1.0, 2.0, 6.0]), ddof=1)
    np.float64(7.0)
    """
    x = as_array(x)
    n = count(x.shape, axis)
    if not n - ddof > 0:
        raise ArgumentError(f"n - ddof must be above 0, got n = {n} and ddof = {ddof}")
    centred = widen_half(x) - mean(widen_half(x), axis, True)
    total = sum(centred * centred, axis, keepdims) / (n - ddof)
    return total.astype(x.dtype) if x.dtype.char == "e" else total


@var.vjp("x")
def _(g, x, axis, ddof):
    """The gradient is multiplied by twice each difference from the mean, then averaged alike."""
    centred = widen_half(x) - mean(widen_half(x), axis, True)
    return g.reshape(shape_with_ones(x.shape, axis)) * (2 / (count(x.shape, axis) - ddof)) * centred


# ---------------------------------------------------------------- extremes


def _extreme_tex(name):
    def tex(x, axis):
        where = axis_subscript(x, axis)
        return rf"\{name}{where} <x>{entries(x)}" if where else rf"\{name}(<x>)"

    return tex


def _shares_of_ties(x, axis):
    return rf"<g> \odot [<x> = <out>] \oslash \#{axis_subscript(x, axis)}[<x> = <out>]"


@reduction(_extreme_tex("max"), _shares_of_ties, 1, analytic=False)
def max(x, axis: Axes = None, keepdims: bool = False):
    """Takes the largest entry over an axis, several, or all; equal ones share the gradient evenly.

    Where there is a NaN it is the result, and the gradient goes to the NaNs.

    >>> max(np.array([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    array([2., 3.])
    """
    return np.max(x, axis=axis, keepdims=keepdims)


@reduction(_extreme_tex("min"), _shares_of_ties, 1, analytic=False)
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
    shape = shape_with_ones(x.shape, axis)
    taken = (x == out.reshape(shape)) | (x != x)  # only NaN differs from itself
    ties = np.sum(taken, axis=axis, dtype=g.dtype).reshape(shape)
    return masked(g.reshape(shape) / ties, taken)


# ---------------------------------------------------------------- the running sum


def _cumsum_tex(x, axis):
    if x.ndim != 1 and axis is None:
        flat = rf"\operatorname{{reshape}}_{{{prod(x.shape)}}}(<x>)"
        return rf"\sum_{{k' \le k}} {flat}_{{k'}}" if x.ndim else "<x>"
    return _running("<x>", x, axis, r"\le")


def _cumsum_vjp_tex(x, axis):
    if x.ndim != 1 and axis is None:
        flat = r"\sum_{k' \ge k} <g>_{k'}"
        return rf"\operatorname{{reshape}}_{{{shape_product(x.shape)}}}({flat})"
    return _running("<g>", x, axis, r"\ge")


def _running(name, x, axis, sign):
    """The formula of a running sum along one axis, from its start (≤) or its end (≥)."""
    known, k = letters(x.ndim), (axis or 0) % x.ndim
    moved = ",".join(f"{c}'" if i == k else c for i, c in enumerate(known))
    return rf"\sum_{{{known[k]}' {sign} {known[k]}}} {name}_{{{moved}}}"


def _cumsum_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (2, 3, 5))
    yield call(x, axis=1)
    yield call(x)
    yield call(x, axis=-1)
    yield call(np.asarray(1.5))
    yield call(np.zeros((0, 3)), axis=1)


@reduction(_cumsum_tex, _cumsum_vjp_tex, 1, _cumsum_samples)
def cumsum(x, axis=None):
    """Adds entries up along an axis, with each sum on the way; without one, of the flattened array.

    >>> cumsum(np.array([1.0, 2.0, 3.0]))
    array([1., 3., 6.])
    """
    x = as_array(x)
    return (
        cast_back(np.cumsum(widen(x), axis=axis), x) if x.dtype.kind == "f" else np.cumsum(x, axis)
    )


@cumsum.vjp("x")
def _(g, x_shape, axis):
    """The gradient is added up from the other end, because an entry is in every sum after it."""
    turn = (slice(None),) * ((axis or 0) % g.ndim) + (slice(None, None, -1),)
    return cumsum(g[turn], axis or 0)[turn].reshape(x_shape)
