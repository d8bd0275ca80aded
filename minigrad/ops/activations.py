"""Activations that look at more than one entry, or learn: glu and prelu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine.errors import ShapeError
from ..engine.op import Call, call, floating, op
from . import reduce
from .functions import sigmoid
from .notation import along, axis_letters, letters, shape_product, span
from .samples import away_from, each

__all__ = ["glu", "prelu"]


def _halves(x: Any, axis: int) -> tuple[Any, Any]:
    """The first and the second half along an axis."""
    half = x.shape[axis] // 2
    lead = (slice(None),) * (axis % x.ndim)
    return x[(*lead, slice(None, half))], x[(*lead, slice(half, None))]


def _halves_tex(x, axis):
    """What a and b are."""
    half = x.shape[axis] // 2
    first, second = along(axis, x.ndim, span(0, half)), along(axis, x.ndim, span(half, None))
    return rf"\quad a = <x>[{first}], \quad b = <x>[{second}]"


def _glu_tex(x, axis):
    return rf"a \odot \sigma(b), {_halves_tex(x, axis)}"


def _glu_vjp_tex(x, axis):
    slopes = r"<g> \odot \sigma(b), <g> \odot a \odot \sigma(b) \odot (1 - \sigma(b))"
    return rf"\operatorname{{concat}}_{{{axis_letters(x, axis)}}}({slopes}), {_halves_tex(x, axis)}"


def _glu_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-3, 3, (2, 3, 4)))
    yield call(rng.uniform(-3, 3, (3, 6, 5)), axis=1)
    yield call(rng.uniform(-3, 3, 2))
    yield call(np.zeros((0, 4)))


@op(tex=_glu_tex, vjp_tex={"x": _glu_vjp_tex}, flops=each(5), samples=_glu_samples)
def glu(x, axis=-1):
    """Lets the second half of each row decide how much of the first passes: y = a σ(b), a and b the
    halves of x along an axis.

    Shapes: x (..., 2 n, ...) → (..., n, ...).
    Raises: ShapeError if the axis is not of even length.
    Source: Dauphin et al. 2016, arXiv:1612.08083.

    >>> glu(np.array([1.0, 2.0, 0.0, 800.0]))
    array([0.5, 2. ])
    """
    x = floating(x)
    if not -x.ndim <= axis < x.ndim or x.shape[axis] % 2:
        raise ShapeError(
            f"the axis that is halved must be of even length, got axis {axis} of {x.shape}"
        )
    a, b = _halves(x, axis)
    return a * sigmoid(b)


@glu.vjp("x")
def _(g, x, axis):
    """The gradient goes to the first half times the gate, to the second by the gate's slope."""
    a, b = _halves(x, axis)
    gate = sigmoid(b)
    return np.concatenate([g * gate, g * a * gate * (1 - gate)], axis=axis)


# ---------------------------------------------------------------- prelu


def _prelu_tex(x, weight):
    return rf"\max(<x>, 0) + {_slope(x, weight)} \odot \min(<x>, 0)"


def _slope(x, weight):
    """The slope below 0, along the axis of the channels."""
    if weight.size == 1 or x.ndim == 2:
        return "<weight>"
    wide = shape_product((weight.size, *[1] * (x.ndim - 2)))
    return rf"\operatorname{{reshape}}_{{{wide}}}(<weight>)"


def _prelu_x_tex(x, weight):
    return rf"<g> \odot ([<x> > 0] + {_slope(x, weight)} \odot [<x> \le 0])"


def _prelu_weight_tex(x, weight):
    if weight.size == 1:
        return r"\operatorname{broadcast}(\sum <g> \odot \min(<x>, 0))"
    known = letters(x.ndim)
    summed = ",".join(known[:1] + known[2:])
    return rf"\sum_{{{summed}}} (<g> \odot \min(<x>, 0))_{{{','.join(known)}}}"


def _prelu_samples(rng: np.random.Generator) -> Iterator[Call]:
    for shape, channels in (((2, 3, 5), (3,)), ((7, 3), (3,)), ((2, 3, 5, 2), (1,)), ((5,), ())):
        x = away_from(0.0, rng.uniform(-2, 2, shape))
        yield call(x, np.asarray(rng.uniform(0.1, 0.9, channels)))
    yield call(np.zeros((0, 3)), np.full(3, 0.25))


@op(
    tex=_prelu_tex,
    vjp_tex={"x": _prelu_x_tex, "weight": _prelu_weight_tex},
    flops=each(1),
    samples=_prelu_samples,
    analytic=False,
)
def prelu(x, weight):
    """Keeps positive entries and scales the others by a weight that is learned: y = x above 0, w x
    below, where the slope at 0 is w.

    Shapes: x (N, C, …) or, with one weight, any; weight (C,), (1,) or () → as x.
    Raises: ShapeError where these do not fit.  Source: He et al. 2015, arXiv:1502.01852.

    >>> prelu(np.array([[-1.0, -1.0, 2.0]]), np.array([0.1, 0.2, 0.3]))
    array([[-0.1, -0.2,  2. ]])
    """
    if weight is None:
        raise ShapeError("weight must be an array of slopes, got None")
    x, weight = floating(x), floating(weight)
    if weight.size != 1 and (x.ndim < 2 or weight.shape != x.shape[1:2]):
        raise ShapeError(
            f"weight must have one entry, or one for each channel of x (N, C, …), got weight "
            f"{weight.shape} for x {x.shape}"
        )
    return np.where(x > 0, x, _across(weight, x) * x)


def _across(weight: Any, x: Any) -> Any:
    """The weights as they broadcast against (N, C, …)."""
    return weight.reshape((-1, *[1] * (x.ndim - 2)) if x.ndim > 1 else (-1,) * x.ndim)


@prelu.vjp("x")
def _(g, x, weight):
    """The gradient passes where the input is positive, and elsewhere is scaled by the weight."""
    return np.where(x > 0, g, _across(weight, x) * g)


@prelu.vjp("weight")
def _(g, x, weight_shape):
    """The gradient is multiplied by the input where that is not positive, and summed by channel."""
    below = np.where(x > 0, 0, g * x)
    channels = len(weight_shape) > 0 and weight_shape[0] > 1
    summed = reduce.sum(below, (0, *range(2, x.ndim)) if channels else None)
    return summed.reshape(weight_shape)
