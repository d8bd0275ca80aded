"""Reductions of many entries to one, over one axis or more; and the running sum along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import (
    Axes,
    Call,
    Declare,
    Shaped,
    accumulation_dtype,
    as_array,
    call,
    cast_back,
    floating,
    masked,
    op,
    widen,
    widen_half,
)
from .notation import axes_of, axis_letters, axis_subscript, entries, letters, reshaped
from .samples import Samples, each_of_x, reductions

__all__ = ["cumsum", "max", "mean", "min", "norm", "prod", "std", "sum", "var"]


def shape_with_ones(shape: tuple[int, ...], axis: Axes) -> tuple[int, ...]:
    """The shape with the reduced axes at length 1."""
    if axis is None:
        return (1,) * len(shape)
    named: Any = (axis,) if np.ndim(axis) == 0 else axis
    reduced = {a % len(shape) for a in named} if shape else ()
    return tuple(1 if i in reduced else n for i, n in enumerate(shape))


def count(shape: tuple[int, ...], axis: Axes) -> int:
    """How many entries are reduced to one."""
    return math.prod(n for n, k in zip(shape, shape_with_ones(shape, axis), strict=True) if k == 1)


def reduction(
    tex: str | Callable[..., str],
    vjp_tex: str | Callable[..., str],
    flops: int | Callable[..., int],
    samples: Samples = reductions,
    **declaration: Any,
) -> Declare:
    """Declare an op of x that reduces many entries to one; a number as flops is per entry of x."""
    return op(
        tex=tex,
        vjp_tex={"x": vjp_tex},
        flops=flops if callable(flops) else each_of_x(flops),
        samples=samples,
        **declaration,
    )


# ---------------------------------------------------------------- formulas of reductions


def sign_tex(sign: str) -> Callable[..., str]:
    """The formula of a sum or product: one sign before the entries."""
    return lambda x, axis: (
        rf"{sign}_{{{axis_letters(x, axis)}}} <x>{entries(x)}" if axes_of(x, axis) else "<x>"
    )


def function_tex(function: str, space: str = " ") -> Callable[..., str]:
    """A function of x over some of its axes, or of all of x."""

    def tex(x, axis):
        where = axis_subscript(x, axis)
        return f"{function}{where}{space}<x>{entries(x)}" if where else f"{function}(<x>)"

    return tex


def broadcast_tex(x: Shaped, axis: Axes, what: str = "<g>") -> str:
    """The formula of a result's gradient, broadcast to the entries that were reduced."""
    return rf"\operatorname{{broadcast}}{axis_subscript(x, axis)}({what})"


def centred_tex(x: Shaped, axis: Axes) -> str:
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
    function_tex(r"\operatorname{mean}", r"\, "),
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
    each = cast_back(widen_half(g) / count(x_shape, axis), g)  # no count above 65504 is a float16
    return np.broadcast_to(each.reshape(shape_with_ones(x_shape, axis)), x_shape)


# ---------------------------------------------------------------- var, std


def _var_tex(x, axis, ddof):
    if ddof:
        squares = rf"{centred_tex(x, axis)}^{{\circ 2}}"
        total = rf"\sum_{{{axis_letters(x, axis)}}} {squares}"
        return rf"\tfrac{{1}}{{n - <ddof>}} {total}, \quad n = {count(x.shape, axis)}"
    return function_tex(r"\operatorname{var}", r"\, ")(x, axis)


def _var_vjp_tex(x, axis, ddof):
    n = "n - <ddof>" if ddof else "n"
    back = rf"\tfrac{{2}}{{{n}}} {broadcast_tex(x, axis)} \odot {centred_tex(x, axis)}"
    return rf"{back}, \quad n = {count(x.shape, axis)}"


def _var_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield from reductions(rng)
    yield call(rng.uniform(-1, 1, (3, 5)), axis=1, ddof=1)


def _centred(x, axis):
    """x less its mean; float16 in float32."""
    return widen_half(x) - mean(widen_half(x), axis, True)


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
    centred = _centred(x, axis)
    total = sum(centred * centred, axis, keepdims) / (n - ddof)
    return total.astype(x.dtype) if x.dtype.char == "e" else total


@var.vjp("x")
def _(g, x, axis, ddof):
    """The gradient is multiplied by twice each difference from the mean, then averaged alike."""
    share = 2 / (count(x.shape, axis) - ddof)
    return g.reshape(shape_with_ones(x.shape, axis)) * share * _centred(x, axis)


def _std_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in reductions(rng):
        if np.ndim(sample.args[0]):  # one entry has no spread
            yield sample
    yield call(rng.uniform(-1, 1, (3, 5)), axis=1, ddof=1)


def _std_vjp_tex(x, axis, ddof):
    n = count(x.shape, axis) - ddof
    slope = broadcast_tex(x, axis, r"<g> \oslash <out>")
    return rf"\tfrac1n {slope} \odot {centred_tex(x, axis)}, \quad n = {n}"


