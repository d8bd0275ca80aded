"""What Python and NumPy need of an array: a Tensor's operators, methods, comparisons, conversions.

`x + y` and `np.add(x, y)` are the op `add`, `x.sum()` and `np.sum(x)` are `sum`. Where there is no
op, the error says what to write instead. Reading entries leaves the graph, so it is not recorded.
Importing this module attaches all of it to Tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from . import habits, ops
from .engine.context import current
from .engine.errors import DTypeError, GradientError, MissingNameError, ShapeError
from .engine.op import Array, Op, array_of, registry
from .engine.tensor import Tensor, run_op

__all__: list[str] = []

OFFERED: list[str] = vars(ops)["__all__"]


def _entries(value: Any) -> Any:
    """A Tensor's entries, read outside the graph; anything else as it is."""
    return value.read() if isinstance(value, Tensor) else value


# ---------------------------------------------------------------- Python's operators


def _operator(op: Op) -> Callable[[Tensor, Any], Tensor]:
    return lambda self, other: run_op(op, (self, other), ())


def _reflected(op: Op) -> Callable[[Tensor, Any], Tensor]:
    return lambda self, other: run_op(op, (other, self), ())


def _in_place(op: Op, sign: str) -> Callable[[Tensor, Any], Tensor]:
    """`x += y`: a new tensor; on a leaf that requires a gradient, a write within no_grad()."""

    def in_place(self: Tensor, other: Any) -> Tensor:
        if self.node is not None or not self.requires_grad:
            return run_op(op, (self, other), ())
        if current().recording:
            name = self.path or "x"
            raise GradientError(
                f"{name} {sign}= …: {name} is a leaf that requires a gradient; write to it within "
                f"`with mg.no_grad():`, or {name} = {name} {sign} … for a new tensor"
            )
        new = run_op(op, (self, other), ())._data
        return self.assign_(new.astype(self.dtype, casting="same_kind", copy=False))

    return in_place


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Tensor, object], Any]:
    """A comparison of the entries: its result is a plain array, and it is not recorded."""
    return lambda self, other: compare(self.read(), _entries(other))


def _iter(self: Tensor) -> Iterator[Tensor]:
    if self.ndim == 0:
        raise ShapeError("iteration over a 0-d tensor")
    if pair := getattr(self, "undivided", ""):
        raise ShapeError(
            f"a layer gave one Tensor, {self.shape}, not two; for two write layer(X, {pair}=True), "
            "for its rows out[:]"
        )
    return (self[i] for i in range(len(self)))


def _format(self: Tensor, spec: str) -> str:
    return format(self.item(), spec) if spec else str(self)


def _reduce(self: Tensor) -> tuple[Any, ...]:
    """Copied and pickled: leaves alone."""
    if self.node is not None:
        raise GradientError(
            f"copy or pickle: {self.path} was computed by {self.node.op.name}, and a graph is "
            "not copied; take .detach(), or its array by .numpy()"
        )
    slots: dict[str, Any] = {"_name": self._name, "grad": self.grad}
    if hasattr(self, "is_parameter"):
        slots["is_parameter"] = self.is_parameter
    return Tensor, (np.array(self._data, order="C"), None, self.needs), (None, slots)


def _setitem(self: Tensor, index: object, value: object) -> NoReturn:
    raise GradientError(
        "x[index] = value: tensors are not written in place; make a new one with mg.where, or "
        "write a leaf whole: x.assign_(array)"
    )


class _Missing:
    """A name of another library: `x.view` says what to write.

    A `__getattr__` would slow down every attribute of every tensor.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Tensor | None, kind: type) -> NoReturn:
        raise MissingNameError(habits.missing("'Tensor' object", self.name))


# ---------------------------------------------------------------- NumPy's functions

_FORMS = {np.shape, np.ndim, np.size, np.result_type, np.iscomplexobj, np.isrealobj}
_COMPARISONS = {np.allclose, np.array_equal}
_OTHER_NAMES = {"absolute": "abs", "amax": "max", "amin": "min"}


def op_like(name: str) -> Callable[..., Any] | None:
    """The op, or the function composed of ops, of a NumPy function's name."""
    name = _OTHER_NAMES.get(name, name)
    return getattr(ops, name, None) if name in OFFERED else None


