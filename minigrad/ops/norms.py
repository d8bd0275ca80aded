r"""Normalisation of rows, and of channels of images.

Means and squares are taken in a wider dtype than the row's own: rows of 1e30 in float32 have
squares of 1e60, those of 300 in float16 of 90000, which neither dtype can hold.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..engine.backward import ones, sum_of_rows
from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import is_tensor, op
from ..engine.tensor import Operand
from . import reduce
from .dtypes import cast_back, floating, widen
from .notation import Formula, below
from .products import as_rows
from .samples import each_of_x, of_shapes
from .shape import reshape
from .softmax import dot_kept

__all__ = ["batch_norm", "layer_norm", "rms_norm"]


WIDENED = 1 << 12  # entries up to which float32 is widened unasked
FAR = 16  # times σ: what lies around a mean farther from 0 loses digits in float32
LEAST_INVERSE = 1e-12  # of 1 / σ: the squares of less vanish in float32


def standardized(x, axes, eps, mean=None, var=None):
    """x̂ = (x - μ) / σ over these axes, μ, and 1 / σ; μ and σ² are those of x unless given.

    Many float32 stay in their dtype, unless a mean is far from 0, or squares have no place in it.
    """
    x = floating(x)
    if x.dtype.char == "f" and x.size > WIDENED and not is_tensor(x):
        with np.errstate(all="ignore"):
            x_hat, mu, inverse = standardize(x, x, axes, eps, mean, var)
            is_fit = (np.abs(mu) * inverse < FAR) & (inverse > LEAST_INVERSE)
        if is_fit.all():
            return x_hat, mu, inverse
    return standardize(widen(x), x, axes, eps, mean, var)


def standardize(x, narrow, axes, eps, mean, var):
    """See `standardized`: in the dtype of x, and then x̂ in the narrow one's."""
    mu = mean_kept(x, axes) if mean is None else mean
    x_hat = x - mu
    if var is None:
        var = dot_kept(x_hat, x_hat, axes) / reduce.count(x.shape, axes)
    inverse = (var + eps) ** -0.5
    x_hat *= inverse
    return cast_back(x_hat, narrow), mu, inverse


def scaled(x_hat, weight, bias):
    """x̂ ⊙ weight + bias, either of which may be None: in place of x̂ if both are of its dtype."""
    parameters = [v for v in (weight, bias) if v is not None]
    into = x_hat if all([v.dtype == x_hat.dtype for v in parameters]) else None
    y = x_hat if weight is None else np.multiply(x_hat, weight, into)
    return y if bias is None else np.add(y, bias, into)


def mean_kept(x, axes):
    """The mean along these axes, kept at length 1; of plain rows in order as products with ones."""
    if axes != -1 or is_tensor(x) or not x.flags.c_contiguous:
        return reduce.mean(x, axes, True)
    return dot_kept(x, ones(x.dtype, x.shape[-1]), -1) / x.shape[-1]


def gradients(g, x, weight, axes, others, eps, mu, inverse, mean=None, var=None):
    """∂x = (ĝ - mean(ĝ) - x̂ mean(ĝ ⊙ x̂)) / σ with ĝ = g ⊙ weight, and ∂weight = Σ g ⊙ x̂ over the
    other axes. What is subtracted moves μ and σ; where they are given, it is left out.
    """
    x = floating(x)
    if is_tensor(x):  # μ and σ are to be differentiated too
        x_hat, mu, inverse = standardized(x, axes, eps, mean, var)
    else:
        x_hat = x - mu
        x_hat *= inverse
        x_hat = cast_back(x_hat, x)
    if axes == -1 and not is_tensor(g):
        d_weight = sum_of_rows(as_rows(g * x_hat))
    else:
        d_weight = dot_kept(g, x_hat, tuple(others)).reshape(-1)
    d = g * inverse
    if weight is not None:
        d *= weight
    if var is None:
        less = x_hat * (dot_kept(d, x_hat, axes) / reduce.count(x.shape, axes))
        if mean is None:
            less += mean_kept(d, axes)
        d -= less
    return d, d_weight


# ---------------------------------------------------------------- rows


