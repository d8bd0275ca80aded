"""Functions of each entry by itself, and of two arrays entry by entry; NumPy's questions too."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ...engine.op import registry
from ...ops import (
    astype,
    clip,
    elu,
    expm1,
    fake_quantize,
    gelu,
    leaky_relu,
    log,
    log1p,
    mask_add,
    power,
    prelu,
    scale,
    square,
    where,
)
from ...ops.functions import normal_cdf
from ..run import FOLLOWED
from ..translation import translation

SAME = {
    "abs": "Abs", "cos": "Cos", "erf": "Erf", "exp": "Exp", "negative": "Neg", "relu": "Relu",
    "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "softplus": "Softplus", "sqrt": "Sqrt",
    "tanh": "Tanh", "floor": "Floor", "ceil": "Ceil", "rint": "Round",
}  # fmt: skip
OF_TWO = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max",
    "minimum": "Min",
}  # fmt: skip
QUESTIONS = {
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}  # fmt: skip
LOGICAL = {
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "bitwise_and": "And",
    "bitwise_or": "Or", "bitwise_xor": "Xor",
}  # fmt: skip
ALL = registry | FOLLOWED


def both(to, a, b, dtype):
    """Both in the dtype that NumPy computes in."""
    return [to.cast(to.value(x, dtype), dtype) for x in (a, b)]


def common(to, a, b):
    """Both in the dtype in which NumPy compares them; a Python number takes the other's."""
    kinds = [getattr(x, "dtype", x if isinstance(x, int | float) else 0) for x in (a, b)]
    return both(to, a, b, np.result_type(*kinds))


def _declare(table, translated):
    for name, operator in table.items():
        translation(ALL[name])(translated(operator))


def _same(operator):
    return lambda to, x, out: to.emit(operator, to.cast(x, out.dtype))


def _of_two(operator):
    return lambda to, a, b, out: to.emit(operator, *both(to, a, b, out.dtype))


def _question(operator):
    return lambda to, a, b: to.emit(operator, *common(to, a, b), dtype=bool)


def _logical(operator):
    return lambda to, a, b, out: to.emit(
        operator if out.dtype == bool else f"Bitwise{operator}", *both(to, a, b, out.dtype)
    )


_declare(SAME, _same)
_declare(OF_TWO, _of_two)
_declare(QUESTIONS, _question)
_declare(LOGICAL, _logical)


@translation(ALL["not_equal"])
def _(to, a, b):
    return to.Not(to.emit("Equal", *common(to, a, b), dtype=bool))


@translation(ALL["logical_not"], ALL["invert"])
def _(to, x, out):
    return to.Not(to.cast(x, bool)) if out.dtype == bool else to.BitwiseNot(x)


@translation(ALL["isnan"])
def _(to, x):
    return to.emit("IsNaN", x, dtype=bool)


@translation(ALL["isinf"])
def _(to, x):
    return to.emit("IsInf", x, dtype=bool)


@translation(ALL["isfinite"])
def _(to, x):
    return to.Not(to.Or(to.emit("IsNaN", x, dtype=bool), to.emit("IsInf", x, dtype=bool)))


@translation(ALL["remainder"])
def _(to, a, b, out):
    a, b = both(to, a, b, out.dtype)
    if out.dtype.kind in "iu":
        return to.Mod(a, b)
    return to.Sub(a, to.Mul(to.Floor(to.Div(a, b)), b))


@translation(ALL["floor_divide"])
def _(to, a, b, out):
    a, b = both(to, a, b, out.dtype)
    if out.dtype.kind in "iu":
        return to.Div(to.Sub(a, to.Mod(a, b)), b)
    return to.Floor(to.Div(a, b))


# ---------------------------------------------------------------- functions


@translation(log)
def _(to, x, out):
    found = to.Log(to.cast(x, out.dtype))
    found.infinite = True
    return found


@translation(power)
def _(to, a, b, out):
    a, b = both(to, a, b, out.dtype)
    return to.Mul(a, a) if b.array is not None and np.all(b.array == 2) else to.Pow(a, b)


@translation(log1p)
def _(to, x):
    """log(1 + x), exact for small x: x log(u) / (u - 1) of u = 1 + x, rounded."""
    u = to.Add(x, 1)
    less = to.Sub(u, 1)
    small = to.emit("Equal", less, 0, dtype=bool)
    ratio = to.Div(to.Log(u), to.Where(small, to.value(1, x.dtype), less, dtype=x.dtype))
    return to.Where(small, x, to.Mul(x, ratio), dtype=x.dtype)


@translation(expm1)
def _(to, x):
    """e^x - 1 = 2 t / (1 - t) with t = tanh(x/2), exact for small x."""
    half = to.Tanh(to.Div(x, 2))
    exact = to.Div(to.Mul(half, 2), to.Sub(1, half))
    small = to.emit("Less", to.Abs(x), 1, dtype=bool)
    return to.Where(small, exact, to.Sub(to.Exp(x), 1), dtype=x.dtype)


@translation(square)
def _(to, x):
    return to.Mul(x, x)


@translation(normal_cdf)
def _(to, x):
    return to.Mul(to.Add(to.Erf(to.Mul(x, sqrt(0.5))), 1), 0.5)


@translation(gelu)
def _(to, x, approximate):
    return to.Gelu(x, approximate=approximate)


@translation(leaky_relu)
def _(to, x, negative_slope):
    return to.LeakyRelu(x, alpha=float(negative_slope))


@translation(prelu)
def _(to, x, weight, out):
    x, weight = both(to, x, weight, out.dtype)
    channels = [-1, *[1] * (len(x.shape) - 2)] if len(x.shape) > 1 else [-1] * len(x.shape)
    return to.PRelu(x, to.Reshape(weight, channels))


@translation(elu)
def _(to, x, alpha):
    return to.Elu(x, alpha=float(alpha))


@translation(scale)
def _(to, x, factor, out):
    return to.Mul(to.cast(x, out.dtype), to.value(factor, out.dtype))


@translation(fake_quantize)
def _(to, x, scale, bits, out):
    s = to.cast(to.value(scale, out.dtype), out.dtype)
    top = 2 ** (bits - 1) - 1
    steps = to.Round(to.Div(to.cast(x, out.dtype), s))
    low, high = (to.value(float(end), out.dtype) for end in (-top, top))
    return to.Mul(to.Max(to.Min(steps, high), low), s)


@translation(mask_add)
def _(to, scores, mask, out):
    return masked(to, to.cast(to.value(scores, out.dtype), out.dtype), mask)


def masked(to, scores, mask):
    """Scores, -inf where a mask closes."""
    dtype = scores.dtype
    if mask.dtype == bool:
        found = to.Where(mask, scores, to.value(-np.inf, dtype), dtype=dtype)
    else:
        found = to.Add(scores, to.cast(mask, dtype))
    found.infinite = True
    return found


@translation(clip)
def _(to, x, low, high, out):
    x = to.cast(x, out.dtype)
    if low is not None:
        x = to.Max(x, to.cast(to.value(low, out.dtype), out.dtype))
    return x if high is None else to.Min(x, to.cast(to.value(high, out.dtype), out.dtype))


@translation(where)
def _(to, condition, a, b, out):
    condition = to.cast(to.value(condition, bool), bool)
    return to.Where(condition, *both(to, a, b, out.dtype), dtype=out.dtype)


@translation(astype)
def _(to, x, out):
    return to.cast(x, out.dtype)