def not_recorded(name: str) -> DTypeError:
    """The error of a NumPy function that no op is called for, though one may have its name."""
    if op_like(name):
        remedy = f"call mg.{_OTHER_NAMES.get(name, name)} with its own arguments"
    else:
        remedy = "use x.numpy() to leave the graph"
    return DTypeError(f"np.{name} on a Tensor would not be recorded; {remedy}")


def _array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """A ufunc on a Tensor is the op of that name; a comparison gives a plain array."""
    if {"d->?", "dd->?"}.intersection(ufunc.types):
        return getattr(ufunc, method)(*map(_entries, inputs), **kwargs)
    op = op_like(ufunc.__name__)
    if method != "__call__" or op is None or kwargs:
        raise not_recorded(ufunc.__name__)
    return op(*inputs)


def _array_function(
    self: Tensor,
    function: Callable[..., Any],
    types: Iterable[type],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """A NumPy function on a Tensor is the op of its name: `np.sum(x, axis=0)` records `sum`."""
    if function in _FORMS:  # these do not read the entries
        return function(*map(array_of, args), **kwargs)
    if function in _COMPARISONS:
        return function(*map(_entries, args), **kwargs)
    op = op_like(function.__name__)
    third_is_dtype = getattr(op, "settings", ())[:2] == ("axis", "keepdims")  # or out, in NumPy
    if op is None or (third_is_dtype and args[2:] and args[2] is not None):
        raise not_recorded(function.__name__)
    return op(*args, **kwargs)


def _array(self: Tensor, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
    """For np.asarray; no other library would record what it does with a tensor."""
    if self.needs and current().recording:
        raise GradientError(
            f"np.asarray({self.path or 'tensor'}): no other library would record what it does with "
            "a tensor that requires a gradient; write .numpy() or .detach() to leave the graph, "
            "mg.stack([a, b]) to make one tensor of several"
        )
    return np.array(self.numpy(), dtype=dtype, copy=copy)


# ---------------------------------------------------------------- attached


def _spread(method: Op) -> Callable[..., Tensor]:
    """A method that takes its shape or axes as one tuple or as several integers, like NumPy's."""
    return lambda self, *sizes: method(self, sizes[0] if len(sizes) == 1 else sizes or None)


for _name, _dunder, _sign in (
    ("add", "add", "+"),
    ("subtract", "sub", "-"),
    ("multiply", "mul", "*"),
    ("divide", "truediv", "/"),
    ("power", "pow", "**"),
    ("matmul", "matmul", "@"),
):
    setattr(Tensor, f"__{_dunder}__", _operator(registry[_name]))
    setattr(Tensor, f"__r{_dunder}__", _reflected(registry[_name]))
    setattr(Tensor, f"__i{_dunder}__", _in_place(registry[_name], _sign))

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{_name}__", _comparison(getattr(operator, _name)))

_METHODS = (
    "abs astype clip cumsum exp log log_softmax max mean min prod relu sigmoid softmax sqrt std "
    "sum swapaxes take tanh var squeeze ravel argmax repeat"
)
_ATTRIBUTES: dict[str, Any] = {name: getattr(ops, name) for name in _METHODS.split()} | {
    "__abs__": ops.abs,
    "__array__": _array,
    "__array_function__": _array_function,
    "__array_ufunc__": _array_ufunc,
    "__bool__": lambda self: bool(self.read()),
    "__float__": lambda self: float(self.item()),
    "__format__": _format,
    "__getitem__": ops.getitem,
    "__hash__": object.__hash__,
    "__index__": lambda self: self.read().__index__(),
    "__int__": lambda self: int(self.item()),
    "__iter__": _iter,
    "__len__": lambda self: len(self._data),
    "__neg__": ops.negative,
    "__pos__": lambda self: self,
    "__reduce__": _reduce,
    "__round__": lambda self, digits=None: round(self.item(), digits),
    "__setitem__": _setitem,
    "T": property(lambda self: ops.transpose(self)),
    "flatten": ops.ravel,
    "mT": property(lambda self: ops.swapaxes(self, -1, -2)),
    "reshape": _spread(ops.reshape),
    "transpose": _spread(ops.transpose),
}
for _name, _attribute in _ATTRIBUTES.items():
    setattr(Tensor, _name, _attribute)
for _name in {*habits.HABITS, *OFFERED, *dir(np.ndarray)}:
    if _name[0] != "_" and not hasattr(Tensor, _name):
        setattr(Tensor, _name, _Missing(_name))
