r"""Normalisation of images and the like, (N, C, …): each channel over the batch, or groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import Call, call, cast_back, floating, op, widen
from ..engine.refusals import explained
from ..engine.tensor import TensorOrArray
from . import reduce
from .arithmetic import add, multiply
from .norms import layer_norm
from .notation import letters
from .shape import reshape

__all__ = ["batch_norm", "group_norm", "instance_norm"]


def statistics_axes(x: TensorOrArray) -> tuple[int, ...]:
    """All axes but the channels'."""
    return (0, *range(2, x.ndim))


def by_channel(v: TensorOrArray, x: TensorOrArray) -> Any:
    """(C,) as it broadcasts against (N, C, …)."""
    return v.reshape((-1, *[1] * (x.ndim - 2)))


def standardized(x: TensorOrArray, mean: Any, var: Any, eps: float) -> tuple[Any, Any]:
    """x̂ = (x - μ) / σ of each channel, and 1 / σ; μ and σ² are the batch's unless given."""
    axes = statistics_axes(x)
    wide = widen(x)
    mean = np.mean(wide, axes, keepdims=True) if mean is None else by_channel(mean, x)
    centred = wide - mean
    var = np.mean(centred * centred, axes, keepdims=True) if var is None else by_channel(var, x)
    inverse = (var + eps) ** -0.5
    return cast_back(centred * inverse, x), inverse


def check_channels(x: TensorOrArray, *parameters: Any) -> None:
    """Raise ShapeError unless x has channels, and each parameter, if given, one entry for each."""
    if np.ndim(x) < 2:
        raise ShapeError(f"x must be (N, C, …), got {np.shape(x)}")
    for value in parameters:
        if value is not None and np.shape(value) != (np.shape(x)[1],):
            raise ShapeError(
                f"weight, bias, mean and var must be (C,) = {(np.shape(x)[1],)}, "
                f"got {np.shape(value)}"
            )


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.uniform(-2, 2, (2, 3, 5))
    w = rng.uniform(0.5, 1.5, 3)
    b = rng.uniform(-1, 1, 3)
    yield call(x, w, b)
    yield call(x[..., 0], None, None, eps=0.1)
    yield call(x, w, b, rng.uniform(-1, 1, 3), rng.uniform(0.5, 1.5, 3))
    yield call(np.zeros((2, 3, 0)), w, b, np.zeros(3), np.ones(3))


def _letters(x: Any) -> tuple[str, str, str]:
    """The letters of the channels, of all other axes, and of all axes."""
    known = letters(x.ndim)
    others = [letter for axis, letter in enumerate(known) if axis != 1]
    return known[1], ",".join(others), ",".join(known)


def _norm_tex(x: Any, mean: Any, var: Any) -> str:
    """What x̂, σ and μ are."""
    channel, others, _ = _letters(x)
    mu = rf"\operatorname{{mean}}_{{{others}}}(<x>)" if mean is None else f"<mean>_{channel}"
    square = rf"\operatorname{{var}}_{{{others}}}(<x>)" if var is None else f"<var>_{channel}"
    centred = r"\hat x = \tfrac{1}{\sigma} (<x> - \mu)"
    return rf"\quad {centred}, \quad \sigma = \sqrt{{{square} + <eps>}}, \quad \mu = {mu}"


def _tex(x, weight, bias, mean, var):
    channel = _letters(x)[0]
    scaled = rf"\hat x \odot <weight>_{channel}" if weight is not None else r"\hat x"
    shifted = rf" + <bias>_{channel}" if bias is not None else ""
    return rf"{scaled}{shifted}, {_norm_tex(x, mean, var)}"


def _x_tex(x, weight, mean, var):
    channel, others, _ = _letters(x)
    came = rf"<g> \odot <weight>_{channel}" if weight is not None else "<g>"
    given = rf"\quad \hat g = {came}, {_norm_tex(x, mean, var)}"
    if mean is not None:
        return rf"\tfrac{{1}}{{\sigma}} \hat g, {given}"
    averaged = rf"\operatorname{{mean}}_{{{others}}}"
    along = rf"\hat x \odot {averaged}(\hat g \odot \hat x)"
    return rf"\tfrac{{1}}{{\sigma}} (\hat g - {averaged}(\hat g) - {along}), {given}"


