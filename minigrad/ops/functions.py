"""Functions of each entry by itself, and the short way to declare one.

At a kink the slope is a convention, stated with each op. NaN is neither above nor below a kink: its
gradient passes, as if the entry had been taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..engine.errors import ArgumentError
from ..engine.op import Call, Declare, as_array, call, floating, masked, op
from .samples import Samples, away_from, each, unary

__all__ = [
    "abs",
    "astype",
    "clip",
    "cos",
    "elu",
    "erf",
    "exp",
    "expm1",
    "gelu",
    "leaky_relu",
    "log",
    "log1p",
    "relu",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "square",
    "tanh",
]


def elementwise(
    tex: str | Callable[..., str],
    vjp_tex: str | Callable[..., str],
    cost: int,
    *,
    samples: Samples | None = None,
    **more: Any,
) -> Declare:
    """Declare an op of one input x whose result has an entry for each entry of x.

    Args: tex, vjp_tex: its formula and that of its rule.  cost: operations an entry.  samples:
        those of `unary` unless given.  more: as `op` takes it.
    """
    return op(
        tex=tex,
        vjp_tex={"x": vjp_tex},
        flops=each(cost),
        samples=samples or unary(),
        **more,
    )


POSITIVE = unary(0.5, 3.0)  # where roots and logarithms are
WIDE_INPUTS = unary(-3.0, 3.0)  # where functions with two flat ends bend
OFF_ZERO = unary(kink=0.0)  # away from 0


# ---------------------------------------------------------------- exponentials, roots and waves


@elementwise(r"e^{<x>}", r"<g> \odot <out>", 1)
def exp(x):
    """Raises e to the power of each entry: y = e^x.

    >>> exp(np.array([0.0, 1.0])).round(4)
    array([1.    , 2.7183])
    """
    return np.exp(x)


@exp.vjp("x")
def _(g, out):
    """The gradient is multiplied by the result, entry by entry."""
    return g * out


@elementwise(r"\log <x>", r"<g> \oslash <x>", 1, samples=POSITIVE)
def log(x):
    """Takes the natural logarithm of each entry: y = log x.

    >>> log(np.array([1.0, 10.0])).round(4)
    array([0.    , 2.3026])
    """
    return np.log(x)


@log.vjp("x")
def _(g, x):
    """The gradient is divided by the input, entry by entry."""
    return g / x


@elementwise(r"\sqrt{<x>}", r"<g> \oslash (2 <out>)", 1, samples=POSITIVE)
def sqrt(x):
    """Takes the square root of each entry: y = √x.

    >>> sqrt(np.array([4.0, 9.0]))
    array([2., 3.])
    """
    return np.sqrt(x)


@sqrt.vjp("x")
def _(g, out):
    """The gradient is divided by twice the root."""
    return g / (2 * out)


@elementwise(r"\log(1 + <x>)", r"<g> \oslash (1 + <x>)", 1, samples=unary(-0.5))
def log1p(x):
    """Takes the logarithm of one more than each entry: y = log(1 + x), exact for small x too.

    >>> log1p(np.array([0.0, 1e-20]))
    array([0.e+00, 1.e-20])
    """
    return np.log1p(x)


@log1p.vjp("x")
def _(g, x):
    """The gradient is divided by one more than the input."""
    return g / (1 + x)


@elementwise(r"e^{<x>} - 1", r"<g> \odot (<out> + 1)", 1)
def expm1(x):
    """Takes one from the exponential of each entry: y = e^x - 1, exact for small x too.

    >>> expm1(np.array([0.0, 1e-20]))
    array([0.e+00, 1.e-20])
    """
    return np.expm1(x)


@expm1.vjp("x")
def _(g, out):
    """The gradient is multiplied by one more than the result."""
    return g * (out + 1)


@elementwise(r"<x>^{\circ 2}", r"2 <g> \odot <x>", 1)
def square(x):
    """Multiplies each entry by itself: y = x².

    >>> square(np.array([-2.0, 3.0]))
    array([4., 9.])
    """
    return np.square(x)


@square.vjp("x")
def _(g, x):
    """The gradient is multiplied by twice the input."""
    return 2 * g * x


@elementwise(r"\sin <x>", r"<g> \odot \cos <x>", 1)
def sin(x):
    """Takes the sine of each entry: y = sin x.

    >>> sin(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8415])
    """
    return np.sin(x)


@sin.vjp("x")
def _(g, x):
    """The gradient is multiplied by the cosine of the input."""
    return g * np.cos(x)


@elementwise(r"\cos <x>", r"-<g> \odot \sin <x>", 1)
def cos(x):
    """Takes the cosine of each entry: y = cos x.

    >>> cos(np.array([0.0, 1.0])).round(4)
    array([1.    , 0.5403])
    """
    return np.cos(x)


@cos.vjp("x")
def _(g, x):
    """The gradient is multiplied by the sine of the input, and its sign is turned."""
    return -g * np.sin(x)


# ---------------------------------------------------------------- the normal distribution


ERF_SLOPE = 2 / math.sqrt(math.pi)  # of erf at 0


@elementwise(
    r"\operatorname{erf}(<x>)",
    r"\tfrac{2}{\sqrt\pi} <g> \odot e^{-<x>^{\circ 2}}",
    7,
    analytic=False,
)
def erf(x):
    """Takes the error function of each entry: y = 2/√π ∫₀ˣ e^-t² dt.

    >>> erf(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8427])
    """
    x = floating(x)
    return np.array(list(map(math.erf, np.ravel(x).tolist())), x.dtype).reshape(x.shape)


@erf.vjp("x")
def _(g, x):
    """The gradient is multiplied by a bell curve of the input, which is highest at zero."""
    return ERF_SLOPE * g * np.exp(-x * x)


GAUSS = 0.3989422804014327  # 1/√(2π)


@elementwise(r"\Phi(<x>)", r"<g> \odot \varphi(<x>)", 7, samples=WIDE_INPUTS, analytic=False)
def normal_cdf(x):
    """Gives how much of a normal distribution lies below each entry: Φ(x) = (1 + erf(x/√2)) / 2.

    >>> normal_cdf(np.array([0.0, 1.0])).round(4)
    array([0.5   , 0.8413])
    """
    x = floating(x)
    made = [0.5 * math.erfc(-math.sqrt(0.5) * entry) for entry in np.ravel(x).tolist()]
    return np.array(made, x.dtype).reshape(x.shape)


@normal_cdf.vjp("x")
def _(g, x):
    """The gradient is multiplied by the density of the normal distribution at the input."""
    return g * normal_pdf(x)


def normal_pdf(x):
    """φ(x), the slope of Φ."""
    return GAUSS * np.exp(-0.5 * x * x)


# ---------------------------------------------------------------- smooth activations


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
    return g * cdf * (1 + 2 * x * (1 - cdf) * u_slope)


def tanh_cdf(x):
    """(1 + tanh u) / 2, u = √(2/π) (x + 0.044715 x³), which is nearly Φ(x)."""
    return 0.5 * (1 + np.tanh(TANH_SCALE * (x + TANH_CUBE * x * x * x)))


# ---------------------------------------------------------------- kinks and steps


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
    return np.where(x > 0, x, negative_slope * x)


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
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@elu.vjp("x")
def _(g, x, out, alpha):
    """The gradient passes above zero, and below it is multiplied by a slope that falls to zero."""
    return np.where(x > 0, g, g * (out + alpha))


@elementwise(r"|<x>|", r"<g> \odot \operatorname{sign}(<x>)", 1, samples=OFF_ZERO, analytic=False)
def abs(x):
    """Drops the sign of each entry: y = |x|. Its gradient at 0 is 0.

    >>> abs(np.array([-1.0, 2.0]))
    array([1., 2.])
    """
    return np.abs(x)


@abs.vjp("x")
def _(g, x):
    """The gradient passes where the entry is positive, with its sign turned where negative."""
    return masked(g, np.logical_not(x <= 0)) - masked(g, x < 0)


@elementwise(r"\operatorname{sign}(<x>)", r"0\, <g>", 1, samples=OFF_ZERO, analytic=False)
def sign(x):
    """Gives -1, 0 or 1 as each entry is below, at or above 0; its gradient is 0 everywhere.

    >>> sign(np.array([-2.0, 0.0, 3.0]))
    array([-1.,  0.,  1.])
    """
    return np.sign(x)


@sign.vjp("x")
def _(g):
    """The gradient stops here, because a step is flat on both sides."""
    return g * 0


# ---------------------------------------------------------------- clip


def _clip_tex(low, high):
    """Open where there is no bound."""
    if low is None:
        return "<x>" if high is None else r"\min(<x>, <high>)"
    return r"\max(<x>, <low>)" if high is None else r"\min(\max(<x>, <low>), <high>)"


def _clip_vjp_tex(low, high):
    if low is None:
        return "<g>" if high is None else r"<g> \odot [<x> \le <high>]"
    return r"<g> \odot [<low> \le <x>]" if high is None else r"<g> \odot [<low> \le <x> \le <high>]"


def _clip_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in unary()(rng):
        x = away_from(1.0, away_from(-1.0, sample.args[0], 0.2), 0.2)
        yield call(x, -1.0, 1.0)
        yield call(x, low=-1.0)
    yield call(away_from(1.0, rng.uniform(-2, 2, (3, 5))), high=np.ones(5))


@elementwise(_clip_tex, _clip_vjp_tex, 1, samples=_clip_samples, analytic=False)
def clip(x, low=None, high=None):
    """Moves each entry into a range: [low, high]; None leaves a side open. Slope 1 up to the ends.

    >>> clip(np.array([-3.0, 0.5, 3.0]), -1.0, 1.0)
    array([-1. ,  0.5,  1. ])
    """
    return np.clip(x, low, high)


@clip.vjp("x")
def _(g, x, low, high):
    """The gradient passes where the entry lay within the range and stops where it was moved."""
    below = False if low is None else x < low
    above = False if high is None else x > high
    return masked(g, np.logical_not(np.logical_or(below, above)))


# ---------------------------------------------------------------- astype


def _cast_tex(dtype):
    return rf"\operatorname{{cast}}_{{\text{{{np.dtype(dtype)}}}}}(<x>)"


def _cast_vjp_tex(dtype):
    return "<g>" if np.dtype(dtype).kind in "fc" else r"0\, <g>"


def _astype_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in unary()(rng):
        yield call(sample.args[0], np.float64)


@elementwise(_cast_tex, _cast_vjp_tex, 0, samples=_astype_samples, analytic=False)
def astype(x, dtype: DTypeLike):
    """Writes each entry in another dtype; the gradient is cast back, and zero through integers.

    >>> astype(np.array([1.5]), np.float32).dtype
    dtype('float32')
    """
    return as_array(x).astype(dtype)


@astype.vjp("x")
def _(g, dtype):
    """The gradient is cast back to the input's dtype, and stops if the other holds integers."""
    return g if np.dtype(dtype).kind in "fc" else g * 0  # to integers: steps, without slope
