"""Functions of each entry by itself, and the short way to declare one.

At a kink the slope is a convention, stated with each op. NaN is neither above nor below a kink: its
gradient passes, as if the entry had been taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..engine.errors import ArgumentError
from ..engine.op import Declare, op
from .dtypes import as_array, cast_back, floating, masked, widen_half
from .notation import Formula
from .samples import Samples, each, of_shapes, unary

__all__ = [
    "abs",
    "astype",
    "clip",
    "cos",
    "erf",
    "exp",
    "fake_quantize",
    "log",
    "log1p",
    "sign",
    "sin",
    "sqrt",
    "square",
]


def elementwise(
    tex: str | Formula,
    vjp_tex: str | Formula,
    cost: int,
    *,
    samples: Samples | None = None,
    **declaration: Any,
) -> Declare:
    """Declare an op of one input x with `cost` operations for each entry of its result."""
    return op(
        tex=tex, vjp_tex={"x": vjp_tex}, flops=each(cost), samples=samples or unary(), **declaration
    )


POSITIVE = unary(0.5, 3.0)  # where roots and logarithms are
WIDE_INPUTS = unary(-3.0, 3.0)  # where functions with two flat ends bend


def at_zero(x):
    """The kink of functions that bend, or jump, at 0."""
    return np.equal(x, 0)


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


# (4 + a) e^(a²/2) Φ(-a) for a ≥ 0, as a polynomial in t = (a - 4) / (a + 4), lowest power first:
# the interpolant at 60 Chebyshev points, worked out in 50 digits and cut where less than 1e-17 is
# lost.
TAIL = (
    0.7552851304157515, -0.6078966419718923, 0.3871374007422149, -0.18652185795963658,
    0.060396574890917876, -0.007540188967386313, -0.003479692367047974, 0.0016308184674099088,
    0.00013334430941183256, -0.0002310950173627743, -1.9082463514145713e-06,
    3.514511190283765e-05, 7.166587641195121e-07, -5.9216110459239795e-06, -6.298367338492369e-07,
    1.0247851016552774e-06, 2.724629695114587e-07, -1.5977396142239217e-07, -8.68664701599789e-08,
    1.784492777298142e-08, 2.1427603843452348e-08, -5.873626764987198e-10, -3.730645081868368e-09,
    -1.1997782031253095e-10, 3.403312308649495e-10,
)  # fmt: skip
# the same in ten Chebyshev polynomials, which is all that float32 can tell
SHORT_TAIL = (
    0.7552851271355856, -0.6078964038146355, 0.3871375629108491, -0.18652671087172498,
    0.060395295869956914, -0.007512231381751565, -0.0034761678949089218, 0.0015637868988265602,
    0.00012932568134075276, -0.0001573205695845843,
)  # fmt: skip
BY_ENTRY = 64  # entries for which one call of C each takes less time
BLOCK = 1 << 14  # entries that stay in a core's cache through all passes over them
GAUSS = 0.3989422804014327  # 1/√(2π)


def normal_pdf(x):
    """φ(x), the slope of Φ."""
    return GAUSS * np.exp(-0.5 * x * x)


def normal_tail(a):
    """Φ(-a) for a ≥ 0, small ones included."""
    double = a.dtype == np.float64
    terms = TAIL if double else SHORT_TAIL
    over = a + 4
    t = (a - 4) / over
    tail = t * terms[-1]
    for term in terms[-2:0:-1]:
        tail += term
        tail *= t
    tail += terms[0]
    tail /= over
    short = a.astype(np.float32).astype(a.dtype)  # whose square is exact
    if double:
        tail *= np.exp(-0.5 * (a - short) * (a + short))
    tail *= np.exp(-0.5 * short * short)
    return tail


@elementwise(r"\Phi(<x>)", r"<g> \odot \varphi(<x>)", 7, samples=WIDE_INPUTS, analytic=False)
def normal_cdf(x):
    """Gives how much of a normal distribution lies below each entry: Φ(x) = (1 + erf(x/√2)) / 2.

    Right to 6 ulp, small tails included; in float32 to 5e-6 of each entry, and to 2e-7 in all.

    >>> normal_cdf(np.array([-40.0, 0.0, 1.0])).round(4)
    array([0.    , 0.5   , 0.8413])
    """
    x = floating(x)
    if x.size <= BY_ENTRY:
        return by_entry(lambda entry: 0.5 * math.erfc(-math.sqrt(0.5) * entry), x)
    wide = np.ravel(widen_half(x))
    y = np.empty(x.size, x.dtype)
    for start in range(0, x.size, BLOCK):
        part = wide[start : start + BLOCK]
        tail = normal_tail(np.minimum(np.abs(part), 40))  # beyond, Φ(-a) is 0
        y[start : start + BLOCK] = np.abs((part >= 0) - tail)  # tail, or 1 - tail
    return y.reshape(x.shape)


def by_entry(function, x):
    """A function of one number, of each entry."""
    values = [function(entry) for entry in x.ravel().tolist()]
    return np.array(values, x.dtype).reshape(x.shape)[()]


@normal_cdf.vjp("x")
def _(g, x):
    """The gradient is multiplied by the density of the normal distribution at the input."""
    return g * normal_pdf(x)


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
    >>> erf(0.0)
    np.float64(0.0)
    """
    return by_entry(math.erf, floating(x))


@erf.vjp("x")
def _(g, x):
    """The gradient is multiplied by a bell curve of the input, which is highest at zero."""
    return 2 / math.sqrt(math.pi) * g * np.exp(-x * x)


# ---------------------------------------------------------------- kinks and steps


