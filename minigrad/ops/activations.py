"""Activations: functions of each entry.

At a kink the slope is a convention, stated with each op. NaN is neither above nor below a kink: its
gradient passes, as if the entry had been taken.
"""

from __future__ import annotations

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import is_tensor, op
from .dtypes import as_array, cast_back, floating, masked
from .functions import WIDE_INPUTS, at_zero, elementwise, normal_cdf, normal_pdf
from .samples import of_shapes

__all__ = [
    "elu",
    "gelu",
    "leaky_relu",
    "relu",
    "sigmoid",
    "silu",
    "softplus",
    "tanh",
]


# ---------------------------------------------------------------- smooth


def _dead_units(out):
    """Of each unit, whether no entry is positive."""
    return _for_all_examples(out <= 0)


def _faded_units(out):
    """The same of gelu and silu, which end at -0 from below."""
    return _for_all_examples(np.signbit(out) & (out > -FADED))


def _for_all_examples(dead):
    """Of each unit, whether all of its entries are dead; its axis is the one where most are so."""
    ndim = dead.ndim
    if ndim < 2 or not dead.size:
        return dead
    by_axis = [dead.all(axis=(*range(i), *range(i + 1, ndim))) for i in range(ndim - 1, 0, -1)]
    return max(by_axis, key=np.mean)


FADED = 1e-3  # nearer to 0 than this, gelu and silu have no slope left


@elementwise(
    r"\tanh <x>",
    r"<g> \odot (1 - <out>^{\circ 2})",
    1,
    saturates=("entries saturated", lambda out: np.abs(out) > 0.99),
)
def tanh(x):
    """Squeezes each entry into the range from -1 to 1: y = tanh x.

    >>> tanh(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7616])
    """
    return np.tanh(x)


@tanh.vjp("x")
def _(g, out):
    """The gradient is multiplied by one less the squared result, which is small near both ends."""
    return g * (1 - out * out)


@elementwise(
    r"\sigma(<x>)",
    r"<g> \odot <out> \odot (1 - <out>)",
    4,
    samples=WIDE_INPUTS,
    saturates=("entries saturated", lambda out: np.abs(out - 0.5) > 0.49),
)
def sigmoid(x):
    """Squeezes each entry into the range from 0 to 1: y = 1 / (1 + e^-x), without overflow.

    >>> sigmoid(np.array([-800.0, 0.0, 800.0]))
    array([0. , 0.5, 1. ])
    """
    x = floating(x)
    with np.errstate(over="ignore"):
        y = 1 / (1 + np.exp(-x))
    lost = y == 0  # where e^-x was infinite
    return np.where(lost, np.exp(np.minimum(x, 0)), y) if np.any(lost) else y


@sigmoid.vjp("x")
def _(g, out):
    """The gradient is multiplied by the result and by one less the result: a quarter at most."""
    return g * out * (1 - out)


@elementwise(
    r"<x> \odot \sigma(<x>)",
    r"<g> \odot \sigma(<x>) \odot (1 + <x> \odot (1 - \sigma(<x>)))",
    5,
    samples=WIDE_INPUTS,
    saturates=("units dead", _faded_units),
)
def silu(x):
    """Multiplies each entry by its own sigmoid: y = x σ(x), also called swish.

    Source: Elfwing et al. 2017, arXiv:1702.03118.

    >>> silu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7311])
    """
    return x * sigmoid(x)


@silu.vjp("x")
def _(g, x):
    """The gradient is multiplied by the sigmoid plus the entry times the sigmoid's slope."""
    s = sigmoid(x)
    return g * s * (1 + x * (1 - s))


@elementwise(r"\log(1 + e^{<x>})", r"<g> \odot \sigma(<x>)", 4, samples=WIDE_INPUTS)
def softplus(x):
    """Bends smoothly from 0 to the entry itself, like a relu without a corner: y = log(1 + e^x).

    >>> softplus(np.array([-800.0, 0.0, 8.0])).round(4)
    array([0.    , 0.6931, 8.0003])
    """
    x = floating(x)
    return np.maximum(x, 0) + np.log1p(np.exp(-np.maximum(x, -x)))


@softplus.vjp("x")
def _(g, x):
    """The gradient is multiplied by the sigmoid of the input."""
    return g * sigmoid(x)


# ---------------------------------------------------------------- gelu


TANH_SCALE = 0.7978845608028654  # √(2/π)
TANH_CUBE = 0.044715
_U = r"\quad u = \sqrt{2 / \pi}\, (<x> + 0.044715\, <x>^{\circ 3})"
_SLOPE = r"\sqrt{2 / \pi}\, (1 + 0.134145\, <x>^{\circ 2})"  # of u


def _gelu_tex(approximate):
    if approximate == "tanh":
        return rf"\tfrac12 <x> \odot (1 + \tanh u), {_U}"
    return r"<x> \odot \Phi(<x>)"


