"""Kernels and rules taken apart into the NumPy calls that they make, which are written down.

A kernel is run on Variables, of which only shapes and dtypes are known: NumPy asks them what to do,
and they note it as a Call. One that needs entries (a branch on them, say) is called whole instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from re import search
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...engine.backward import broadcast_axes
from .text import Names, bracketed

__all__ = ["Call", "Calls", "Untraceable", "Variable", "fitted"]

FACTS = {"ndim", "size", "itemsize", "nbytes"}
VIEWS = {"T", "mT", "real"}
METHODS = {
    "astype", "copy", "max", "mean", "min", "prod", "ravel", "reshape", "squeeze", "sum",
    "swapaxes", "transpose", "view",
}  # fmt: skip
OF_SHAPES = {np.shape, np.ndim, np.size, np.iscomplexobj, np.result_type}
INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "negative": "-", "greater": ">",
    "less": "<", "greater_equal": ">=", "less_equal": "<=", "equal": "==", "not_equal": "!=",
    "bitwise_and": "&", "bitwise_or": "|",
}  # fmt: skip
SUFFIXES = {
    "T": "_T", "mT": "_T", "swapaxes": "_T", "transpose": "_T", "reshape": "_rows",
    "maximum": "_max", "max": "_max", "add": "_sum", "sum": "_sum", "mean": "_mean",
}  # fmt: skip
NONE: dict[str, Any] = {}
SUMMED = 256  # rows that one product with ones adds up
WIDE = {"e": np.float32, "f": np.float64}  # in which gradients of a dtype are added up


class Untraceable(Exception):
    """A kernel does what Variables cannot follow."""


class Variable(NDArrayOperatorsMixin):
    """An array of the program, of which the shape and the dtype are known.

    Attributes:
        hint: what to call it.  text: how it is written.
        bases: the Variables whose memory it may show, itself among them if it has its own.
        fresh: whether a call made its memory for it alone.
        stays: whether its memory outlives the step.
        last: the last call that reads its memory.  reader: that reads it itself.  uses: how often.
        over: in whose place it is written.
    """

    def __init__(
        self, calls: Calls, shape: tuple[int, ...], dtype: Any, hint: str, shows: Any = ()
    ) -> None:
        self.calls = calls
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.hint = hint
        self.text = ""
        self.bases: list[Variable] = [*{id(b): b for v in shows for b in v.bases}.values()]
        self.fresh = self.stays = False
        self.bases = self.bases or [self]
        self.last: Call | None = None
        self.reader: Call | None = None
        self.uses = 0
        self.over: Variable | None = None

    def is_alone(self) -> bool:
        """Whether it shows all of one array that a call made, and that the step lets go of."""
        base = self.bases[0]
        whole = base.fresh and not base.stays and base.size == self.size
        return len(self.bases) == 1 and whole

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
            made = self.calls.follow(f"{name}.reduce(*)", ufunc.reduce, given, settings)
        elif method != "__call__" or settings:
            raise Untraceable
        elif ufunc is np.matmul:
            made = self.calls.product(*given)
        elif ufunc.signature is None:
            made = self.calls.entrywise(ufunc, given)
        else:
            made = self.calls.follow(f"{name}(*)", ufunc, given)
        return made if target is None else self.calls.put(made, target)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if function in OF_SHAPES:
            return function(*[x.dummy() if isinstance(x, Variable) else x for x in args])
        if name in METHODS | VIEWS and isinstance(args[0], Variable):
            found = getattr(args[0], name)
            return found if name in VIEWS else found(*args[1:], **kwargs)
        if getattr(np, name, None) is not function or "out" in kwargs:
            raise Untraceable
        return self.calls.follow(f"np.{name}(*)", function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in FACTS:
            return getattr(self.dummy(), name)
        if name in VIEWS:
            return self.calls.follow(f"{{}}.{name}", lambda x: getattr(x, name), (self,))
        if name not in METHODS:
            raise AttributeError(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            if name in ("reshape", "transpose") and len(args) == 1 and args[0]:
                args = tuple(args[0]) if isinstance(args[0], tuple | list) else args
            called = getattr(np.ndarray, name)
            return self.calls.follow(f"{{}}.{name}(*)", called, (self, *args), kwargs)

        return method

    def __getitem__(self, index: Any) -> Variable:
        parts = index if index.__class__ is tuple and index else (index,)
        if any(getattr(part, "dtype", None) == np.bool_ for part in parts):
            raise Untraceable  # how many entries it takes depends on which are True
        return self.calls.follow("{}[*]", _entries, (self, *parts))


@dataclass(slots=True, eq=False)
class Call:
    """A line of the program.

    Attributes:
        form: Python, with {} for each of `reads`.  made: what comes out.
        kind: "" if it only computes; "entrywise" if it may write its result over what it reads;
            "effect"; "write", into memory from outside; "keep", what it reads; "grad", as `.grad`.
        infix: the form by an operator, if it has one.
        about: where in the model.  epoch: how many writes come after it.
    """

    form: str
    reads: list[Variable]
    made: list[Variable]
    kind: str = ""
    infix: str = ""
    about: str = ""
    epoch: int = 0


class Calls(list[Call]):
    """The lines of a program, as they come.

    Attributes: about: where in the model they are.  hint: what to call what is made.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.about = ""
        self.hint = self.op = ""
        self.views: dict[Any, Variable] = {}  # what was taken once is not taken again
        self._errors = np.geterr()
        self._own: set[int] = set()  # the Variables that the kernel made
        self._gone: set[int] = set()  # those whose memory it wrote over

    def taken_apart(self, function: Any, given: Any, wanted: Any) -> list[Any] | None:
        """The results of a kernel by calls of its own, None if it must be called whole.

        Args: wanted: of each result that is used, the shape, the dtype and the name; or None.
        """
        start = len(self)
        views = dict(self.views)
        self._own = set()
        self._gone = set()
        try:
            made = function(*given)
            several = [*made] if made.__class__ is tuple else [made]
            for x, want in zip(several, wanted, strict=True):
                if want is None:
                    continue
                if not isinstance(x, Variable) or (x.shape, x.dtype) != want[:2]:
                    raise Untraceable
                if id(x) in self._own and (want[2] != self.op or x.fresh):
                    x.hint = want[2]
            return several
        except Exception:  # whatever a kernel does with what is no array
            del self[start:]
            self.views = views
            return None

    def written(self, x: Any, reads: list[Variable]) -> str:
        """Python for what a call is given, with {} for Variables, which join `reads`."""
        if isinstance(x, Variable):
            reads.append(x)
            return "{}"
        if x.__class__ in (tuple, list):
            return bracketed(x.__class__, [self.written(part, reads) for part in x])
        return self.names.text(x).replace("{", "{{").replace("}", "}}")

    def make(
        self, form: str, reads: list[Variable], shape: Any, dtype: Any, shows: bool = False,
        **more: Any,
    ) -> Variable:  # fmt: skip
        """What a call makes, which is added to the lines."""
        if np.geterr() != self._errors or self._gone & {id(b) for v in reads for b in v.bases}:
            raise Untraceable
        key = form, *map(id, reads)
        if shows and key in self.views:
            return self.views[key]
        found = search(r"\.(\w+)(\.reduce)?", form)
        suffix = SUFFIXES.get(found[1], "") if found and not more else ""
        hint = (reads[0].hint if shows else self.hint) + suffix
        made = Variable(self, shape, dtype, hint, reads if shows else ())
        made.fresh = not shows
        if shows:
            self.views[key] = made
        self._own.add(id(made))
        self.append(Call(form, reads, [made], about=self.about, **more))
        return made

    def follow(self, form: str, function: Any, args: Any, kwargs: Any = NONE) -> Any:
        """What any function of NumPy's gives for arrays of these shapes and dtypes.

        Args: form: with * for the arguments, but for the first if it has a place of its own.
        """
        reads: list[Variable] = []
        texts = [_sliced(x) if x.__class__ is slice else self.written(x, reads) for x in args]
        kwargs = {name: x for name, x in kwargs.items() if (name, x) != ("dtype", None)}
        texts += [f"{name}={self.written(x, reads)}" for name, x in kwargs.items()]
        dummies = {id(v): v.dummy() for v in reads}
        settings = {name: _replaced(x, dummies) for name, x in kwargs.items()}
        made = function(*_replaced(args, dummies), **settings)
        if not isinstance(made, np.ndarray | np.generic):
            raise Untraceable
        if form in ("{}.reshape(*)", "np.broadcast_to(*)") and made.shape == reads[0].shape:
            return reads[0]
        for v in reads:
            if made is dummies[id(v)]:
                return v
        shows = any(np.may_share_memory(made, dummy) for dummy in dummies.values())
        form = form.replace("*", ", ".join(texts[form.startswith("{}") :]))
        return self.make(form, reads, made.shape, made.dtype, shows)

    def entrywise(self, ufunc: Any, given: Any) -> Variable:
        """A function of each entry."""
        name = ufunc.__name__
        shape = np.broadcast_shapes(*[getattr(x, "shape", ()) for x in given])
        dtype = _dtype_of(ufunc, tuple([getattr(x, "dtype", x.__class__) for x in given]))
        reads: list[Variable] = []
        texts = [self.written(x, reads) for x in given]
        sign = INFIX.get(name, "")
        infix = f"{sign}{texts[0]}" if len(texts) == 1 else f" {sign} ".join(texts)
        form = f"np.{name}({', '.join(texts)})"
        return self.make(form, reads, shape, dtype, kind="entrywise", infix=infix if sign else "")

    def product(self, a: Any, b: Any) -> Any:
        """A product of matrices: of two by `dot`, a stack times one matrix as one product."""
        is_stack = len(b.shape) == 2 < len(a.shape) and isinstance(a, Variable) and a.size
        if is_stack:
            rows = self.product(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b)
            return rows.reshape(*a.shape[:-1], b.shape[-1])
        reads: list[Variable] = []
        texts = [self.written(x, reads) for x in (a, b)]
        form = "{}.dot({})" if max(len(a.shape), len(b.shape)) < 3 else "{} @ {}"
        columns = b.shape[-1:] * (len(b.shape) > 1)
        shape = *np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *a.shape[-2:-1], *columns
        dtype = _dtype_of(np.add, (a.dtype, b.dtype))
        return self.make(form.format(*texts), reads, shape, dtype)

    def put(self, made: Variable, target: Any) -> Variable:
        """What `x += y` does: x is from now on what was made, and nobody may use the old one."""
        fits = isinstance(target, Variable) and (target.shape, target.dtype) == (
            made.shape,
            made.dtype,
        )
        if not fits or not self._own.issuperset(map(id, target.bases)):
            raise Untraceable  # somebody else would see it change
        self._gone.update(map(id, target.bases))
        return made


