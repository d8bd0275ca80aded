"""Statements of the program, the Variables that they read and make, and names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from .lines import TapeLine

__all__ = ["Names", "Python", "Statement", "Variable"]

OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "greater": ">", "less": "<",
    "greater_equal": ">=", "less_equal": "<=", "equal": "==", "not_equal": "!=",
    "bitwise_and": "&", "bitwise_or": "|",
}  # fmt: skip
AUGMENTED = {"+", "-", "*", "/", "&", "|"}  # as in `x += y`
SHORT_KINDS = (bool, int, float, str, type(None), type(...))  # whose repr is Python


@dataclass(eq=False)
class Variable:
    """An array of the program.

    Attributes:
        hint: what to call it.  text: how it is written.
        bases: the Variables whose memory it may show, itself among them if it has its own.
        stays: whether its memory is somebody else's, too, or outlives the step.
        is_callers: whether its memory may be of an array that the step was handed.
        last: the last statement that reads its memory.  readers: those that read it, last first.
        over: in whose place it is written.  root: the first of those that share its name.
    """

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]
    hint: str
    bases: list[Variable] = field(default_factory=list)
    stays: bool = True
    is_callers: bool = False
    text: str = ""
    last: Statement | None = None
    readers: list[Statement] = field(default_factory=list)
    over: Variable | None = None

    def __post_init__(self) -> None:
        self.bases = self.bases or [self]
        self.root = self
        self.size = prod(self.shape)

    def is_alone(self) -> bool:
        """Whether it shows all of one array that a statement made, and that the step lets go of."""
        base, *others = self.bases
        return not (others or base.stays) and base.size == self.size

    def can_go_over(self, x: Variable) -> bool:
        """Whether it may be written where x lies, after which nobody reads x."""
        form = (self.shape, self.dtype, self.strides)
        return (
            bool(self.shape and self.size)
            and form == (x.shape, x.dtype, x.strides)
            and x.is_alone()
        )

    def is_one_thing_with(self, x: Variable) -> bool:
        """Whether one name fits both: S_raw, S and S_masked are S."""
        return _stem(self.hint) == _stem(x.hint)


def _stem(hint: str) -> tuple[bool, str]:
    return hint.startswith("d_"), hint.removeprefix("d_").partition("_")[0]


@dataclass(slots=True, eq=False)
class Statement:
    """A statement of the program.

    Attributes:
        form: Python, with {} for each of `reads`.  made: what comes out.
        kind: "" if it only computes; "entrywise" if it may write its result over what it reads;
            "whole", of a kernel or rule; "effect"; "keep", of what it reads; "grad", as `.grad`.
        line: of the tape, which it is a part of.
        name, args: the NumPy function that it calls, and its arguments, as in the form.
    """

    form: str
    reads: list[Variable]
    made: list[Variable]
    line: TapeLine
    kind: str = ""
    name: str = ""
    args: Sequence[str] = ()

    def operands(self) -> list[Variable]:
        """In whose place the result may be written."""
        if self.kind == "entrywise":
            return self.reads
        is_masked = self.name == "where" and [*self.args[:2]] == ["{}", "{}"]
        if is_masked and self.reads[0].dtype == np.bool_:
            return [x for x in self.reads[1:2] if x.is_one_thing_with(self.made[0])]
        return []

    @property
    def over(self) -> Variable | None:
        """In whose place it is."""
        return self.made[0].over if self.made else None

    def text(self) -> str:
        reads = [x.root.text for x in self.reads]
        names = ", ".join([x.root.text for x in self.made])
        over = self.over
        sign = OPERATORS.get(self.name, "") if self.kind == "entrywise" else ""
        if over is None:
            form = f" {sign} ".join(self.args) if sign else self.form
            return (f"{names} = {form}" if names else form).format(*reads)
        place = over.root.text
        if self.kind != "entrywise":
            return f"np.copyto({place}, {self.args[2]}, where=~{reads[0]})".format(*reads[2:])
        if names == place and sign in AUGMENTED and self.reads[0] is over and self.args[0] == "{}":
            return f"{place} {sign}= {self.args[1]}".format(*reads[1:])
        call = f"{self.form[:-1]}, out={place})".format(*reads)
        return call if names == place else f"{names} = {call}"

    def is_inlined(self, following: Statement | None, moved: set[Variable]) -> bool:
        """Whether it needs no name: a view that is read once, or what the next one alone reads.

        Args: moved: Variables whose text stands for more than a view.
        """
        if self.kind or self.over is not None or len(self.made[0].readers) != 1:
            return False
        made = self.made[0]
        reader = made.readers[0]
        if self.name == "matmul" or self.form[-1] not in ")T]" or reader.over is made:
            return False
        is_view = made.bases[0] is not made
        if is_view and reader.line is self.line and moved.isdisjoint(self.reads):
            return True
        is_next = reader is following and (is_view or reader.form.startswith("{}."))
        if is_next:  # what it reads may be written over before another line
            moved.add(made)
        return is_next


# ---------------------------------------------------------------- names and plain values


class Names:
    """The names of a program, and the objects that it is handed by name."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.objects: dict[str, Any] = {"np": np}
        self._taken = {*taken, "np"}
        self._of: dict[int, str] = {}

    def fresh(self, hint: str) -> str:
        """A name that nothing else has."""
        base = re.sub(r"\W+", "_", hint).strip("_") or "t"
        base = f"x{base}" if base[0].isdigit() else base
        name = base
        n = 2
        while name in self._taken:
            name = f"{base}_{n}"
            n += 1
        self._taken.add(name)
        return name

    def bound(self, thing: Any, hint: str) -> str:
        """The name under which the program is handed an object."""
        if id(thing) not in self._of:
            self._of[id(thing)] = self.fresh(hint)
            self.objects[self._of[id(thing)]] = thing
        return self._of[id(thing)]

    def text(self, x: Any) -> str:
        """A plain value, or the name of an object."""
        if x.__class__ is float and not np.isfinite(x):
            return f"{x}".replace("inf", "np.inf").replace("nan", "np.nan")
        if x.__class__ in SHORT_KINDS or x.__class__ is slice:
            return "..." if x is ... else repr(x)
        if isinstance(x, type) and issubclass(x, np.generic):
            x = np.dtype(x)
        if isinstance(x, np.dtype) and x.isnative and x.kind in "biufc":
            return f"np.{x.name}"
        if isinstance(x, np.floating):
            limits = np.finfo(x.dtype)
            return self.bound(x, {limits.min: "lowest", limits.tiny: "tiny"}.get(x, "number"))
        if isinstance(x, np.ndarray):
            return self.bound(x, "ones" if (x == 1).all() else "constant")
        return self.bound(x, getattr(x, "__name__", type(x).__name__.lower()))


class Python(str):
    """Text that stands for itself in the `repr` of what holds it."""

    __repr__ = str.__str__
