"""In-place writes: memory that was written after a node saved it makes backward raise an error.

Nodes and writes are numbered by one counter. A write is noted by the array that owns the memory, so
that views count as what they are views of.
"""

from __future__ import annotations

import os
import sys
import weakref
from functools import lru_cache
from itertools import count
from types import CodeType
from typing import NamedTuple

from .op import Array, owner_of, users_frame

__all__ = ["Place", "caller", "writes"]

next_number = count().__next__


class Place(NamedTuple):
    """A position in a program: a code object and an offset in it, decoded only when shown."""

    code: CodeType
    offset: int

    @property
    def line(self) -> int:
        return _lines(self.code)[self.offset // 2] or self.code.co_firstlineno

    def __str__(self) -> str:
        return f"{os.path.relpath(self.code.co_filename)}:{self.line}"


@lru_cache(maxsize=16)
def _lines(code: CodeType) -> list[int | None]:
    """The line of each instruction of a code object."""
    return [position[0] for position in code.co_positions()]


def caller() -> Place:
    """Where a user's code called the engine."""
    frame = users_frame(sys._getframe(1))
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

    def since(self, number: int, array: Array) -> Place | None:
        """Where an array was last written, if that was after the node of this number was made."""
        _, written, place = self._by_owner.get(id(owner_of(array)), (None, -1, None))
        return place if written > number else None


writes = _Writes()
