"""Ops that take many entries to one, over one axis or more; and those that go along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy import ndarray

from ..engine.op import Call, call, op
from ..fast.blas_sums import row_sums
from ..fast.memory import FEW, empty, in_place_buffer, out_buffer, row_blocks
from .masked import masked
from .samples import floating, reductions

__all__ = ["cumsum", "log_softmax", "logsumexp", "max", "mean", "min", "softmax", "sum", "var"]


def _kept(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    """The shape with the reduced axes at length 1."""
    if axis is None:
        return (1,) * len(shape)
    reduced = {a % len(shape) for a in ((axis,) if np.ndim(axis) == 0 else axis)} if shape else ()
    return tuple(1 if i in reduced else n for i, n in enumerate(shape))


def _count(shape: tuple[int, ...], axis: Any) -> int:
    """How many entries go into one."""
    kept = _kept(shape, axis)
    return int(np.prod([n for n, k in zip(shape, kept, strict=True) if k == 1], dtype=int))


def once(x: Any) -> int:
    """One operation an entry of x."""
    return int(np.size(x))


def several(cost: int) -> Any:
    return lambda x: cost * np.size(x)


@op(
    tex=r"\textstyle\sum <x>",
    vjp_tex={"x": r"\operatorname{broadcast}(<g>)"},
    flops=once,
    samples=reductions,
)
def sum(x, axis=None, keepdims=False):
    """Sum over an axis, several, or all.

    >>> sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4., 6.])
    """
    return np.sum(x, axis=axis, keepdims=keepdims)


@sum.vjp("x")
def _(g, x_shape, axis):
    return np.broadcast_to(g.reshape(_kept(x_shape, axis)), x_shape)


@op(
    tex=r"\operatorname{mean}(<x>)",
    vjp_tex={"x": r"\tfrac1n \operatorname{broadcast}(<g>)"},
    flops=once,
    samples=reductions,
)
def mean(x, axis=None, keepdims=False):
    """Mean over an axis, several, or all.

    >>> mean(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([2., 3.])
    """
    return np.mean(x, axis=axis, keepdims=keepdims)


@mean.vjp("x")
def _(g, x_shape, axis):
    return np.broadcast_to(g.reshape(_kept(x_shape, axis)) / _count(x_shape, axis), x_shape)


def _var_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield from reductions(rng)
    yield call(rng.uniform(-1, 1, (3, 5)), axis=1, ddof=1)


@op(
    tex=r"\operatorname{var}(<x>)",
    vjp_tex={
        "x": r"\tfrac{2}{n} \operatorname{broadcast}(<g>) \odot (<x> - \operatorname{mean}(<x>))"
    },
    flops=several(4),
    samples=_var_samples,
)
def var(x, axis=None, ddof=0, keepdims=False):
    """Variance over an axis, several, or all: the mean of (x - mean(x))², divided by n - ddof.

    >>> var(np.array([1.0, 2.0, 6.0]), ddof=1)
    np.float64(7.0)
    """
    centred = x - np.mean(x, axis=axis, keepdims=True)
    return np.sum(centred * centred, axis=axis, keepdims=keepdims) / (
        _count(np.shape(x), axis) - ddof
    )


@var.vjp("x")
def _(g, x, axis, ddof):
    centred = x - np.mean(x, axis=axis, keepdims=True)
    return g.reshape(_kept(x.shape, axis)) * (2 / (_count(x.shape, axis) - ddof)) * centred


@op(
    tex=r"\max(<x>)",
    vjp_tex={"x": r"<g> \odot [<x> = <out>] \oslash \#[<x> = <out>]"},
    flops=once,
    samples=reductions,
    analytic=False,
)
def max(x, axis=None, keepdims=False):
    """Largest entry over an axis, several, or all; equal ones share the gradient evenly.

    >>> max(np.array([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    array([2., 3.])
    """
    return np.max(x, axis=axis, keepdims=keepdims)


@op(
    tex=r"\min(<x>)",
    vjp_tex={"x": r"<g> \odot [<x> = <out>] \oslash \#[<x> = <out>]"},
    flops=once,
    samples=reductions,
    analytic=False,
)
def min(x, axis=None, keepdims=False):
    """Smallest entry over an axis, several, or all; equal ones share the gradient evenly.

    >>> min(np.array([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    array([1., 0.])
    """
    return np.min(x, axis=axis, keepdims=keepdims)


@max.vjp("x")
@min.vjp("x")
def _(g, x, out, axis):
    kept = _kept(x.shape, axis)
    chosen = x == out.reshape(kept)
    ties = np.sum(chosen, axis=axis).reshape(kept)
    return masked(g.reshape(kept) / ties.astype(g.dtype), chosen)


def _cumsum_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (2, 3, 5))
    yield call(x)
    yield call(x, axis=1)
    yield call(x, axis=-1)
    yield call(np.asarray(1.5))
    yield call(np.zeros((0, 3)), axis=1)


@op(
    tex=r"\textstyle\sum_{j \le i} <x>_j",
    vjp_tex={"x": r"\textstyle\sum_{i \ge j} <g>_i"},
    flops=once,
    samples=_cumsum_samples,
)
def cumsum(x, axis=None):
    """Running sum along an axis; without one, over the flattened entries.

    >>> cumsum(np.array([1.0, 2.0, 3.0]))
    array([1., 3., 6.])
    """
    return np.cumsum(x, axis=axis)


@cumsum.vjp("x")
def _(g, x_shape, axis):
    turn = (slice(None),) * ((axis or 0) % g.ndim) + (slice(None, None, -1),)
    return np.cumsum(g[turn], axis=axis or 0)[turn].reshape(x_shape)


# ---------------------------------------------------------------- softmax and its logarithm


def shifted(x: Any, axis: Any) -> tuple[Any, Any]:
    """x less its maximum along the axis, and that maximum; a row of only -inf stays -inf."""
    x = floating(x)
    real = np.real(x) if x.dtype.kind == "c" else x
    top = np.maximum.reduce(real, axis=axis, keepdims=True, initial=_limits(x.dtype)[0])
    return np.subtract(x, top, out_buffer(x, top)), top


def total_of(weights: Any, axis: Any) -> Any:
    """Σ e^(x - max x), at least 1: the tiny number is lost in it, unless all of a row was -inf."""
    tiny = _limits(weights.dtype)[1]
    if _many_rows(weights, axis):
        return row_sum(weights) + tiny
    return np.add.reduce(weights, axis=axis, keepdims=True, initial=tiny)


@cache
def _limits(dtype: Any) -> tuple[float, float]:
    """The lowest finite number of a dtype, and the smallest one above 0."""
    info = np.finfo(dtype)
    return float(info.min), float(info.tiny)


def _many_rows(x: Any, axis: Any) -> bool:
    """Whether x is a plain array whose rows BLAS goes through several times as fast as sum."""
    return axis == -1 and x.__class__ is ndarray and x.size > FEW


def row_sum(x: Any, axis: Any = -1) -> Any:
    """The sum along an axis, kept at length 1."""
    if _many_rows(x, axis):
        return row_sums(x)
    return x.sum(axis=axis, keepdims=True)


def row_dot(a: Any, b: Any, axis: Any = -1) -> Any:
    """The sum of a ⊙ b along an axis, kept at length 1; of rows in one pass."""
    if axis == -1 and a.__class__ is ndarray and a.ndim and a.dtype.kind == "f":  # not complex
        return np.vecdot(a, b)[..., None]
    return (a * b).sum(axis=axis, keepdims=True)


def _softmax_samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-3, 3, (2, 3, 5))
    for axis in (-1, 0, (1, 2), None):
        yield call(x, axis=axis)
    yield call(x[0] * 800)
    masked = x.copy()
    masked[0, :, 2:] = -np.inf
    masked[1, 1] = -np.inf  # a row with nothing to attend to
    yield call(masked)
    yield call(np.asarray(1.5), axis=None)
    yield call(np.zeros((3, 0)))
    yield call(np.zeros((0, 3)))


@op(
    tex=r"\operatorname{softmax}(<x>)",
    vjp_tex={"x": r"<out> \odot (<g> - \operatorname{rowsum}(<g> \odot <out>))"},
    flops=several(5),
    samples=_softmax_samples,
)
def softmax(x, axis=-1):
    """Softmax along an axis: y_i = e^{x_i} / Σ_j e^{x_j}, without overflow.

    Entries of -inf get 0; a row of nothing but -inf gets zeros, and its gradient is zero, never
    NaN.

    >>> softmax(np.array([[0.0, np.log(3.0)], [-np.inf, -np.inf]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    if axis == -1 and (weights := _softmax_of_few(x)) is not None:
        return weights
    if _are_bands(axis, x):
        out = empty(x.shape, x.dtype)
        for rows, weights in row_blocks(x, out):
            _softmax_of_rows(rows, weights)
        return out
    less, _ = shifted(x, axis)
    weights = np.exp(less, in_place_buffer(less))
    weights /= total_of(weights, axis)
    return weights


def _softmax_of_few(x: Any) -> Any:
    """e^x / Σ e^x of a few rows; None if that might overflow, or the weights of a row be lost."""
    if x.__class__ is not ndarray or not 0 < x.size <= FEW or x.dtype not in _WIDE:
        return None
    if not x.item(x.argmax()) < SMALL:
        return None
    weights = np.exp(x)
    total = np.add.reduce(weights, axis=-1, keepdims=True)
    if not total.item(total.argmin()) > RANGE[0]:
        return None
    weights /= total
    return weights


def _are_bands(axis: Any, *arrays: Any) -> bool:
    """Whether to go through these arrays, all of one form, a few rows at a time."""
    x = arrays[0]
    if not _many_rows(x, axis) or x.dtype.kind != "f" or x.itemsize < 4:
        return False
    return all(a.flags.c_contiguous and a.shape == x.shape and a.dtype == x.dtype for a in arrays)


_WIDE = {np.dtype(np.float32), np.dtype(np.float64)}
SMALL = 40  # the largest of a few scores, up to which e^x is likely to do
RANGE = 1e-4, 1e30  # sums of e^x that neither overflow nor lose small weights to underflow


def _softmax_of_rows(x: Any, out: Any) -> None:
    """e^x / Σ e^x; x less its maximum, which takes two passes more, only in rows that need it."""
    fine = np.zeros(len(x), bool)
    total = np.empty((len(x), 1), x.dtype)
    if np.abs(x[:: 1 + len(x) // 16].max()) < SMALL:  # a guess, that the sums will prove or not
        with np.errstate(over="ignore"):
            total = row_sums(np.exp(x, out))
        fine = ((total > RANGE[0]) & (total < RANGE[1]))[:, 0]
    if not fine.all():
        rows = ~fine if fine.any() else slice(None)
        less, _ = shifted(x[rows], -1)
        out[rows] = np.exp(less, less)
        total[rows] = total_of(less, -1)
    out /= total


@softmax.vjp("x")
def _(g, out, axis):
    if g.size > FEW and _are_bands(axis, g, out):
        d_x = empty(g.shape, g.dtype)
        for g_rows, y, d_rows in row_blocks(g, out, d_x):
            np.subtract(g_rows, np.vecdot(g_rows, y)[:, None], d_rows)
            d_rows *= y
        return d_x
    along = row_dot(g, out, axis)
    d_x = np.subtract(g, along, out_buffer(g, along))
    d_x *= out
    return d_x


@op(
    tex=r"\log \operatorname{softmax}(<x>)",
    vjp_tex={"x": r"<g> - e^{<out>} \odot \operatorname{rowsum}(<g>)"},
    flops=several(5),
    samples=lambda rng: (s for s in _softmax_samples(rng) if np.isfinite(s.args[0]).all()),
)
def log_softmax(x, axis=-1):
    """Logarithm of softmax along an axis: y_i = x_i - log Σ_j e^{x_j}, without overflow.

    >>> log_softmax(np.array([0.0, np.log(3.0)])).round(4)
    array([-1.3863, -0.2877])
    """
    less, _ = shifted(x, axis)
    less -= np.log(total_of(np.exp(less, out_buffer(less)), axis))
    return less


@log_softmax.vjp("x")
def _(g, out, axis):
    d_x = np.exp(out, out_buffer(out))
    d_x *= -row_sum(g, axis)
    d_x += g
    return d_x


@op(
    tex=r"\log \textstyle\sum e^{<x>}",
    vjp_tex={"x": r"<g> \odot \operatorname{softmax}(<x>)"},
    flops=several(4),
    samples=reductions,
)
def logsumexp(x, axis=None, keepdims=False):
    """log Σ e^x over an axis, several, or all, without overflow; over nothing but -inf it is -inf.

    >>> logsumexp(np.array([1000.0, 1000.0])).round(4)
    np.float64(1000.6931)
    """
    with np.errstate(invalid="ignore"):  # inf - inf, where the result is inf
        less, top = shifted(x, axis)
    total = np.sum(np.exp(less, in_place_buffer(less)), axis=axis, keepdims=True)
    empty = total == 0
    result = np.where(empty, -np.inf, np.log(np.where(empty, 1, total)) + top)
    result = np.where(top == np.inf, np.inf, result)
    return result if keepdims else np.squeeze(result, axis)


@logsumexp.vjp("x")
def _(g, x, axis):
    return g.reshape(_kept(x.shape, axis)) * softmax(x, axis)
