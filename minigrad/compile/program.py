"""Program: what a step did, as a flat list of NumPy calls in the order they ran.

A `Value` is an array that a call reads or makes; a `Step` is one call. Values say what they are,
not what they
hold, so a program is small however large the arrays were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = [
    "Program",
    "Step",
    "Value",
    "address",
    "contiguous",
    "nbytes",
    "root",
    "substitute",
    "values_in",
]


class Value:
    """One array of a program.

    Attributes:
        kind: "argument" (fresh at every call), "leaf" (a Tensor's own array), "captured" (an array
            the step reaches by itself), "constant" (the same at every call), "step" (computed) or
            "room" (memory that several steps write parts of).
        what: the Tensor, the array or the expression it comes from; the Step that makes it.
        strides, offset: where its entries lie in the memory of its root.
        part: one of several disjoint parts of a room or of a joint result.
        name, path: its symbol, and the scope in which it was made.
    """

    __slots__ = ("dtype", "kind", "name", "offset", "part", "path", "shape", "strides", "what")

    def __init__(self, kind: str, what: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.kind, self.what, self.shape, self.dtype = kind, what, shape, np.dtype(dtype)
        self.strides, self.offset = contiguous(shape, self.dtype), 0
        self.name: str | None = None
        self.path = ""
        self.part = False

    @property
    def step(self) -> Step | None:
        return self.what if self.kind == "step" else None

    def __repr__(self) -> str:
        return f"<{self.name or self.kind} {self.shape}>"


class Step:
    """One call: `function(*args, **kwargs)` makes `outs`.

    Attributes:
        kind: "elementwise", "reduce" or "matmul" (these can write into an array that is there
            already), "view" (its result shares its first argument's memory), "call" (a NumPy
            function) or "kernel" (an op's kernel or rule, whole), "grad", "clear", "assign",
            "update", "keep" (effects).
        text: how the function is written.  note: what it is for.
        into: the view that its result is written to, None for memory of its own.
    """

    __slots__ = ("args", "function", "into", "kind", "kwargs", "note", "outs", "text")

    def __init__(
        self,
        kind: str,
        text: str,
        function: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.kind, self.text, self.function, self.args, self.kwargs = (
            kind,
            text,
            function,
            args,
            kwargs,
        )
        self.outs: list[Value] = []
        self.note = ""
        self.into: Value | None = None

    @property
    def out(self) -> Value:
        return self.outs[0]

    def reads(self) -> Iterator[Value]:
        yield from values_in(self.args)
        yield from values_in(self.kwargs)

    def __repr__(self) -> str:
        return f"<{self.text} {self.args} -> {self.outs}>"


class Program:
    """The steps, and what the function returned: nested tuples, lists and dicts of Values, Tensors
    and constants.
    """

    __slots__ = ("result", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.result: Any = None

    def add(self, step: Step, *made: tuple[tuple[int, ...], Any]) -> list[Value]:
        """Append a step that makes arrays of these shapes and dtypes."""
        step.outs = [Value("step", step, shape, dtype) for shape, dtype in made]
        self.steps.append(step)
        return step.outs


def values_in(item: Any) -> Iterator[Value]:
    """Every Value in nested containers."""
    if item.__class__ is Value:
        yield item
    elif isinstance(item, tuple | list):
        for entry in item:
            yield from values_in(entry)
    elif isinstance(item, dict):
        for entry in item.values():
            yield from values_in(entry)


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


def address(array: Any) -> int:
    """Where an array's first entry lies."""
    return int(array.__array_interface__["data"][0])


def root(value: Value) -> Value:
    """The value whose memory it is."""
    while (step := value.step) is not None:
        if step.into is not None:
            value = step.into
        elif step.kind == "view":
            value = next(values_in(step.args))
        else:
            break
    return value


def nbytes(value: Value) -> int:
    return int(np.prod(value.shape, dtype=int)) * int(np.dtype(value.dtype).itemsize)
