"""Smooth functions and arithmetic: results lie where earlier ones lay, steps overwrite their own.

`out_buffer` gives None for small arrays and for what compile hands in, which leaves the matter to
NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.arithmetic import add, multiply, power
from ...ops.attention import check_mask, in_dtype_of, mask_add, scale
from ...ops.dropout import dropout, factor
from ...ops.dtypes import arrayed, floating, narrowed
from ...ops.functions import (
    GAUSS,
    TANH_CUBE,
    TANH_SCALE,
    exp,
    gelu,
    normal_cdf,
    sigmoid,
    silu,
    tanh,
)
from ...ops.shape import reshape
from ..limits import LIMITS
from ..memory import in_place_buffer, out_buffer, reshaped
from .masked import masked
from .normal import normal_cdf_of

SMALL = LIMITS.small_entries

# ---------------------------------------------------------------- arithmetic


def product(a: Any, b: Any) -> Any:
    return np.multiply(a, b, out_buffer(a, b))


add.fast(above=SMALL)(lambda a, b: np.add(a, b, out_buffer(a, b)))
multiply.fast(above=SMALL)(lambda a, b: product(a, b))
multiply.fast.vjp("a")(lambda g, b: product(g, b))
multiply.fast.vjp("b")(lambda g, a: product(g, a))


@scale.fast(above=SMALL)
def _scaled(x, factor):
    if factor.__class__ is not float and np.ndim(factor) != 0:
        return scale.kernel(x, factor)
    factor = float(factor)
    return np.multiply(x, factor, out_buffer(x, factor))


scale.fast.vjp("x")(lambda g, factor: _scaled(g, factor))


def constant_power(a: Any, n: float) -> Any:
    """a to the power of a Python number; np.power takes fifty times as long where a is negative."""
    if n == 3:
        square = np.multiply(a, a, out_buffer(a))
        return np.multiply(square, a, in_place_buffer(square))
    if n in (-1, 0, 0.5, 1, 2) or n % 1:
        return a**n  # which NumPy does without a power, or has to do with one
    size = np.abs(a)
    size = np.power(size, n, in_place_buffer(size))
    return np.copysign(size, a) if n % 2 else size


@power.fast(above=LIMITS.small_entries)
def _power(a, b):
    if b.__class__ in (int, float) and a.dtype.kind == "f":
        return constant_power(a, b)
    return np.power(a, b)


@power.fast.vjp("a")
def _(g, a, b):
    if b.__class__ in (int, float):  # the common constant exponents, without a second power
        return g * (2 * a) if b == 2 else g * (b * _power(a, b - 1)) if b else g * 0
    return power.rules["a"].function(g, a, b)


@mask_add.fast(above=SMALL)
def _(scores, mask):
    scores, mask = floating(scores), arrayed(mask)
    check_mask(mask)
    mask = in_dtype_of(scores, mask)
    total = np.add(scores, mask, out_buffer(scores, mask))
    return total if mask.dtype.kind == "c" else narrowed(total, scores)


@dropout.fast(above=SMALL, auxiliary=("keep",))
def _(x, p, rng=None):
    if not isinstance(rng, np.random.Generator) or not 0 <= p <= 1:
        return dropout.kernel(x, p, rng)
    keep = rng.random(np.shape(x)) >= p
    return masked(x * factor(p), keep), keep


@dropout.fast.vjp("x")
def _(g, p, keep):
    return masked(g * factor(p), keep)


reshape.fast(above=SMALL)(reshaped)
reshape.fast.vjp("x")(lambda g, x_shape: reshaped(g, x_shape))


# ---------------------------------------------------------------- functions


exp.fast(above=SMALL)(lambda x: np.exp(x, out_buffer(x)))
exp.fast.vjp("x")(lambda g, out: product(g, out))
tanh.fast(above=SMALL)(lambda x: np.tanh(x, out_buffer(x)))


@tanh.fast.vjp("x")
def _(g, out):
    slope = np.multiply(out, out, out_buffer(out))
    slope = np.subtract(1, slope, in_place_buffer(slope))
    return np.multiply(g, slope, in_place_buffer(slope))


def logistic(x: Any) -> Any:
    """1 / (1 + e^-x), as fast whichever sign comes next."""
    if x.dtype.kind == "c":
        return sigmoid.kernel(x)
    decay = np.copysign(x, -1, out_buffer(x))
    decay = np.exp(decay, in_place_buffer(decay))
    top = np.maximum(x >= 0, decay, out=out_buffer(decay))  # 1 where x ≥ 0, e^x elsewhere
    decay += 1
    return np.divide(top, decay, in_place_buffer(top))


@sigmoid.fast(above=LIMITS.small_entries)
def _(x):
    return logistic(floating(x))


@sigmoid.fast.vjp("x")
def _(g, out):
    slope = np.subtract(1, out, out_buffer(out))
    slope *= out
    slope *= g
    return slope


@silu.fast(above=LIMITS.small_entries, auxiliary=("s",))
def _(x):
    s = logistic(floating(x))
    return np.multiply(s, x, out_buffer(s, x)), s


@silu.fast.vjp("x")
def _(g, x, s):
    slope = np.subtract(1, s, out_buffer(s))
    slope *= x
    slope += 1
    slope *= s
    slope *= g
    return slope


# ---------------------------------------------------------------- gelu


normal_cdf.fast(above=LIMITS.small_entries, traced=True)(lambda x: normal_cdf_of(x))


def tanh_form(x: Any) -> Any:
    """(1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    cdf = np.multiply(x, x, out_buffer(x))
    cdf *= TANH_SCALE * TANH_CUBE
    cdf += TANH_SCALE
    cdf *= x
    cdf = np.tanh(cdf, in_place_buffer(cdf))
    cdf += 1
    cdf *= 0.5
    return cdf


@gelu.fast(above=LIMITS.small_entries, auxiliary=("cdf",))
def _(x, approximate="none"):
    if approximate not in ("none", "tanh"):
        return gelu.kernel(x, approximate)
    x = floating(x)
    cdf = tanh_form(x) if approximate == "tanh" else normal_cdf_of(x)
    return np.multiply(x, cdf, out_buffer(x, cdf)), cdf


@gelu.fast.vjp("x")
def _(g, x, approximate, cdf):
    slope = np.multiply(x, x, out_buffer(x))
    if approximate == "none":  # Φ + x φ
        slope *= -0.5
        slope = np.exp(slope, in_place_buffer(slope))
        slope *= GAUSS
        slope *= x
        slope += cdf
    else:  # Φ + x Φ',  Φ' = 2 Φ (1 - Φ) √(2/π) (1 + 3 · 0.044715 x²)
        slope *= 6 * TANH_SCALE * TANH_CUBE
        slope += 2 * TANH_SCALE
        slope *= x
        slope *= np.subtract(1, cdf, out_buffer(cdf))
        slope += 1
        slope *= cdf
    slope *= g
    return slope
