"""Normalisation."""

from __future__ import annotations

import numpy as np

from ...ops import batch_norm, layer_norm, rms_norm
from ..translation import translation
from .reductions import reduced


@translation(layer_norm)
def _(to, x, weight, bias, eps, out):
    x = to.cast(x, out.dtype)
    ones = to.cast(weight, out.dtype) if weight is not None else _filled(to, x, 1)
    given = [ones] if bias is None else [ones, to.cast(bias, out.dtype)]
    return to.LayerNormalization(x, *given, axis=-1, epsilon=float(eps))


@translation(rms_norm)
def _(to, x, weight, eps, out):
    x = to.cast(x, out.dtype)
    ones = to.cast(weight, out.dtype) if weight is not None else _filled(to, x, 1)
    return to.RMSNormalization(x, ones, axis=-1, epsilon=float(eps))


def _filled(to, x, value):
    """One number for each entry of the last axis."""
    n = x.shape[-1]
    if isinstance(n, int):
        return to.constant(np.full(n, value, x.dtype))
    return to.Expand(to.value(value, x.dtype), to.size(n))


@translation(batch_norm)
def _(to, x, weight, bias, mean, var, eps, out):
    x = to.cast(x, out.dtype)
    C = x.shape[1]
    scale = to.constant(np.ones(C, x.dtype)) if weight is None else to.cast(weight, x.dtype)
    shift = to.constant(np.zeros(C, x.dtype)) if bias is None else to.cast(bias, x.dtype)
    if mean is not None and var is not None:
        moments = [to.cast(m, x.dtype) for m in (mean, var)]
        return to.BatchNormalization(x, scale, shift, *moments, epsilon=float(eps))
    axes = [0, *range(2, x.ndim)]
    across = [*range(1, x.ndim - 1)]
    scale, shift = ((to.Unsqueeze(v, across) if across else v) for v in (scale, shift))
    mu = to.Unsqueeze(to.cast(mean, x.dtype), across) if mean is not None else None
    centred = to.Sub(x, reduced(to, "ReduceMean", x, axes, True) if mu is None else mu)
    square = reduced(to, "ReduceMean", to.Mul(centred, centred), axes, True)
    square = square if var is None else to.Unsqueeze(to.cast(var, x.dtype), across)
    x_hat = to.Div(centred, to.Sqrt(to.Add(square, float(eps))))
    return to.Add(to.Mul(x_hat, scale), shift)
