"""Kernels and rules taken apart into the NumPy calls that they make.

A kernel runs on Samples: random numbers of the shapes, dtypes and strides that were recorded. NumPy
asks them what to do; they do it, and note the call. Then the kernel runs on the numbers themselves.
Where one bit of the result differs, or the kernel asks what a Sample does not show (the value of an
entry, who holds the memory), it is not taken apart: the program calls it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...engine.backward import reduce_to_edge
from .arguments import laid_out, mapped
from .lines import NO_LINE
from .statements import OPERATORS, Statement

__all__ = ["Form", "KernelCalls", "Sample", "fitted"]

SIZES = {"itemsize", "nbytes", "ndim", "size"}
LAYOUT = ("c_contiguous", "f_contiguous", "fnc", "forc")  # the flags that strides show
VIEWS = {"T", "mT", "real"}
SAME = ("reshape", "broadcast_to")  # which give nothing new where the shape is the same
OF_SHAPES = {np.shape, np.ndim, np.size, np.iscomplexobj, np.result_type}
NONE: dict[str, Any] = {}


class Untraceable(Exception):
    """A kernel asks what no Sample shows."""


class Form(NamedTuple):
    """What is known of an array of a line: which of its arrays it is, and its form."""

    number: int
    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]


class Sample(NDArrayOperatorsMixin):
    """Random numbers in the place of an array, which note what NumPy does with them.

    Attributes: bases: the Samples whose memory it may show, itself if it has its own.
    """

    def __init__(self, trace: KernelCalls, entries: Any, bases: Sequence[Sample] = ()) -> None:
        self.trace = trace
        self.entries = entries
        self.shape: tuple[int, ...] = entries.shape
        self.dtype = entries.dtype
        self.strides: tuple[int, ...] = entries.strides
        self.is_number = isinstance(entries, np.generic)
        self.bases = bases or (self,)

    __hash__ = object.__hash__

    def __len__(self) -> int:
        return self.shape[0]

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
        sign = "@" if ufunc is np.matmul else OPERATORS.get(name)
        form = f"{{0}} {sign} {{1}}" if sign else f"np.{name}({{all}})"
        return note(name, form, ufunc, given, NONE, "" if ufunc.signature else "entrywise")

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
        if name in SIZES:
            return getattr(self.entries, name)
        if name == "flags":
            return SimpleNamespace(**{x: getattr(self.entries.flags, x) for x in LAYOUT})
        if name in VIEWS:
            return self.trace.note(name, f"{{0}}.{name}", lambda x: getattr(x, name), (self,))
        if not callable(getattr(np.ndarray, name)):
            raise Untraceable

        def method(*args: Any, **kwargs: Any) -> Any:
            if name == "reshape" and args[0].__class__ is tuple:
                args = args[0] or args
            call = lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)  # noqa: E731
            return self.trace.note(name, f"{{0}}.{name}({{rest}})", call, (self, *args), kwargs)

        return method

    def __getitem__(self, index: Any) -> Sample:
        parts = index if index.__class__ is tuple else (index,)
        if any(getattr(part, "dtype", None) == np.bool_ for part in parts):
            raise Untraceable  # how many entries it takes depends on which are True
        take = lambda x, *parts: x[parts]  # noqa: E731
        return self.trace.note("getitem", "{0}[{rest}]", take, (self, *parts)) if parts else self


def _entries(x: Any) -> Any:
    return x.entries if isinstance(x, Sample) else x


class KernelCalls:
    """The calls that a kernel or a rule makes.

    Attributes:
        inputs: by the number of a Form, the Sample.  calls: in their order.
        results: of the kernel, Samples; None if it has to be called whole.
    """

    def __init__(
        self, function: Callable[..., Any], given: Sequence[Any], made: Sequence[Any], is_rule: bool
    ) -> None:
        """Trace a function of what is given, with Forms for arrays.

        Args: made: Forms of what came out when it was recorded, None for what nobody reads.
        """
        self.calls: list[Statement] = []
        self.inputs: dict[int, Sample] = {}
        self.results: Sequence[Any] | None = None
        self._errors = np.geterr()
        try:
            samples = mapped(given, self._sampled)
            results = self._run(function, samples, made, is_rule)
            self._let_go({*self.inputs.values(), *[x for x in results if isinstance(x, Sample)]})
            with np.errstate(all="ignore"):
                wanted = self._run(function, mapped(samples, _entries), made, is_rule)
            if all(map(_agree, results, wanted, made)):
                self.results = results
        except Exception:  # whatever a kernel does with what is no array
            self.results = None
        finally:
            self._let_go(set())

    def _let_go(self, kept: set[Sample]) -> None:
        """Free the entries of all Samples but of these."""
        for x in {*self.inputs.values(), *[x for call in self.calls for x in call.made]} - kept:
            x.entries = None

    def _run(
        self, function: Callable[..., Any], given: Any, made: Any, is_rule: bool
    ) -> tuple[Any, ...]:
        results = function(*given)
        if is_rule:
            return fitted(results, made)
        return results if results.__class__ is tuple else (results,)

    def _sampled(self, x: Any) -> Any:
        """A Sample for a Form."""
        if x.__class__ is not Form:
            return x

        def numbers(size: int) -> Any:
            entries = _random()[x.number * 31 % 997 :]  # each array's begin elsewhere
            entries = (entries > 0 if x.dtype.kind == "b" else entries).astype(x.dtype)
            return np.resize(entries, size)

        if x.number not in self.inputs:
            self.inputs[x.number] = Sample(self, laid_out(x, numbers))
        return self.inputs[x.number]

    def note(
        self,
        name: str,
        form: str,
        function: Any,
        args: Any,
        kwargs: Any = NONE,
        kind: str = "",
    ) -> Sample:
        """Call a function, and note that: as a Statement.

        Args: form: with {all} for all arguments, or the {rest} but for the first.
        """
        kwargs = {key: x for key, x in kwargs.items() if (key, x) != ("dtype", None)}
        reads: list[Sample] = []
        mapped((*args, kwargs), lambda x: reads.append(x) if isinstance(x, Sample) else None)
        if np.geterr() != self._errors:
            raise Untraceable
        with np.errstate(all="ignore"):
            entries = function(*mapped(args, _entries), **mapped(kwargs, _entries))
        if not isinstance(entries, np.ndarray | np.generic):
            raise Untraceable
        first = reads[0]
        if entries is first.entries and isinstance(entries, np.ndarray):
            return first
        if name in SAME and entries.shape == first.shape:
            return first
        shows = any(np.may_share_memory(entries, x.entries) for x in reads)
        bases = dict.fromkeys(base for x in reads for base in x.bases if shows)
        made = Sample(self, entries, (*bases,))
        slots = [f"{{{i}}}" for i in range(len(args))]
        slots += [f"{key}={{{i}}}" for i, key in enumerate(kwargs, len(args))]
        form = form.format(*slots, all=", ".join(slots), rest=", ".join(slots[1:]))
        given = *args, *kwargs.values()
        self.calls.append(Statement(form, given, [made], NO_LINE, kind, name))
        return made


@cache
def _random() -> Any:
    return np.random.default_rng(0).uniform(-2, 2, 65_521)  # no row is as long, so all differ


def _agree(sample: Any, array: Any, place: Any) -> bool:
    """Whether a Sample is what a kernel gives, to the bit, and both as when it was recorded."""
    if place is None:
        return True
    if not isinstance(sample, Sample) or (sample.shape, sample.dtype) != (place.shape, place.dtype):
        return False
    layouts = zip(sample.strides, place.strides, sample.shape, strict=True)
    if sample.entries.size and any(a != b for a, b, n in layouts if n > 1):
        return False
    return np.array_equal(_bits(sample.entries), _bits(array))


def _bits(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


# ---------------------------------------------------------------- the edge rule


def fitted(parts: Any, wanted: Sequence[Any], node: Any = None) -> tuple[Any, ...]:
    """Gradients that a rule gave, each summed over what was broadcast, and cast, as by the engine.

    Args: wanted: the Form of each; None for one that nobody wants.
    """
    parts = parts if parts.__class__ is tuple else (parts,)
    pairs = zip(parts, wanted, strict=True)
    return tuple(
        [None if form is None else reduce_to_edge(part, form, node) for part, form in pairs]
    )