def _replaced(x: Any, dummies: dict[int, Any]) -> Any:
    """An argument with arrays in place of Variables."""
    if x.__class__ in (tuple, list):
        return x.__class__([_replaced(part, dummies) for part in x])
    return dummies.get(id(x), x)


def _entries(x: Any, *index: Any) -> Any:
    return x[index if len(index) > 1 else index[0]]


def _sliced(x: slice) -> str:
    ends = [x.start, x.stop] + [x.step] * (x.step is not None)
    return ":".join("" if end is None else str(end) for end in ends)


@lru_cache(maxsize=1024)
def _dtype_of(ufunc: Any, dtypes: tuple[Any, ...]) -> Any:
    """The dtype of a ufunc's result, for arrays of these dtypes and numbers of these types."""
    with np.errstate(all="ignore"):
        return ufunc(*[np.ones(1, d) if isinstance(d, np.dtype) else d(1) for d in dtypes]).dtype


# ---------------------------------------------------------------- the edge rule


def fitted(parts: Any, wanted: list[Any]) -> list[Any]:
    """Gradients that a rule gave, each summed over what was broadcast and cast.

    Args: wanted: of each the shape and the dtype, or None.
    """
    parts = parts if parts.__class__ is tuple else (parts,)
    pairs = zip(parts, wanted, strict=True)
    return [None if want is None or part is None else _fitted(part, *want) for part, want in pairs]


def _fitted(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    x = x.onto(None) if hasattr(x, "onto") else x
    if x.shape != shape:
        axes = broadcast_axes(shape, x.shape) or ()
        if len(axes) == x.ndim - len(shape) and x.dtype.char in "fd" and x.size:
            width = prod(shape)
            x = column_sums(x.reshape(x.size // width, width)).reshape(shape)
        else:
            x = x.sum(axis=axes, dtype=WIDE.get(x.dtype.char)).reshape(shape)
    return x.astype(dtype, copy=False)


def column_sums(x: Any) -> Any:
    """The sum of the rows of a matrix: products with ones, of some rows each, lose few digits."""
    if len(x) <= SUMMED:
        return _ones(x.dtype, len(x)) @ x
    if isinstance(x, Variable):
        return x.calls.follow(f"{x.calls.names.text(column_sums)}(*)", column_sums, (x,))
    sums = [column_sums(x[i : i + SUMMED]) for i in range(0, len(x), SUMMED)]
    return np.sum(sums, axis=0, dtype=np.float64).astype(x.dtype)


@cache
def _ones(dtype: Any, size: int) -> Any:
    return np.ones(size, dtype)
