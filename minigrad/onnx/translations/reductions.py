"""Ops that take many entries to one; softmax and what goes with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.op import Op
from ...ops import (
    cumsum,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    norm,
    prod,
    softmax,
    std,
    sum,
    var,
)
from ..translation import Untranslatable, translation


def reduced(to: Any, operator: str, x: Any, axis: Any, keepdims: bool, **dtype: Any) -> Any:
    """A reduction; axis None is all."""
    if axis is None:
        return to.emit(operator, x, keepdims=int(bool(keepdims)), **dtype)
    axes = [*axis] if np.ndim(axis) else [int(axis)]
    if not axes:
        return to.Identity(x)  # over no axis at all
    return to.emit(operator, x, axes, keepdims=int(bool(keepdims)), **dtype)


_OPERATORS: dict[Op, str] = {
    sum: "ReduceSum",
    mean: "ReduceMean",
    max: "ReduceMax",
    min: "ReduceMin",
    prod: "ReduceProd",
}


def _reduction(operator):
    def translated(to, x, axis, keepdims, out):
        return reduced(to, operator, to.cast(x, out.dtype), axis, keepdims)

    return translated


for _op, _operator in _OPERATORS.items():
    translation(_op)(_reduction(_operator))


@translation(var)
def _(to, x, axis, ddof, keepdims):
    return variance(to, x, axis, ddof, keepdims)


def variance(to, x, axis, ddof, keepdims):
    """The mean of squares of what is left of x without its mean; by n - ddof, not n."""
    centred = to.Sub(x, reduced(to, "ReduceMean", x, axis, True))
    squares = to.Mul(centred, centred)
    if not ddof:
        return reduced(to, "ReduceMean", squares, axis, keepdims)
    lengths = [x.shape[k] for k in to.axes(axis, x.ndim)]
    n = to.cast(to.Squeeze(to.size(1), [0]), x.dtype)
    for length in lengths:
        n = to.Mul(n, to.value(length, x.dtype))
    return to.Div(reduced(to, "ReduceSum", squares, axis, keepdims), to.Sub(n, ddof))


@translation(std)
def _(to, x, axis, ddof, keepdims):
    return to.Sqrt(variance(to, x, axis, ddof, keepdims))


@translation(norm)
def _(to, x, axis, keepdims, out):
    return reduced(to, "ReduceL2", to.cast(x, out.dtype), axis, keepdims)


@translation(cumsum)
def _(to, x, axis, out):
    x = to.cast(x, out.dtype)
    x = to.Reshape(x, [-1]) if axis is None else x
    return to.CumSum(x, np.asarray(0 if axis is None else int(axis)))


# ---------------------------------------------------------------- softmax


@translation(softmax)
def _(to, x, axis, out):
    return softmaxed(to, to.cast(x, out.dtype), axis)


def softmaxed(to: Any, x: Any, axis: Any = -1) -> Any:
    """Softmax; a row of nothing but -inf gets zeros, where ONNX has NaN."""
    if np.ndim(axis) == 0 and axis is not None:
        weights = to.Softmax(x, axis=int(axis))
        weights.infinite = False
        if not x.infinite:
            return weights
    else:
        raised = to.Exp(to.Sub(x, reduced(to, "ReduceMax", x, axis, True)))
        weights = to.Div(raised, reduced(to, "ReduceSum", raised, axis, True))
    top = reduced(to, "ReduceMax", x, axis, True)
    closed = to.emit("Equal", top, to.value(-np.inf, x.dtype), dtype=bool)
    weights = to.Where(closed, to.value(0, x.dtype), weights, dtype=x.dtype)
    weights.infinite = False
    return weights


@translation(log_softmax)
def _(to, x, axis, out):
    x = to.cast(x, out.dtype)
    if axis is not None and np.ndim(axis) == 0:
        return to.LogSoftmax(x, axis=int(axis))
    return to.Sub(x, _logsumexp(to, x, axis, True))


@translation(logsumexp)
def _(to, x, axis, keepdims, out):
    return _logsumexp(to, to.cast(x, out.dtype), axis, keepdims)


def _logsumexp(to, x, axis, keepdims):
    """top + log Σ e^(x - top), where top is the largest, or 0 if that is -inf."""
    top = reduced(to, "ReduceMax", x, axis, True)
    zero = to.value(0, x.dtype)
    top = to.Where(to.emit("IsInf", top, dtype=bool), zero, top, dtype=x.dtype)
    found = to.Add(top, to.Log(reduced(to, "ReduceSum", to.Exp(to.Sub(x, top)), axis, True)))
    if keepdims or not x.ndim:
        return found
    return to.Squeeze(found, to.axes(axis, x.ndim))


__all__ = ["Untranslatable", "reduced", "softmaxed", "variance"]