def _weight_tex(x, mean, var):
    _, others, whole = _letters(x)
    summed = rf"\sum_{{{others}}} (<g> \odot \hat x)_{{{whole}}}"
    return rf"{summed}, {_norm_tex(x, mean, var)}"


def _bias_tex(x):
    _, others, whole = _letters(x)
    return rf"\sum_{{{others}}} <g>_{{{whole}}}"


@op(
    tex=_tex,
    vjp_tex={"x": _x_tex, "weight": _weight_tex, "bias": _bias_tex},
    flops=lambda x, mean: (8 if mean is None else 4) * np.size(x),
    samples=_samples,
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
    check_channels(x, weight, bias, mean, var)
    if (mean is None) != (var is None):
        raise ArgumentError("mean and var go together: the batch's own, or both given")
    x = floating(x)
    y, _ = standardized(x, mean, var, eps)
    y = y if weight is None else y * by_channel(weight, x)
    return y if bias is None else y + by_channel(bias, x)


@batch_norm.vjp("x")
def _(g, x, weight, mean, var, eps):
    """The scaled gradient is divided by the deviation, less what moves the batch's statistics."""
    x_hat, inverse = standardized(x, mean, var, eps)
    g_hat = g if weight is None else g * by_channel(weight, x)
    if mean is not None:
        return g_hat * inverse
    along = reduce.mean(g_hat * x_hat, statistics_axes(x), True)
    return inverse * (g_hat - reduce.mean(g_hat, statistics_axes(x), True) - x_hat * along)


@batch_norm.vjp("weight")
def _(g, x, mean, var, eps):
    """The gradient is multiplied by the normalised channel, and summed."""
    return reduce.sum(g * standardized(x, mean, var, eps)[0], statistics_axes(x))


@batch_norm.vjp("bias")
def _(g):
    """The gradient of each channel is summed."""
    return reduce.sum(g, statistics_axes(g))


@explained
def group_norm(
    x: TensorOrArray,
    groups: int,
    weight: TensorOrArray | None = None,
    bias: TensorOrArray | None = None,
    eps: float = 1e-5,
) -> Any:
    """Each example's channels in groups, each normalised as one row; then scaled by channel.

    Args: groups: into how many the C channels are split. weight, bias: (C,) or None.
    Shapes: x (N, C, …) → as x.  Raises: ArgumentError unless groups divides C; ShapeError.
    Source: Wu & He 2018, arXiv:1803.08494.

    >>> group_norm(np.array([[1.0, 3.0, 5.0, 5.0]]), 2, eps=0.0 + 1e-12).round(4)
    array([[-1.,  1.,  0.,  0.]])
    """
    check_channels(x, weight, bias)
    if groups < 1 or x.shape[1] % groups:
        raise ArgumentError(f"group_norm: groups must divide C = {x.shape[1]}, got {groups}")
    rows = reshape(x, (x.shape[0], groups, -1))
    y = reshape(layer_norm(rows, None, None, eps), x.shape)
    across = (-1, *[1] * (x.ndim - 2))
    y = y if weight is None else multiply(y, reshape(weight, across))
    return y if bias is None else add(y, reshape(bias, across))


@explained
def instance_norm(
    x: TensorOrArray,
    weight: TensorOrArray | None = None,
    bias: TensorOrArray | None = None,
    eps: float = 1e-5,
) -> Any:
    """Each channel of each example normalised over its places; then scaled by channel.

    It is group_norm with as many groups as channels.

    Shapes: x (N, C, length, …), weight, bias (C,) or None → as x.
    Raises: ShapeError where these do not fit, or where a channel is one entry, which is its mean.
    Source: Ulyanov et al. 2016, arXiv:1607.08022.

    >>> instance_norm(np.array([[[1.0, 3.0], [5.0, 9.0]]]), eps=1e-12)[0]
    array([[-1.,  1.],
           [-1.,  1.]])
    """
    shape = np.shape(x)
    if len(shape) < 3 or math.prod(shape[2:]) == 1:
        raise ShapeError(
            f"instance_norm: x must be (N, C, length, …) with more than one place, got {shape}: "
            "a channel of one entry would always be 0"
        )
    return group_norm(x, shape[1], weight, bias, eps)