def _gelu_vjp_tex(approximate):
    if approximate == "tanh":
        slope = rf"1 + \tanh u + <x> \odot (1 - \tanh^2 u) \odot {_SLOPE}"
        return rf"\tfrac12 <g> \odot ({slope}), {_U}"
    return r"<g> \odot (\Phi(<x>) + <x> \odot \varphi(<x>))"


@op(
    tex=_gelu_tex,
    vjp_tex={"x": _gelu_vjp_tex},
    flops=lambda out, approximate: (8 if approximate == "none" else 9) * out.size,
    samples=of_shapes(
        ([2, 3, 5],), ([],), ([0, 3],), ([2, 3, 5], "tanh"), ([], "tanh"), low=-3.0, high=3.0
    ),
    auxiliary=("cdf",),
    saturates=("units dead", _faded_units),
    analytic=False,
)
def gelu(x, approximate="none"):
    """Multiplies each entry by the share of a normal distribution that lies below it: y = x Φ(x).

    approximate="tanh" takes Φ(x) ≈ (1 + tanh(√(2/π)(x + 0.044715 x³))) / 2.
    Raises: ArgumentError for another form.  Source: Hendrycks & Gimpel 2016, arXiv:1606.08415.

    >>> gelu(np.array([-1.0, 1.0])).round(4)
    array([-0.1587,  0.8413])
    >>> gelu(np.array([-1.0, 1.0]), approximate="tanh").round(4)
    array([-0.1588,  0.8412])
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'approximate must be "none" or "tanh", got {approximate!r}')
    cdf = normal_cdf(x) if approximate == "none" else tanh_cdf(as_array(x))
    return x * cdf, cdf


@gelu.vjp("x")
def _(g, x, approximate, cdf):
    """The gradient is multiplied by that share plus the entry times the share's slope."""
    if is_tensor(g):  # which is to be differentiated too
        cdf = normal_cdf(x) if approximate == "none" else tanh_cdf(x)
    if approximate == "none":
        return g * (cdf + x * normal_pdf(x))
    u_slope = TANH_SCALE * (1 + 3 * TANH_CUBE * x * x)
    return g * (cdf + 2 * cdf * (1 - cdf) * x * u_slope)


def tanh_cdf(x):
    """(1 + tanh u) / 2, u = √(2/π) (x + 0.044715 x³), which is nearly Φ(x)."""
    return 0.5 * (1 + np.tanh(TANH_SCALE * (x + TANH_CUBE * x * x * x)))


# ---------------------------------------------------------------- with a kink


@elementwise(
    r"\max(<x>, 0)",
    r"<g> \odot [<x> > 0]",
    1,
    analytic=False,
    kinks=at_zero,
    saturates=("units dead", _dead_units),
)
def relu(x):
    """Keeps each positive entry and makes all others zero: y = max(x, 0). Its gradient at 0 is 0.

    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return np.maximum(x, 0)


@relu.vjp("x")
def _(g, out):
    """The gradient passes where the result is above zero and stops elsewhere."""
    return masked(g, out)


@elementwise(
    r"\max(<x>, 0) + <negative_slope> \min(<x>, 0)",
    r"<g> \odot ([<x> > 0] + <negative_slope> [<x> \le 0])",
    1,
    analytic=False,
    kinks=at_zero,
)
def leaky_relu(x, negative_slope: float = 0.01):
    """Keeps each entry above 0 and makes the others small: times a slope, which holds at 0 too.

    Source: Maas et al. 2013, https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf.

    >>> leaky_relu(np.array([-1.0, 2.0]), 0.1)
    array([-0.1,  2. ])
    """
    x = floating(x)
    return cast_back(np.maximum(x, 0) + negative_slope * np.minimum(x, 0), x)


@leaky_relu.vjp("x")
def _(g, x, negative_slope):
    """The gradient passes where the entry is above zero, and a small part of it elsewhere."""
    return masked(g, x > 0) + negative_slope * masked(g, np.logical_not(x > 0))


@elementwise(
    r"\max(<x>, 0) + <alpha> (e^{\min(<x>, 0)} - 1)",
    r"<g> \odot ([<x> > 0] + <alpha> e^{<x>} \odot [<x> \le 0])",
    3,
    analytic=False,
    kinks=lambda x, alpha: at_zero(x) & (alpha != 1),
)
def elu(x, alpha: float = 1.0):
    """Keeps each entry above 0 and bends the others down to a floor: α (e^x - 1), of slope α at 0.

    Source: Clevert et al. 2015, arXiv:1511.07289.

    >>> elu(np.array([-1.0, 2.0])).round(4)
    array([-0.6321,  2.    ])
    """
    x = floating(x)
    return cast_back(np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0)), x)


@elu.vjp("x")
def _(g, x, alpha):
    """The gradient passes above zero, and below it is multiplied by a slope that falls to zero."""
    below = masked(g * (alpha * np.exp(np.minimum(x, 0))), x <= 0)
    return masked(g, np.logical_not(x <= 0)) + below