def check_parameters(x: Operand, axis: int, **parameters: Operand | None) -> None:
    """Raise ShapeError unless x has this axis, and each parameter, if given, its length."""
    width = np.shape(x)[axis:][:1]
    if not width:
        raise ShapeError(f"x needs at least {max(axis + 1, 1)} axes, got {np.shape(x)}")
    for name, value in parameters.items():
        if value is not None and np.shape(value) != width:
            raise ShapeError(
                f"{name} must have the shape of x's axis {axis}, {width}, got {np.shape(value)}"
            )


_ROWS = (
    r", \quad \hat x = \tfrac{1}{\sigma} (<x> - \mu),"
    r" \quad \sigma = \sqrt{\operatorname{rowvar}(<x>) + <eps>},"
    r" \quad \mu = \operatorname{rowmean}(<x>)"
)


def _layer_norm_flops(x, weight, bias):
    """Seven an entry with weight and bias, and two a row, of which one is the root."""
    return (5 + (weight is not None) + (bias is not None)) * x.size + 2 * prod(x.shape[:-1])


@op(
    tex=r"\hat x \odot <weight> + <bias>" + _ROWS,
    vjp_tex={
        "x": r"\tfrac{1}{\sigma} (\hat g - \operatorname{rowmean}(\hat g)"
        r" - \hat x \odot \operatorname{rowmean}(\hat g \odot \hat x)),"
        r" \quad \hat g = <g> \odot <weight>" + _ROWS,
        "weight": r"<g> \odot \hat x" + _ROWS,
        "bias": "<g>",
    },
    flops=_layer_norm_flops,
    samples=of_shapes(
        ([2, 3, 5], [5], [5], 0.1),
        ([5], [5], [5]),
        ([2, 3, 5], None, None),
        ([0, 5], [5], [5]),
    ),
    auxiliary=("mu", "inverse"),
)
def layer_norm(x, weight, bias, eps=1e-5):
    """Gives each row mean 0 and variance 1, then scales and shifts it.

        x̂ ⊙ weight + bias with x̂ = (x - μ) / √(σ² + ε), over the last axis.

    Args: weight, bias: of the last axis' shape; None leaves either out.
    Raises: ShapeError where they do not fit.  Source: Ba et al. 2016, arXiv:1607.06450.

    >>> layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), eps=0.0)
    array([[-1.,  1.]])
    """
    check_parameters(x, -1, weight=weight, bias=bias)
    x_hat, mu, inverse = standardized(x, -1, eps)
    return scaled(x_hat, weight, bias), mu, inverse


@layer_norm.vjp("x", "weight")
def _(g, x, weight, eps, mu, inverse):
    """The scaled gradient, less its mean and its part along the row, is divided by the spread."""
    return gradients(g, x, weight, -1, range(g.ndim - 1), eps, mu, inverse)


@layer_norm.vjp("bias")
def _(g):
    """The gradient is summed over the rows."""
    return g


_ROOT = (
    r", \quad \hat x = \tfrac1r <x>, \quad r = \sqrt{\operatorname{rowmean}(<x>^{\circ 2}) + <eps>}"
)


@op(
    tex=r"\hat x \odot <weight>" + _ROOT,
    vjp_tex={
        "x": r"\tfrac1r (\hat g - \hat x \odot \operatorname{rowmean}(\hat g \odot \hat x)),"
        r" \quad \hat g = <g> \odot <weight>" + _ROOT,
        "weight": r"<g> \odot \hat x" + _ROOT,
    },
    flops=each_of_x(5),
    samples=of_shapes(([2, 3, 5], [5], 0.1), ([5], [5]), ([2, 3, 5], None), ([0, 5], [5])),
    auxiliary=("inverse",),
)
def rms_norm(x, weight, eps=1e-5):
    """Divides each row by its root mean square, and scales it: x / r ⊙ weight, r² = mean(x²) + ε.

    Args: weight: of the last axis' shape, or None.
    Raises: ShapeError where it does not fit.  Source: Zhang & Sennrich 2019, arXiv:1910.07467.

    >>> rms_norm(np.array([[3.0, 3.0]]), np.ones(2), eps=0.0)
    array([[1., 1.]])
    """
    check_parameters(x, -1, weight=weight)
    x_hat, _, inverse = standardized(x, -1, eps, mean=0)
    return scaled(x_hat, weight, None), inverse


