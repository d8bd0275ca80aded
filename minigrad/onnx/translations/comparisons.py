"""NumPy's questions about entries, of which masks are made."""

from __future__ import annotations

import numpy as np

from ..run import FOLLOWED
from ..translation import translation
from .elementwise import both
from .reductions import reduced

_COMPARISONS = {
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}
_LOGICAL = {
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "bitwise_and": "And",
    "bitwise_or": "Or",
    "bitwise_xor": "Xor",
}
_OF_ONE = {"isnan": "IsNaN", "isinf": "IsInf"}
_ROUNDED = {"floor": "Floor", "ceil": "Ceil", "rint": "Round"}


def _common(to, a, b):
    """Both in the dtype in which NumPy compares them; a Python number takes the other's."""
    kinds = [getattr(x, "dtype", x if isinstance(x, int | float) else 0) for x in (a, b)]
    return both(to, a, b, np.result_type(*kinds))


def _compared(operator):
    return lambda to, a, b: to.emit(operator, *_common(to, a, b), dtype=bool)


def _decided(operator):
    def translated(to, a, b, out):
        if out.dtype != bool:
            return to.emit(f"Bitwise{operator}", *both(to, a, b, out.dtype))
        return to.emit(operator, *both(to, a, b, bool))

    return translated


def _asked(operator):
    return lambda to, x: to.emit(operator, x, dtype=bool)


def _rounded(operator):
    return lambda to, x, out: to.emit(operator, to.cast(x, out.dtype))


for _name, _operator in _COMPARISONS.items():
    translation(FOLLOWED[_name])(_compared(_operator))
for _name, _operator in _LOGICAL.items():
    translation(FOLLOWED[_name])(_decided(_operator))
for _name, _operator in _OF_ONE.items():
    translation(FOLLOWED[_name])(_asked(_operator))
for _name, _operator in _ROUNDED.items():
    translation(FOLLOWED[_name])(_rounded(_operator))


@translation(FOLLOWED["not_equal"])
def _(to, a, b):
    return to.Not(to.emit("Equal", *_common(to, a, b), dtype=bool))


@translation(FOLLOWED["logical_not"], FOLLOWED["invert"])
def _(to, x):
    return to.Not(x) if x.dtype == bool else to.BitwiseNot(x)


@translation(FOLLOWED["isfinite"])
def _(to, x):
    return to.Not(to.Or(to.emit("IsNaN", x, dtype=bool), to.emit("IsInf", x, dtype=bool)))


@translation(FOLLOWED["remainder"])
def _(to, a, b, out):
    a, b = both(to, a, b, out.dtype)
    if out.dtype.kind in "iu":
        return to.Mod(a, b)
    return to.Sub(a, to.Mul(to.Floor(to.Div(a, b)), b))


@translation(FOLLOWED["floor_divide"])
def _(to, a, b, out):
    a, b = both(to, a, b, out.dtype)
    if out.dtype.kind in "iu":
        return to.Div(to.Sub(a, to.Mod(a, b)), b)
    return to.Floor(to.Div(a, b))


@translation(FOLLOWED["any"])
def _(to, x, axis, keepdims):
    found = reduced(to, "ReduceMax", to.cast(to.cast(x, bool), np.int32), axis, keepdims)
    return to.cast(found, bool)


@translation(FOLLOWED["all"])
def _(to, x, axis, keepdims):
    found = reduced(to, "ReduceMin", to.cast(to.cast(x, bool), np.int32), axis, keepdims)
    return to.cast(found, bool)


@translation(FOLLOWED["argmax"])
def _(to, x, axis):
    return _place(to, "ArgMax", x, axis)


@translation(FOLLOWED["argmin"])
def _(to, x, axis):
    return _place(to, "ArgMin", x, axis)


def _place(to, operator, x, axis):
    x = x if axis is not None else to.Reshape(x, [-1])
    return to.emit(operator, x, axis=0 if axis is None else int(axis), keepdims=0, dtype=np.int64)
