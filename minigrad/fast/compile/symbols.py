"""Kernels and rules taken apart into the NumPy calls that they make.

A kernel runs on Samples: random numbers of the shapes, dtypes and strides that were recorded. NumPy
asks them what to do; they do it, and note the call. Then the kernel runs on the numbers themselves.
Where one bit of the result differs, or the kernel asks what a Sample does not show (the value of an
entry, who holds the memory), it is not taken apart: the program calls it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...engine.backward import fit
from .arguments import laid_out, mapped

__all__ = ["ArrayForm", "KernelCalls", "NumpyCall", "Sample", "fitted"]

SIZES = {"itemsize", "nbytes", "ndim", "size"}
LAYOUT = ("c_contiguous", "f_contiguous", "fnc", "forc")  # the flags that strides show
VIEWS = {"T", "mT", "real"}
OF_SHAPES = {np.shape, np.ndim, np.size, np.iscomplexobj, np.result_type}
SAME = ("reshape", "broadcast_to")  # which give nothing new where the shape is the same
NONE: dict[str, Any] = {}


class Untraceable(Exception):
    """A kernel asks what no Sample shows."""


class ArrayForm(NamedTuple):
    """What is known of an array of a line: which of its arrays it is, and its form."""

    number: int
    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]


@dataclass(slots=True, eq=False)
class NumpyCall:
    """One call that a kernel makes.

    Attributes:
        name: of the function.  form: the call as Python, with {0} and so on for its arguments,
            {all} of them, or the {rest} but for the first.
        args, kwargs: what it is called with, Samples among it.  made: what comes out.
        shows: whether that is a view.  entrywise: whether it could be written over an argument.
    """

    name: str
    form: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    made: Sample
    shows: bool
    entrywise: bool


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
        (target,) = settings.pop("out", (None,))
        name = ufunc.__name__
        note = self.trace.note
        if method == "reduce":
            made = note(name, f"np.{name}.reduce({{all}})", ufunc.reduce, given, settings)
        elif method != "__call__" or settings:
            raise Untraceable
        elif ufunc is np.matmul and all(x.ndim < 3 and x.flags.forc for x in given):
            made = note("dot", "{0}.dot({1})", np.dot, given)
        elif ufunc is np.matmul:
            made = note("matmul", "{0} @ {1}", ufunc, given)
        else:
            made = note(name, f"np.{name}({{all}})", ufunc, given, entrywise=not ufunc.signature)
        return made if target is None else self.trace.put(made, target)

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
        function = getattr(np.ndarray, name)
        if not callable(function):
            raise Untraceable

        def method(*args: Any, **kwargs: Any) -> Any:
            if name == "reshape" and args[0].__class__ is tuple:
                args = args[0] or args
            form = f"{{0}}.{name}({{rest}})"
            return self.trace.note(name, form, getattr(np.ndarray, name), (self, *args), kwargs)

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
        inputs: by the number of a ArrayForm, the Sample.  calls: in their order.
        results: of the kernel, Samples; None if it has to be called whole.
    """

    def __init__(
        self, function: Callable[..., Any], given: Sequence[Any], made: Sequence[Any], is_rule: bool
    ) -> None:
        """Trace a function of what is given, with ArrayForms for arrays.

        Args: made: ArrayForms of what came out when it was recorded, None for what nobody reads.
        """
        self.calls: list[NumpyCall] = []
        self.inputs: dict[int, Sample] = {}
        self.results: Sequence[Any] | None = None
        self._errors = np.geterr()
        self._written: set[Sample] = set()  # those that the kernel wrote over
        self._shortest_axis = min((n for x in _places(given) for n in x.shape if n), default=1)
        try:
            samples = mapped(given, self._sampled)
            results = self._run(function, samples, made, is_rule)
            with np.errstate(all="ignore"):
                wanted = self._run(function, mapped(samples, _entries), made, is_rule)
            if all(map(_agree, results, wanted, made)):
                self.results = results
        except Exception:  # whatever a kernel does with what is no array
            self.results = None
        finally:
            for x in (*self.inputs.values(), *[call.made for call in self.calls]):
                x.entries = None

    def _run(
        self, function: Callable[..., Any], given: Any, made: Any, is_rule: bool
    ) -> tuple[Any, ...]:
        results = function(*given)
        if is_rule:
            return fitted(results, [None if x is None else (x.shape, x.dtype) for x in made])
        return results if results.__class__ is tuple else (results,)

    def _sampled(self, x: Any) -> Any:
        """A Sample for a ArrayForm: small numbers; as integers, ones that are safe as indices."""
        if x.__class__ is not ArrayForm:
            return x
        if x.number not in self.inputs:
            self.inputs[x.number] = Sample(self, laid_out(x, lambda size: self._numbers(x, size)))
        return self.inputs[x.number]

    def _numbers(self, x: ArrayForm, size: int) -> Any:
        start = x.number * 31 % 997  # each array's begin elsewhere
        numbers = _random(1 << (size + 997).bit_length())[start : start + size]
        if x.dtype.kind == "b":
            return numbers > 0
        if x.dtype.kind in "iu":
            numbers = (numbers + 0.5) * self._shortest_axis
        return numbers.astype(x.dtype)

    def note(
        self,
        name: str,
        form: str,
        function: Any,
        args: Any,
        kwargs: Any = NONE,
        entrywise: bool = False,
    ) -> Sample:
        """Call a function, and note that: see NumpyCall."""
        kwargs = {key: x for key, x in kwargs.items() if (key, x) != ("dtype", None)}
        reads: list[Sample] = []
        mapped((*args, kwargs), lambda x: reads.append(x) if isinstance(x, Sample) else None)
        bases = tuple(dict.fromkeys(base for x in reads for base in x.bases))
        if np.geterr() != self._errors or not self._written.isdisjoint(bases):
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
        made = Sample(self, entries, bases if shows else ())
        self.calls.append(NumpyCall(name, form, args, kwargs, made, shows, entrywise))
        return made

    def put(self, made: Sample, target: Any) -> Sample:
        """What `x += y` does: x is from now on what was made, and nobody may use the old one."""
        if (target.shape, target.dtype) != (made.shape, made.dtype):
            raise Untraceable
        if not {*target.bases}.isdisjoint(self.inputs.values()):
            raise Untraceable  # somebody else would see it change
        self._written.update(target.bases)
        return made


