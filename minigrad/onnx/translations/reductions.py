"""Sums and other reductions; softmax, norms, products and attention."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ...engine.op import registry
from ...ops import (
    batch_norm,
    cumsum,
    einsum,
    layer_norm,
    linear,
    log_softmax,
    logsumexp,
    matmul,
    max,
    mean,
    min,
    norm,
    prod,
    rms_norm,
    softmax,
    sum,
)
from ...ops.products import explicit
from ..run import NUMPY_OPS
from ..translation import declare, translation
from .elementwise import both, masked


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


def _of_truths(operator):
    """Over truth values, of which ONNX reduces none: as integers."""
    return lambda to, x, axis, keepdims: to.cast(
        reduced(to, operator, to.cast(to.cast(x, bool), np.int32), axis, keepdims), bool
    )


def _place(operator):
    def translated(to, x, axis):
        x, axis = to.along(x, axis)
        return to.emit(operator, x, axis=axis, keepdims=0, dtype=np.int64)

    return translated


declare(
    {
        sum: _reduction("ReduceSum"),
        mean: _reduction("ReduceMean"),
        max: _reduction("ReduceMax"),
        min: _reduction("ReduceMin"),
        prod: _reduction("ReduceProd"),
        norm: _reduction("ReduceL2"),
        logsumexp: _reduction("ReduceLogSumExp"),
        NUMPY_OPS["any"]: _of_truths("ReduceMax"),
        NUMPY_OPS["all"]: _of_truths("ReduceMin"),
        NUMPY_OPS["argmax"]: _place("ArgMax"),
        NUMPY_OPS["argmin"]: _place("ArgMin"),
    }
)


@translation(cumsum)
def _(to, x, axis, out):
    x, axis = to.along(to.cast(x, out.dtype), axis)
    return to.CumSum(x, np.asarray(axis))


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
    weights = _in_closed_rows(to, 0, x, axis, weights)
    weights.infinite = False
    return weights


def _in_closed_rows(to, number, x, axis, found):
    """What was found, but this number where a row of x is nothing but -inf."""
    if not x.infinite:
        return found
    top = reduced(to, "ReduceMax", x, axis)
    closed = to.emit("Equal", top, to.value(-np.inf, x.dtype), dtype=bool)
    return to.Where(closed, to.value(number, x.dtype), found, dtype=x.dtype)


@translation(log_softmax)
def _(to, x, axis, out):
    x = to.cast(x, out.dtype)
    if axis is not None and np.ndim(axis) == 0:
        found = to.LogSoftmax(x, axis=int(axis))
    else:
        lowered = to.Sub(x, reduced(to, "ReduceMax", x, axis))
        found = to.Sub(lowered, reduced(to, "ReduceLogSumExp", lowered, axis))
    return _in_closed_rows(to, -np.inf, x, axis, found)


# ---------------------------------------------------------------- norms


@translation(layer_norm)
def _(to, x, weight, bias, eps, out):
    x = to.cast(x, out.dtype)
    shift = [] if bias is None else [to.cast(bias, x.dtype)]
    return to.LayerNormalization(
        x, _each(to, weight, x, -1, 1), *shift, axis=-1, epsilon=float(eps)
    )


@translation(rms_norm)
def _(to, x, weight, eps, out):
    x = to.cast(x, out.dtype)
    return to.RMSNormalization(x, _each(to, weight, x, -1, 1), axis=-1, epsilon=float(eps))


@translation(batch_norm)
def _(to, x, weight, bias, mean, var, eps, out):
    x, axes = to.cast(x, out.dtype), [0, *range(2, len(out.shape))]
    mu = reduced(to, "ReduceMean", x, axes, False) if mean is None else to.cast(mean, x.dtype)
    if var is None:
        centred = to.Sub(x, reduced(to, "ReduceMean", x, axes))
        square = reduced(to, "ReduceMean", to.Mul(centred, centred), axes, False)
    else:
        square = to.cast(var, x.dtype)
    scale, shift = _each(to, weight, x, 1, 1), _each(to, bias, x, 1, 0)
    return to.BatchNormalization(x, scale, shift, mu, square, epsilon=float(eps))


def _each(to, given, x, axis, value):
    """A parameter, or one number instead, for each entry of an axis."""
    if given is not None:
        return to.cast(given, x.dtype)
    n = x.shape[axis]
    if isinstance(n, int):
        return to.constant(np.full(n, value, x.dtype))
    return to.Expand(to.value(value, x.dtype), to.size(n))


# ---------------------------------------------------------------- products


@translation(matmul)
def _(to, a, b, out):
    return to.MatMul(*both(to, a, b, out.dtype))


@translation(linear)
def _(to, x, W, b, out):
    product = to.MatMul(*both(to, x, W, out.dtype))
    return product if b is None else to.Add(product, to.cast(b, out.dtype))


@translation(einsum)
def _(to, operands, subscripts, out):
    terms, target = explicit(subscripts, tuple(x.ndim for x in operands))
    equation = f"{','.join(terms)}->{target}"
    return to.Einsum(*(to.cast(x, out.dtype) for x in operands), equation=equation)


if "tiled_attention" in registry:  # of minigrad/fast, which may be missing

    @translation(registry["tiled_attention"])
    def _(to, q, k, v, mask, is_causal, scale, rule):
        masks = [x for x in (mask, rule) if x is not None]
        if is_causal:
            rows, columns = to.Unsqueeze(to.range(q.shape[-2]), [1]), to.range(k.shape[-2])
            masks.append(to.emit("GreaterOrEqual", rows, columns, dtype=bool))
        factor = 1 / sqrt(q.shape[-1]) if scale is None else float(scale)
        turned = [*range(k.ndim)]
        turned[-2:] = turned[:-3:-1]
        S = to.Mul(to.MatMul(q, to.Transpose(k, perm=turned)), factor)
        for mask in masks:
            S = masked(to, S, mask)
        return to.MatMul(softmaxed(to, S), v)
