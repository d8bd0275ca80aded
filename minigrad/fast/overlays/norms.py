"""Norms of rows in their own dtype, with each row's mean and root kept for backward.

float16 takes the op's own kernel and rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.norms import check_parameters, layer_norm, rms_norm
from ...ops.products import as_rows
from ..limits import LIMITS
from ..overlay import faster, of_one_dtype
from ..threads import in_cache, run

FAR = 16  # times σ: the mean of a row farther from 0 is corrected, as its rounding would show


def _is_wide(x: Any, *others: Any) -> bool:
    return x.dtype.char in "fd" and x.ndim > 0 and of_one_dtype(x, *others)


def _row_sum(x: Any) -> Any:
    """The sum of each row, kept at length 1; einsum adds twice as fast as sum."""
    plain = x.__class__ is np.ndarray
    return np.einsum("...i->...", x)[..., None] if plain else x.sum(axis=-1, keepdims=True)


def _row_dot(a: Any, b: Any) -> Any:
    """The sum of a ⊙ b along each row, kept at length 1; in one pass."""
    plain = a.__class__ is np.ndarray
    return np.vecdot(a, b)[..., None] if plain else (a * b).sum(axis=-1, keepdims=True)


def _inverse_root(x: Any, eps: float) -> Any:
    """1 / √(mean(x²) + ε) of each row."""
    return ((_mean_square(x) + eps) ** -0.5).astype(x.dtype, copy=False)


def _mean_square(x: Any) -> Any:
    """mean(x²) of each row; of float32 in float64, if there are few or they would overflow."""
    if x.dtype.char == "d":
        return _row_dot(x, x) / x.shape[-1]
    if x.size > LIMITS.small_entries:
        with np.errstate(over="ignore"):
            found = _row_dot(x, x) / x.shape[-1]
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
    return x, _row_dot(d_x, x) * (inverse * inverse / x.shape[-1])


# ---------------------------------------------------------------- forward and backward


def _forward(
    x: Any, weight: Any, bias: Any, eps: float, centre: bool, made: Any = None
) -> tuple[Any, ...]:
    """(x - mean) · inverse ⊙ weight + bias, in `made`, each row's mean, if centred, and inverse."""
    mean: Any = _row_sum(x) / x.shape[-1] if centre else None
    out = np.subtract(x, mean, made) if centre else x
    inverse = _inverse_root(out, eps)
    if centre and _largest(np.abs(mean / FAR) - 1 / inverse) > 0:
        mean = mean + _row_sum(out) / x.shape[-1]
        out = np.subtract(x, mean, made)
        inverse = _inverse_root(out, eps)
    out = np.multiply(out, inverse, made)
    if weight is not None:
        out *= weight
    if bias is not None:
        out += bias
    return (out, mean, inverse) if centre else (out, inverse)


def _backward(
    g: Any, x: Any, weight: Any, mean: Any, inverse: Any, needed: Any, made: Any = None
) -> tuple[Any, Any]:
    """With ĝ = g ⊙ w and x̂ = (x - mean) · inverse, for each row

        ∂x = (ĝ - mean(ĝ) - x̂ mean(ĝ ⊙ x̂)) · inverse,    ∂w = Σ over rows of g ⊙ x̂

    mean: None for rows that are not centred, whose ∂x lacks mean(ĝ).
    """
    centred = x if mean is None else x - mean
    d = np.multiply(g, inverse, made)
    d_weight = np.einsum("ri,ri->i", as_rows(d), as_rows(centred)) if needed[1] else None
    if not needed[0]:
        return None, d_weight
    if weight is not None:
        d *= weight
    mean_of_d = None if mean is None else _row_sum(d) / x.shape[-1]
    centred, along = _along(centred, d, inverse)
    d -= centred * along
    if mean_of_d is not None:
        d -= mean_of_d
    return d, d_weight


def _forward_by_rows(x: Any, weight: Any, bias: Any, eps: float, centre: bool) -> Any:
    if x.__class__ is not np.ndarray:  # as compile follows it
        return _forward(x, weight, bias, eps, centre)
    out = np.empty(x.shape, x.dtype)
    rows, made = as_rows(x), as_rows(out)
    kept = [np.empty((*x.shape[:-1], 1), x.dtype) for _ in range(1 + centre)]
    of_rows = [as_rows(values) for values in kept]

    def work(part: slice) -> None:
        _, *found = _forward(rows[part], weight, bias, eps, centre, made[part])
        for whole, values in zip(of_rows, found, strict=True):
            whole[part] = values

    run(work, in_cache(len(rows), x.size))
    return out, *kept


def _backward_by_rows(g: Any, x: Any, weight: Any, mean: Any, inverse: Any, needed: Any) -> Any:
    if x.__class__ is not np.ndarray:
        return _backward(g, x, weight, mean, inverse, needed)
    d_x = np.empty(x.shape, x.dtype)
    rows, gradients, made, inverses = map(as_rows, (x, g, d_x, inverse))
    means = None if mean is None else as_rows(mean)
    sums: dict[int, Any] = {}  # of ∂w, by the first row

    def work(part: slice) -> None:
        part_mean = None if means is None else means[part]
        _, sums[part.start] = _backward(
            gradients[part], rows[part], weight, part_mean, inverses[part], needed, made[part]
        )

    run(work, in_cache(len(rows), x.size))
    d_weight = np.sum([sums[first] for first in sorted(sums)], axis=0) if needed[1] else None
    return d_x if needed[0] else None, d_weight


# ---------------------------------------------------------------- the overlays


@faster(layer_norm, above=LIMITS.small_entries, when=_is_wide, auxiliary=("mean", "inverse"))
def fast_layer_norm(x, weight, bias, eps=1e-5):
    check_parameters(x, weight, bias)
    return _forward_by_rows(x, weight, bias, eps, True)


@fast_layer_norm.vjp("x", "weight")
def _(g, x, weight, mean, inverse, needed):
    return _backward_by_rows(g, x, weight, mean, inverse, needed)


@faster(rms_norm, above=LIMITS.small_entries, when=_is_wide, auxiliary=("inverse",))
def fast_rms_norm(x, weight, eps=1e-5):
    check_parameters(x, weight)
    return _forward_by_rows(x, weight, None, eps, False)


@fast_rms_norm.vjp("x", "weight")
def _(g, x, weight, inverse, needed):
    return _backward_by_rows(g, x, weight, None, inverse, needed)
