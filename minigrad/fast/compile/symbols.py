"""Kernels and rules taken apart: the NumPy calls that one makes, by giving it symbols for arrays.

A Symbol knows a shape and a dtype and no entries. Whatever NumPy is asked to do with it is written
down as a NumpyCall. A kernel that asks for entries (a branch on them, say) is called whole instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

__all__ = ["Literal", "NumpyCall", "Symbol", "Untraceable", "taken_apart"]


class Untraceable(Exception):
    """A kernel does what symbols cannot follow."""


class NumpyCall:
    """One NumPy call.

    Attributes:
        form: Python, with {} for each of `given`.
        given: Symbols and plain values.  made: the Symbol that comes out.
        kind: "view" (of the first given), "ufunc" (may overwrite what it reads) or "fresh".
        operator: of a ufunc that has one, as `+`.
    """

    __slots__ = ("form", "given", "kind", "made", "operator")

    def __init__(
        self, form: str, given: tuple[Any, ...], made: Symbol, kind: str, operator: str = ""
    ) -> None:
        self.form = form
        self.given = given
        self.made = made
        self.kind = kind
        self.operator = operator


class NumpyCalls(list[NumpyCall]):
    """The calls of one kernel. Where it sets np.errstate, it is to be called whole."""

    def __init__(self) -> None:
        self.errors = np.geterr()


class Symbol(NDArrayOperatorsMixin):
    """An array of which only shape and dtype are known. `calls` is where its uses are written."""

    __slots__ = ("calls", "dtype", "has_views", "is_gone", "is_input", "shape")

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, calls: NumpyCalls, is_input: bool = False
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.calls = calls
        self.is_input = is_input
        self.has_views = False
        self.is_gone = False

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: prod(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.dtype.itemsize)
    T = property(lambda self: self.transpose())
    mT = property(lambda self: self.swapaxes(-1, -2))
    real = property(lambda self: self._only_real())

    def _only_real(self) -> Symbol:
        if self.dtype.kind == "c":
            raise Untraceable
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def _refused(self, *_: object, **__: object) -> Any:
        raise Untraceable

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = __setitem__ = _refused
    __complex__ = __contains__ = item = tolist = _refused

    # ------------------------------------------------------------------ what NumPy asks

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **settings: Any) -> Any:
        out = settings.pop("out", None)
        if method == "reduce":
            made = _reduce(ufunc, given[0], *given[1:], **settings)
        elif method == "__call__" and not settings:
            made = _product(*given) if ufunc is np.matmul else _ufunc(ufunc, given)
        else:
            raise Untraceable
        return made if out is None else _put(made, *out)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _function(function, args, kwargs)

    # ------------------------------------------------------------------ views

    def _view(self, form: str, made: Any, *given: Any) -> Symbol:
        self.has_views = True
        return _made(form, (self, *given), made.shape, made.dtype, "view")

    def reshape(self, *shape: Any, order: str = "C") -> Symbol:
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        made = dummy(self).reshape(shape)
        if made.shape == self.shape:
            return self
        inner = ", ".join(map(str, made.shape))
        return self._view(f"{{}}.reshape({inner})" if inner else "{}.reshape(())", made)

    def ravel(self) -> Symbol:
        return self.reshape(-1)

    def transpose(self, *axes: Any) -> Symbol:
        axes = axes[0] if len(axes) == 1 and not isinstance(axes[0], int | np.integer) else axes
        if not axes:
            return self._view("{}.T", dummy(self).T) if self.ndim > 1 else self
        order = tuple(int(a) for a in axes)
        return self._view(
            f"{{}}.transpose({', '.join(map(str, order))})", dummy(self).transpose(order)
        )

    def swapaxes(self, a: int, b: int) -> Symbol:
        made = dummy(self).swapaxes(a, b)
        if self.ndim == 2 and a % 2 != b % 2:
            return self._view("{}.T", made)
        return self._view(f"{{}}.swapaxes({a}, {b})", made)

    def squeeze(self, axis: Any = None) -> Symbol:
        return self.reshape(dummy(self).squeeze(axis).shape)

    def __getitem__(self, index: Any) -> Symbol:
        parts = index if index.__class__ is tuple else (index,)
        plain = all(isinstance(p, int | slice | type(None) | type(...)) for p in parts)
        if any(isinstance(p, bool | np.bool_) for p in parts):
            raise Untraceable
        if plain:
            made = dummy(self)[index]
            return self._view(f"{{}}[{', '.join(map(_indexed, parts)) or '()'}]", made)
        given = tuple(
            [
                p
                if isinstance(p, Symbol)
                else Literal(_indexed(p))
                if isinstance(p, int | slice | type(None) | type(...))
                else p
                for p in parts
            ]
        )
        made = dummy(self)[tuple([dummy(p) if isinstance(p, Symbol) else p for p in parts])]
        comma = "," if index.__class__ is tuple and len(parts) == 1 else ""
        form = f"{{}}[{', '.join(['{}'] * len(parts))}{comma}]"
        return _made(form, (self, *given), made.shape, made.dtype, "fresh")

    # ------------------------------------------------------------------ the rest

    def astype(self, dtype: Any, copy: bool = True, **_: Any) -> Symbol:
        dtype = np.dtype(dtype)
        if dtype == self.dtype and not copy:
            return self
        return _made("{}.astype({})", (self, dtype), self.shape, dtype, "fresh")

    def copy(self, order: str = "C") -> Symbol:
        return _made("{}.copy()", (self,), self.shape, self.dtype, "fresh")

    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False, **more: Any) -> Any:
        return _reduce(np.add, self, axis=axis, dtype=dtype, keepdims=keepdims, **more)

    def max(self, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:
        return _reduce(np.maximum, self, axis=axis, keepdims=keepdims, **more)

    def min(self, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:
        return _reduce(np.minimum, self, axis=axis, keepdims=keepdims, **more)

    def prod(self, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:
        return _reduce(np.multiply, self, axis=axis, keepdims=keepdims, **more)

    def mean(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        if self.dtype.char not in "fd" or dtype not in (None, self.dtype):
            raise Untraceable
        total = self.sum(axis=axis, keepdims=keepdims)
        return total / (self.size // max(1, total.size))

    def dot(self, other: Any) -> Any:
        return _product(self, other)


class Literal(str):
    """Python as it stands."""


def dummy(x: Any) -> Any:
    """An array of the symbol's shape and dtype, which takes no memory."""
    return np.broadcast_to(_zero(x.dtype), x.shape) if isinstance(x, Symbol) else x


