"""Functions of each entry: by blocks on both cores, with by-products kept where they are dear."""

from __future__ import annotations

from typing import Any

import numpy as np

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
from ...ops.dtypes import floating
from ...ops.functions import abs, clip, normal_cdf, normal_pdf
from ...ops.select import where
from ..by_blocks import by_blocks
from ..limits import LIMITS
from ..overlay import faster

# ---------------------------------------------------------------- a constant power


def constant_power(a: Any, n: float) -> Any:
    """a to the power of a Python number; np.power takes fifty times as long where a is negative."""
    if n == 3:
        return a * a * a
    if n in (-1, 0, 0.5, 1, 2) or n % 1:
        return a**n  # which NumPy does without a power, or has to do with one
    size = np.power(np.abs(a), n)
    return np.copysign(size, a) if n % 2 else size


@faster(power, above=LIMITS.small_entries)
def fast_power(a, b):
    if b.__class__ in (int, float) and a.dtype.kind == "f":
        return constant_power(a, b)
    return np.power(a, b)


@fast_power.vjp("a")
def _(g, a, b):
    if b.__class__ in (int, float):  # the common constant exponents, without a second power
        return g * (2 * a) if b == 2 else g * (b * fast_power(a, b - 1)) if b else g * 0
    return power.rules["a"].function(g, a, b)


# ---------------------------------------------------------------- silu and gelu


@faster(silu, above=LIMITS.small_entries, auxiliary=("s",))
def fast_silu(x):
    s = sigmoid(x)
    return x * s, s


@fast_silu.vjp("x")
def _(g, x, s):
    return g * s * (1 + x * (1 - s))


@faster(gelu, above=LIMITS.small_entries, auxiliary=("cdf",))
def fast_gelu(x, approximate="none"):
    if approximate not in ("none", "tanh"):
        return gelu.kernel(x, approximate)
    cdf = tanh_cdf(floating(x)) if approximate == "tanh" else normal_cdf(x)
    return x * cdf, cdf


@fast_gelu.vjp("x")
def _(g, x, approximate, cdf):
    if approximate == "none":
        return g * (cdf + x * normal_pdf(x))
    u_slope = 2 * TANH_SCALE * (1 + 3 * TANH_CUBE * x * x)
    return g * (cdf + cdf * (1 - cdf) * x * u_slope)


by_blocks(fast_power, fast_silu, fast_gelu)
for _op in (relu, abs, maximum, minimum, clip, where, tanh, sigmoid, softplus, normal_cdf):
    by_blocks(faster(_op, above=LIMITS.small_entries)(_op.kernel))
