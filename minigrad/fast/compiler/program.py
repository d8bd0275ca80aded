"""Program: what a step did, as a flat list of NumPy calls in the order they ran.

A `Value` is an array that a call reads or makes; a `Step` is one call. Values say what they are,
not what they hold, so a program is small however large the arrays were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

__all__ = [
    "SMALL",
    "Known",
    "Program",
    "Step",
    "Value",
    "Wrapped",
    "address",
    "blank",
    "contiguous",
    "flat",
    "is_whole",
    "lies",
    "nbytes",
    "root",
    "substitute",
    "values_in",
]

SMALL = 1024  # entries up to which a call costs more than what it computes


class Value:
    """One array of a program.

    Attributes:
        kind: "argument" (fresh at every call), "leaf" (a Tensor's own array), "captured" (an array
            the step reaches by itself), "constant" (the same at every call), "grad" (what a leaf's
            `.grad` holds), "result" (of an update), "step" (computed) or "room" (memory that
            several steps write parts of).
        what: the Tensor, the array or the expression it comes from; the Step that makes it.
        strides, offset: where its entries lie in the memory of its root.
        part: one of several disjoint parts of a room or of a joint result.
        name: its symbol.
    """

    __slots__ = ("dtype", "kind", "name", "offset", "part", "shape", "strides", "what")

    def __init__(self, kind: str, what: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.kind, self.what, self.shape, self.dtype = kind, what, shape, np.dtype(dtype)
        self.strides, self.offset = contiguous(shape, self.dtype), 0
        self.name: str | None = None
        self.part = False

    @property
    def step(self) -> Step | None:
        return self.what if self.kind == "step" else None

    def __repr__(self) -> str:
        return f"<{self.name or self.kind} {self.shape}>"


class Step:
    """One call: `function(*args, **kwargs)` makes `outs`.

    Attributes:
        kind: "elementwise", "reduce", "matmul", "cast" or "copy" (these can write into an
            array that is there already), "view" (its result shares its first argument's memory),
            "call" (a NumPy function), "put" or "at" (an array of zeros with something put or added
            in), "kernel" (an op's kernel or rule, whole), "check" (what a kernel asked of the
            numbers), "grad", "clear", "assign", "update" (effects).
        text: how the function is written.
        op: the op whose kernel or rule it is part of.  path: where in the model that is.
        into: the view that its result is written to, None for memory of its own.
        shares: whether its result may share memory with what it was given, for a kernel.
        made: the Value that an update gives, or None.
    """

    __slots__ = (
        "args",
        "function",
        "into",
        "kind",
        "kwargs",
        "made",
        "op",
        "outs",
        "path",
        "shares",
        "text",
    )

    def __init__(
        self,
        kind: str,
        text: str,
        function: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.kind, self.text, self.function, self.args = kind, text, function, args
        self.kwargs = kwargs or {}
        self.outs: list[Value] = []
        self.op = self.path = ""
        self.into: Value | None = None
        self.made: Value | None = None
        self.shares = False

    @property
    def out(self) -> Value:
        return self.outs[0]

    def reads(self) -> Iterator[Value]:
        yield from values_in(self.args)
        if self.kwargs:
            yield from values_in(self.kwargs)

    def __repr__(self) -> str:
        return f"<{self.text} {self.args} -> {self.outs}>"


class Program:
    """The steps, and what the function returned: nested tuples, lists and dicts of Values, Tensors
    and constants.

    Attributes:
        op, path: written on the steps that are added.
        keeps: attributes that the step sets: the dict, the key, and the value.
        draws: whether random numbers are drawn.
    """

    __slots__ = ("_constants", "draws", "keeps", "op", "path", "result", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.result: Any = None
        self.op = self.path = ""
        self.keeps: list[tuple[Any, str, Value]] = []
        self.draws = False
        self._constants: dict[int, Value] = {}

    def add(self, step: Step, *made: tuple[tuple[int, ...], Any]) -> list[Value]:
        """Append a step that makes arrays of these shapes and dtypes."""
        step.outs = [Value("step", step, shape, dtype) for shape, dtype in made]
        step.op, step.path = self.op, self.path
        self.steps.append(step)
        return step.outs

    def constant(self, array: Any) -> Value:
        """An array that is the same at every call."""
        known = self._constants.get(id(array))
        if known is None:
            known = self._constants[id(array)] = Value("constant", array, array.shape, array.dtype)
            known.strides = array.strides
        return known


class Known:
    """A returned Tensor that was there before."""

    __slots__ = ("expression", "tensor")

    def __init__(self, expression: str | None, tensor: Any) -> None:
        self.expression, self.tensor = expression, tensor


class Wrapped:
    """A returned Tensor that the step made, or (`scalar`) a number of NumPy's."""

    __slots__ = ("name", "scalar", "value")

    def __init__(self, value: Value, name: str | None, scalar: bool = False) -> None:
        self.value, self.name, self.scalar = value, name, scalar


def values_in(item: Any) -> Iterator[Value]:
    """Every Value in nested containers."""
    if item.__class__ is Value:
        yield item
    elif isinstance(item, tuple | list):
        for entry in item:
            if entry.__class__ is Value:
                yield entry
            elif isinstance(entry, tuple | list | dict):
                yield from values_in(entry)
    elif isinstance(item, dict):
        for entry in item.values():
            yield from values_in(entry)


def flat(item: Any) -> list[Any]:
    """The entries of nested containers."""
    if isinstance(item, tuple | list):
        return [leaf for entry in item for leaf in flat(entry)]
    if isinstance(item, dict):
        return [leaf for entry in item.values() for leaf in flat(entry)]
    return [item]


def substitute(item: Any, replace: Callable[[Any], Any]) -> Any:
    """The same nesting with every entry that is no container replaced."""
    if item.__class__ in (tuple, list):
        return item.__class__(substitute(entry, replace) for entry in item)
    if isinstance(item, tuple | list):  # a namedtuple
        return type(item)(*(substitute(entry, replace) for entry in item))
    if isinstance(item, dict):
        return {key: substitute(entry, replace) for key, entry in item.items()}
    return replace(item)


def contiguous(shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
    """The strides of an array in row-major order."""
    strides, step = [], int(dtype.itemsize)
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def is_whole(value: Value) -> bool:
    """Whether its entries lie in row-major order, without gaps."""
    return value.strides == contiguous(value.shape, value.dtype)


def lies(array: Any, value: Value) -> bool:
    """Whether an array's entries lie as the value says; for axes of one, anything will do."""
    if array.strides == value.strides:
        return True
    axes = zip(array.shape, array.strides, value.strides, strict=True)
    return not array.size or all(n == 1 or a == b for n, a, b in axes)


def blank(value: Value) -> Any:
    """An array whose entries, still arbitrary, lie as a value's do."""
    if 0 in value.shape:
        return np.empty(value.shape, value.dtype)
    ends = [(n - 1) * s for n, s in zip(value.shape, value.strides, strict=True)]
    before, after = -sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
    memory = np.empty(before + after + value.dtype.itemsize, np.uint8)
    return np.ndarray(value.shape, value.dtype, memory, before, value.strides)


def address(array: Any) -> int:
    """Where an array's first entry lies."""
    return int(array.__array_interface__["data"][0])


def root(value: Value) -> Value:
    """The value whose memory it is."""
    while (step := value.step) is not None:
        if step.into is not None:
            value = step.into
        elif step.kind == "view":
            value = step.args[0]
        else:
            break
    return value


def nbytes(value: Value) -> int:
    return prod(value.shape) * int(value.dtype.itemsize)