@lru_cache(maxsize=64)
def _zero(dtype: Any) -> Any:
    return np.ones((), dtype)


def _indexed(part: Any) -> str:
    if isinstance(part, slice):
        ends = [part.start, part.stop] + [part.step] * (part.step is not None)
        return ":".join("" if end is None else str(end) for end in ends)
    return "..." if part is ... else str(part)


def _calls(given: Any) -> NumpyCalls:
    for x in given:
        if isinstance(x, Symbol):
            return x.calls
        if x.__class__ in (tuple, list) and any(isinstance(part, Symbol) for part in x):
            return _calls(x)
    raise Untraceable


def _made(
    form: str, given: tuple[Any, ...], shape: Any, dtype: Any, kind: str, operator: str = ""
) -> Symbol:
    calls = _calls(given)
    if any(isinstance(x, Symbol) and x.is_gone for x in given) or np.geterr() != calls.errors:
        raise Untraceable
    made = Symbol(shape, dtype, calls)
    calls.append(NumpyCall(form, given, made, kind, operator))
    return made


def _put(made: Symbol, target: Any) -> Symbol:
    """What `x += y` does: x is from now on what was made, and nobody may use the old one."""
    if not isinstance(target, Symbol) or (target.shape, target.dtype) != (made.shape, made.dtype):
        raise Untraceable
    if target.has_views or target.is_input:
        raise Untraceable  # somebody else would see it change
    target.is_gone = True
    return made


INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**", "greater": ">",
    "less": "<", "greater_equal": ">=", "less_equal": "<=", "equal": "==", "not_equal": "!=",
    "floor_divide": "//", "remainder": "%", "bitwise_and": "&", "bitwise_or": "|",
}  # fmt: skip
BY_INFIX = {operator: name for name, operator in INFIX.items()}
CHANGED_IN_PLACE = {"+", "-", "*", "/", "**", "&", "|"}  # by an operator of Python's


def _ufunc(ufunc: Any, given: tuple[Any, ...]) -> Any:
    shapes = [np.shape(x) if not isinstance(x, Symbol) else x.shape for x in given]
    dtypes = tuple([x.dtype if hasattr(x, "dtype") else type(x) for x in given])
    if ufunc.nout != 1 or ufunc.signature is not None:
        return _function(ufunc, given, {})
    operator = INFIX.get(ufunc.__name__, "")
    if operator and len(given) == 2:
        form = f"{{}} {operator} {{}}"
    else:
        form = f"np.{ufunc.__name__}({', '.join(['{}'] * len(given))})"
    if ufunc.__name__ == "negative":
        form = "-{}"
    shape = np.broadcast_shapes(*shapes)
    return _made(form, given, shape, _dtype_of(ufunc, dtypes), "ufunc", operator)


@lru_cache(maxsize=1024)
def _dtype_of(ufunc: Any, dtypes: tuple[Any, ...]) -> Any:
    """The dtype of a ufunc's result, for arrays of these dtypes and numbers of these types."""
    with np.errstate(all="ignore"):
        return ufunc(*[np.ones(1, d) if isinstance(d, np.dtype) else d(1) for d in dtypes]).dtype


def _reduce(
    ufunc: Any, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
    initial: Any = np._NoValue, where: Any = True,
) -> Any:  # fmt: skip
    if out is not None or where is not True or not isinstance(x, Symbol):
        raise Untraceable
    if axis.__class__ is list:
        axis = tuple(axis)
    axes = tuple(range(x.ndim)) if axis is None else axis if axis.__class__ is tuple else (axis,)
    axes = tuple([int(a) % max(1, x.ndim) for a in axes])
    if keepdims:
        shape = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
    else:
        shape = tuple([n for i, n in enumerate(x.shape) if i not in axes])
    more = f", axis={axis}"
    given: tuple[Any, ...] = (x,)
    if dtype is not None:
        more += ", dtype={}"
        given = (*given, np.dtype(dtype))
    if keepdims:
        more += ", keepdims=True"
    if initial is not np._NoValue:
        more += ", initial={}"
        given = (*given, initial)
    made = _reduced_dtype(ufunc, x.dtype, None if dtype is None else np.dtype(dtype))
    return _made(f"np.{ufunc.__name__}.reduce({{}}{more})", given, shape, made, "fresh")


@lru_cache(maxsize=256)
def _reduced_dtype(ufunc: Any, of: Any, dtype: Any) -> Any:
    return ufunc.reduce(np.ones(1, of), dtype=dtype, keepdims=True).dtype


