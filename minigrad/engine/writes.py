"""In-place writes: memory that was written after a node saved it makes backward raise an error.

Nodes and writes are numbered by one counter. A write is noted by the array that owns the memory, so
that views count as what they are views of.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from types import CodeType
from typing import Any

import numpy as np

from .errors import OverwrittenError
from .op import Array, owner_of

__all__ = ["Place", "caller", "writes"]

next_number = count().__next__
OUR_PACKAGES = {"minigrad"} | {
    f"minigrad.{room}"
    for room in ("engine", "ops", "optim", "record", "fast", "fast.compile", "distributed")
}  # frames of these packages are never where a user made something


class Place:
    """A position in a program: a code object and an offset in it, decoded only when shown."""

    __slots__ = ("code", "offset")

    def __init__(self, code: CodeType, offset: int) -> None:
        self.code, self.offset = code, offset

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def line(self) -> int:
        return _lines(self.code)[self.offset // 2] or self.code.co_firstlineno

    def __str__(self) -> str:
        file = os.path.relpath(self.file) if os.path.isabs(self.file) else self.file
        return f"{file}:{self.line}"


@lru_cache(maxsize=16)
def _lines(code: CodeType) -> list[int | None]:
    """The line of each instruction of a code object."""
    return [position[0] for position in code.co_positions()]


def caller() -> Place:
    """Where the engine was called from: the innermost frame that is not of our packages."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") in OUR_PACKAGES and frame.f_back is not None:
        frame = frame.f_back
    return Place(frame.f_code, frame.f_lasti)


class _Writes:
    """When and where memory was last overwritten, by the array that owns it."""

    def __init__(self) -> None:
        self.latest = -1
        self._by_owner: dict[int, tuple[weakref.ref[Array], int, Place]] = {}

    def note(self, array: Array, place: Place | None = None) -> None:
        """An array was written, at this place: where the engine was called from, unless given."""
        owner = owner_of(array)
        key = id(owner)
        gone = weakref.ref(owner, lambda _: self._by_owner.pop(key, None))
        self.latest = next_number()
        self._by_owner[key] = gone, self.latest, place or caller()

    def check(
        self, number: int, saved: Iterable[tuple[str, Any]], path: str, op: str, made: Place
    ) -> None:
        """Raise OverwrittenError if an array was written after the node of this number saved it."""
        for name, value in saved:
            for array in value if isinstance(value, tuple | list) else (value,):
                if not isinstance(array, np.ndarray):
                    continue
                _, written, place = self._by_owner.get(id(owner_of(array)), (None, -1, None))
                if written > number:
                    raise OverwrittenError(
                        f"backward of {path}: {name} {array.shape} was overwritten after it was "
                        f"saved\n  saved by {op} at {made}\n  overwritten at {place}\n"
                        "  run forward again; what an earlier step left goes in by .detach()"
                    )


writes = _Writes()
