"""Symbol: an array that writes down what is computed from it.

Kernels and rules are plain NumPy, so handing them Symbols in place of arrays yields the NumPy calls
they make. Where one asks whether something holds of the numbers, the answer is part of the program:
it is asked again at each call. What cannot be written down (a conversion, a loop over entries)
raises Untraceable, and the kernel is then called whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...engine.sparse import is_basic
from .program import Program, Step, Value, address, blank, flat, lies, substitute

__all__ = ["Symbol", "Untraceable", "apply"]


class Untraceable(Exception):
    """A kernel or rule asked for more than NumPy calls on whole arrays."""


_VIEWS = {"reshape", "swapaxes", "transpose", "expand_dims", "squeeze", "broadcast_to"}
_REDUCTIONS = {
    "sum": np.add,
    "max": np.maximum,
    "amax": np.maximum,
    "min": np.minimum,
    "amin": np.minimum,
    "prod": np.multiply,
    "any": np.logical_or,
    "all": np.logical_and,
}
_CALLS = {
    "where",
    "concatenate",
    "stack",
    "take",
    "take_along_axis",
    "cumsum",
    "einsum",
    "clip",
    "pad",
    "zeros_like",
    "ones_like",
    "full_like",
}


class Symbol(NDArrayOperatorsMixin):
    """A Value of a program together with what it holds in this run, laid out as it will be in the
    program: a view of one is then a view of the other.
    """

    __slots__ = ("a", "program", "value")

    def __init__(self, program: Program, value: Value, array: Any) -> None:
        self.program, self.value, self.a = program, value, array
        if array.__class__ is np.ndarray and not lies(array, value):
            self.a = blank(value)
            self.a[...] = array

    shape = property(lambda self: self.a.shape)
    dtype = property(lambda self: self.a.dtype)
    ndim = property(lambda self: self.a.ndim)
    size = property(lambda self: self.a.size)
    flags = property(lambda self: self.a.flags)
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.swapaxes(self, -1, -2))
    real = property(lambda self: np.real(self))

    def __len__(self) -> int:
        return len(self.a)

    def __pow__(self, power: Any) -> Any:
        """As ndarray's own: the common powers without a call of pow."""
        short = {2: np.square, 1: np.positive, -1: np.reciprocal, 0.5: np.sqrt}
        if power.__class__ in (int, float) and power in short and self.dtype.kind == "f":
            return short[power](self)
        return np.power(self, power)

    def __getitem__(self, index: Any) -> Any:
        if any(getattr(part, "dtype", None) == np.bool_ for part in flat(index)):
            raise Untraceable("a shape that depends on numbers")
        kind = "view" if is_basic(index) else "call"
        return apply(kind, "getitem", _getitem, (self, index))

    def reshape(self, *shape: Any) -> Any:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape)

    def swapaxes(self, first: int, second: int) -> Any:
        return np.swapaxes(self, first, second)

    def transpose(self, *axes: Any) -> Any:
        return np.transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def sum(self, axis: Any = None, keepdims: bool = False, **initial: Any) -> Any:
        return np.sum(self, axis=axis, keepdims=keepdims, **initial)

    def min(self) -> Any:
        return np.min(self)

    def max(self, **how: Any) -> Any:
        return np.max(self, **how)

    def __bool__(self) -> bool:
        return self.asked(bool)

    def asked(self, question: Callable[[Any], bool]) -> bool:
        """The answer in this run, which a step of its own asks for again."""
        wrote = any(step.kind in ("assign", "update") for step in self.program.steps)
        if self.program.draws or wrote:  # neither is done twice
            raise Untraceable("a truth value")
        truth = question(self.a)
        self.program.add(Step("check", "check", question, (self.value, truth)))
        return truth

    def elementwise(self, function: Callable[..., Any], *args: Any) -> Any:
        """A call of a function that takes arrays as a ufunc does, `out=` included."""
        return apply("elementwise", function.__name__, function, args)

    def __setitem__(self, index: Any, x: Any) -> None:
        """Into zeros, once: they are then what `x` makes of them."""
        self._filled("put", "put" if is_basic(index) else "set", index, x)

    def _filled(self, kind: str, text: str, index: Any, x: Any) -> None:
        step = self.value.step
        if step is None or step.text != "np.zeros" or text == "set":
            raise Untraceable("an array is written")
        function = _put if kind == "put" else _added
        made = apply(kind, text, function, (x, index, self.shape, self.dtype))
        self.value, self.a = made.value, made.a

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        if np.dtype(dtype) == self.dtype:
            return self
        return apply("cast", "astype", _astype, (self, np.dtype(dtype)))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        out = out[0] if isinstance(out, tuple) else out
        if method == "reduce" and out is None:
            return _reduce(ufunc, *inputs, **kwargs)
        if method == "at" and ufunc is np.add and inputs[0].__class__ is Symbol:
            return inputs[0]._filled("at", "at", *inputs[1:])
        if (
            method != "__call__"
            or kwargs
            or ufunc.nout != 1
            or ufunc.signature not in (None, "(n?,k),(k,m?)->(n?,m?)")
        ):
            raise Untraceable(ufunc.__name__)
        kind = "elementwise" if ufunc.signature is None else "matmul"
        result = apply(kind, f"np.{ufunc.__name__}", ufunc, inputs)
        if out is None:
            return result
        if not isinstance(out, Symbol) or out.shape != result.shape or out.dtype != result.dtype:
            raise Untraceable("out")
        if out.a.base is not None or out.value.kind != "step":
            raise Untraceable("a view is written")
        out.value, out.a = result.value, result.a  # x /= y: whoever holds x sees it
        return out

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if name in ("shape", "ndim", "size", "result_type", "iscomplexobj", "isrealobj"):
            return function(*(substitute(arg, _concrete) for arg in args), **kwargs)
        if name in _REDUCTIONS:
            return _reduce(_REDUCTIONS[name], *args, **{"axis": None, **kwargs})
        if name == "zeros":
            return apply("call", "np.zeros", function, args, kwargs, like=self)
        if name == "mean":
            return _mean(*args, **kwargs)
        if name == "norm" and len(args) == 1 and not kwargs and self.dtype.kind == "f":
            return np.sqrt(np.sum(np.square(self)))
        if name == "real" and self.dtype.kind != "c":
            return args[0]
        if name == "squeeze" and args[1:] in ((), (None,)) and kwargs.get("axis") is None:
            ones = tuple(i for i, n in enumerate(self.shape) if n == 1)  # no other, even if one row
            args, kwargs = (args[0], ones), {}
        if name in _VIEWS:
            return apply("view", name, function, args, kwargs)
        if name in _CALLS and "out" not in kwargs:
            return apply("call", f"np.{name}", function, args, kwargs)
        raise Untraceable(name)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise Untraceable("an array is looked at in Python")

    __array__ = __float__ = __int__ = __index__ = __iter__ = __complex__ = _refuse
    __hash__ = object.__hash__