@rms_norm.vjp("x", "weight")
def _(g, x, weight, eps, inverse):
    """The scaled gradient, less its part along the row, is divided by the root mean square."""
    return gradients(g, x, weight, -1, range(g.ndim - 1), eps, 0, inverse, mean=0)


# ---------------------------------------------------------------- channels of (N, C, …)


def statistics_axes(x):
    """All axes but the channels'."""
    return (0, *range(2, x.ndim))


def sum_by_channel(x):
    """The formula of a bias's gradient."""
    return rf"\operatorname{{sum}}{below(x.ndim, statistics_axes(x))}(<g>)"


def by_channel(v, x):
    """(C,) as it broadcasts against (N, C, …); None stays None."""
    return v if v is None else reshape(v, (-1, *[1] * (x.ndim - 2)))


def by_channels(formula: str) -> Formula:
    """A formula in which weight, bias, mean and var stand for one number a channel, and @ for the
    axes of each channel; and what x̂, σ and μ are.
    """

    def tex(x: Any, mean: Any) -> str:
        own = r"\operatorname{var}@(<x>)", r"\operatorname{mean}@(<x>)"
        variance, mu = own if mean is None else ("<var>", "<mean>")
        text = (
            rf"{formula}, \quad \hat x = \tfrac{{1}}{{\sigma}} (<x> - \mu),"
            rf" \quad \sigma = \sqrt{{{variance} + <eps>}}, \quad \mu = {mu}"
        )
        return text.replace("@", below(x.ndim, statistics_axes(x)))

    return tex


_G_HAT = r", \quad \hat g = <g> \odot <weight>"
_IN_TRAINING = by_channels(
    r"\tfrac{1}{\sigma} (\hat g - \operatorname{mean}@(\hat g)"
    r" - \hat x \odot \operatorname{mean}@(\hat g \odot \hat x))" + _G_HAT
)
_IN_EVALUATION = by_channels(r"\tfrac{1}{\sigma} \hat g" + _G_HAT)


@op(
    tex=by_channels(r"\hat x \odot <weight> + <bias>"),
    vjp_tex={
        "x": lambda x, mean: (_IN_TRAINING if mean is None else _IN_EVALUATION)(x, mean),
        "weight": by_channels(r"\operatorname{sum}@(<g> \odot \hat x)"),
        "bias": sum_by_channel,
    },
    flops=lambda x, mean: (8 if mean is None else 4) * np.size(x),
    samples=of_shapes(
        ([2, 3, 5], [3], [3]),
        ([7, 3], None, None, None, None, 0.1),
        ([2, 3, 5], [3], [3], [3], np.array([0.5, 1.0, 1.5])),
        ([2, 3, 0], [3], [3], np.zeros(3), np.ones(3)),
    ),
    auxiliary=("mu", "inverse"),
)
def batch_norm(x, weight, bias, mean=None, var=None, eps=1e-5):
    """Takes from each channel its mean, divides it by its deviation, then scales and shifts it.

    Args: weight, bias: (C,) or None. mean, var: (C,), to take in place of the batch's own, as in
        evaluation; constants.
    Shapes: x (N, C, …) → as x.  Raises: ShapeError where these do not fit.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167.

    >>> batch_norm(np.array([[1.0], [3.0]]), None, None, eps=0.0)
    array([[-1.],
           [ 1.]])
    """
    check_parameters(x, 1, weight=weight, bias=bias, mean=mean, var=var)
    if (mean is None) != (var is None):
        raise ArgumentError("mean and var go together: the batch's own, or both given")
    statistics = by_channel(mean, x), by_channel(var, x)
    x_hat, mu, inverse = standardized(x, statistics_axes(x), eps, *statistics)
    return scaled(x_hat, by_channel(weight, x), by_channel(bias, x)), mu, inverse


@batch_norm.vjp("x", "weight")
def _(g, x, weight, mean, var, eps, mu, inverse):
    """The scaled gradient is divided by the deviation, less what moves the batch's statistics."""
    axes = statistics_axes(x)
    statistics = by_channel(mean, x), by_channel(var, x)
    return gradients(g, x, by_channel(weight, x), axes, axes, eps, mu, inverse, *statistics)


@batch_norm.vjp("bias")
def _(g):
    """The gradient of each channel is summed."""
    return reduce.sum(g, statistics_axes(g))
