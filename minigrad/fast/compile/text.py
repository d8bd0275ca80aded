"""Names and plain values as Python text."""

from __future__ import annotations

import keyword
import re
from typing import Any

import numpy as np

from .symbols import Literal

__all__ = ["Names", "fitted", "grouped", "stem", "typed", "window"]


class Names:
    """The names of a program, and the objects that it is handed by name."""

    def __init__(self, objects: dict[str, Any], taken: set[str]) -> None:
        self.objects = objects
        self._taken = taken | objects.keys()
        self._of: dict[int, str] = {}

    def fresh(self, hint: str) -> str:
        """A name that nothing else has."""
        base = re.sub(r"\W", "_", hint).strip("_") or "t"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"x{base}"
        name = base
        n = 2
        while name in self._taken:
            name = f"{base}_{n}"
            n = n + 1
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
        if isinstance(x, Literal):
            return str(x)
        if x.__class__ in (tuple, list):
            inner = [self.text(part) for part in x]
            return grouped(inner) if x.__class__ is tuple else f"[{', '.join(inner)}]"
        if isinstance(x, np.dtype):
            return typed(x)
        if x.__class__ is float and not np.isfinite(x):
            return {np.inf: "np.inf", -np.inf: "-np.inf"}.get(x, "np.nan")
        if x is None or x is ... or x.__class__ in (bool, int, float, str):
            return "..." if x is ... else repr(x)
        if isinstance(x, slice):
            return f"slice({x.start}, {x.stop}, {x.step})"
        if isinstance(x, np.floating):
            limits = np.finfo(x.dtype)
            return self.bound(x, {limits.min: "lowest", limits.tiny: "tiny"}.get(x, "number"))
        if isinstance(x, np.ndarray):
            return self.bound(x, "ones" if (x == 1).all() else "constant")
        return self.bound(x, getattr(x, "__name__", type(x).__name__.lower()))


def grouped(parts: list[str]) -> str:
    """A tuple of these."""
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def typed(dtype: Any) -> str:
    return f"np.{dtype.name}" if dtype.kind in "fiu" else f"np.dtype({dtype.str!r})"


def stem(hint: str) -> tuple[bool, str]:
    """What names of one thing share: S_raw, S and S_masked are S."""
    return hint.startswith("d_"), hint.removeprefix("d_").partition("_")[0]


def fitted(parts: Any, wanted: list[Any]) -> list[Any]:
    """Gradients that a rule gave, each summed over what was broadcast and cast."""
    parts = parts if parts.__class__ is tuple else (parts,)
    found: list[Any] = []
    for part, want in zip(parts, wanted, strict=True):
        if want is None or part is None:
            found.append(None)
            continue
        shape, dtype = want
        part = part.onto(None) if hasattr(part, "onto") else np.asarray(part)
        if part.shape != shape:
            extra = part.ndim - len(shape)
            axes = [
                i for i in range(part.ndim) if i < extra or shape[i - extra] == 1 != part.shape[i]
            ]
            wide = np.float32 if part.dtype.char == "e" else None
            part = part.sum(axis=tuple(axes), dtype=wide).reshape(shape)
        found.append(part.astype(dtype, copy=False))
    return found


class _Interface:
    """What NumPy needs to know of memory to make an array of it."""

    def __init__(self, base: Any, start: int, shape: Any, strides: Any) -> None:
        told = base.__array_interface__
        place = (told["data"][0] + start, told["data"][1])
        self.base = base
        self.__array_interface__ = told | {"data": place, "shape": shape, "strides": strides}


def window(x: Any, start: int, shape: Any, strides: Any) -> Any:
    """A view of an array that may have gaps: `start` bytes after its first entry."""
    return np.asarray(_Interface(x, start, shape, strides))
