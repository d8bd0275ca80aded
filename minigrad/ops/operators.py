"""Tensor's operators and methods: each is an op, attached here once the ops are declared."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import habits
from ..engine.array_protocol import ForeignName, ForeignNames
from ..engine.context import current
from ..engine.errors import GradientError
from ..engine.op import registry
from ..engine.tensor import Tensor
from .arithmetic import add, divide, multiply, negative, power, subtract
from .composed import argmax, argmin, argsort, ravel
from .functions import abs, astype, clip, exp, log, relu, sigmoid, sqrt, tanh
from .measures import prod, std
from .numpy_protocol import array_function, array_ufunc
from .products import matmul
from .rearrange import repeat
from .reduce import cumsum, max, mean, min, sum, var
from .select import getitem, take
from .shape import reshape, squeeze, swapaxes, transpose
from .softmax import log_softmax, softmax

__all__: list[str] = []

_OPERATORS = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "truediv": divide,
    "pow": power,
    "matmul": matmul,
}

_OPS_AS_METHODS = (
    abs,
    astype,
    clip,
    cumsum,
    exp,
    log,
    log_softmax,
    max,
    mean,
    min,
    prod,
    relu,
    repeat,
    sigmoid,
    softmax,
    sqrt,
    squeeze,
    std,
    sum,
    swapaxes,
    take,
    tanh,
    var,
)


_apply = Tensor.__apply__  # what Op.__call__ would come to, without the way there


def _operator(op: Any) -> Any:
    return lambda self, other: _apply(op, (self, other), ())


def _reflected(op: Any) -> Any:
    return lambda self, other: _apply(op, (other, self), ())


def _spread(method: Any) -> Any:
    """A method that takes its shape or axes as one tuple or as several integers, like NumPy's."""
    return lambda self, *sizes: method(self, sizes[0] if len(sizes) == 1 else sizes or None)


def _in_place(op: Any, sign: str) -> Any:
    """`x += y`: a new tensor while recording; within no_grad(), a write into a leaf."""

    def operator(self: Tensor, other: Any) -> Tensor:
        recording = current().recording
        if not recording and self.is_leaf:
            new = _apply(op, (self, other), ())
            if new.dtype != self.dtype and np.can_cast(new.dtype, self.dtype, "same_kind"):
                new = astype(new, self.dtype)
            return self.assign_(new)
        if recording and not (self.is_leaf and self.requires_grad):
            return _apply(op, (self, other), ())
        name = self.path or "x"
        if recording:
            raise GradientError(
                f"{name} {sign} …: {name} is a leaf that requires a gradient; write to it within "
                f"`with mg.no_grad():`, or by {name}.assign_(array); {name} = {name} {sign[:-1]} … "
                "makes a new tensor"
            )
        raise GradientError(
            f"{name} {sign} …: {name} was computed by {self.node.op.name}, whose backward may need "
            f"it as it is; write {name} = {name} {sign[:-1]} … for a new tensor"
        )

    return operator


for _name, _sign, _op in (
    ("add", "+=", add),
    ("sub", "-=", subtract),
    ("mul", "*=", multiply),
    ("truediv", "/=", divide),
    ("pow", "**=", power),
    ("matmul", "@=", matmul),
):
    setattr(Tensor, f"__i{_name}__", _in_place(_op, _sign))
for _name, _op in _OPERATORS.items():
    setattr(Tensor, f"__{_name}__", _operator(_op))
    setattr(Tensor, f"__r{_name}__", _reflected(_op))
for _method in _OPS_AS_METHODS:
    setattr(Tensor, _method.name, _method)
_ATTACHED = {
    "__neg__": negative,
    "__abs__": abs,
    "__getitem__": getitem,
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "argmax": argmax,
    "argmin": argmin,
    "argsort": argsort,
    "flatten": ravel,
    "ravel": ravel,
    "reshape": _spread(reshape),
    "transpose": _spread(transpose),
    "T": property(lambda self: transpose(self)),
    "mT": property(lambda self: swapaxes(self, -1, -2)),
}
for _name, _attribute in _ATTACHED.items():
    setattr(Tensor, _name, _attribute)
for _name in {*habits.tensor_names(), *registry, *dir(np.ndarray)}:
    if _name[0] != "_" and not hasattr(Tensor, _name):
        setattr(ForeignNames, _name, ForeignName(_name))
