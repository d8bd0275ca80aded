"""Symbol: an array that writes down what is computed from it.

Kernels and rules are plain NumPy, so calling them with Symbols in place of arrays yields the NumPy
calls they make. A condition on the numbers becomes a guard, which the program evaluates at each
call. What cannot be written down (a conversion, a loop over entries) raises Untraceable, and the
program then calls the whole kernel.

A call that was made before on the same values is not written again. Some calls are replaced by
faster ones that give the same to rounding: the functions that do so say which.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from math import prod
from operator import getitem
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike

from ...engine.op import Axes
from ...engine.sparse import is_basic
from ...engine.types import Arguments, Array, DType, Kernel
from ...ops.dtypes import accumulation_dtype
from ..by_blocks import blocked
from ..limits import LIMITS
from ..memory import empty_as
from .program import (
    Program,
    ProgramStep,
    Value,
    address,
    empty_with_layout,
    flat,
    has_layout,
    is_whole,
    root,
    substitute,
)

__all__ = ["Symbol", "Untraceable", "apply"]


class Untraceable(Exception):
    """A kernel or rule does more than call NumPy on whole arrays."""


WRITES = ("elementwise", "reduce", "matmul", "copy")
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
_CALLS = set("where concatenate stack take take_along_axis cumsum einsum clip pad".split())
_CALLS |= {"zeros_like", "ones_like", "full_like", "argmax", "argmin", "argsort"}
_SYMBOL_METHODS = set("sum mean max min prod any all cumsum clip take squeeze swapaxes".split())
_SYMBOL_METHODS |= {"argmax", "argmin", "argsort"}
_POWERS = {2: np.square, 1: np.positive, -1: np.reciprocal, 0.5: np.sqrt}


class Symbol(NDArrayOperatorsMixin):
    """A Value of a program together with what it holds in this run, laid out as it will be in the
    program: a view of one is then a view of the other.

    Attributes:
        is_new: whether a call has just made it, so that `x /= y` may take its place.
    """

    __slots__ = ("array", "is_new", "program", "value")

    def __init__(self, program: Program, value: Value, array: Array) -> None:
        self.program = program
        self.value = value
        self.array = array
        self.is_new = False
        if array.__class__ is np.ndarray and not has_layout(array, value):
            self.array = empty_with_layout(value)
            self.array[...] = array

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    ndim = property(lambda self: self.array.ndim)
    size = property(lambda self: self.array.size)
    flags = property(lambda self: self.array.flags)
    strides = property(lambda self: self.array.strides)
    T = property(lambda self: np.transpose(self))
    mT = property(lambda self: np.swapaxes(self, -1, -2))
    real = property(lambda self: np.real(self))

    def __len__(self) -> int:
        return len(self.array)

    def __pow__(self, power: Any) -> Any:
        """As ndarray's own: the common powers without a call of pow."""
        if power.__class__ in (int, float) and power in _POWERS and self.dtype.kind == "f":
            return _POWERS[power](self)
        return np.power(self, power)

    def __getitem__(self, index: Any) -> Symbol:
        if any(getattr(part, "dtype", None) == np.bool_ for part in flat(index)):
            raise Untraceable("a shape that depends on numbers")
        kind = "view" if is_basic(index) else "call"
        return apply(kind, "getitem", getitem, (self, index))

    def reshape(self, *shape: Any, **order: Any) -> Any:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, **order)

    def transpose(self, *axes: Any) -> Any:
        return np.transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def ravel(self) -> Any:
        return np.reshape(self, -1)

    def copy(self, order: str = "C") -> Any:
        return np.positive(self)

    def __getattr__(self, name: str) -> Any:
        if name in _SYMBOL_METHODS:
            return partial(getattr(np, name), self)
        raise AttributeError(name)

    def __bool__(self) -> bool:
        return self._write_guard(bool)

    def guard(self, question: Callable[[Any], bool]) -> bool:
        """The answer in this run; the program checks it by one call if the array is an input."""
        computed = root(self.value).kind == "step"
        return bool(question(self)) if computed else self._write_guard(question)

    def _write_guard(self, question: Callable[[Any], bool]) -> bool:
        if self.program.once or self.program.wrote:  # what is done is not done again
            raise Untraceable("a truth value")
        truth = question(self.array)
        self.program.add(ProgramStep("check", "", question, (self.value, truth)))
        return truth

    def elementwise(self, function: Kernel, *args: Any) -> Symbol:
        """A call of a function of each entry, by blocks, which takes `out=` as a ufunc does."""
        return apply("elementwise", function.__name__, blocked(function), args)

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Symbol:
        if np.dtype(dtype) == self.dtype:
            return self
        return apply("copy", "astype", np.ndarray.astype, (self, np.dtype(dtype)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        out = out[0] if isinstance(out, tuple) else out
        if method == "reduce" and out is None:
            return _reduce(ufunc, *inputs, **kwargs)
        if method != "__call__" or kwargs or ufunc.nout != 1:
            raise Untraceable(ufunc.__name__)
        if ufunc is np.matmul:
            result = _product(*inputs)
        elif ufunc.signature is None:
            result = apply("elementwise", f"np.{ufunc.__name__}", ufunc, inputs)
        else:
            raise Untraceable(ufunc.__name__)
        if out is None:
            return result
        if not isinstance(out, Symbol) or out.shape != result.shape or out.dtype != result.dtype:
            raise Untraceable("out")
        if not out.is_new:
            raise Untraceable("a view is written")
        out.value, out.array = result.value, result.array  # x /= y changes x itself
        return out

    def __array_function__(
        self, function: Kernel, types: object, args: Arguments, kwargs: dict[str, Any]
    ) -> Any:
        name = function.__name__
        if name in ("shape", "ndim", "size", "result_type", "iscomplexobj", "isrealobj"):
            return function(*(substitute(arg, _concrete) for arg in args), **kwargs)
        if name in _REDUCTIONS or name == "mean":
            x, *axis = args  # NumPy's further arguments are in another order than ours
            if len(axis) > 1:
                raise Untraceable(name)
            settings = {"axis": axis[0] if axis else None, **kwargs}
            if name == "mean":
                return _mean(x, **settings)
            return _reduce(_REDUCTIONS[name], x, **settings)
        if name == "norm" and len(args) == 1 and not kwargs and self.dtype.kind == "f":
            return np.sqrt(np.sum(np.square(self)))
        if name == "real" and self.dtype.kind != "c":
            return args[0]
        if name == "squeeze" and args[1:] in ((), (None,)) and kwargs.get("axis") is None:
            ones = tuple(i for i, n in enumerate(self.shape) if n == 1)  # no other, even if one row
            args, kwargs = (args[0], ones), {}
        if name == "reshape" and kwargs.get("order", "C") != "C":
            return apply("call", "np.reshape", function, args, kwargs)
        if name in _VIEWS:
            return apply("view", name, function, args, kwargs)
        if name == "where" and len(args) < 3:
            raise Untraceable("a shape that depends on numbers")
        if name in _CALLS and "out" not in kwargs:
            return apply("call", f"np.{name}", function, args, kwargs)
        raise Untraceable(name)

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise Untraceable("an array is looked at in Python")

    __array__ = __float__ = __int__ = __index__ = __iter__ = __complex__ = _refuse
    __hash__ = object.__hash__


def _concrete(item: Any) -> Any:
    return item.array if item.__class__ is Symbol else item


# ---------------------------------------------------------------- written as others


def _rows(x: Any) -> Any:
    """All axes but the last as one, None where that takes a copy."""
    array = _concrete(x)
    try:
        return x.reshape(array.reshape(-1, array.shape[-1], copy=False).shape)
    except ValueError:
        return None


def _product(a: Any, b: Any) -> Symbol:
    """A stack of matrices times one matrix is one product, and so is that of two stacks of one."""
    ndim = max(a.ndim, b.ndim)
    if min(a.ndim, b.ndim) > 1 and ndim > 2:
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        if b.ndim == 2 and a.size and (rows := _rows(a)) is not None:
            return _made(_product(rows, b).reshape(shape))
        if set(shape[:-2]) == {1}:
            a, b = (x[(0,) * (x.ndim - 2)] for x in (a, b))
            return _made(_product(a, b).reshape(shape))
    return apply("matmul", "np.matmul", np.matmul, (a, b))


def _made(symbol: Symbol) -> Symbol:
    symbol.is_new = True
    return symbol


@lru_cache(64)
def _ones(shape: tuple[int, ...], dtype: DType) -> Array:
    return np.ones(shape, dtype)


def _sum(x: Symbol, axes: tuple[int, ...], shape: tuple[int, ...]) -> Symbol | None:
    """rowsum(X) = X 1 and Σ rows of X = 1ᵀ X: products are several times as fast as sums."""
    ndim = x.ndim
    if ndim < 2 or x.dtype.char not in "fd" or not x.size:
        return None
    if axes == (ndim - 1,):
        return _made(_product(x, _named_ones(x, (x.shape[-1], 1))).reshape(shape))
    if axes == tuple(range(ndim - 1)) and (rows := _rows(x)) is not None:
        return _made(_product(_named_ones(x, (len(rows),)), rows).reshape(shape))
    return None


def _named_ones(x: Symbol, shape: tuple[int, ...]) -> Array:
    ones = _ones(shape, x.dtype)
    x.program.constant(ones).name = "ones"
    return ones


def _reduce(
    ufunc: np.ufunc, x: Symbol, axis: Axes = 0, keepdims: bool = False, **kwargs: Any
) -> Symbol:
    if set(kwargs) - {"initial", "dtype"}:
        raise Untraceable(f"{ufunc.__name__}.reduce with {sorted(kwargs)}")
    axis = axis[0] if axis.__class__ is tuple and len(axis) == 1 else axis
    if x.ndim > 2 and x.shape[0] == 1 and axis == -1 and keepdims:
        return _made(_reduce(ufunc, x[0], axis, True, **kwargs).reshape((*x.shape[:-1], 1)))
    wide = kwargs.pop("dtype", None)
    settings = {"axis": axis, **({"keepdims": True} if keepdims else {}), **kwargs}
    plain = wide is None or np.dtype(wide) == x.dtype
    if ufunc is np.add and plain and axis is not None and x.__class__ is Symbol:
        axes = tuple(sorted(a % x.ndim for a in (axis if axis.__class__ is tuple else (axis,))))
        shape = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
        left = shape if keepdims else tuple([n for i, n in enumerate(x.shape) if i not in axes])
        total = _sum(x, axes, left)
        if total is not None:
            return total + kwargs["initial"] if "initial" in kwargs else total
    if ufunc is np.add and wide is None and (wider := accumulation_dtype(x, axis)) is not None:
        return _reduce(ufunc, x, axis, keepdims, dtype=wider, **kwargs).astype(x.dtype)
    if wide is not None:
        settings["dtype"] = wide
    return apply("reduce", f"np.{ufunc.__name__}.reduce", ufunc.reduce, (x,), settings)


def _mean(
    x: Symbol, axis: Axes = None, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Symbol:
    if x.dtype.kind in "biu" and dtype is None:
        x = x.astype(np.float64)
    if x.dtype.kind != "f" or x.dtype.itemsize < 4:
        raise Untraceable("mean")
    total = _reduce(np.add, x, axis, keepdims, dtype=dtype)
    if total.size == 0 or x.size == 0:
        raise Untraceable("mean of nothing")
    return total / float(x.size // total.size)


def _first(x: Any, ndim: int) -> Any:
    """An entrywise call on a stack of one is a call on that one."""
    return x[0] if getattr(x, "ndim", 0) == ndim else x


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    """x + b = x + [b … b]: on few entries, ufuncs take half the time if all operands have one
    layout, or one of them has no axes.
    """
    if x.__class__ is np.ndarray and x.size > 1 and x.shape != shape:
        return np.array(np.broadcast_to(x, shape))
    if x.__class__ is not Symbol:
        return x
    if x.shape != shape and x.size in (1, prod(shape)):
        return x.reshape(shape if x.size == prod(shape) else ())
    if not x.shape or (x.shape == shape and is_whole(x.value)):
        return x
    return apply("elementwise", "spread", np.broadcast_to, (x, shape))


# ---------------------------------------------------------------- writing down


def apply(
    kind: str,
    text: str,
    function: Kernel,
    args: Arguments,
    kwargs: dict[str, Any] | None = None,
) -> Symbol:
    """Run a call on what the Symbols hold, and write it down."""
    kwargs = kwargs or {}
    first = next(s for s in flat((args, kwargs)) if s.__class__ is Symbol)
    program, source = first.program, first.array
    arrays, settings = substitute((args, kwargs), _concrete)
    out = np.asarray(function(*arrays, **settings))
    if kind == "view" and out.size and not np.may_share_memory(out, source):
        kind, out = "copy", np.array(out)  # NumPy's reshape copies where it must, and cuts that
    plain = kind == "elementwise" and text != "spread"
    leader = _leader(program, args, out) if plain else None
    if leader is not None:
        laid_out = empty_as(leader.array, out.shape, out.dtype)
        laid_out[...] = out
        out = laid_out
    elif kind in WRITES:
        out = np.asarray(out, order="C")
    if kind == "elementwise" and out.ndim > 2 and out.shape[0] == 1:
        args = tuple([_first(x, out.ndim) for x in args])
        return _made(apply(kind, text, function, args, kwargs).reshape(out.shape))
    if plain and out.size <= LIMITS.short_entries:
        args = tuple([_spread(x, out.shape) for x in args])

    def value_of(item: Any) -> Any:
        if item.__class__ is Symbol:
            return item.value
        return program.constant(item) if item.__class__ is np.ndarray else item

    args, kwargs = substitute((args, kwargs), value_of)
    step = ProgramStep(kind, text, function, args, kwargs)
    if kind == "view":
        return Symbol(program, _view(program, step, out, address(out) - address(source)), out)
    own = id(function) if "." not in text else 0
    step.key = kind, text, own, out.shape, out.dtype, _key(step.args), _key(step.kwargs)
    (value,) = program.add(step, (out.shape, out.dtype))
    if kind == "call" or leader is not None:
        value.strides = out.strides
    if leader is not None:
        program.laid_out[id(value)] = leader.value
    if kind == "call":  # einsum's "ij->ji" is a view
        step.shares = any(np.may_share_memory(out, x) for x in flat(arrays))
    symbol = Symbol(program, value, out)
    return symbol if step.shares else _made(symbol)


def _leader(program: Program, args: Arguments, out: Array) -> Symbol | None:
    """The operand of the result's shape whose layout is that of a kernel's result."""
    given = (s for s in args if s.__class__ is Symbol and s.shape == out.shape)
    return next((s for s in given if program.follows_kernel(s.value)), None)


def _view(program: Program, step: ProgramStep, out: Array, offset: int) -> Value:
    """The value of a view: its base, if it shows all of that, or an equal view made before."""
    base, offset = root(step.args[0]), step.args[0].offset + offset
    where = out.shape, out.strides, offset
    if is_whole(base):
        if where == (base.shape, base.strides, base.offset):
            return base
        if where == (_transposed_axes(base.shape), _transposed_axes(base.strides), base.offset):
            step.text = "swapaxes"
            step.function = np.swapaxes
            step.args = (base, -1, -2)
            step.kwargs = {}
        step.key = ("view", id(base), *where)
    (value,) = program.add(step, (out.shape, out.dtype))
    value.strides, value.offset = out.strides, offset
    return value


def _transposed_axes(axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*axes[:-2], *axes[:-3:-1])


def _key(item: object) -> Hashable:
    """Equal keys mean equal arguments; 1 and 1.0, or 0.0 and -0.0, have different keys."""
    if isinstance(item, tuple | list):
        return item.__class__, *map(_key, item)
    if isinstance(item, dict):
        return tuple((k, _key(v)) for k, v in item.items())
    plain = isinstance(item, bool | int | float | complex | str | slice | np.dtype | np.generic)
    return item.__class__, repr(item) if plain else id(item)
