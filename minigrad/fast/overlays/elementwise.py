"""Functions of each entry: by blocks on both cores, with by-products kept where they are dear."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.op import floating
from ...ops.activations import (
    TANH_CUBE,
    TANH_SCALE,
    gelu,
    relu,
    sigmoid,
    silu,
    softplus,
    tanh,
    tanh_cdf,
)
from ...ops.arithmetic import maximum, minimum, power
from ...ops.functions import abs, clip, normal_cdf, normal_pdf
from ...ops.select import where
from ..by_blocks import by_blocks
from ..limits import LIMITS
from .normal import normal_cdf_of

# ---------------------------------------------------------------- a constant power


def constant_power(a: Any, n: float) -> Any:
    """a to the power of a Python number; np.power takes fifty times as long where a is negative."""
    if n == 3:
        return a * a * a
    if n in (-1, 0, 0.5, 1, 2) or n % 1:
        return a**n  # which NumPy does without a power, or has to do with one
    size = np.power(np.abs(a), n)
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


# ---------------------------------------------------------------- silu and gelu


@silu.fast(above=LIMITS.small_entries, auxiliary=("s",))
def _(x):
    s = sigmoid(x)
    return x * s, s


@silu.fast.vjp("x")
def _(g, x, s):
    return g * s * (1 + x * (1 - s))


normal_cdf.fast(above=LIMITS.small_entries, traced=True)(normal_cdf_of)


@gelu.fast(above=LIMITS.small_entries, auxiliary=("cdf",))
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


by_blocks(
    power, relu, abs, maximum, minimum, clip, where, tanh, sigmoid, silu, softplus, normal_cdf, gelu
)
