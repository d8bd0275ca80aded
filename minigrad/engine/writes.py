"""Source locations, the event counter, and the log of in-place writes.

Nodes and writes share one counter: memory that was written after a node was made no longer holds
what the node saved, and backward raises an error.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .errors import OverwrittenError
from .listener import Listener, notify
from .sparse import is_basic
from .types import Arguments, Array

if TYPE_CHECKING:
    from .tensor import Node

__all__ = ["OUR_PACKAGES", "DataView", "SourceLocation", "caller", "next_number", "writes"]

next_number = count().__next__
OUR_PACKAGES = {"minigrad"} | {
    f"minigrad.{part}"
    for part in "engine ops optim recording distributed fast fast.compile fast.tiles".split()
}  # frames of these are never where a user made something


class SourceLocation:
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


def caller() -> SourceLocation:
    """Where the engine was called from."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") in OUR_PACKAGES and frame.f_back is not None:
        frame = frame.f_back
    return SourceLocation(frame.f_code, frame.f_lasti)


class _Writes:
    """When and where memory was last overwritten, by the array that owns the memory."""

    def __init__(self) -> None:
        self.latest = -1
        self._by_owner: dict[int, tuple[weakref.ref[Array], int, SourceLocation]] = {}

    @staticmethod
    def owner(array: Array) -> Array:
        """The array whose memory it is."""
        base = array.base
        while base is not None:
            if isinstance(base, np.ndarray):
                array = base
            base = getattr(base, "base", None)  # of what as_strided puts between two arrays, too
        return array

    def note(self, array: Array, place: SourceLocation) -> None:
        owner = self.owner(array)
        key = id(owner)
        known = self._by_owner.get(key)
        forget = known[0] if known else weakref.ref(owner, lambda _: self._by_owner.pop(key, None))
        self.latest = next_number()
        self._by_owner[key] = (forget, self.latest, place)

    def when(self, array: Array) -> int:
        """The number of the latest write to its memory, -1 if there was none."""
        return self._by_owner.get(id(self.owner(array)), (None, -1))[1]

    def check(self, node: Node, saved: Arguments) -> None:
        """Raise OverwrittenError if anything that `node` saved was written after it was made."""
        for name, value in zip(node.plan.saves, saved, strict=True):
            self.check_since(node.seq, node, name, value)

    def check_since(self, began: int, node: Node, name: str, value: object) -> None:
        """Raise OverwrittenError if `value`, `node`'s `name`, was written after number `began`."""
        if isinstance(value, np.ndarray):
            _, number, place = self._by_owner.get(id(self.owner(value)), (None, -1, None))
            if number > began:
                raise OverwrittenError(
                    f"backward of {node.path}: {name} {value.shape} was overwritten "
                    "after it was saved\n"
                    f"  saved by {node.op.name} at {node.place}\n"
                    f"  overwritten at {place}"
                )


writes = _Writes()


class DataView(np.ndarray[Any, Any]):
    """`x.data`: read-only to NumPy, but `x.data[i] = v` and `x.data += v` write, and are noted.

    A graph that saved these entries refuses to run backward with the new ones.
    """

    written: Array | None = None  # where to write: the tensor's array or its slice; None of a copy

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Arguments = (), **settings: Any
    ) -> Any:
        """Runs on plain arrays. `np.add.at(x.data, ...)` is a write: it ignores read-only flags."""
        if method == "at" and inputs[0] is self and self.written is not None:
            notify(Listener.memory_overwritten, self.written)
            ufunc.at(self.written, *inputs[1:])
            writes.note(self.written, caller())
            return None
        arrays = [x.view(np.ndarray) if x.__class__ is DataView else x for x in inputs]
        if out:
            settings["out"] = tuple([np.asarray(x) if x is not None else x for x in out])
        return getattr(ufunc, method)(*arrays, **settings)

    def __array_wrap__(
        self, array: Array, context: object = None, return_scalar: bool = False
    ) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if found.__class__ is DataView and not is_basic(index):
            return np.asarray(found)  # a copy
        if found.__class__ is DataView and self.written is not None:
            found.written = self.written[index]
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.written is None:
            super().__setitem__(index, value)
        else:
            notify(Listener.memory_overwritten, self.written)
            self.written[index] = value
            writes.note(self.written, caller())

    def __reduce__(self) -> str | tuple[Any, ...]:
        return np.asarray(self).__reduce__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))


def _in_place(ufunc: np.ufunc) -> Callable[[DataView, ArrayLike], DataView]:
    def operator(self: DataView, other: ArrayLike) -> DataView:
        target = np.asarray(self if self.written is None else self.written)
        if self.written is not None:
            notify(Listener.memory_overwritten, target)
        ufunc(target, other, out=target)
        if self.written is not None:
            writes.note(target, caller())
        return self

    return operator


for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "floordiv": np.floor_divide, "pow": np.power, "mod": np.remainder,
}.items():  # fmt: skip
    setattr(DataView, f"__i{_name}__", _in_place(_ufunc))
