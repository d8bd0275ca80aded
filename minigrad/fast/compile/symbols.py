"""Kernels and rules taken apart into the NumPy calls that they make.

A kernel runs on Samples: random numbers of the shapes, dtypes and strides that were recorded. NumPy
asks them what to do; they do it, and note the call. Then the kernel runs on the numbers themselves.
Where one bit of the result differs, or the kernel asks what a Sample does not show (the value of an
entry, who holds the memory), it is not taken apart: the program calls it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .lines import TapeLine, Value, leaves_of, mapped
from .watched import laid_out

__all__ = ["KernelCalls", "Sample"]

OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "matmul": "@",
}  # fmt: skip
FACTS = "shape dtype strides ndim size nbytes".split()  # what stays known of a Sample
LAYOUT = ("c_contiguous", "f_contiguous", "fnc", "forc")  # the flags that strides show
VIEWS = {"T", "mT", "real"}
SAME = ("reshape", "broadcast_to")  # which give nothing new where the shape is the same
OF_SHAPES = {np.shape, np.ndim, np.size, np.iscomplexobj, np.result_type}
RANDOM = np.random.default_rng(0).uniform(-2, 2, 65_521)  # no row is as long, so all differ
NONE: dict[str, Any] = {}


class Untraceable(Exception):
    """A kernel asks what no Sample shows."""


class Sample(NDArrayOperatorsMixin):
    """Random numbers in the place of an array, which note what NumPy does with them.

    Attributes: shows: whether it may show the memory of others.
    """

    def __init__(self, trace: KernelCalls, entries: Any, shows: bool = False) -> None:
        self.trace = trace
        trace.entries[self] = entries
        for name in FACTS:
            setattr(self, name, getattr(entries, name))
        self.shows = shows

    __hash__ = object.__hash__

    def __len__(self) -> int:
        return int(self.shape[0])

    def _refused(self, *_: object, **__: object) -> Any:
        raise Untraceable

    __array__ = __bool__ = __complex__ = __contains__ = __float__ = __index__ = __int__ = _refused
    __iter__ = __setitem__ = _refused

    # ------------------------------------------------------------------ what NumPy asks

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **settings: Any) -> Any:
        name = ufunc.__name__
        note = self.trace.note
        if method == "reduce":
            return note(name, f"np.{name}.reduce({{all}})", ufunc.reduce, given, settings)
        if method != "__call__" or settings:
            raise Untraceable
        if ufunc is np.matmul and all(x.ndim < 3 and x.flags.forc for x in given):
            return note("dot", "{0}.dot({1})", np.dot, given)
        sign = OPERATORS.get(name)
        form = f"{{0}} {sign} {{1}}" if sign else f"np.{name}({{all}})"
        return note(name, form, ufunc, given)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if function in OF_SHAPES:
            return function(*mapped(args, _entries))
        if callable(getattr(np.ndarray, name, None)) and isinstance(args[0], Sample):
            return getattr(args[0], name)(*args[1:], **kwargs)
        if getattr(np, name, None) is not function or "out" in kwargs:
            raise Untraceable
        return self.trace.note(name, f"np.{name}({{all}})", function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        entries = _entries(self)
        if name == "flags":
            return SimpleNamespace(**{x: getattr(entries.flags, x) for x in LAYOUT})
        if name in VIEWS:
            return self.trace.note(name, f"{{0}}.{name}", attrgetter(name), (self,))
        function = getattr(type(entries), name)
        if not callable(function):
            raise Untraceable
        form = f"{{0}}.{name}({{rest}})"
        return lambda *args, **kwargs: self.trace.note(name, form, function, (self, *args), kwargs)

    def __getitem__(self, index: Any) -> Sample:
        parts = index if index.__class__ is tuple else (index,)
        if any(hasattr(part, "shape") for part in parts):
            raise Untraceable  # what it takes depends on the entries of another array
        form = f"{{0}}[{', '.join(map(_within_brackets, parts))}]"
        return self.trace.note("getitem", form, itemgetter(index), (self,)) if parts else self


def _within_brackets(part: Any) -> str:
    """A part of an index, as Python."""
    if part.__class__ is not slice:
        return "..." if part is ... else repr(part)
    ends = ["" if end is None else str(end) for end in (part.start, part.stop, part.step)]
    return ":".join(ends).removesuffix(":")


def _entries(x: Any) -> Any:
    return x.trace.entries[x] if isinstance(x, Sample) else x


class KernelCalls:
    """The calls that a kernel or a rule makes.

    Attributes:
        inputs: by Value, the Sample.  entries: of each Sample, while they are needed.
        calls: in their order, as Python, what is given, what came out, whether it computes entry by
            entry, and the function's name.
        results: Samples; None if it has to be called whole.
    """

    def __init__(self, line: TapeLine, given: Sequence[Any]) -> None:
        """Trace the function of a line, on what it is given."""
        self.inputs: dict[Value, Sample] = {}
        self.entries: dict[Sample, Any] = {}
        self.calls: list[tuple[str, Sequence[Any], Sample, bool, str]] = []
        self.results: tuple[Any, ...] | None = None
        self._errors = np.geterr()
        with suppress(Exception):  # whatever a kernel does with what is no array
            samples = mapped(given, self._sampled)
            results = _as_tuple(line.function(*samples))
            kept = [x for x in (*self.inputs.values(), *results) if isinstance(x, Sample)]
            self.entries = {x: self.entries[x] for x in kept}  # all others are let go of
            with np.errstate(all="ignore"):
                arrays = _as_tuple(line.function(*mapped(samples, _entries)))
            if all(map(_agree, results, arrays, line.made)):
                self.results = results
        self.entries = {}

    def _sampled(self, x: Any) -> Any:
        """A Sample for a Value."""
        if x.__class__ is not Value:
            return x
        start = len(self.inputs) * 31 % 997  # each array's entries begin elsewhere

        def numbers(size: int) -> Any:
            entries = RANDOM[start:]
            entries = (entries > 0 if x.dtype.kind == "b" else entries).astype(x.dtype)
            return np.resize(entries, size)

        if x not in self.inputs:
            self.inputs[x] = Sample(self, laid_out(x, numbers))
        return self.inputs[x]

    def note(
        self, name: str, form: str, function: Any, args: Any, kwargs: dict[str, Any] = NONE
    ) -> Sample:
        """Call a function, and note that.

        Args: form: with {all} for all arguments, or the {rest} but for the first.
        """
        if np.geterr() != self._errors:
            raise Untraceable
        with np.errstate(all="ignore"):
            entries = function(*mapped(args, _entries), **mapped(kwargs, _entries))
        given = *args, *kwargs.values()
        first, *others = [x for _, x in leaves_of(given, "") if isinstance(x, Sample)]
        if entries is _entries(first) and isinstance(entries, np.ndarray):
            return first
        if name in SAME and entries.shape == first.shape:
            return first
        shows = any(np.may_share_memory(entries, _entries(x)) for x in (first, *others))
        made = Sample(self, entries, shows)
        slots = [f"{{{i}}}" for i in range(len(args))]
        slots += [f"{key}={{{i}}}" for i, key in enumerate(kwargs, len(args))]
        form = form.format(*slots, all=", ".join(slots), rest=", ".join(slots[1:]))
        is_entrywise = isinstance(function, np.ufunc) and function.signature is None
        self.calls.append((form, given, made, is_entrywise, name))
        return made


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if results.__class__ is tuple else (results,)


def _agree(sample: Any, array: Any, value: Value | None) -> bool:
    """Whether a Sample is what a kernel gives, to the bit, and both as when it was recorded."""
    if value is None:
        return True
    if not isinstance(sample, Sample) or _layout(sample) != _layout(value):
        return False
    return bool(_entries(sample).tobytes() == array.tobytes())


def _layout(x: Any) -> Any:
    """Shape, dtype, and the strides that matter."""
    steps = [step for n, step in zip(x.shape, x.strides, strict=True) if n > 1]
    return x.shape, x.dtype, steps if x.nbytes else []
