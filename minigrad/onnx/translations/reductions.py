"""Ops that take many entries to one; softmax and what goes with it."""

from __future__ import annotations

import numpy as np

from ...engine.op import Op
from ...ops import cumsum, log_softmax, logsumexp, max, mean, min, norm, prod, softmax, sum
from ..run import FOLLOWED
from ..translation import translation

OPERATORS: dict[Op, str] = {
    sum: "ReduceSum", mean: "ReduceMean", max: "ReduceMax", min: "ReduceMin", prod: "ReduceProd",
    norm: "ReduceL2", logsumexp: "ReduceLogSumExp",
}  # fmt: skip


def reduced(to, operator, x, axis, keepdims=True):
    """A reduction; axis None is all."""
    if axis is None:
        return to.emit(operator, x, keepdims=int(bool(keepdims)))
    axes = [*axis] if np.ndim(axis) else [int(axis)]
    if not axes:
        return to.Identity(x)  # over no axis at all
    return to.emit(operator, x, axes, keepdims=int(bool(keepdims)))


def _reduction(operator):
    return lambda to, x, axis, keepdims, out: reduced(
        to, operator, to.cast(x, out.dtype), axis, keepdims
    )


for _op, _operator in OPERATORS.items():
    translation(_op)(_reduction(_operator))


def _of_truths(operator):
    """Over truth values, of which ONNX reduces none: as integers."""
    return lambda to, x, axis, keepdims: to.cast(
        reduced(to, operator, to.cast(to.cast(x, bool), np.int32), axis, keepdims), bool
    )


def _place(operator):
    return lambda to, x, axis: to.emit(
        operator,
        x if axis is not None else to.Reshape(x, [-1]),
        axis=int(axis or 0),
        keepdims=0,
        dtype=np.int64,
    )


translation(FOLLOWED["any"])(_of_truths("ReduceMax"))
translation(FOLLOWED["all"])(_of_truths("ReduceMin"))
translation(FOLLOWED["argmax"])(_place("ArgMax"))
translation(FOLLOWED["argmin"])(_place("ArgMin"))


@translation(cumsum)
def _(to, x, axis, out):
    x = to.cast(x, out.dtype)
    x = to.Reshape(x, [-1]) if axis is None else x
    return to.CumSum(x, np.asarray(int(axis or 0)))


# ---------------------------------------------------------------- softmax


@translation(softmax)
def _(to, x, axis, out):
    return softmaxed(to, to.cast(x, out.dtype), axis)


def softmaxed(to, x, axis=-1):
    """Softmax; a row of nothing but -inf gets zeros, where ONNX has NaN."""
    if np.ndim(axis) == 0 and axis is not None:
        weights = to.Softmax(x, axis=int(axis))
    else:
        raised = to.Exp(to.Sub(x, reduced(to, "ReduceMax", x, axis)))
        weights = to.Div(raised, reduced(to, "ReduceSum", raised, axis))
    if x.infinite:
        top = reduced(to, "ReduceMax", x, axis)
        closed = to.emit("Equal", top, to.value(-np.inf, x.dtype), dtype=bool)
        weights = to.Where(closed, to.value(0, x.dtype), weights, dtype=x.dtype)
    weights.infinite = False
    return weights


@translation(log_softmax)
def _(to, x, axis, out):
    x = to.cast(x, out.dtype)
    if axis is not None and np.ndim(axis) == 0:
        return to.LogSoftmax(x, axis=int(axis))
    return to.Sub(x, reduced(to, "ReduceLogSumExp", x, axis))
