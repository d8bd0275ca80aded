"""The short way to declare a function of each entry by itself, and the functions of every table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.op import op
from .dtypes import floating
from .samples import each, unary

__all__ = ["cos", "erf", "expm1", "log1p", "sign", "sin", "square"]


def elementwise(
    tex: str, vjp_tex: str, cost: int, vjp_cost: int, analytic: bool = True, **drawn: float
) -> Callable[[Callable[..., Any]], Any]:
    """Declare an op of one input x: both formulas, and operations per entry, forward and backward.

    Args: drawn: where its samples come from, as `unary` takes it (low, high, kink).
    """
    return op(
        tex=tex,
        vjp_tex={"x": vjp_tex},
        flops=each(cost),
        vjp_flops={"x": each(vjp_cost)},
        samples=unary(**drawn),
        analytic=analytic,
    )


@elementwise(r"\sin <x>", r"<g> \odot \cos <x>", 1, 2)
def sin(x):
    """The sine of each entry: y = sin x.

    >>> sin(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8415])
    """
    return np.sin(x)


@sin.vjp("x")
def _(g, x):
    return g * np.cos(x)


@elementwise(r"\cos <x>", r"-<g> \odot \sin <x>", 1, 3)
def cos(x):
    """The cosine of each entry: y = cos x.

    >>> cos(np.array([0.0, 1.0])).round(4)
    array([1.    , 0.5403])
    """
    return np.cos(x)


@cos.vjp("x")
def _(g, x):
    return -g * np.sin(x)


@elementwise(r"\log(1 + <x>)", r"<g> \oslash (1 + <x>)", 1, 2, low=-0.5)
def log1p(x):
    """The logarithm of 1 + x, exact for small x too: y = log(1 + x).

    >>> log1p(np.array([0.0, 1e-20]))
    array([0.e+00, 1.e-20])
    """
    return np.log1p(x)


@log1p.vjp("x")
def _(g, x):
    return g / (1 + x)


@elementwise(r"e^{<x>} - 1", r"<g> \odot (<out> + 1)", 1, 2)
def expm1(x):
    """The exponential less 1, exact for small x too: y = e^x - 1.

    >>> expm1(np.array([0.0, 1e-20]))
    array([0.e+00, 1.e-20])
    """
    return np.expm1(x)


@expm1.vjp("x")
def _(g, out):
    return g * (out + 1)


@elementwise(r"<x>^{\circ 2}", r"2 <g> \odot <x>", 1, 2)
def square(x):
    """The square of each entry: y = x².

    >>> square(np.array([-2.0, 3.0]))
    array([4., 9.])
    """
    return np.square(x)


@square.vjp("x")
def _(g, x):
    return 2 * g * x


@elementwise(r"\operatorname{sign}(<x>)", r"0\, <g>", 1, 1, analytic=False, kink=0.0)
def sign(x):
    """-1, 0 or 1 as each entry is below, at or above 0; its gradient is 0 everywhere.

    >>> sign(np.array([-2.0, 0.0, 3.0]))
    array([-1.,  0.,  1.])
    """
    return np.sign(x)


@sign.vjp("x")
def _(g):
    return g * 0


ERF_SLOPE = 2 / math.sqrt(math.pi)  # of erf at 0


@elementwise(
    r"\operatorname{erf}(<x>)", r"\tfrac{2}{\sqrt\pi} <g> \odot e^{-<x>^{\circ 2}}", 7, 5, False
)
def erf(x):
    """The error function of each entry: y = 2/√π ∫₀ˣ e^-t² dt.

    >>> erf(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8427])
    """
    x = floating(x)
    return np.array(list(map(math.erf, np.ravel(x).tolist())), x.dtype).reshape(x.shape)


@erf.vjp("x")
def _(g, x):
    return ERF_SLOPE * g * np.exp(-x * x)