def _product(a: Any, b: Any) -> Any:
    """A product of matrices: of two by `dot`, a stack times one matrix as one product."""
    ndims = [len(x.shape) for x in (a, b)]
    if min(ndims) < 2:
        if ndims == [1, 2] or ndims == [2, 1] or ndims == [1, 1]:
            made = np.matmul(np.empty(a.shape, a.dtype), np.empty(b.shape, b.dtype))
            return _made("{}.dot({})", (a, b), np.shape(made), made.dtype, "fresh")
        return _function(np.matmul, (a, b), {})
    if a.shape[-1] != b.shape[-2]:
        raise Untraceable
    dtype = _dtype_of(np.add, (a.dtype, b.dtype))
    if ndims[1] == 2 < ndims[0] and isinstance(a, Symbol) and 0 not in a.shape:
        rows = _made("{}.dot({})", (a.reshape(-1, a.shape[-1]), b), (
            prod(a.shape[:-1]), b.shape[-1]), dtype, "fresh")  # fmt: skip
        return rows.reshape(*a.shape[:-1], b.shape[-1])
    if ndims == [2, 2]:
        return _made("{}.dot({})", (a, b), (a.shape[0], b.shape[1]), dtype, "fresh")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return _made("{} @ {}", (a, b), (*lead, a.shape[-2], b.shape[-1]), dtype, "fresh")


FEW = 256  # entries up to which np.where takes less time than bits
METHODS = {
    "reshape", "transpose", "swapaxes", "squeeze", "sum", "max", "min", "prod", "mean", "ravel",
    "copy", "astype", "amax", "amin", "dot",
}  # fmt: skip
OF_SHAPE: dict[Any, Callable[..., Any]] = {
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
    np.real: lambda x: x.real,
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
}


def _function(function: Any, args: Any, kwargs: Any) -> Any:
    """Any other function of NumPy's: what it gives for arrays of these shapes."""
    if function in OF_SHAPE:
        return OF_SHAPE[function](*args)
    name = function.__name__
    if name in METHODS and isinstance(args[0], Symbol):
        name = {"amax": "max", "amin": "min"}.get(name, name)
        kwargs = {k: v for k, v in kwargs.items() if v is not np._NoValue}
        return getattr(args[0], name)(*args[1:], **kwargs)
    if name == "expand_dims":
        return args[0].reshape(np.expand_dims(dummy(args[0]), *args[1:], **kwargs).shape)
    if name == "where" and len(args) == 3 and _are_masked(*args):
        return _masked(*args[:2])
    if name == "broadcast_to" and isinstance(args[0], Symbol) and args[0].shape == args[1]:
        return args[0]
    if name == "result_type":
        return np.result_type(*[x.dtype if isinstance(x, Symbol) else x for x in args])
    if function.__module__ not in ("numpy", None) and name != "einsum":
        raise Untraceable
    if any(isinstance(x, Symbol) for x in kwargs.values()):
        raise Untraceable
    dummies = [*map(_dummies, args)]
    made = function(*dummies, **kwargs)
    if not isinstance(made, np.ndarray | np.generic):
        raise Untraceable
    inner = ["{}" for _ in args] + [f"{k}={{}}" for k in kwargs]
    form = f"np.{name}({', '.join(inner)})"
    kind = "fresh"
    for x, one in zip(args, dummies, strict=True):
        if isinstance(x, Symbol) and np.may_share_memory(made, one):
            x.has_views = True
            kind = "view"
    return _made(form, (*args, *kwargs.values()), made.shape, made.dtype, kind)


BITS = {np.dtype(np.float32): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.int64)}


def _are_masked(mask: Any, x: Any, other: Any) -> bool:
    """Whether it is a float array where a mask holds, and 0 elsewhere."""
    arrays = isinstance(mask, Symbol) and isinstance(x, Symbol) and mask.dtype == np.bool_
    fits = arrays and x.dtype in BITS and mask.shape == x.shape and x.size > FEW
    return fits and other.__class__ is int and other == 0


def _masked(mask: Symbol, x: Symbol) -> Symbol:
    """The bits times 1 or 0: np.where branches at each entry, which takes fifteen times as long."""
    bits = _made("{}.view({})", (x, BITS[x.dtype]), x.shape, BITS[x.dtype], "view")
    return _made("{}.view({})", (bits * mask, x.dtype), x.shape, x.dtype, "view")


