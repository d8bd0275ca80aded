"""Ops that act on each entry by itself; two inputs broadcast as in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import DTypeLike

from ..engine.errors import ArgumentError
from ..engine.op import Call, call, op
from ..fast.memory import FEW, in_place_buffer, out_buffer
from .masked import masked
from .normal import normal_cdf_of
from .samples import arrayed, away_from, floating, pairs, recorded, unary

__all__ = [
    "abs",
    "add",
    "astype",
    "clip",
    "divide",
    "exp",
    "gelu",
    "log",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "power",
    "relu",
    "sigmoid",
    "silu",
    "sqrt",
    "subtract",
    "tanh",
    "where",
]


def broadcastable(a: Any, b: Any, *_: Any) -> str | None:
    """The axis at which two shapes fail to broadcast, in words."""
    shapes = np.shape(a), np.shape(b)
    for axis in range(1, min(map(len, shapes)) + 1):
        n, m = shapes[0][-axis], shapes[1][-axis]
        if n != m and 1 not in (n, m):
            return f"shapes must broadcast, but axis -{axis} has {n} and {m}"
    return None


def each(cost: int) -> Any:
    """So many operations per entry of the result."""
    return lambda out: cost * out.size


# ---------------------------------------------------------------- arithmetic


@op(
    tex=r"<a> + <b>",
    vjp_tex={"a": r"<g>", "b": r"<g>"},
    flops=each(1),
    samples=pairs(),
    requires=broadcastable,
)
def add(a, b):
    """Sum of two arrays, entry by entry: y = a + b.

    >>> add(np.array([1.0, 2.0]), 3.0)
    array([4., 5.])
    """
    many = a.__class__ is ndarray and a.size > FEW
    return np.add(a, b, out_buffer(a, b)) if many else np.add(a, b)


@add.vjp("a")
def _(g):
    return g


@add.vjp("b")
def _(g):
    return g


@op(
    tex=r"<a> - <b>",
    vjp_tex={"a": r"<g>", "b": r"-<g>"},
    flops=each(1),
    samples=pairs(),
    requires=broadcastable,
)
def subtract(a, b):
    """Difference of two arrays, entry by entry: y = a - b.

    >>> subtract(np.array([1.0, 2.0]), 3.0)
    array([-2., -1.])
    """
    return np.subtract(a, b)


@subtract.vjp("a")
def _(g):
    return g


@subtract.vjp("b")
def _(g):
    return -g


@op(
    tex=r"<a> \odot <b>",
    vjp_tex={"a": r"<g> \odot <b>", "b": r"<g> \odot <a>"},
    flops=each(1),
    samples=pairs(),
    requires=broadcastable,
)
def multiply(a, b):
    """Product of two arrays, entry by entry: y = a b.

    >>> multiply(np.array([1.0, 2.0]), 3.0)
    array([3., 6.])
    """
    many = a.__class__ is ndarray and a.size > FEW
    return np.multiply(a, b, out_buffer(a, b)) if many else np.multiply(a, b)


@multiply.vjp("a")
def _(g, b):
    return g * b if g.size < FEW else np.multiply(g, b, out_buffer(g, b))


@multiply.vjp("b")
def _(g, a):
    return g * a if g.size < FEW else np.multiply(g, a, out_buffer(g, a))


@op(
    tex=r"<a> \oslash <b>",
    vjp_tex={"a": r"<g> \oslash <b>", "b": r"-<g> \odot <out> \oslash <b>"},
    flops=each(1),
    samples=pairs(0.5, 2.0),
    requires=broadcastable,
)
def divide(a, b):
    """Quotient of two arrays, entry by entry: y = a / b.

    >>> divide(np.array([1.0, 2.0]), 4.0)
    array([0.25, 0.5 ])
    """
    return np.divide(a, b)


@divide.vjp("a")
def _(g, b):
    return g / b


@divide.vjp("b")
def _(g, b, out):
    return -g * out / b


@op(tex=r"-<x>", vjp_tex={"x": r"-<g>"}, flops=each(1), samples=unary())
def negative(x):
    """The negative of each entry: y = -x.

    >>> negative(np.array([1.0, -2.0]))
    array([-1.,  2.])
    """
    return np.negative(x)


@negative.vjp("x")
def _(g):
    return -g


def _constant_power(a: Any, n: float) -> Any:
    """a to the power of a Python number; np.power takes fifty times as long where a is negative."""
    if n == 3:
        square = np.multiply(a, a, out_buffer(a))
        return np.multiply(square, a, in_place_buffer(square))
    if n in (-1, 0, 0.5, 1, 2) or n % 1:
        return a**n  # which NumPy does without a power, or has to do with one
    size = np.abs(a)
    size = np.power(size, n, in_place_buffer(size))
    return np.copysign(size, a) if n % 2 else size


@op(
    tex=r"<a>^{\circ <b>}",
    vjp_tex={
        "a": r"<g> \odot <b> \odot <a>^{\circ (<b> - 1)}",
        "b": r"<g> \odot <out> \odot \log <a>",
    },
    flops=each(1),
    samples=pairs(0.5, 2.0),
    requires=broadcastable,
)
def power(a, b):
    """Entry by entry a to the power b: y = a^b.

    The gradient in b at a = 0 is taken as its limit 0, the gradient in a at b = 0 as 0.

    >>> power(np.array([2.0, 3.0]), 2)
    array([4., 9.])
    """
    if b.__class__ in (int, float) and arrayed(a).dtype.kind == "f":
        return _constant_power(a, b)
    return np.power(a, b)


@power.vjp("a")
def _(g, a, b):
    if b.__class__ in (int, float):  # the common constant exponents, without a second power
        return g * (2 * a) if b == 2 else g * (b * power(a, b - 1)) if b else g * 0
    nonzero = b != 0
    return np.where(nonzero, g * b * a ** np.where(nonzero, b - 1, 1), 0)


@power.vjp("b")
def _(g, a, out):
    positive = a != 0
    return np.where(positive, g * out * np.log(np.where(positive, a, 1)), 0)


# ---------------------------------------------------------------- smooth functions


@op(tex=r"e^{<x>}", vjp_tex={"x": r"<g> \odot <out>"}, flops=each(1), samples=unary())
def exp(x):
    """The exponential of each entry: y = e^x.

    >>> exp(np.array([0.0, 1.0])).round(4)
    array([1.    , 2.7183])
    """
    return np.exp(x, out_buffer(x))


@exp.vjp("x")
def _(g, out):
    return np.multiply(g, out, out_buffer(g, out))


@op(tex=r"\log <x>", vjp_tex={"x": r"<g> \oslash <x>"}, flops=each(1), samples=unary(0.5, 3.0))
def log(x):
    """The natural logarithm of each entry: y = log x.

    >>> log(np.array([1.0, 10.0])).round(4)
    array([0.    , 2.3026])
    """
    return np.log(x)


@log.vjp("x")
def _(g, x):
    return g / x


@op(
    tex=r"\sqrt{<x>}",
    vjp_tex={"x": r"<g> \oslash (2 <out>)"},
    flops=each(1),
    samples=unary(0.5, 3.0),
)
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
    samples=unary(),
)
def tanh(x):
    """The hyperbolic tangent of each entry: y = tanh x.

    >>> tanh(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7616])
    """
    return np.tanh(x, out_buffer(x))


@tanh.vjp("x")
def _(g, out):
    slope = np.multiply(out, out, out_buffer(out))
    slope = np.subtract(1, slope, in_place_buffer(slope))
    return np.multiply(g, slope, in_place_buffer(slope))


def _logistic(x: Any) -> Any:
    """1 / (1 + e^-x), from e^-|x| so that nothing overflows and small values keep their digits."""
    positive = np.real(x) >= 0
    if x.dtype.kind == "c":
        decay = np.exp(np.where(positive, -x, x))
        top = np.where(positive, 1, decay)
    else:  # as fast whichever sign comes next
        decay = np.copysign(x, -1, out_buffer(x))
        decay = np.exp(decay, in_place_buffer(decay))
        top = np.maximum(positive, decay, out=out_buffer(decay))
    decay += 1
    return np.divide(top, decay, in_place_buffer(top))


@op(
    tex=r"\sigma(<x>)",
    vjp_tex={"x": r"<g> \odot <out> \odot (1 - <out>)"},
    flops=each(4),
    samples=unary(-3.0, 3.0),
)
def sigmoid(x):
    """The logistic function of each entry: y = 1 / (1 + e^-x), without overflow.

    >>> sigmoid(np.array([-800.0, 0.0, 800.0]))
    array([0. , 0.5, 1. ])
    """
    return _logistic(floating(x))


@sigmoid.vjp("x")
def _(g, out):
    slope = np.subtract(1, out, out_buffer(out))
    slope *= out
    slope *= g
    return slope


@op(
    tex=r"<x> \odot \sigma(<x>)",
    vjp_tex={"x": r"<g> \odot (\sigma(<x>) + <out> \odot (1 - \sigma(<x>)))"},
    flops=each(5),
    samples=unary(-3.0, 3.0),
    auxiliary=("s",),
)
def silu(x):
    """The sigmoid-weighted entry, or swish: y = x σ(x).

    Source: Elfwing et al. 2017, arXiv:1702.03118.

    >>> silu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7311])
    """
    x = floating(x)
    s = _logistic(x)
    return np.multiply(s, x, out_buffer(s, x)), s


@silu.vjp("x")
def _(g, x, s):
    s = sigmoid(x) if recorded(x) else s
    slope = np.subtract(1, s, out_buffer(s))
    slope *= x
    slope += 1
    slope *= s
    slope *= g
    return slope


_TANH_SCALE = 0.7978845608028654  # √(2/π)
_TANH_CUBE = 0.044715
_GAUSS = 0.3989422804014327  # 1/√(2π)


def _tanh_form(x: Any) -> Any:
    """(1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, which is nearly Φ(x)."""
    cdf = np.multiply(x, x, out_buffer(x))
    cdf *= _TANH_SCALE * _TANH_CUBE
    cdf += _TANH_SCALE
    cdf *= x
    cdf = np.tanh(cdf, in_place_buffer(cdf))
    cdf += 1
    cdf *= 0.5
    return cdf


def _gelu_samples(rng: np.random.Generator) -> Iterator[Call]:
    for form in ("none", "tanh"):
        for sample in unary(-3.0, 3.0)(rng):
            yield call(*sample.args, approximate=form)


@op(
    tex=r"<x> \odot \Phi(<x>)",
    vjp_tex={"x": r"<g> \odot (\Phi(<x>) + <x> \odot \varphi(<x>))"},
    flops=each(8),
    samples=_gelu_samples,
    analytic=False,
    auxiliary=("cdf",),
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
    x = floating(x)
    cdf = _tanh_form(x) if approximate == "tanh" else normal_cdf_of(x)
    return np.multiply(x, cdf, out_buffer(x, cdf)), cdf


@gelu.vjp("x")
def _(g, x, approximate, cdf):
    if approximate == "none":  # Φ + x φ
        slope = np.multiply(x, x, out_buffer(x))
        slope *= -0.5
        slope = np.exp(slope, in_place_buffer(slope))
        slope *= _GAUSS
        slope *= x
        slope += normal_cdf(x) if recorded(x) else cdf
    else:  # Φ + x Φ',  Φ' = 2 Φ (1 - Φ) √(2/π) (1 + 3 · 0.044715 x²)
        cdf = _tanh_form(x) if recorded(x) else cdf
        slope = np.multiply(x, x, out_buffer(x))
        slope *= 6 * _TANH_SCALE * _TANH_CUBE
        slope += 2 * _TANH_SCALE
        slope *= x
        slope *= np.subtract(1, cdf, out_buffer(cdf))
        slope += 1
        slope *= cdf
    slope *= g
    return slope


@op(
    tex=r"\Phi(<x>)",
    vjp_tex={"x": r"<g> \odot \varphi(<x>)"},
    flops=each(7),
    samples=unary(-3.0, 3.0),
    analytic=False,
)
def normal_cdf(x):
    """The standard normal distribution function: y = Φ(x) = (1 + erf(x/√2)) / 2.

    >>> normal_cdf(np.array([0.0, 1.0])).round(4)
    array([0.5   , 0.8413])
    """
    return normal_cdf_of(x)


@normal_cdf.vjp("x")
def _(g, x):
    return g * (_GAUSS * np.exp(-0.5 * x * x))


# ---------------------------------------------------------------- piecewise functions


@op(
    tex=r"\max(<x>, 0)",
    vjp_tex={"x": r"<g> \odot [<x> > 0]"},
    flops=each(1),
    samples=unary(kink=0.0),
    analytic=False,
)
def relu(x):
    """The positive part of each entry: y = max(x, 0). Its gradient at 0 is 0.

    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return np.maximum(x, 0)


@relu.vjp("x")
def _(g, out):
    return masked(g, out > 0)


@op(
    tex=r"|<x>|",
    vjp_tex={"x": r"<g> \odot \operatorname{sign}(<x>)"},
    flops=each(1),
    samples=unary(kink=0.0),
    analytic=False,
)
def abs(x):
    """The absolute value of each entry: y = |x|. Its gradient at 0 is 0.

    >>> abs(np.array([-1.0, 2.0]))
    array([1., 2.])
    """
    return np.abs(x)


@abs.vjp("x")
def _(g, x):
    return masked(g, x > 0) - masked(g, x < 0)


@op(
    tex=r"\max(<a>, <b>)",
    vjp_tex={
        "a": r"<g> \odot ([<a> > <b>] + \tfrac12 [<a> = <b>])",
        "b": r"<g> \odot ([<b> > <a>] + \tfrac12 [<a> = <b>])",
    },
    flops=each(1),
    samples=pairs(gap=0.01),
    analytic=False,
    requires=broadcastable,
)
def maximum(a, b):
    """The larger of two arrays, entry by entry. Equal entries share the gradient half and half.

    >>> maximum(np.array([1.0, 5.0]), 3.0)
    array([3., 5.])
    """
    return np.maximum(a, b)


@op(
    tex=r"\min(<a>, <b>)",
    vjp_tex={
        "a": r"<g> \odot ([<a> < <b>] + \tfrac12 [<a> = <b>])",
        "b": r"<g> \odot ([<b> < <a>] + \tfrac12 [<a> = <b>])",
    },
    flops=each(1),
    samples=pairs(gap=0.01),
    analytic=False,
    requires=broadcastable,
)
def minimum(a, b):
    """The smaller of two arrays, entry by entry. Equal entries share the gradient half and half.

    >>> minimum(np.array([1.0, 5.0]), 3.0)
    array([1., 3.])
    """
    return np.minimum(a, b)


def _winner(g: Any, mine: Any, other: Any, out: Any) -> Any:
    """The gradient where mine was taken, half of it where both were."""
    share = 1 - g.dtype.type(0.5) * (other == out)
    return masked(g * share, mine == out)


@maximum.vjp("a")
@minimum.vjp("a")
def _(g, a, b, out):
    return _winner(g, a, b, out)


@maximum.vjp("b")
@minimum.vjp("b")
def _(g, a, b, out):
    return _winner(g, b, a, out)


def _clip_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in unary(-2.0, 2.0)(rng):
        x = away_from(1.0, away_from(-1.0, sample.args[0], 0.2), 0.2)
        yield call(x, -1.0, 1.0)
        yield call(x, low=-1.0)
    yield call(away_from(1.0, rng.uniform(-2, 2, (3, 5))), high=np.ones(5))


@op(
    tex=r"\min(\max(<x>, <low>), <high>)",
    vjp_tex={"x": r"<g> \odot [<low> \le <x> \le <high>]"},
    flops=each(2),
    samples=_clip_samples,
    analytic=False,
)
def clip(x, low=None, high=None):
    """Each entry moved into [low, high]; None leaves a side open. Inside and at the ends, slope 1.

    >>> clip(np.array([-3.0, 0.5, 3.0]), -1.0, 1.0)
    array([-1. ,  0.5,  1. ])
    """
    return np.clip(x, low, high)


@clip.vjp("x")
def _(g, x, low, high):
    above = True if low is None else x >= low
    below = True if high is None else x <= high
    return masked(g, np.logical_and(above, below))


def _where_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in pairs()(rng):
        a, b = sample.args
        shape = np.broadcast_shapes(np.shape(a), np.shape(b))
        yield call(rng.uniform(size=shape) < 0.5, a, b)
    yield call(np.array([True, False, True]), rng.uniform(size=(2, 1)), 0.0)


@op(
    tex=r"<condition> \mathbin{?} <a> : <b>",
    vjp_tex={"a": r"<g> \odot [<condition>]", "b": r"<g> \odot [\lnot <condition>]"},
    flops=each(0),
    samples=_where_samples,
)
def where(condition, a, b):
    """Entries of a where the condition holds, of b elsewhere.

    >>> where(np.array([True, False]), np.array([1.0, 2.0]), 0.0)
    array([1., 0.])
    """
    return np.where(condition, a, b)


@where.vjp("a")
def _(g, condition):
    return masked(g, arrayed(condition))


@where.vjp("b")
def _(g, condition):
    return masked(g, np.logical_not(condition))


def _astype_samples(rng: np.random.Generator) -> Iterator[Call]:
    for sample in unary()(rng):
        yield call(sample.args[0], np.float64)


@op(
    tex=r"\operatorname{cast}(<x>)",
    vjp_tex={"x": r"<g>"},
    flops=each(0),
    samples=_astype_samples,
    analytic=False,
)
def astype(x, dtype: DTypeLike):
    """The entries in another dtype; the gradient is cast back, and zero through integers.

    >>> astype(np.array([1.5]), np.float32).dtype
    dtype('float32')
    """
    return arrayed(x).astype(dtype)


@astype.vjp("x")
def _(g, dtype):
    return g if np.dtype(dtype).kind in "fc" else g * 0  # to integers: steps, without slope