def _places(given: Any) -> list[ArrayForm]:
    """The ArrayForms of arrays of numbers, whose axes an index may pick from."""
    places: list[ArrayForm] = []
    mapped(given, lambda x: places.append(x) if x.__class__ is ArrayForm else None)
    return [x for x in places if x.dtype.kind in "fc"]


@cache
def _random(size: int) -> Any:
    return np.random.default_rng(0).random(size) - 0.5


def _agree(sample: Any, array: Any, place: Any) -> bool:
    """Whether a Sample is what a kernel gives, to the bit, and both as when it was recorded."""
    if place is None:
        return True
    if not isinstance(sample, Sample) or (sample.shape, sample.dtype) != (place.shape, place.dtype):
        return False
    layouts = zip(sample.strides, place.strides, sample.shape, strict=True)
    if sample.entries.size and any(a != b for a, b, n in layouts if n > 1):
        return False
    is_same: bool = sample.entries.tobytes() == array.tobytes()
    return is_same


# ---------------------------------------------------------------- the edge rule


class EdgeForm(NamedTuple):
    """Where a gradient goes, as far as the rule of an edge asks."""

    shape: tuple[int, ...]
    dtype: Any


def fitted(parts: Any, wanted: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients that a rule gave, each summed over what was broadcast, and cast, as by the engine.

    Args: wanted: of each the shape and the dtype; None for one that nobody wants.
    """
    parts = parts if parts.__class__ is tuple else (parts,)
    return tuple([_fitted(*pair) for pair in zip(parts, wanted, strict=True)])


def _fitted(part: Any, wanted: Any, node: Any = None) -> Any:
    if part is None or wanted is None:
        return None
    edge: Any = EdgeForm(*wanted)
    return fit(part, edge, node)
