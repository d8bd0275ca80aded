"""What Tensor does by ops: Python's operators, methods, and NumPy's own functions.

`x + y` and `np.add(x, y)` are the op `add`, `x.sum()` and `np.sum(x)` are `sum`. Where there is no
op, the error says what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .. import habits
from ..engine.array_protocol import ForeignName, ForeignNames, data_of
from ..engine.context import current
from ..engine.errors import DTypeError, GradientError, ShapeError
from ..engine.op import Op, registry
from ..engine.tensor import Operand, Tensor, TensorOrArray
from . import select, shape
from .functions import astype
from .shape import reshape, swapaxes, transpose

__all__ = ["not_recorded", "op_like"]

# ---------------------------------------------------------------- NumPy's functions

_FORMS = {np.shape, np.ndim, np.size, np.result_type, np.iscomplexobj, np.isrealobj}
_COMPARISONS = {np.allclose, np.array_equal}
_OTHER_NAMES = {"absolute": "abs", "amax": "max", "amin": "min"}
_WRITTEN_OUT = {  # NumPy's functions that are no op, by ops
    "average": "mg.mean(x)",
    "diff": "x[1:] - x[:-1]",
    "dot": "x @ y",
    "inner": "x @ y.T",
    "log10": "mg.log(x) / np.log(10.0)",
    "log2": "mg.log(x) / np.log(2.0)",
    "ones_like": "mg.ones(x.shape)",
    "tan": "mg.sin(x) / mg.cos(x)",
    "vdot": "mg.sum(x * y)",
    "zeros_like": "mg.zeros(x.shape)",
}


def op_like(name: str) -> Op | Callable[..., Any] | None:
    """The op, or the function composed of ops, of a NumPy function's name."""
    name = _OTHER_NAMES.get(name, name)
    for module in (select, shape):
        if name in module.__all__:
            found: Op | Callable[..., Any] = getattr(module, name)
            return found
    return registry.get(name)


def not_recorded(name: str) -> DTypeError:
    """The error of a NumPy function that no op is called for, though one may have its name."""
    remedy = "use x.numpy() to leave the graph"
    if name in _WRITTEN_OUT:
        remedy = f"write {_WRITTEN_OUT[name]}, or {remedy}"
    elif op_like(name):
        remedy = f"call minigrad.{_OTHER_NAMES.get(name, name)} with its own arguments"
    return DTypeError(f"np.{name} on a Tensor would not be recorded; {remedy}")


def _array_ufunc(
    self: Tensor, ufunc: np.ufunc, method: str, *inputs: Operand, **kwargs: Any
) -> TensorOrArray:
    """A ufunc on a Tensor is the op of that name; a comparison gives a plain array."""
    if {"d->?", "dd->?"}.intersection(ufunc.types):
        return getattr(ufunc, method)(*map(data_of, inputs), **kwargs)
    found = op_like(ufunc.__name__)
    if any(out.__class__ is np.ndarray for out in kwargs.get("out", ())):
        raise DTypeError(f"{not_recorded(ufunc.__name__)}, or write a = a + x for a += x")
    if method != "__call__" or found is None or kwargs:
        raise not_recorded(ufunc.__name__)
    return found(*inputs)


def _array_function(
    self: Tensor,
    function: Callable[..., Any],
    types: Iterable[type],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """A NumPy function on a Tensor is the op of its name: `np.sum(x, axis=0)` records `sum`."""
    if function in _FORMS:  # these do not read the entries
        return function(*[getattr(x, "_data", x) for x in args], **kwargs)
    if function in _COMPARISONS:
        return function(*map(data_of, args), **kwargs)
    found = op_like(function.__name__)
    third_is_dtype = getattr(found, "settings", ())[:2] == ("axis", "keepdims")  # or out, in NumPy
    if found is None or (third_is_dtype and args[2:] and args[2] is not None):
        raise not_recorded(function.__name__)
    return found(*args, **kwargs)


# ---------------------------------------------------------------- Python's operators

_apply = Tensor.__apply__  # what Op.__call__ calls in the end


def _operator(op: Op) -> Callable[[Tensor, Operand], Tensor]:
    return lambda self, other: _apply(op, (self, other), ())


def _reflected(op: Op) -> Callable[[Tensor, Operand], Tensor]:
    return lambda self, other: _apply(op, (other, self), ())


def _in_place(op: Op, sign: str) -> Callable[[Tensor, Operand], Tensor]:
    """`x += y`: a new tensor while recording; within no_grad(), a write into a leaf."""

    def operator(self: Tensor, other: Operand) -> Tensor:
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
                f"{name} {sign}= …: {name} is a leaf that requires a gradient; write to it within "
                f"`with mg.no_grad():`, or by {name}.assign_(array); {name} = {name} {sign} … "
                "makes a new tensor"
            )
        raise GradientError(
            f"{name} {sign}= …: {name} was computed by {self.node.op.name}, whose backward may "
            f"need it as it is; write {name} = {name} {sign} … for a new tensor"
        )

    return operator


def _spread(method: Op) -> Callable[..., Tensor]:
    """A method that takes its shape or axes as one tuple or as several integers, like NumPy's."""
    return lambda self, *sizes: method(self, sizes[0] if len(sizes) == 1 else sizes or None)


def _flatten(self: Tensor, *axes: int, **named: Any) -> TensorOrArray:
    """All entries in one row, as NumPy's method; PyTorch's takes axes."""
    if axes:
        raise ShapeError(
            "x.flatten(): one row of all entries, as NumPy's; write x.reshape(len(x), -1) to keep "
            "the first axis"
        )
    return shape.ravel(self, **named)


for _name, _sign, _op in (
    ("add", "+", registry["add"]),
    ("sub", "-", registry["subtract"]),
    ("mul", "*", registry["multiply"]),
    ("truediv", "/", registry["divide"]),
    ("pow", "**", registry["power"]),
    ("matmul", "@", registry["matmul"]),
):
    setattr(Tensor, f"__{_name}__", _operator(_op))
    setattr(Tensor, f"__r{_name}__", _reflected(_op))
    setattr(Tensor, f"__i{_name}__", _in_place(_op, _sign))

_OPS_AS_METHODS = (
    "abs astype clip cumsum exp log log_softmax max mean min prod relu sigmoid softmax"
)
_OPS_AS_METHODS += " softmax sqrt std sum swapaxes take tanh var"
_ATTRIBUTES = {name: registry[name] for name in _OPS_AS_METHODS.split()} | {
    "__neg__": registry["negative"],
    "__abs__": registry["abs"],
    "__getitem__": registry["getitem"],
    "__array_ufunc__": _array_ufunc,
    "__array_function__": _array_function,
    "argmax": select.argmax,
    "argmin": select.argmin,
    "flatten": _flatten,
    "ravel": shape.ravel,
    "repeat": select.repeat,
    "squeeze": shape.squeeze,
    "reshape": _spread(reshape),
    "transpose": _spread(transpose),
    "T": property(lambda self: transpose(self)),
    "mT": property(lambda self: swapaxes(self, -1, -2)),
}
for _name, _attribute in _ATTRIBUTES.items():
    setattr(Tensor, _name, _attribute)
for _name in {*habits.TABLE, *registry, *select.__all__, *shape.__all__, *dir(np.ndarray)}:
    if _name[0] != "_" and not hasattr(Tensor, _name):
        setattr(ForeignNames, _name, ForeignName(_name))
