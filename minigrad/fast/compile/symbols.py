"""Kernels and rules taken apart into the NumPy calls that they make, which are written down.

A kernel is run on Variables, of which only shapes and dtypes are known: NumPy asks them what to do,
and they note each NumpyCall. One that needs entries (a branch on them, say) is called whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from re import search
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...engine.backward import broadcast_axes, dense, sum_to
from .arguments import mapped
from .text import Names, Python

__all__ = ["Calls", "NumpyCall", "Variable", "fitted"]

FORM = {"flags", "itemsize"}
VIEWS = {"T", "mT", "real"}
OF_SHAPES = {np.shape, np.ndim, np.size, np.iscomplexobj, np.result_type}
SUFFIXES = {
    "T": "_T", "mT": "_T", "swapaxes": "_T", "transpose": "_T", "reshape": "_rows",
    "maximum": "_max", "add": "_sum", "sum": "_sum", "mean": "_mean",
}  # fmt: skip
NONE: dict[str, Any] = {}
SAME = ("{0}.reshape({rest})", "np.broadcast_to({all})")  # where nothing comes of the same shape


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
    strides: tuple[int, ...] = ()
    entries: Any = None

    def __post_init__(self) -> None:
        self.bases = self.bases or [self]
        self.root = self

    def is_alone(self) -> bool:
        """Whether it shows all of one array that a call made, and that the step lets go of."""
        base, *others = self.bases
        return not (others or base.stays) and base.size == self.size

    def sample(self) -> Any:
        """An array of its shape and dtype, of numbers that are safe as indices."""
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        size = sum(map(abs, steps)) // self.dtype.itemsize + 1
        kind = self.dtype.kind
        numbers = self.calls.numbers(size)
        numbers = (numbers > 0 if kind == "b" else numbers).astype(self.dtype)
        start = -sum(s for s in steps if s < 0)
        return np.ndarray(self.shape, self.dtype, numbers, start, self.strides)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

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
            made = self.calls.make(f"{name}.reduce({{all}})", given, settings)
        elif method != "__call__" or settings:
            raise Untraceable
        elif ufunc is np.matmul:
            is_flat = all(np.ndim(x) < 3 and x.flags.forc for x in given)
            made = self.calls.make("{0}.dot({1})" if is_flat else "{0} @ {1}", given)
        else:
            kind = "" if ufunc.signature else "entrywise"
            made = self.calls.make(f"{name}({{all}})", given, kind=kind)
        return made if target is None else self.calls.put(made, target)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if function in OF_SHAPES:
            return function(*mapped(args, _entries))
        if callable(getattr(np.ndarray, name, None)) and isinstance(args[0], Variable):
            return getattr(args[0], name)(*args[1:], **kwargs)
        if getattr(np, name, None) is not function or "out" in kwargs:
            raise Untraceable
        return self.calls.make(f"np.{name}({{all}})", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in FORM:
            return getattr(self.entries, name)
        if name in VIEWS:
            return self.calls.make(f"{{0}}.{name}", (self,))
        called = getattr(np.ndarray, name)
        if not callable(called):
            raise AttributeError(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            if name == "reshape" and args[0].__class__ is tuple:
                args = args[0] or args
            return self.calls.make(f"{{0}}.{name}({{rest}})", (self, *args), kwargs)

        return method

    def __getitem__(self, index: Any) -> Variable:
        parts = index if index.__class__ is tuple else (index,)
        if any(getattr(part, "dtype", None) == np.bool_ for part in parts):
            raise Untraceable  # how many entries it takes depends on which are True
        return self.calls.make("{0}[{rest}]", (self, *parts)) if parts else self


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
        self._random = np.empty(0)
        self._own: set[int] = set()  # the Variables that the kernel made
        self._shown: list[Variable] = []  # those with entries
        self._gone: set[int] = set()  # those whose memory it wrote over

    def numbers(self, size: int) -> Any:
        """So many of the random numbers, beginning elsewhere each time."""
        if self._random.size < size + 997:
            self._random = np.random.default_rng(0).random(size + 997) - 0.5
        start = len(self._shown) * 31 % 997
        return self._random[start : start + size]

    def take_apart(self, given: Sequence[Any], sizes: Sequence[Any] | None) -> bool:
        """Add the calls of the line's kernel or rule, if Variables can follow it.

        Args: sizes: of a rule's results, see `fitted`.
        """
        start = len(self.calls)
        views = dict(self.views)
        self._own = set()
        self._gone = set()
        try:
            arrays = mapped(given, self._sampled)
            made = self._run(given, sizes)
            with np.errstate(all="ignore"):
                wanted = self._run(arrays, sizes)
            for x, y, value in zip(made, wanted, self.line.made, strict=True):
                if value is not None and x.entries.tobytes() != y.tobytes():
                    raise Untraceable
            for x, value in zip(made, self.line.made, strict=True):
                if value is not None:
                    self._bind(x, value)
            return True
        except Exception:  # whatever a kernel does with what is no array
            del self.calls[start:]
            self.views = views
            return False
        finally:
            for x in self._shown:
                x.entries = None
            self._shown.clear()

    def _run(self, given: Sequence[Any], sizes: Any) -> tuple[Any, ...]:
        made = self.line.function(*given)
        made = fitted(made, sizes) if sizes else made
        return made if made.__class__ is tuple else (made,)

    def _sampled(self, x: Any) -> Any:
        """Entries for a Variable, with which its line is tried out."""
        if not isinstance(x, Variable):
            return x
        if x.entries is None:
            x.entries = x.sample()
            self._shown.append(x)
        return x.entries

    def _bind(self, x: Any, value: Any) -> None:
        """Let a Variable be what came out when it was recorded."""
        if not isinstance(x, Variable) or (x.shape, x.dtype) != (value.shape, value.dtype):
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
        self, form: str, args: Sequence[Any], kwargs: dict[str, Any] = NONE, kind: str = ""
    ) -> Variable:
        """What a call makes, which is added to the lines.

        Args: form: with a number for an argument, `all` of them, or the `rest` but for the first.
        """
        reads: list[Variable] = []
        kwargs = {name: x for name, x in kwargs.items() if (name, x) != ("dtype", None)}
        texts = [_sliced(x) if x.__class__ is slice else self.written(x, reads) for x in args]
        texts += [f"{name}={self.written(x, reads)}" for name, x in kwargs.items()]
        if np.geterr() != self._errors or self._gone & {id(b) for v in reads for b in v.bases}:
            raise Untraceable
        is_same = form in SAME
        form = form.format(*texts, all=", ".join(texts), rest=", ".join(texts[1:]))
        names = {f"_{i}": v.entries for i, v in enumerate(reads)}
        with np.errstate(all="ignore"):
            entries = eval(form.format(*names), self.names.objects, names)
        if not isinstance(entries, np.ndarray | np.generic):
            raise Untraceable
        is_first = entries is reads[0].entries and isinstance(entries, np.ndarray)
        if is_first or (is_same and entries.shape == reads[0].shape):
            return reads[0]
        shows = any(np.may_share_memory(entries, v.entries) for v in reads)
        made = self.noted(form, reads, entries, shows, kind)
        made.entries = entries
        self._shown.append(made)
        return made

    def noted(self, form: str, reads: Any, like: Any, shows: bool, kind: str = "") -> Variable:
        """What a call of this form makes, of this shape and dtype."""
        key = form, *map(id, reads)
        if shows and key in self.views:
            return self.views[key]
        found = search(r"\.(\w+)", form)
        hint = reads[0].hint if shows else self.hint
        if found and not kind:
            hint += SUFFIXES.get(found[1], "")
        bases = [*{id(b): b for v in reads for b in v.bases}.values()] if shows else []
        made = Variable(self, like.shape, like.dtype, hint, bases, shows, strides=like.strides)
        if shows:
            self.views[key] = made
        self._own.add(id(made))
        self.calls.append(NumpyCall(form, reads, [made], self.line, kind))
        return made

    def put(self, made: Variable, target: Any) -> Variable:
        """What `x += y` does: x is from now on what was made, and nobody may use the old one."""
        if not isinstance(target, Variable) or not self._own.issuperset(map(id, target.bases)):
            raise Untraceable  # somebody else would see it change
        if (target.shape, target.dtype) != (made.shape, made.dtype):
            raise Untraceable
        self._gone.update(map(id, target.bases))
        return made


def _entries(x: Any) -> Any:
    return x.entries if isinstance(x, Variable) else x


def _sliced(x: slice) -> str:
    step = "" if x.step is None else f":{x.step}"
    return f"{x.start}:{x.stop}{step}".replace("None", "")


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
    x = dense(x)
    if x.shape != shape:
        x = sum_to(x, shape, broadcast_axes(shape, x.shape) or ())
    return x.astype(dtype, copy=False)
