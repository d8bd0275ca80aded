"""Activations beside relu, sigmoid, tanh, silu and gelu: softplus, leaky_relu, elu."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine.op import Call, call, op
from .dtypes import floating
from .elementwise import elementwise
from .functions import sigmoid
from .samples import Samples, each, unary

__all__ = ["elu", "leaky_relu", "softplus"]


@elementwise(r"\log(1 + e^{<x>})", r"<g> \odot \sigma(<x>)", 4, 5, low=-3.0, high=3.0)
def softplus(x):
    """A smooth relu: y = log(1 + e^x), without overflow.

    >>> softplus(np.array([-800.0, 0.0, 8.0])).round(4)
    array([0.    , 0.6931, 8.0003])
    """
    x = floating(x)
    return np.maximum(x, 0) + np.log1p(np.exp(-np.maximum(x, -x)))


@softplus.vjp("x")
def _(g, x):
    return g * sigmoid(x)


def _bent(**setting: float) -> Samples:
    """Calls away from the kink at 0, and one with a setting of its own."""

    def samples(rng: np.random.Generator) -> Iterator[Call]:
        yield from unary(kink=0.0)(rng)
        yield call(np.array([-1.0, 2.0]), **setting)

    return samples


@op(
    tex=r"\max(<x>, 0) + <negative_slope> \min(<x>, 0)",
    vjp_tex={"x": r"<g> \odot ([<x> > 0] + <negative_slope> [<x> \le 0])"},
    flops=each(1),
    vjp_flops={"x": each(1)},
    samples=_bent(negative_slope=0.3),
    analytic=False,
)
def leaky_relu(x, negative_slope=0.01):
    """x above 0, and a small multiple of it below; the gradient at 0 is the small one.

    Source: Maas et al. 2013, https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf.

    >>> leaky_relu(np.array([-1.0, 2.0]), 0.1)
    array([-0.1,  2. ])
    """
    x = floating(x)
    return np.where(x > 0, x, negative_slope * x)


@leaky_relu.vjp("x")
def _(g, x, negative_slope):
    return np.where(x > 0, g, negative_slope * g)


@op(
    tex=r"\max(<x>, 0) + <alpha> (e^{\min(<x>, 0)} - 1)",
    vjp_tex={"x": r"<g> \odot ([<x> > 0] + <alpha> e^{<x>} \odot [<x> \le 0])"},
    flops=each(3),
    vjp_flops={"x": each(2)},
    samples=_bent(alpha=0.3),
    analytic=False,
)
def elu(x, alpha=1.0):
    """x above 0, α (e^x - 1) below; the gradient at 0 is α.

    Source: Clevert et al. 2015, arXiv:1511.07289.

    >>> elu(np.array([-1.0, 2.0])).round(4)
    array([-0.6321,  2.    ])
    """
    x = floating(x)
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@elu.vjp("x")
def _(g, x, out, alpha):
    return np.where(x > 0, g, g * (out + alpha))
