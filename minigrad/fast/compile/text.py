"""Names and plain values as Python text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["Names", "Python"]

SHORT_KINDS = (bool, int, float, str, type(None), type(...), slice)  # whose repr is Python


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
        if x.__class__ in SHORT_KINDS:
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
