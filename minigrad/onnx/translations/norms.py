"""Normalisation."""

from __future__ import annotations

import numpy as np

from ...ops import batch_norm, layer_norm, rms_norm
from ..translation import translation
from .reductions import reduced


@translation(layer_norm)
def _(to, x, weight, bias, eps, out):
    x = to.cast(x, out.dtype)
    given = [_each(to, weight, x, -1, 1)] + ([] if bias is None else [to.cast(bias, x.dtype)])
    return to.LayerNormalization(x, *given, axis=-1, epsilon=float(eps))


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
    """What is given, or one number, for each entry of an axis."""
    if given is not None:
        return to.cast(given, x.dtype)
    n = x.shape[axis]
    if isinstance(n, int):
        return to.constant(np.full(n, value, x.dtype))
    return to.Expand(to.value(value, x.dtype), to.size(n))
