"""Norms of rows in their own dtype, with each row's mean and root kept for backward.

float16 takes the op's own kernel and rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.norms import check_parameters, layer_norm, rms_norm
from ..blas_sums import as_rows
from ..limits import LIMITS
from ..memory import empty
from ..threads import in_slices
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


def _along(x: Any, d_x: Any, inverse: Any) -> tuple[Any, Any]:
    """Two factors of x̂ mean(d_x ⊙ x̂), x̂ = x · inverse: x or x̂, and a number for each row."""
    if _largest(-inverse) > -1e-12:  # whose square vanishes in float32
        x, inverse = x * inverse, 1.0
    return x, row_dot(d_x, x) * (inverse * inverse / x.shape[-1])


# ---------------------------------------------------------------- forward and backward, by rows


def _forward(x: Any, weight: Any, bias: Any, eps: float, centre: bool) -> Any:
    """(x - mean) · inverse ⊙ weight + bias, with each row's mean (0 unless centred) and inverse."""
    if x.__class__ is not np.ndarray:
        return _followed_forward(x, weight, bias, eps, centre)
    rows, out = as_rows(x), empty(x.shape, x.dtype)
    made = as_rows(out)
    mean, inverse = (np.zeros((len(rows), 1), x.dtype) for _ in range(2))

    def work(own: slice) -> None:
        y = made[own]
        if centre:
            mean[own] = row_sum(rows[own]) / x.shape[-1]
            np.subtract(rows[own], mean[own], y)
        inverse[own] = _inverse_root(y if centre else rows[own], eps)
        np.multiply(y if centre else rows[own], inverse[own], y)
        if weight is not None:
            y *= weight
        if bias is not None:
            y += bias

    in_slices(work, len(rows), x.size)
    return out, mean, inverse


def _backward(g: Any, x: Any, weight: Any, mean: Any, inverse: Any, needed: Any) -> Any:
    """With ĝ = g ⊙ w and x̂ = (x - mean) · inverse, for each row

        ∂x = (ĝ - mean(ĝ) - x̂ mean(ĝ ⊙ x̂)) · inverse,    ∂w = Σ over rows of g ⊙ x̂

    mean: None for rows that are not centred, whose ∂x lacks mean(ĝ).
    """
    if x.__class__ is not np.ndarray:
        return _followed_backward(g, x, weight, mean, inverse, needed)
    width, d_x = x.shape[-1], empty(x.shape, x.dtype)
    rows = as_rows(x)
    gradients = as_rows(g)
    made = as_rows(d_x)
    sums: dict[int, Any] = {}  # of ∂w, by the first row

    def work(own: slice) -> None:
        centred = rows[own] if mean is None else rows[own] - mean[own]
        d = np.multiply(gradients[own], inverse[own], made[own])
        if needed[1]:
            sums[own.start] = np.einsum("ri,ri->i", d, centred)
        if not needed[0]:
            return
        if weight is not None:
            d *= weight
        mean_of_d = None if mean is None else row_sum(d) / width
        centred, along = _along(centred, d, inverse[own])
        d -= centred * along
        if mean is not None:
            d -= mean_of_d

    in_slices(work, len(rows), x.size)
    d_weight = np.sum([sums[first] for first in sorted(sums)], axis=0) if needed[1] else None
    return d_x if needed[0] else None, d_weight


# ---------------------------------------------------------------- the same as compile follows it


def _followed_forward(
    x: Any, weight: Any, bias: Any, eps: float, centre: bool
) -> tuple[Any, Any, Any]:
    mean = row_sum(x) / x.shape[-1] if centre else None
    out = x - mean if centre else x
    inverse = _inverse_root(out, eps)
    out = out * inverse
    if weight is not None:
        out *= weight
    return out if bias is None else out + bias, mean, inverse


def _followed_backward(g: Any, x: Any, weight: Any, mean: Any, inverse: Any, needed: Any) -> Any:
    centred = x if mean is None else x - mean
    d = g * inverse
    d_weight = np.einsum("ri,ri->i", as_rows(d), as_rows(centred)) if needed[1] else None
    if not needed[0]:
        return None, d_weight
    if weight is not None:
        d *= weight
    mean_of_d = None if mean is None else row_sum(d) / x.shape[-1]
    centred, along = _along(centred, d, inverse)
    d -= centred * along
    return d if mean_of_d is None else d - mean_of_d, d_weight


# ---------------------------------------------------------------- the overlays


@layer_norm.fast(above=LIMITS.small_entries, when=_is_wide, auxiliary=("mean", "inverse"))
def _(x, weight, bias, eps=1e-5):
    check_parameters(x, weight, bias)
    return _forward(x, weight, bias, eps, centre=True)


@layer_norm.fast.vjp("x", "weight")
def _(g, x, weight, mean, inverse, needed):
    return _backward(g, x, weight, mean, inverse, needed)


@rms_norm.fast(above=LIMITS.small_entries, when=_is_wide, auxiliary=("inverse",))
def _(x, weight, eps=1e-5):
    check_parameters(x, weight)
    out, _, inverse = _forward(x, weight, None, eps, centre=False)
    return out, inverse


@rms_norm.fast.vjp("x", "weight")
def _(g, x, weight, inverse, needed):
    return _backward(g, x, weight, None, inverse, needed)
