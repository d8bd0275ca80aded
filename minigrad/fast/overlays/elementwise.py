"""Functions of each entry: by blocks on both cores, with by-products kept where they are dear."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.op import floating
from ...ops.arithmetic import power
from ...ops.dropout import dropout, factor
from ...ops.functions import (
    TANH_CUBE,
    TANH_SCALE,
    gelu,
    normal_cdf,
    normal_pdf,
    sigmoid,
    silu,
    softplus,
    tanh,
    tanh_cdf,
)
from ..by_blocks import by_blocks, run_by_blocks
from ..limits import LIMITS
from ..memory import in_place_buffer, out_buffer
from .masked import masked
from .normal import normal_cdf_of

SMALL = LIMITS.small_entries

# ---------------------------------------------------------------- arithmetic


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


@dropout.fast(above=SMALL, auxiliary=("keep",))
def _(x, p, rng=None):
    if not isinstance(rng, np.random.Generator) or not 0 <= p <= 1:
        return dropout.kernel(x, p, rng)
    keep = rng.random(np.shape(x)) >= p
    return masked(x * factor(p), keep), keep


@dropout.fast.vjp("x")
def _(g, p, keep):
    return masked(g * factor(p), keep)


# ---------------------------------------------------------------- functions

tanh.fast(above=SMALL)(lambda x: np.tanh(x, out_buffer(x)))


@tanh.fast.vjp("x")
def _(g, out):
    slope = np.multiply(out, out, out_buffer(out))
    slope = np.subtract(1, slope, in_place_buffer(slope))
    return np.multiply(g, slope, in_place_buffer(slope))


LOW = -80.0  # from here on e^-x is finite in float32


def logistic(x: Any, out: Any) -> None:
    """out ← 1 / (1 + e^-x); e^x far below 0, where e^-x would overflow."""
    with np.errstate(over="ignore"):
        np.negative(x, out)
        np.exp(out, out)
        out += 1
        np.divide(1, out, out)
    if not np.min(x, initial=0) > LOW:
        np.copyto(out, np.exp(x, where=x < LOW, out=np.zeros_like(x)), where=x < LOW)


def is_wide(x: Any) -> bool:
    return x.dtype.char in "fd"


@sigmoid.fast(above=SMALL, when=is_wide)
def _(x):
    return run_by_blocks(logistic, x, into=True)


@sigmoid.fast.vjp("x")
def _(g, out):
    def slope(out, g, made):
        np.subtract(1, out, made)
        made *= out
        made *= g

    return run_by_blocks(slope, out, g, into=True)


@silu.fast(above=SMALL, when=is_wide, auxiliary=("s",))
def _(x):
    s = run_by_blocks(logistic, x, into=True)
    return np.multiply(s, x, out_buffer(s, x)), s


@silu.fast.vjp("x")
def _(g, x, s):
    def slope(x, s, g, made):
        np.subtract(1, s, made)
        made *= x
        made += 1
        made *= s
        made *= g

    return run_by_blocks(slope, x, s, g, into=True)


# ---------------------------------------------------------------- gelu

normal_cdf.fast(above=SMALL, traced=True)(lambda x: normal_cdf_of(x))


@gelu.fast(above=SMALL, auxiliary=("cdf",))
def _(x, approximate="none"):
    if approximate not in ("none", "tanh"):
        return gelu.kernel(x, approximate)
    cdf = tanh_cdf(floating(x)) if approximate == "tanh" else normal_cdf(x)
    return x * cdf, cdf


@gelu.fast.vjp("x")
def _(g, x, approximate, cdf):
    if approximate == "none":
        return g * (cdf + x * normal_pdf(x))
    u_slope = 2 * TANH_SCALE * (1 + 3 * TANH_CUBE * x * x)
    return g * cdf * (1 + x * (1 - cdf) * u_slope)


by_blocks(softplus, gelu)
