"""Activations: functions of each entry, glu of two halves, and prelu, whose slope is learned.

At a kink the slope is a convention, stated with each op. NaN is neither above nor below a kink: its
gradient passes, as if the entry had been taken.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import Call, as_array, call, cast_back, floating, masked, op
from . import reduce
from .functions import OFF_ZERO, WIDE_INPUTS, elementwise, normal_cdf, normal_pdf
from .notation import along, axis_letters, letters, shape_product, span
from .samples import Samples, away_from, each

__all__ = [
    "elu",
    "gelu",
    "glu",
    "leaky_relu",
    "prelu",
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
    if dead.ndim < 2:
        return dead
    others = [tuple(j for j in range(dead.ndim) if j != i) for i in range(dead.ndim - 1, 0, -1)]
    found = [dead.all(axis=axes) for axes in others]
    return max(found, key=lambda where: np.count_nonzero(where) / max(where.size, 1))


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


def _gelu_samples(rng: np.random.Generator) -> Iterator[Call]:
    for form in ("none", "tanh"):
        for sample in WIDE_INPUTS(rng):
            yield call(*sample.args, approximate=form)


@op(
    tex=_gelu_tex,
    vjp_tex={"x": _gelu_vjp_tex},
    flops=lambda out, approximate: (8 if approximate == "none" else 9) * out.size,
    samples=_gelu_samples,
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
    return x * (normal_cdf(x) if approximate == "none" else tanh_cdf(as_array(x)))


@gelu.vjp("x")
def _(g, x, approximate):
    """The gradient is multiplied by that share plus the entry times the share's slope."""
    if approximate == "none":
        return g * (normal_cdf(x) + x * normal_pdf(x))
    cdf = tanh_cdf(x)
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
    samples=OFF_ZERO,
    analytic=False,
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


def _bent(**setting: float) -> Samples:
    """Calls away from the kink at 0, and one with a setting of its own."""

    def samples(rng: np.random.Generator) -> Iterator[Call]:
        yield from OFF_ZERO(rng)
        yield call(np.array([-1.0, 2.0]), **setting)

    return samples


@elementwise(
    r"\max(<x>, 0) + <negative_slope> \min(<x>, 0)",
    r"<g> \odot ([<x> > 0] + <negative_slope> [<x> \le 0])",
    1,
    samples=_bent(negative_slope=0.3),
    analytic=False,
)
def leaky_relu(x, negative_slope: float = 0.01):
    """Keeps each entry above 0 and makes the others small: times a slope, which holds at 0 too.

    Source: Maas et al. 2013, https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf.

    >>> leaky_relu(np.array([-1.0, 2.0]), 0.1)
    array([-0.1,  2. ])
    """
    x = floating(x)
    return cast_back(np.where(x > 0, x, negative_slope * x), x)


@leaky_relu.vjp("x")
def _(g, x, negative_slope):
    """The gradient passes where the entry is above zero, and a small part of it elsewhere."""
    return np.where(x > 0, g, negative_slope * g)


@elementwise(
    r"\max(<x>, 0) + <alpha> (e^{\min(<x>, 0)} - 1)",
    r"<g> \odot ([<x> > 0] + <alpha> e^{<x>} \odot [<x> \le 0])",
    3,
    samples=_bent(alpha=0.3),
    analytic=False,
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
    return np.where(x <= 0, g * (alpha * np.exp(np.minimum(x, 0))), g)


# ---------------------------------------------------------------- glu


def _halves(x, axis):
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
    return np.concatenate([g * gate, g * (gate * (1 - gate) * a)], axis=axis)


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


def _across(weight, x):
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
