"""Kernels and rules taken apart into the NumPy calls that they make, which are written down.

A kernel is run on Variables, of which only shapes and dtypes are known: NumPy asks them what to do,
and they note each NumpyCall. One that needs entries (a branch on them, say) is called whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import prod
from operator import attrgetter
from re import search
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...engine.backward import broadcast_axes
from .arguments import mapped
from .text import Names, Python

__all__ = ["Calls", "NumpyCall", "Variable", "fitted"]

SIZES = {"itemsize", "nbytes", "ndim", "size"}
VIEWS = {"T", "mT", "real"}
OF_SHAPES = {np.shape, np.ndim, np.size, np.iscomplexobj, np.result_type}
SUFFIXES = {
    "T": "_T", "mT": "_T", "swapaxes": "_T", "transpose": "_T", "reshape": "_rows",
    "maximum": "_max", "add": "_sum", "sum": "_sum", "mean": "_mean",
}  # fmt: skip
NONE: dict[str, Any] = {}
SAME = ("{0}.reshape({rest})", "np.broadcast_to({all})")  # where nothing comes of the same shape
WIDE = {"e": np.float32, "f": np.float64}  # in which gradients of a dtype are added up
PRODUCT_ROWS = 1 << 16  # a product with ones adds up so many as exactly as NumPy


class Untraceable(Exception):
    """A kernel does what Variables cannot follow."""


@dataclass(eq=False)
class Variable(NDArrayOperatorsMixin):
    """An array of the program, of which the shape and the dtype are known.

    Attributes:
        hint: what to call it.  text: how it is written.
        bases: the Variables whose memory it may show, itself among them if it has its own.
        stays: whether its memory is somebody else's, too, or outlives the step.
        last: the last call that reads its memory.  readers: those that read it itself, last first.
        over: in whose place it is written.  root: the first of those that share its name.
    """

    calls: Calls
    shape: tuple[int, ...]
    dtype: Any
    hint: str
    bases: list[Variable] = field(default_factory=list)
    stays: bool = True
    text: str = ""
    last: NumpyCall | None = None
    readers: list[NumpyCall] = field(default_factory=list)
    over: Variable | None = None

    def __post_init__(self) -> None:
        self.bases = self.bases or [self]
        self.root = self

    def is_alone(self) -> bool:
        """Whether it shows all of one array that a call made, and that the step lets go of."""
        base, *others = self.bases
        return not (others or base.stays) and base.size == self.size

    def dummy(self) -> Any:
        """An array of its shape and dtype, which takes no memory."""
        return np.ndarray(self.shape, self.dtype, bytes(32), 0, (0,) * len(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def _refused(self, *_: object, **__: object) -> Any:
        raise Untraceable

    __array__ = __bool__ = __complex__ = __contains__ = __float__ = __index__ = __int__ = _refused
    __iter__ = __setitem__ = _refused

    # ------------------------------------------------------------------ what NumPy asks

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **settings: Any) -> Any:
        (target,) = settings.pop("out", (None,))
        name = f"np.{ufunc.__name__}"
        if method == "reduce":
            made = self.calls.follow(f"{name}.reduce({{all}})", ufunc.reduce, given, settings)
        elif method != "__call__" or settings:
            raise Untraceable
        elif ufunc is np.matmul:
            made = self.calls.product(*given)
        elif ufunc.signature is None:
            made = self.calls.entrywise(ufunc, given)
        else:
            made = self.calls.follow(f"{name}({{all}})", ufunc, given)
        return made if target is None else self.calls.put(made, target)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if function in OF_SHAPES:
            return function(*_dummies(args, {}))
        if callable(getattr(np.ndarray, name, None)) and isinstance(args[0], Variable):
            return getattr(args[0], name)(*args[1:], **kwargs)
        if getattr(np, name, None) is not function or "out" in kwargs:
            raise Untraceable
        return self.calls.follow(f"np.{name}({{all}})", function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in SIZES:
            return getattr(self.dummy(), name)
        if name in VIEWS:
            return self.calls.follow(f"{{0}}.{name}", attrgetter(name), (self,))
        called = getattr(np.ndarray, name)
        if not callable(called):
            raise AttributeError(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            if name == "reshape" and args[0].__class__ is tuple:
                args = args[0] or args
            return self.calls.follow(f"{{0}}.{name}({{rest}})", called, (self, *args), kwargs)

        return method

    def __getitem__(self, index: Any) -> Variable:
        parts = index if index.__class__ is tuple else (index,)
        if any(getattr(part, "dtype", None) == np.bool_ for part in parts):
            raise Untraceable  # how many entries it takes depends on which are True
        entries = lambda x, *parts: x[parts]  # noqa: E731
        return self.calls.follow("{0}[{rest}]", entries, (self, *parts)) if parts else self


@dataclass(slots=True, eq=False)
class NumpyCall:
    """A line of the program.

    Attributes:
        form: Python, with {} for each of `reads`.  made: what comes out.
        kind: "" if it only computes; "entrywise" if it may write its result over what it reads;
            "whole", of a kernel or rule; "effect"; "keep", of what it reads; "grad", as `.grad`.
        line: of the tape, which it is a part of.
    """

    form: str
    reads: list[Variable]
    made: list[Variable]
    line: Any
    kind: str = ""


class Calls:
    """The lines of a program, as they come.

    Attributes: line: of the tape, which they are made of.  hint: what to call what is made.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.calls: list[NumpyCall] = []
        self.line: Any = None
        self.hint = ""
        self.variables: dict[int, Variable] = {}  # by a Value's number
        self.views: dict[Any, Variable] = {}  # what was taken once is not taken again
        self._errors = np.geterr()
        self._own: set[int] = set()  # the Variables that the kernel made
        self._gone: set[int] = set()  # those whose memory it wrote over

    def take_apart(self, given: Sequence[Any], sizes: Sequence[Any] | None) -> bool:
        """Add the calls of the line's kernel or rule, if Variables can follow it.

        Args: sizes: of a rule's results, see `fitted`.
        """
        start = len(self.calls)
        views = dict(self.views)
        self._own = set()
        self._gone = set()
        try:
            made = self.line.function(*given)
            made = fitted(made, sizes) if sizes else made
            several = made if made.__class__ is tuple else (made,)
            for x, value in zip(several, self.line.made, strict=True):
                if value is not None:
                    self._bind(x, value)
            return True
        except Exception:  # whatever a kernel does with what is no array
            del self.calls[start:]
            self.views = views
            return False

    def _bind(self, x: Any, value: Any) -> None:
        """Let a Variable be what came out when it was recorded; of auxiliaries no size was."""
        fits = value is not self.line.made[0] or (x.shape, x.dtype) == (value.shape, value.dtype)
        if not isinstance(x, Variable) or not fits:
            raise Untraceable
        if id(x) in self._own and not (value.name == self.line.op and x.bases[0] is not x):
            x.hint = value.name
        self.variables[value.number] = x

    def written(self, x: Any, reads: list[Variable]) -> str:
        """Python for what a call is given, with {} for Variables, which join `reads`."""

        def text(leaf: Any) -> Python:
            if isinstance(leaf, Variable):
                reads.append(leaf)
                return Python("\0")
            return Python(self.names.text(leaf))

        escaped = repr(mapped(x, text)).replace("{", "{{").replace("}", "}}")
        return escaped.replace("\0", "{}")

    def make(
        self, form: str, args: Sequence[Any], kwargs: dict[str, Any], shape: Any, dtype: Any,
        shows: bool = False, kind: str = "",
    ) -> Variable:  # fmt: skip
        """What a call makes, which is added to the lines.

        Args: form: with a number for an argument, `all` of them, or the `rest` but for the first.
        """
        reads: list[Variable] = []
        texts = [_sliced(x) if x.__class__ is slice else self.written(x, reads) for x in args]
        texts += [f"{name}={self.written(x, reads)}" for name, x in kwargs.items()]
        if np.geterr() != self._errors or self._gone & {id(b) for v in reads for b in v.bases}:
            raise Untraceable
        form = form.format(*texts, all=", ".join(texts), rest=", ".join(texts[1:]))
        key = form, *map(id, reads)
        if shows and key in self.views:
            return self.views[key]
        found = search(r"\.(\w+)", form)
        hint = reads[0].hint if shows else self.hint
        if found and not kind:
            hint += SUFFIXES.get(found[1], "")
        bases = [*{id(b): b for v in reads for b in v.bases}.values()] if shows else []
        made = Variable(self, shape, np.dtype(dtype), hint, bases, shows)
        if shows:
            self.views[key] = made
        self._own.add(id(made))
        self.calls.append(NumpyCall(form, reads, [made], self.line, kind))
        return made

    def follow(self, form: str, function: Any, args: Any, kwargs: Any = NONE) -> Any:
        """What any function of NumPy's gives for arrays of these shapes and dtypes."""
        known: dict[int, Any] = {}
        kwargs = {name: x for name, x in kwargs.items() if (name, x) != ("dtype", None)}
        made = function(*_dummies(args, known), **_dummies(kwargs, known))
        if not isinstance(made, np.ndarray | np.generic):
            raise Untraceable
        first = args[0]
        if made is known.get(id(first)) or (form in SAME and made.shape == first.shape):
            return first
        shows = any(np.may_share_memory(made, dummy) for dummy in known.values())
        return self.make(form, args, kwargs, made.shape, made.dtype, shows)

    def entrywise(self, ufunc: Any, given: Any) -> Variable:
        """A function of each entry."""
        shape = np.broadcast_shapes(*[getattr(x, "shape", ()) for x in given])
        dtype = _dtype_of(ufunc, tuple([getattr(x, "dtype", x.__class__) for x in given]))
        form = f"np.{ufunc.__name__}({{all}})"
        return self.make(form, given, {}, shape, dtype, kind="entrywise")

    def product(self, a: Any, b: Any) -> Any:
        """A product of matrices: of two by `dot`, a stack times one matrix as one product."""
        if len(b.shape) == 2 < len(a.shape) and isinstance(a, Variable) and a.size:
            rows = self.product(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b)
            return rows.reshape(*a.shape[:-1], b.shape[-1])
        form = "{0}.dot({1})" if max(len(a.shape), len(b.shape)) < 3 else "{0} @ {1}"
        columns = b.shape[-1:] * (len(b.shape) > 1)
        shape = *np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *a.shape[-2:-1], *columns
        return self.make(form, (a, b), {}, shape, _dtype_of(np.add, (a.dtype, b.dtype)))

    def put(self, made: Variable, target: Any) -> Variable:
        """What `x += y` does: x is from now on what was made, and nobody may use the old one."""
        if not isinstance(target, Variable) or not self._own.issuperset(map(id, target.bases)):
            raise Untraceable  # somebody else would see it change
        if (target.shape, target.dtype) != (made.shape, made.dtype):
            raise Untraceable
        self._gone.update(map(id, target.bases))
        return made


