"""Norms of rows in their own dtype, with each row's mean and root kept for backward.

float16 takes the op's own kernel and rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.norms import check_parameters, layer_norm, rms_norm
from ..blas_sums import as_rows
from ..limits import LIMITS
from ..memory import in_place_buffer, out_buffer
from .softmax import row_dot, row_sum


def _is_wide(x: Any, *settings: Any) -> bool:
    return x.dtype.char in "fd" and x.ndim > 0


def _inverse_root(x: Any, eps: float) -> Any:
    """1 / √(mean(x²) + ε) of each row."""
    return ((_mean_square(x) + eps) ** -0.5).astype(x.dtype, copy=False)


def _mean_square(x: Any) -> Any:
    """mean(x²) of each row; of float32 in float64, if there are few or they would overflow."""
    if x.dtype.char == "d":
        return row_dot(x, x) / x.shape[-1]
    if x.size > LIMITS.small_entries:
        with np.errstate(over="ignore"):
            found = row_dot(x, x) / x.shape[-1]
        if _largest(found) < np.inf:
            return found
    return _mean_square(x.astype(np.float64))


def _largest(x: Any) -> Any:
    """x.max(), of a plain array in a third of the time."""
    return x.item(x.argmax()) if x.__class__ is np.ndarray else x.max()


def _back_to_scaled(g: Any, x: Any, weight: Any, inverse: Any, needed: Any) -> tuple[Any, Any]:
    """The gradients of x and w in (x · inverse) ⊙ w, as if `inverse` were a constant.

    ĝ · inverse,    Σ over rows of (g · inverse) ⊙ x,    with ĝ = g ⊙ w
    """
    d_x = np.multiply(g, inverse, out_buffer(g, inverse))
    d_weight = np.einsum("ri,ri->i", as_rows(d_x), as_rows(x)) if needed[1] else None
    if weight is not None and needed[0]:
        d_x *= weight
    return d_x, d_weight


def _along(x: Any, d_x: Any, inverse: Any) -> tuple[Any, Any]:
    """Two factors of x̂ mean(d_x ⊙ x̂), x̂ = x · inverse: x or x̂, and a number for each row."""
    if _largest(-inverse) > -1e-12:  # whose square vanishes in float32
        x, inverse = x * inverse, 1.0
    return x, row_dot(d_x, x) * (inverse * inverse / x.shape[-1])


def _times(x: Any, weight: Any) -> Any:
    return x if weight is None else np.multiply(x, weight, in_place_buffer(x, weight))


# ---------------------------------------------------------------- layer_norm


@layer_norm.fast(above=LIMITS.small_entries, when=_is_wide, auxiliary=("mean", "inverse"))
def _(x, weight, bias, eps=1e-5):
    check_parameters(x, weight, bias)
    mean = row_sum(x) / x.shape[-1]
    out = np.subtract(x, mean, out_buffer(x, mean))
    inverse = _inverse_root(out, eps)
    out *= inverse
    out = _times(out, weight)
    return out if bias is None else np.add(out, bias, in_place_buffer(out, bias)), mean, inverse


@layer_norm.fast.vjp("x", "weight")
def _(g, x, weight, eps, mean, inverse, needed):
    centred = np.subtract(x, mean, out_buffer(x, mean))
    d_x, d_weight = _back_to_scaled(g, centred, weight, inverse, needed)
    if not needed[0]:
        return None, d_weight
    mean_of_d_x = row_sum(d_x) / x.shape[-1]
    centred, along = _along(centred, d_x, inverse)
    centred *= along
    d_x -= centred
    d_x -= mean_of_d_x
    return d_x, d_weight


# ---------------------------------------------------------------- rms_norm


@rms_norm.fast(above=LIMITS.small_entries, when=_is_wide, auxiliary=("inverse",))
def _(x, weight, eps=1e-5):
    check_parameters(x, weight)
    inverse = _inverse_root(x, eps)
    return _times(np.multiply(x, inverse, out_buffer(x, inverse)), weight), inverse


@rms_norm.fast.vjp("x", "weight")
def _(g, x, weight, eps, inverse, needed):
    d_x, d_weight = _back_to_scaled(g, x, weight, inverse, needed)
    if not needed[0]:
        return None, d_weight
    x, along = _along(x, d_x, inverse)
    d_x -= np.multiply(x, along, out_buffer(x, along))
    return d_x, d_weight
