"""Losses, by their formulas."""

from __future__ import annotations

import numpy as np

from ...ops import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    mse_loss,
    nll_loss,
)
from ..translation import translation
from .elementwise import both
from .reductions import reduced


def _total(to, terms, reduction, length=None):
    if reduction == "none":
        return terms
    if reduction == "mean":
        return reduced(to, "ReduceMean", terms, None, False)
    total = reduced(to, "ReduceSum", terms, None, False)
    if reduction == "sum":
        return total
    return to.Div(total, to.value(length, terms.dtype))  # "batchmean"


@translation(mse_loss)
def _(to, x, target, reduction, out):
    less = to.Sub(*both(to, x, target, out.dtype))
    return _total(to, to.Mul(less, less), reduction)


@translation(huber_loss)
def _(to, x, target, delta, reduction, out):
    less = to.Sub(*both(to, x, target, out.dtype))
    ends = [to.value(d, out.dtype) for d in (-delta, delta)]
    clipped = to.Min(to.Max(less, ends[0]), ends[1])
    return _total(to, to.Mul(clipped, to.Sub(less, to.Div(clipped, 2))), reduction)


@translation(binary_cross_entropy_with_logits)
def _(to, x, target, reduction, out):
    x, target = both(to, x, target, out.dtype)
    softplus = to.Add(to.Relu(x), to.Log(to.Add(to.Exp(to.Neg(to.Abs(x))), 1)))
    return _total(to, to.Sub(softplus, to.Mul(x, target)), reduction)


@translation(kl_div)
def _(to, x, target, reduction, log_target, out):
    length = x.shape[0] if x.ndim else 1
    x, target = both(to, x, target, out.dtype)
    zero, one = (to.value(v, out.dtype) for v in (0, 1))
    p = to.Exp(target) if log_target else target
    none = to.emit("Equal", p, zero, dtype=bool)
    log_p = target if log_target else to.Log(to.Where(none, one, target, dtype=out.dtype))
    terms = to.Mul(p, to.Sub(log_p, to.Where(none, zero, x, dtype=out.dtype)))
    return _total(to, terms, reduction, length)


@translation(cross_entropy)
def _(to, logits, targets, out):
    rows = to.LogSoftmax(to.cast(logits, out.dtype), axis=-1)
    return _total(to, to.Neg(_picked(to, rows, targets, -1)), "mean")


@translation(nll_loss)
def _(to, log_probs, targets, axis, reduction, out):
    rows = to.cast(log_probs, out.dtype)
    return _total(to, to.Neg(_picked(to, rows, targets, int(axis) % log_probs.ndim)), reduction)


def _picked(to, rows, targets, axis):
    """Of each row the entry of its target."""
    at = to.Unsqueeze(to.cast(to.value(targets), np.int64), [axis])
    return to.Squeeze(to.GatherElements(rows, at, axis=axis), [axis])