def _dummies(x: Any, known: dict[int, Any]) -> Any:
    """An argument with arrays in place of Variables, which are noted by id."""
    return mapped(x, lambda v: known.setdefault(id(v), v.dummy()) if isinstance(v, Variable) else v)


def _sliced(x: slice) -> str:
    step = "" if x.step is None else f":{x.step}"
    return f"{x.start}:{x.stop}{step}".replace("None", "")


@lru_cache(maxsize=1024)
def _dtype_of(ufunc: Any, dtypes: tuple[Any, ...]) -> Any:
    """The dtype of a ufunc's result, for arrays of these dtypes and numbers of these types."""
    with np.errstate(all="ignore"):
        return ufunc(*[np.ones(1, d) if isinstance(d, np.dtype) else d(1) for d in dtypes]).dtype


# ---------------------------------------------------------------- the edge rule


def fitted(parts: Any, wanted: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients that a rule gave, each summed over what was broadcast and cast.

    Args: wanted: of each the shape and the dtype, or None.
    """
    parts = parts if parts.__class__ is tuple else (parts,)
    return tuple([_fitted(*pair) for pair in zip(parts, wanted, strict=True)])


def _fitted(x: Any, wanted: Any) -> Any:
    if x is None or wanted is None:
        return None
    shape, dtype = wanted
    x = x.onto(None) if hasattr(x, "onto") else x
    if x.shape != shape:
        axes = broadcast_axes(shape, x.shape) or ()
        width = max(1, prod(shape))
        rows = x.size // width
        if len(axes) == x.ndim - len(shape) and x.dtype.char in "fd" and rows <= PRODUCT_ROWS:
            x = (_ones(x.dtype, rows) @ x.reshape(rows, width)).reshape(shape)
        else:
            x = x.sum(axis=axes, dtype=WIDE.get(x.dtype.char)).reshape(shape)
    return x.astype(dtype, copy=False)


@cache
def _ones(dtype: Any, size: int) -> Any:
    return np.ones(size, dtype)