@elementwise(
    r"|<x>|",
    r"<g> \odot \operatorname{sign}(<x>)",
    1,
    analytic=False,
    kinks=at_zero,
)
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


@elementwise(
    r"\operatorname{sign}(<x>)",
    r"0\, <g>",
    1,
    analytic=False,
    kinks=at_zero,
)
def sign(x):
    """Gives -1, 0 or 1 as each entry is below, at or above 0; its gradient is 0 everywhere.

    >>> sign(np.array([-2.0, 0.0, 3.0]))
    array([-1.,  0.,  1.])
    """
    return np.sign(x)


@sign.vjp("x")
def _(g):
    """The gradient stops here, because a step is flat on both sides."""
    return masked(g, np.False_)


# ---------------------------------------------------------------- clip


def _clip_tex(low, high):
    """Open where there is no bound."""
    x = "<x>" if low is None else r"\max(<x>, <low>)"
    return x if high is None else rf"\min({x}, <high>)"


def _clip_vjp_tex(low, high):
    above = "" if low is None else r"<low> \le "
    below = "" if high is None else r" \le <high>"
    return rf"<g> \odot [{above}<x>{below}]" if above or below else "<g>"


@elementwise(
    _clip_tex,
    _clip_vjp_tex,
    1,
    samples=of_shapes(
        ([2, 3, 5], -0.5, 0.5),
        ([7], -0.5),
        ([], -0.5, 0.5),
        ([0, 3], -0.5, 0.5),
        ([3, 5], None, np.full(5, 0.5)),
    ),
    analytic=False,
    kinks=lambda x, low, high: np.equal(x, low) | np.equal(x, high),
)
def clip(x, low=None, high=None):
    """Moves each entry into a range: [low, high]; None leaves a side open. Slope 1 up to the ends.

    >>> clip(np.array([-3.0, 0.5, 3.0]), -1.0, 1.0)
    array([-1. ,  0.5,  1. ])
    """
    x = as_array(x)
    y = np.clip(x, low, high)
    return cast_back(y, x) if x.dtype.kind == "f" else y


@clip.vjp("x")
def _(g, x, low, high):
    """The gradient passes where the entry lay within the range and stops where it was moved."""
    below = False if low is None else x < low
    above = False if high is None else x > high
    return masked(g, np.logical_not(np.logical_or(below, above)))


# ---------------------------------------------------------------- astype


def _cast_tex(dtype):
    return rf"\operatorname{{{np.dtype(dtype)}}}(<x>)"


def _cast_vjp_tex(dtype):
    return "<g>" if np.dtype(dtype).kind in "fc" else r"0\, <g>"


@elementwise(
    _cast_tex,
    _cast_vjp_tex,
    0,
    samples=of_shapes(([2, 3, 5], np.float64), ([], np.float64), ([0, 3], np.float64)),
    analytic=False,
)
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


# ---------------------------------------------------------------- rounding that gradients pass


# of steps so fine that differences do not see them: there the rule is the derivative
FINE = of_shapes(
    ([2, 3, 5], 2.0**-51, 51), ([], 2.0**-51, 51), ([3, 5], np.full(5, 2.0**-51), 51),
    ([0, 3], 2.0**-51, 51),
)  # fmt: skip


def _top(bits: int) -> int:
    """The largest integer of so many bits; its negative is one too."""
    return int(2 ** (bits - 1) - 1)


def _quantize_tex(bits):
    ends = rf"{-_top(bits)}, {_top(bits)}"
    rounded = r"\operatorname{round}(<x> \oslash <scale>)"
    return rf"<scale> \odot \operatorname{{clip}}_{{{ends}}}({rounded})"


def _quantize_vjp_tex(bits):
    return rf"<g> \odot [|<x>| \le {_top(bits)}.5\, <scale>]"


@elementwise(
    _quantize_tex,
    _quantize_vjp_tex,
    4,
    samples=FINE,
    analytic=False,
    kinks=lambda x, scale: np.abs(x) < 2.0**24 * as_array(scale),  # of finer steps nothing is seen
)
def fake_quantize(x, scale, bits=8):
    """Rounds each entry to what an integer of few bits can hold: y = s · clip(round(x / s)).

    The integers are −(2^{bits−1} − 1) to 2^{bits−1} − 1. Rounding has slope 0 almost everywhere, so
    gradients take it for the identity, and end where an entry is cut off (straight through).
    Args: scale: of one step, a number or an array that broadcasts to x; no gradient flows into it.
    Raises: ArgumentError unless scale is above 0 and bits is an integer from 2 to 64.
    Source: Jacob et al. 2018, arXiv:1712.05877; straight through: Bengio et al. 2013,
        arXiv:1308.3432.

    >>> fake_quantize(np.array([0.4, 0.6, -9.0]), 0.5, bits=3)
    array([ 0.5,  0.5, -1.5])
    """
    if not isinstance(bits, int | np.integer) or not 2 <= bits <= 64:
        raise ArgumentError(f"bits must be an integer from 2 to 64, got {bits!r}")
    if not np.all(np.greater(scale, 0)):
        raise ArgumentError(f"scale must be above 0, got {scale}")
    x = floating(x)
    s = np.asarray(scale, np.real(x).dtype)
    top = _top(int(bits))
    return np.clip(np.rint(x / s), -top, top) * s


@fake_quantize.vjp("x")
def _(g, x, scale, bits):
    """The gradient passes as if nothing were rounded, and stops where an entry was out of range."""
    edge = (_top(bits) + 0.5) * as_array(scale)  # beyond, an integer would not fit
    return masked(g, np.logical_and(x >= -edge, x <= edge))
