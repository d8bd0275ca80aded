r"""Normalisation of rows: what a row is divided by depends on the row, and so does its gradient.

Means and squares are taken in a wider dtype than the row's own: rows of 1e30 in float32 have
squares of 1e60, those of 300 in float16 of 90000, and neither dtype goes so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine.errors import ShapeError
from ..engine.op import Call, call, cast_back, floating, op, widen
from .samples import each_of_x

__all__ = ["layer_norm", "rms_norm"]


def row_mean(x):
    """The mean of each row, kept at length 1."""
    return np.mean(x, axis=-1, keepdims=True)


def check_parameters(x: Any, weight: Any, bias: Any = None) -> None:
    """Raise ShapeError unless x has rows, and weight and bias, if given, are of a row's shape."""
    if np.ndim(x) == 0:
        raise ShapeError("x needs at least one axis")
    width = np.shape(x)[-1:]
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and np.shape(value) != width:
            raise ShapeError(
                f"{name} must have the shape of x's last axis, {width}, got {np.shape(value)}"
            )


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (2, 3, 5))
    w, b = rng.uniform(0.5, 1.5, 5), rng.uniform(-1, 1, 5)
    yield call(x, w, b)
    yield call(x, w, b, eps=0.1)
    yield call(x[0, 0], w, b)
    yield call(x, None, None)
    yield call(np.zeros((0, 5)), w, b)


# ---------------------------------------------------------------- layer_norm

_ROWS = (
    r"\quad \hat x = \tfrac{1}{\sigma} (<x> - \mu),"
    r" \quad \sigma = \sqrt{\operatorname{rowvar}(<x>) + <eps>},"
    r" \quad \mu = \operatorname{rowmean}(<x>)"
)


def _layer_norm_flops(x, weight, bias):
    """Seven an entry with weight and bias, and two a row, of which one is the root."""
    return (5 + (weight is not None) + (bias is not None)) * np.size(x) + 2 * rows(x)


@op(
    tex=rf"\hat x \odot <weight> + <bias>, {_ROWS}",
    vjp_tex={
        "x": r"\tfrac{1}{\sigma} (\hat g - \operatorname{rowmean}(\hat g)"
        r" - \hat x \odot \operatorname{rowmean}(\hat g \odot \hat x)),"
        rf" \quad \hat g = <g> \odot <weight>, {_ROWS}",
        "weight": rf"<g> \odot \hat x, {_ROWS}",
        "bias": r"<g>",
    },
    flops=_layer_norm_flops,
    samples=_samples,
    invariance="a shift of a row",
)
def layer_norm(x, weight, bias, eps=1e-5):
    """Gives each row mean 0 and variance 1, then scales and shifts it.

        x̂ ⊙ weight + bias with x̂ = (x - μ) / √(σ² + ε), over the last axis.

    Args: weight, bias: of the last axis' shape; None leaves either out.
    Raises: ShapeError where they do not fit.  Source: Ba et al. 2016, arXiv:1607.06450.

    >>> layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), eps=0.0)
    array([[-1.,  1.]])
    """
    check_parameters(x, weight, bias)
    x_hat, _ = standardized(floating(x), eps)
    y = x_hat if weight is None else x_hat * weight
    return y if bias is None else y + bias


def standardized(x, eps):
    """x̂ = (x - μ) / σ of each row, and 1 / σ."""
    wide = widen(x)
    centred = wide - row_mean(wide)
    inverse = (row_mean(centred * centred) + eps) ** -0.5
    return cast_back(centred * inverse, x), inverse


@layer_norm.vjp("x")
def _(g, x, weight, eps):
    """The scaled gradient, less its mean and its part along the row, is divided by the spread."""
    x_hat, inverse = standardized(x, eps)
    g_hat = g if weight is None else g * weight
    return inverse * (g_hat - row_mean(g_hat) - x_hat * row_mean(g_hat * x_hat))


@layer_norm.vjp("weight")
def _(g, x, eps):
    """The gradient is multiplied by the normalised rows, and summed over them."""
    return g * standardized(x, eps)[0]  # the edge rule sums over the rows


@layer_norm.vjp("bias")
def _(g):
    """The gradient is summed over the rows."""
    return g


# ---------------------------------------------------------------- rms_norm

_ROOT = r"\quad r = \sqrt{\operatorname{rowmean}(<x>^{\circ 2}) + <eps>}"


def _rms_norm_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in _samples(rng):
        yield call(*sample.args[:2], **sample.kwargs)


@op(
    tex=rf"\tfrac1r <x> \odot <weight>, {_ROOT}",
    vjp_tex={
        "x": r"\tfrac1r (\hat g - \hat x \odot \operatorname{rowmean}(\hat g \odot \hat x)),"
        rf" \quad \hat g = <g> \odot <weight>, \quad \hat x = \tfrac1r <x>, {_ROOT}",
        "weight": rf"<g> \odot \hat x, \quad \hat x = \tfrac1r <x>, {_ROOT}",
    },
    flops=each_of_x(5),
    samples=_rms_norm_samples,
)
def rms_norm(x, weight, eps=1e-5):
    """Divides each row by its root mean square, and scales it: x / r ⊙ weight, r² = mean(x²) + ε.

    Args: weight: of the last axis' shape, or None.
    Raises: ShapeError where it does not fit.  Source: Zhang & Sennrich 2019, arXiv:1910.07467.

    >>> rms_norm(np.array([[3.0, 3.0]]), np.ones(2), eps=0.0)
    array([[1., 1.]])
    """
    check_parameters(x, weight)
    x_hat, _ = rescaled(floating(x), eps)
    return x_hat if weight is None else x_hat * weight


def rescaled(x, eps):
    """x̂ = x / r of each row, and 1 / r."""
    wide = widen(x)
    inverse = (row_mean(wide * wide) + eps) ** -0.5
    return cast_back(x * inverse, x), inverse


@rms_norm.vjp("x")
def _(g, x, weight, eps):
    """The scaled gradient, less its part along the row, is divided by the root mean square."""
    x_hat, inverse = rescaled(x, eps)
    g_hat = g if weight is None else g * weight
    return inverse * (g_hat - x_hat * row_mean(g_hat * x_hat))


@rms_norm.vjp("weight")
def _(g, x, eps):
    """The gradient is multiplied by the normalised rows, and summed over them."""
    return g * rescaled(x, eps)[0]  # the edge rule sums over the rows


def rows(x):
    """How many rows x has, for what is counted once a row."""
    return x.size // x.shape[-1] if x.size else 0
