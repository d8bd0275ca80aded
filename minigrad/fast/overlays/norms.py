"""Norms of rows in their own dtype, with each row's mean and spread kept for backward."""

from __future__ import annotations

import numpy as np

from ...ops.dtypes import cast_back
from ...ops.norms import check_parameters, layer_norm, rms_norm
from ...ops.products import as_rows
from ..overlay import faster, of_one_dtype

FAR = 16  # times σ: the mean of a row farther from 0 loses digits in float32
LEAST_INVERSE = 1e-12  # of 1 / σ: the squares of less vanish in float32


def row_mean(x):
    return np.einsum("...i->...", x)[..., None] / x.shape[-1]  # twice as fast as mean


def mean_product(a, b):
    return np.vecdot(a, b)[..., None] / a.shape[-1]


def standardized(x, eps, centre):
    """x̂ = (x - μ) / σ of each row, μ, and 1 / σ: in float64 if float32 would not do."""
    with np.errstate(all="ignore"):
        mean = row_mean(x) if centre else x.dtype.type(0)
        centred = x - mean
        inverse = (mean_product(centred, centred) + eps) ** -0.5
        is_fit = (np.abs(mean) * inverse < FAR) & (inverse > LEAST_INVERSE)
    if x.dtype.char == "f" and not is_fit.all():
        return standardized(x.astype(np.float64), eps, centre)
    centred *= inverse
    return centred, mean, inverse


def gradients(g, x, weight, mean, inverse):
    """With ĝ = g ⊙ w, ∂x = (ĝ - mean(ĝ) - x̂ mean(ĝ ⊙ x̂)) / σ and ∂w = Σ over rows of g ⊙ x̂; rows
    that are not centred lack mean(ĝ).
    """
    x_hat = x - mean
    x_hat *= inverse
    d_weight = np.einsum("ri,ri->i", as_rows(g), as_rows(x_hat))
    d = g * inverse
    if weight is not None:
        d *= weight
    less = x_hat * mean_product(d, x_hat)
    if np.ndim(mean):
        less += row_mean(d)
    d -= less
    return cast_back(d, x), cast_back(d_weight, x)


@faster(layer_norm, of_one_dtype, auxiliary=("mean", "inverse"))
def fast_layer_norm(x, weight, bias, eps=1e-5):
    check_parameters(x, -1, weight=weight, bias=bias)
    y, mean, inverse = standardized(x, eps, True)
    if weight is not None:
        y *= weight
    if bias is not None:
        y += bias
    return cast_back(y, x), mean, inverse


@fast_layer_norm.vjp("x", "weight")
def _(g, x, weight, mean, inverse):
    return gradients(g, x, weight, mean, inverse)


@faster(rms_norm, of_one_dtype, auxiliary=("mean", "inverse"))
def fast_rms_norm(x, weight, eps=1e-5):
    check_parameters(x, -1, weight=weight)
    y, mean, inverse = standardized(x, eps, False)
    return cast_back(y if weight is None else y * weight, x), mean, inverse


fast_rms_norm.vjp("x", "weight")(gradients)
