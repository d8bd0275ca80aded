"""Smooth functions of each entry by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Call, call, op
from .dtypes import arrayed, floating
from .elementwise import elementwise
from .samples import each, unary

__all__ = ["exp", "gelu", "log", "sigmoid", "silu", "sqrt", "tanh"]


@elementwise(r"e^{<x>}", r"<g> \odot <out>", 1, 1)
def exp(x):
    """The exponential of each entry: y = e^x.

    >>> exp(np.array([0.0, 1.0])).round(4)
    array([1.    , 2.7183])
    """
    return np.exp(x)


@exp.vjp("x")
def _(g, out):
    return g * out


@elementwise(r"\log <x>", r"<g> \oslash <x>", 1, 1, low=0.5, high=3.0)
def log(x):
    """The natural logarithm of each entry: y = log x.

    >>> log(np.array([1.0, 10.0])).round(4)
    array([0.    , 2.3026])
    """
    return np.log(x)


@log.vjp("x")
def _(g, x):
    return g / x


@elementwise(r"\sqrt{<x>}", r"<g> \oslash (2 <out>)", 1, 2, low=0.5, high=3.0)
def sqrt(x):
    """The square root of each entry: y = √x.

    >>> sqrt(np.array([4.0, 9.0]))
    array([2., 3.])
    """
    return np.sqrt(x)


@sqrt.vjp("x")
def _(g, out):
    return g / (2 * out)


@op(
    tex=r"\tanh <x>",
    vjp_tex={"x": r"<g> \odot (1 - <out>^{\circ 2})"},
    flops=each(1),
    vjp_flops={"x": each(3)},
    samples=unary(),
    saturates=("entries saturated", lambda out: np.abs(out) > 0.99),
)
def tanh(x):
    """The hyperbolic tangent of each entry: y = tanh x.

    >>> tanh(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7616])
    """
    return np.tanh(x)


@tanh.vjp("x")
def _(g, out):
    return g * (1 - out * out)


@op(
    tex=r"\sigma(<x>)",
    vjp_tex={"x": r"<g> \odot <out> \odot (1 - <out>)"},
    flops=each(4),
    vjp_flops={"x": each(3)},
    samples=unary(-3.0, 3.0),
    saturates=("entries saturated", lambda out: np.abs(out - 0.5) > 0.49),
)
def sigmoid(x):
    """The logistic function of each entry: y = 1 / (1 + e^-x), without overflow.

    >>> sigmoid(np.array([-800.0, 0.0, 800.0]))
    array([0. , 0.5, 1. ])
    """
    x = floating(x)
    decay = np.exp(-np.maximum(x, -x))  # e^-|x|
    return np.maximum(x >= 0, decay) / (1 + decay)  # 1 where x ≥ 0, e^x elsewhere


@sigmoid.vjp("x")
def _(g, out):
    return g * out * (1 - out)


@elementwise(
    r"<x> \odot \sigma(<x>)",
    r"<g> \odot \sigma(<x>) \odot (1 + <x> \odot (1 - \sigma(<x>)))",
    5,
    9,
    low=-3.0,
    high=3.0,
)
def silu(x):
    """The sigmoid-weighted entry, or swish: y = x σ(x).

    Source: Elfwing et al. 2017, arXiv:1702.03118.

    >>> silu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7311])
    """
    return x * sigmoid(x)


@silu.vjp("x")
def _(g, x):
    s = sigmoid(x)
    return g * s * (1 + x * (1 - s))


# ---------------------------------------------------------------- the normal distribution

GAUSS = 0.3989422804014327  # 1/√(2π)


@elementwise(r"\Phi(<x>)", r"<g> \odot \varphi(<x>)", 7, 5, analytic=False, low=-3.0, high=3.0)
def normal_cdf(x):
    """The standard normal distribution function: y = Φ(x) = (1 + erf(x/√2)) / 2.

    >>> normal_cdf(np.array([0.0, 1.0])).round(4)
    array([0.5   , 0.8413])
    """
    x = floating(x)
    made = [0.5 * math.erfc(-math.sqrt(0.5) * entry) for entry in np.ravel(x).tolist()]
    return np.array(made, x.dtype).reshape(x.shape)


@normal_cdf.vjp("x")
def _(g, x):
    return g * normal_pdf(x)


def normal_pdf(x):
    """φ(x), the slope of Φ."""
    return GAUSS * np.exp(-0.5 * x * x)


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


def _gelu_samples(rng: np.random.Generator) -> Iterator[Call]:
    for form in ("none", "tanh"):
        for sample in unary(-3.0, 3.0)(rng):
            yield call(*sample.args, approximate=form)


@op(
    tex=_gelu_tex,
    vjp_tex={"x": _gelu_vjp_tex},
    flops=each(8),
    vjp_flops={"x": lambda out, approximate: (14 if approximate == "none" else 19) * out.size},
    samples=_gelu_samples,
    analytic=False,
)
def gelu(x, approximate="none"):
    """The Gaussian error linear unit: y = x Φ(x), Φ the normal distribution function.

    approximate="tanh" takes Φ(x) ≈ (1 + tanh(√(2/π)(x + 0.044715 x³))) / 2.
    Raises: ArgumentError for another form.  Source: Hendrycks & Gimpel 2016, arXiv:1606.08415.

    >>> gelu(np.array([-1.0, 1.0])).round(4)
    array([-0.1587,  0.8413])
    >>> gelu(np.array([-1.0, 1.0]), approximate="tanh").round(4)
    array([-0.1588,  0.8412])
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'approximate must be "none" or "tanh", got {approximate!r}')
    return x * (normal_cdf(x) if approximate == "none" else tanh_cdf(arrayed(x)))


@gelu.vjp("x")
def _(g, x, approximate):
    if approximate == "none":
        return g * (normal_cdf(x) + x * normal_pdf(x))
    cdf = tanh_cdf(x)
    u_slope = TANH_SCALE * (1 + 3 * TANH_CUBE * x * x)
    return g * cdf * (1 + 2 * x * (1 - cdf) * u_slope)


def tanh_cdf(x):
    """(1 + tanh u) / 2, u = √(2/π) (x + 0.044715 x³), which is nearly Φ(x)."""
    return 0.5 * (1 + np.tanh(TANH_SCALE * (x + TANH_CUBE * x * x * x)))
