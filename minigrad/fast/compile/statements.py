"""Statements of the program, and the names in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .bindings import PLAIN_KINDS
from .lines import TapeLine, Value, leaves_of, mapped

__all__ = ["Names", "Python", "Statement"]


@dataclass(eq=False)
class Statement:
    """A statement of the program.

    Attributes:
        form: Python, with {0} and so on for its arguments.
        args: Values and plain values, in tuples and lists.  reads: the Values among them.
        made: what comes out.
        line: of the tape, which it is a part of.
        has_effect: whether it does more than compute.
        ufunc: the name of NumPy's function, if it computes entry by entry.
    """

    form: str
    args: Sequence[Any]
    made: list[Any]
    line: TapeLine
    has_effect: bool = False
    ufunc: str = ""

    def __post_init__(self) -> None:
        self.reads = [x for _, x in leaves_of((*self.args,), "") if isinstance(x, Value)]

    def text(self, names: Names, into: Value | None = None) -> str:
        """It as Python; of one whose result has no name, what it runs alone. A result may be
        written into an array.
        """
        args = [*map(names.text, self.args)]
        call = self.form.format(*args)
        if into is not None:
            call = f"np.{self.ufunc}({', '.join(args)}, out={into.text})"
        made = ", ".join([x.text for x in self.made])
        return f"{made} = {call}" if made else call

    def place(self) -> Statement:
        """The statement in whose text it stands: itself, unless it is inlined."""
        return self.made[0].readers[0].place() if self.is_inlined() else self

    def is_inlined(self) -> bool:
        """Whether it is written where it is read: once, within its line; but no operator is."""
        if self.has_effect or len(self.made[0].readers) != 1:
            return False
        return self.made[0].readers[0].line is self.line and self.form[-1] != "}"


# ---------------------------------------------------------------- names and plain values


class Names:
    """The names of a program, and the objects that it is handed by name."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.objects: dict[str, Any] = {"np": np, "inf": np.inf, "nan": np.nan}
        self._taken = {*taken, *self.objects}
        self._of: dict[int, str] = {}

    def fresh(self, hint: str) -> str:
        """A name that nothing else has."""
        base = re.sub(r"\W+|^(?=\d)", "_", hint) or "t"
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
        """Python for what is passed."""
        return repr(mapped(x, lambda leaf: Python(self._leaf(leaf))))

    def _leaf(self, x: Any) -> str:
        """A Value, a plain value, or the name of an object."""
        if isinstance(x, Value):
            return x.text
        if isinstance(x, Python):
            return x
        if isinstance(x, np.dtype):
            return f"np.{x.name}" if x.isnative else f"np.dtype({x.str!r})"
        if x.__class__ in PLAIN_KINDS:
            return repr(x)
        kind = "ones" if isinstance(x, np.ndarray) and (x == 1).all() else type(x).__name__
        return self.bound(x, getattr(x, "__name__", kind))


class Python(str):
    """Text that stands for itself in the `repr` of what holds it."""

    __repr__ = str.__str__