def _getitem(x: Any, index: Any) -> Any:
    return x[index]


def _put(x: Any, index: Any, shape: Any, dtype: Any) -> Any:
    out = np.zeros(shape, dtype)
    out[index] = x
    return out


def _added(x: Any, index: Any, shape: Any, dtype: Any) -> Any:
    out = np.zeros(shape, dtype)
    np.add.at(out, index, x)
    return out


def _astype(x: Any, dtype: Any) -> Any:
    return x.astype(dtype)


def _reduce(ufunc: Any, x: Any, axis: Any = 0, keepdims: bool = False, **kwargs: Any) -> Any:
    if set(kwargs) - {"initial"}:
        raise Untraceable(f"{ufunc.__name__}.reduce with {sorted(kwargs)}")
    axis = axis[0] if axis.__class__ is tuple and len(axis) == 1 else axis
    settings = {"axis": axis, **({"keepdims": True} if keepdims else {}), **kwargs}
    return apply("reduce", f"np.{ufunc.__name__}.reduce", ufunc.reduce, (x,), settings)


def _mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    if x.dtype.kind != "f" or x.dtype.itemsize < 4:
        raise Untraceable("mean")
    total = _reduce(np.add, x, axis, keepdims)
    if total.size == 0 or x.size == 0:
        raise Untraceable("mean of nothing")
    return total / float(x.size // total.size)


def _concrete(item: Any) -> Any:
    return item.a if item.__class__ is Symbol else item


def apply(
    kind: str,
    text: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    like: Symbol | None = None,
) -> Any:
    """Run a call on what the Symbols hold, and write it down."""
    kwargs = kwargs or {}
    symbols = [s for s in flat((args, kwargs)) if s.__class__ is Symbol]
    first = symbols[0] if symbols else like
    assert first is not None
    program, source = first.program, first.a
    out = function(*substitute(args, _concrete), **substitute(kwargs, _concrete))
    if kind in ("elementwise", "reduce", "matmul", "cast"):
        out = np.asarray(out, order="C")
    out = np.asarray(out)
    if kind == "view" and not np.may_share_memory(out, source) and out.size:
        kind, out = "copy", np.ascontiguousarray(out)

    def value_of(item: Any) -> Any:
        if item.__class__ is Symbol:
            return item.value
        return program.constant(item) if item.__class__ is np.ndarray else item

    step = Step(kind, text, function, substitute(args, value_of), substitute(kwargs, value_of))
    (value,) = program.add(step, (out.shape, out.dtype))
    if kind == "view":
        value.strides = out.strides
        value.offset = first.value.offset + address(out) - address(source)
    elif kind == "call":
        value.strides = out.strides
    return Symbol(program, value, out)
