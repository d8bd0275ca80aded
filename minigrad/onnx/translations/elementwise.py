"""Functions of each entry by itself, and of two arrays entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from ...ops import (
    abs,
    add,
    astype,
    clip,
    cos,
    divide,
    elu,
    erf,
    exp,
    expm1,
    gelu,
    leaky_relu,
    log,
    log1p,
    mask_add,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    relu,
    scale,
    sigmoid,
    sign,
    silu,
    sin,
    softplus,
    square,
    subtract,
    tanh,
    where,
)
from ...ops import (
    sqrt as sqrt_op,
)
from ...ops.functions import TANH_CUBE, TANH_SCALE, normal_cdf
from ..translation import translation

ONE_TO_ONE = {
    sin: "Sin",
    cos: "Cos",
    exp: "Exp",
    log: "Log",
    sqrt_op: "Sqrt",
    tanh: "Tanh",
    sigmoid: "Sigmoid",
    erf: "Erf",
    sign: "Sign",
    relu: "Relu",
    abs: "Abs",
    negative: "Neg",
}
OF_TWO = {
    add: "Add",
    subtract: "Sub",
    multiply: "Mul",
    divide: "Div",
    maximum: "Max",
    minimum: "Min",
}


def of_one(operator: str) -> Callable[..., Any]:
    def translated(to: Any, x: Any, out: Any) -> Any:
        return to.emit(operator, to.cast(x, out.dtype))

    return translated


def of_two(operator: str) -> Callable[..., Any]:
    """Both in the dtype that NumPy computes in."""

    def translated(to: Any, a: Any, b: Any, out: Any) -> Any:
        return to.emit(operator, *both(to, a, b, out.dtype))

    return translated


def both(to: Any, a: Any, b: Any, dtype: Any) -> list[Any]:
    return [to.cast(to.value(x, dtype), dtype) for x in (a, b)]


for _op, _operator in ONE_TO_ONE.items():
    translation(_op)(of_one(_operator))
for _op, _operator in OF_TWO.items():
    translation(_op)(of_two(_operator))


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
    """e^x - 1 = 2 sinh(x/2) e^(x/2), of which tanh keeps small x exact."""
    half = to.Tanh(to.Div(x, 2))
    exact = to.Div(to.Mul(half, 2), to.Sub(1, half))
    small = to.emit("Less", to.Abs(x), 1, dtype=bool)
    return to.Where(small, exact, to.Sub(to.Exp(x), 1), dtype=x.dtype)


@translation(square)
def _(to, x):
    return to.Mul(x, x)


@translation(silu)
def _(to, x):
    return to.Mul(x, to.Sigmoid(x))


@translation(normal_cdf)
def _(to, x):
    return to.Mul(to.Add(to.Erf(to.Mul(x, sqrt(0.5))), 1), 0.5)


@translation(gelu)
def _(to, x, approximate):
    if x.dtype != np.float64:
        return to.Gelu(x, approximate=approximate)
    if approximate == "none":
        return to.Mul(x, to.Mul(to.Add(to.Erf(to.Mul(x, sqrt(0.5))), 1), 0.5))
    cube = to.Mul(to.Mul(x, x), to.Mul(x, TANH_CUBE))
    return to.Mul(x, to.Mul(to.Add(to.Tanh(to.Mul(to.Add(x, cube), TANH_SCALE)), 1), 0.5))


@translation(softplus)
def _(to, x):
    decay = to.Exp(to.Neg(to.Abs(x)))
    return to.Add(to.Relu(x), to.Log(to.Add(decay, 1)))


@translation(leaky_relu)
def _(to, x, negative_slope):
    return to.Add(to.Relu(x), to.Mul(to.Min(x, to.value(0, x.dtype)), negative_slope))


@translation(elu)
def _(to, x, alpha):
    below = to.Sub(to.Exp(to.Min(x, to.value(0, x.dtype))), 1)
    return to.Add(to.Relu(x), to.Mul(below, alpha))


@translation(scale)
def _(to, x, factor, out):
    return to.Mul(to.cast(x, out.dtype), to.value(factor, out.dtype))


@translation(mask_add)
def _(to, scores, mask, out):
    scores = to.cast(to.value(scores, out.dtype), out.dtype)
    if mask.dtype == bool:
        masked = to.Where(mask, scores, to.value(-np.inf, out.dtype), dtype=out.dtype)
    else:
        masked = to.Add(scores, to.cast(mask, out.dtype))
    masked.infinite = True
    return masked


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