def _dummies(x: Any) -> Any:
    if x.__class__ in (tuple, list):
        return x.__class__([*map(_dummies, x)])
    return dummy(x)


# ---------------------------------------------------------------- templates


class Template:
    """What a kernel or rule comes to: its calls, on symbols for the arrays that it is given."""

    __slots__ = ("calls", "inputs", "results")

    def __init__(self, calls: NumpyCalls, inputs: list[Symbol], results: list[Any]) -> None:
        self.calls = calls
        self.inputs = inputs
        self.results = results


_TEMPLATES: dict[Any, Template | None] = {}


def taken_apart(function: Any, given: Any, forms: tuple[Any, ...], fit: Any) -> Template | None:
    """The template of a call, None if the function must be called whole.

    Args:
        given: the arguments; an array is a (shape, dtype) behind an `_Array`, by position.
        forms: what makes calls alike, for a template serves several.
        fit: (shape, dtype) of each result, to which a gradient is summed and cast; or None.
    """
    key = function, forms, fit
    if key not in _TEMPLATES:
        if len(_TEMPLATES) > 4096:
            _TEMPLATES.clear()
        try:
            _TEMPLATES[key] = _trace(function, given, fit)
        except Exception:  # whatever a kernel does with what is no array: it is called whole
            _TEMPLATES[key] = None
    return _TEMPLATES[key]


def _trace(function: Any, given: Any, fit: Any) -> Template:
    calls = NumpyCalls()
    inputs: dict[int, Symbol] = {}

    def symbol(x: Any) -> Any:
        if x.__class__ in (tuple, list):
            return x.__class__([*map(symbol, x)])
        if hasattr(x, "number"):
            if x.number not in inputs:
                inputs[x.number] = Symbol(x.shape, x.dtype, calls, is_input=True)
            return inputs[x.number]
        return x

    results = function(*map(symbol, given))
    several: Any = results if results.__class__ is tuple else (results,)
    if fit is not None:
        several = [_fitted(x, wanted) for x, wanted in zip(several, fit, strict=True)]
    for x in several:
        if not isinstance(x, Symbol | type(None)):
            raise Untraceable
    return Template(calls, [*inputs.values()], list(several))


SUMMED = 256  # rows that one product with ones adds up


@cache
def _ones(dtype: Any, size: int) -> Any:
    return np.ones(size, dtype)


def column_sums(x: Any) -> Any:
    """The sum of the rows of a matrix: products with ones, of some rows each, lose few digits."""
    ones = _ones(x.dtype, SUMMED)
    parts = [x[i : i + SUMMED] for i in range(0, len(x), SUMMED)]
    sums = [ones[: len(part)].dot(part) for part in parts]
    return np.sum(sums, axis=0, dtype=np.float64).astype(x.dtype)


def _column_sums(x: Symbol) -> Symbol:
    rows, columns = x.shape
    if rows <= SUMMED:
        return _made("{}.dot({})", (_ones(x.dtype, rows), x), (columns,), x.dtype, "fresh")
    return _made("{}({})", (column_sums, x), (columns,), x.dtype, "fresh")


def _fitted(x: Any, wanted: Any) -> Any:
    """The edge rule: a gradient summed over the axes that were broadcast, in the input's dtype."""
    if wanted is None or x is None:
        return None
    shape, dtype = wanted
    if not isinstance(x, Symbol):
        raise Untraceable
    if x.shape != shape:
        extra = x.ndim - len(shape)
        repeated = [i for i, n in enumerate(shape, extra) if n == 1 != x.shape[i]]
        if extra and not repeated and x.dtype.char in "fd" and 0 not in x.shape:
            x = _column_sums(x.reshape(-1, prod(shape))).reshape(shape)
        else:
            wide = {"e": np.float32, "f": np.float64}.get(x.dtype.char)
            x = x.sum(axis=(*range(extra), *repeated), dtype=wide).reshape(shape)
    return x.astype(dtype, copy=False)