@reduction(
    lambda x, axis, ddof: (
        rf"\sqrt{{\tfrac1n \sum_{{{axis_letters(x, axis)}}} {centred_tex(x, axis)}^{{\circ 2}}}},"
        rf" \quad n = {count(x.shape, axis) - ddof}"
    ),
    _std_vjp_tex,
    lambda x, out: 4 * x.size + out.size,
    _std_samples,
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
    shape = shape_with_ones(x.shape, axis)
    slope = widen_half(g) / np.where(out == 0, 1, out) / (count(x.shape, axis) - ddof)
    return np.where(out == 0, 0, slope).reshape(shape) * _centred(x, axis)


# ---------------------------------------------------------------- norm


@reduction(
    lambda x, axis: rf"\sqrt{{\sum_{{{axis_letters(x, axis)}}} <x>{entries(x)}^{{\circ 2}}}}",
    lambda x, axis: broadcast_tex(x, axis, r"<g> \oslash <out>") + r" \odot <x>",
    lambda x, out: 2 * x.size + out.size,
)
def norm(x, ord=None, axis: Axes = None, keepdims: bool = False):
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
    total = (wide * wide).sum(axis=axis, keepdims=keepdims)
    return cast_back(np.sqrt(total), x)


@norm.vjp("x")
def _(g, x, out, axis):
    """The gradient is multiplied by each entry and divided by the length."""
    slope = np.where(out == 0, 0, widen_half(g) / np.where(out == 0, 1, out))
    return slope.reshape(shape_with_ones(x.shape, axis)) * x


# ---------------------------------------------------------------- prod


def _prod_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(0.5, 1.5, (2, 3, 5))
    for axis in (None, 0, -1, (0, 2)):
        yield call(x[:, :2, :3], axis=axis)
    x[0, 1, 2] = x[1, 0, 0] = x[1, 0, 1] = 0.0  # rows with one zero, and with two
    yield call(x, axis=2, keepdims=True)
    yield call(np.zeros((0, 3)), axis=1)


def _others_tex(x, axis):
    if not axes_of(x, axis):
        return "<g>"
    known, reduced = letters(x.ndim), axes_of(x, axis)
    primed = [f"{name}'" if k in reduced else name for k, name in enumerate(known)]
    other = ",".join(primed[k] for k in reduced)
    this = axis_letters(x, axis)
    if len(reduced) > 1:
        other, this = f"({other})", f"({this})"
    others = rf"\prod_{{{other} \ne {this}}} <x>_{{{','.join(primed)}}}"
    return rf"{broadcast_tex(x, axis)} \odot {others}"


@reduction(sign_tex(r"\prod"), _others_tex, 1, _prod_samples)
def prod(x, axis: Axes = None, keepdims: bool = False):
    """Multiplies all entries over an axis, several, or all.

    >>> prod(np.array([2.0, 3.0, 4.0]))
    np.float64(24.0)
    """
    return np.prod(x, axis=axis, keepdims=keepdims)


def _products_of_others(rows):
    """For each entry of a row, the product of all the others, without a division by it.

    Entries are taken in pairs: the others of an entry are its partner and all other pairs.
    """
    m, n = rows.shape
    if n <= 2:
        return rows[:, ::-1] if n == 2 else np.ones((m, n), rows.dtype)
    if n % 2:
        rows = np.concatenate([rows, np.ones((m, 1), rows.dtype)], axis=1)
    pairs = rows.reshape((m, (n + 1) // 2, 2))
    other_pairs = _products_of_others(pairs[:, :, 0] * pairs[:, :, 1])
    others = np.expand_dims(other_pairs, 2) * pairs[:, :, ::-1]
    return others.reshape(rows.shape)[:, :n]


@prod.vjp("x")
def _(g, x, axis):
    """The gradient is multiplied by the product of all the other entries."""
    shape = shape_with_ones(x.shape, axis)
    reduced = tuple(axes_of(x, axis))
    rest = tuple(k for k in range(x.ndim) if k not in reduced)
    n, order = count(x.shape, axis), rest + reduced
    rows = np.transpose(x, order).reshape((x.size // n if n else 0, n))
    others = _products_of_others(rows)
    back = tuple(order.index(k) for k in range(x.ndim))
    others = np.transpose(others.reshape([x.shape[k] for k in order]), back)
    return g.reshape(shape) * others


# ---------------------------------------------------------------- max, min


def _shares_of_ties(x, axis):
    return rf"<g> \odot [<x> = <out>] \oslash \#{axis_subscript(x, axis)}[<x> = <out>]"


@reduction(function_tex(r"\max"), _shares_of_ties, 1, analytic=False)
def max(x, axis: Axes = None, keepdims: bool = False):
    """Takes the largest entry over an axis, several, or all; equal ones share the gradient evenly.

    Where there is a NaN it is the result, and the gradient goes to the NaNs.

    >>> max(np.array([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    array([2., 3.])
    """
    return np.max(x, axis=axis, keepdims=keepdims)


@reduction(function_tex(r"\min"), _shares_of_ties, 1, analytic=False)
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
    g, shape = widen_half(g), shape_with_ones(x.shape, axis)
    taken = (x == out.reshape(shape)) | (x != x)  # only NaN differs from itself
    ties = np.sum(taken, axis=axis, dtype=g.dtype).reshape(shape)
    return masked(g.reshape(shape) / ties, taken)


# ---------------------------------------------------------------- the running sum


def _cumsum_tex(x, axis):
    if x.ndim != 1 and axis is None:
        flat = reshaped((x.size,), "<x>")
        return rf"\sum_{{k' \le k}} {flat}_{{k'}}" if x.ndim else "<x>"
    return _running("<x>", x, axis, r"\le")


def _cumsum_vjp_tex(x, axis):
    if x.ndim != 1 and axis is None:
        return reshaped(x.shape, r"\sum_{k' \ge k} <g>_{k'}")
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
    if x.dtype.kind != "f":
        return np.cumsum(x, axis)
    return cast_back(np.cumsum(widen(x), axis=axis), x)


@cumsum.vjp("x")
def _(g, x_shape, axis):
    """The gradient is added up from the other end, because an entry is in every sum after it."""
    turn = (slice(None),) * ((axis or 0) % g.ndim) + (slice(None, None, -1),)
    return cumsum(g[turn], axis or 0)[turn].reshape(x_shape)
