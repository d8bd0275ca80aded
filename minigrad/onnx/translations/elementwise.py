"""Functions of each entry, and of two arrays entry by entry; NumPy's comparisons and tests too."""

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
from ..run import NUMPY_OPS
from ..translation import declare, translation

OPS = registry | NUMPY_OPS


def both(to, a, b, dtype):
    """Both in the dtype that NumPy computes in."""
    return [to.cast(to.value(x, dtype), dtype) for x in (a, b)]


def common(to, a, b):
    """Both in the dtype in which NumPy compares them; a Python number takes the other one's."""
    kinds = [getattr(x, "dtype", x if isinstance(x, int | float) else 0) for x in (a, b)]
    return both(to, a, b, np.result_type(*kinds))


def masked(to, scores, mask):
    """The scores plus the mask: -inf where a boolean one is False."""
    dtype = scores.dtype
    if mask.dtype == bool:
        found = to.Where(mask, scores, to.value(-np.inf, dtype), dtype=dtype)
    else:
        found = to.Add(scores, to.cast(mask, dtype))
    found.infinite = True
    return found


# ---------------------------------------------------------------- one operator of ONNX each


def _of_one(operator):
    return lambda to, x, out: to.emit(operator, to.cast(x, out.dtype))


def _of_two(operator):
    return lambda to, a, b, out: to.emit(operator, *both(to, a, b, out.dtype))


def _test(operator):
    return lambda to, x: to.emit(operator, x, dtype=bool)


def _comparison(operator):
    return lambda to, a, b: to.emit(operator, *common(to, a, b), dtype=bool)


def _logical(operator):
    return lambda to, a, b, out: to.emit(
        operator if out.dtype == bool else f"Bitwise{operator}", *both(to, a, b, out.dtype)
    )


OPERATORS_OF_ONNX = {
    _of_one: {
        "abs": "Abs", "cos": "Cos", "erf": "Erf", "exp": "Exp", "negative": "Neg", "relu": "Relu",
        "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "softplus": "Softplus", "sqrt": "Sqrt",
        "tanh": "Tanh", "floor": "Floor", "ceil": "Ceil", "rint": "Round",
    },
    _of_two: {
        "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max",
        "minimum": "Min",
    },
    _test: {"isnan": "IsNaN", "isinf": "IsInf"},
    _comparison: {
        "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
        "greater_equal": "GreaterOrEqual",
    },
    _logical: {
        "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "bitwise_and": "And",
        "bitwise_or": "Or", "bitwise_xor": "Xor",
    },
}  # fmt: skip
for _translated, _table in OPERATORS_OF_ONNX.items():
    declare({OPS[name]: _translated(operator) for name, operator in _table.items()})

declare(
    {
        OPS["not_equal"]: lambda to, a, b: to.Not(_comparison("Equal")(to, a, b)),
        OPS["isfinite"]: lambda to, x: to.Not(to.Or(_test("IsNaN")(to, x), _test("IsInf")(to, x))),
        astype: lambda to, x, out: to.cast(x, out.dtype),
        elu: lambda to, x, alpha: to.Elu(x, alpha=float(alpha)),
        gelu: lambda to, x, approximate: to.Gelu(x, approximate=approximate),
        leaky_relu: lambda to, x, negative_slope: to.LeakyRelu(x, alpha=float(negative_slope)),
        normal_cdf: lambda to, x: to.Mul(to.Add(to.Erf(to.Mul(x, sqrt(0.5))), 1), 0.5),
        scale: lambda to, x, factor, out: to.Mul(*both(to, x, factor, out.dtype)),
        square: lambda to, x: to.Mul(x, x),
    }
)

# ---------------------------------------------------------------- several operators each


@translation(OPS["logical_not"], OPS["invert"])
def _(to, x, out):
    return to.Not(to.cast(x, bool)) if out.dtype == bool else to.BitwiseNot(x)


def _divided(to, a, b):
    """The remainder that fmod leaves, exactly, and whether its sign is not that of b, as NumPy's
    is.
    """
    left = to.Mod(a, b, fmod=1)
    signs = to.Mul(to.Sign(left), to.Sign(b))
    return left, to.emit("Less", signs, 0, dtype=bool)


@translation(OPS["remainder"])
def _(to, a, b, out):
    a, b = both(to, a, b, out.dtype)
    if out.dtype.kind in "iu":
        return to.Mod(a, b)
    left, crossed = _divided(to, a, b)
    return to.Where(crossed, to.Add(left, b), left, dtype=out.dtype)


@translation(OPS["floor_divide"])
def _(to, a, b, out):
    """(a - remainder) / b, for a / b may round up to the next whole number: 1 // 0.1 is 9."""
    a, b = both(to, a, b, out.dtype)
    if out.dtype.kind in "iu":
        return to.Div(to.Sub(a, to.Mod(a, b)), b)
    left, crossed = _divided(to, a, b)
    whole = to.Round(to.Div(to.Sub(a, left), b))
    whole = to.Where(crossed, to.Sub(whole, 1), whole, dtype=out.dtype)
    by_zero = to.emit("Equal", b, 0, dtype=bool)
    return to.Where(by_zero, to.Div(a, b), whole, dtype=out.dtype)


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
    large = to.emit("Greater", x, 1, dtype=bool)  # up to infinity
    less = to.Sub(u, 1)
    small = to.emit("Equal", less, 0, dtype=bool)
    ratio = to.Div(to.Log(u), to.Where(small, to.value(1, x.dtype), less, dtype=x.dtype))
    exact = to.Where(small, x, to.Mul(x, ratio), dtype=x.dtype)
    return to.Where(large, to.Log(u), exact, dtype=x.dtype)


@translation(expm1)
def _(to, x):
    """e^x - 1 = 2 t / (1 - t) with t = tanh(x/2), exact for small x."""
    half = to.Tanh(to.Div(x, 2))
    exact = to.Div(to.Mul(half, 2), to.Sub(1, half))
    small = to.emit("Less", to.Abs(x), 1, dtype=bool)
    return to.Where(small, exact, to.Sub(to.Exp(x), 1), dtype=x.dtype)


@translation(prelu)
def _(to, x, weight, out):
    x, weight = both(to, x, weight, out.dtype)
    channels = [-1, *[1] * (x.ndim - 2)] if x.ndim > 1 else [-1] * x.ndim
    return to.PRelu(x, to.Reshape(weight, channels))


@translation(fake_quantize)
def _(to, x, scale, bits, out):
    x, s = both(to, x, scale, out.dtype)
    top = 2 ** (bits - 1) - 1
    steps = to.Round(to.Div(x, s))
    low, high = (to.value(float(end), out.dtype) for end in (-top, top))
    return to.Mul(to.Max(to.Min(steps, high), low), s)


@translation(where)
def _(to, condition, a, b, out):
    condition = to.cast(to.value(condition, bool), bool)
    a, b = both(to, a, b, out.dtype)
    if out.dtype == bool:  # of which onnxruntime has no Where
        return to.Or(to.And(condition, a), to.And(to.Not(condition), b))
    return to.Where(condition, a, b, dtype=out.dtype)


@translation(mask_add)
def _(to, scores, mask, out):
    return masked(to, to.cast(to.value(scores, out.dtype), out.dtype), mask)


@translation(clip)
def _(to, x, low, high, out):
    x = to.cast(x, out.dtype)
    if low is not None:
        x = to.Max(*both(to, x, low, out.dtype))
    return x if high is None else to.Min(*both(to, x, high, out.dtype))
