"""Which Value of the program an array or Tensor of the recorded run is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref
from zlib import crc32

import numpy as np

from ...engine.followed import plain
from ...engine.tensor import Tensor
from .dependencies import Dependencies
from .program import Program, Step, Value, address, is_whole
from .symbol import Symbol

__all__ = ["ValueMap"]


def cut(array: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """Part of an array without gaps, from so many bytes on."""
    return np.ndarray(shape, array.dtype, array, offset, strides)


class ValueMap:
    """The Values of Tensors and arrays, by identity.

    What is not known and comes from outside is read at each call. An array that NumPy made within
    the step, of nothing that is known, is a constant.

    Args:
        fresh: the Tensors and arrays among the arguments: expression and thing, by id.
        refuse: is told why, and what to do, when something cannot be known.
    Attributes:
        leaves: every Tensor that the program reads or writes and did not make, by id.
        entry_of: gives the Value of what some leaf's `.grad` was at the start.
    """

    def __init__(
        self,
        program: Program,
        found: Dependencies,
        fresh: dict[int, tuple[str, Any]],
        names: dict[int, str],
        refuse: Callable[..., None],
    ) -> None:
        self.program, self.refuse = program, refuse
        self.fixed = found.things
        self.fresh = fresh
        self.names = names
        self.leaves: dict[int, Tensor] = {}
        self.entry_of: Callable[[Any], Value | None] = lambda array: None
        self._sums: list[tuple[Any, int]] = []  # arrays from outside, and checksums of them
        self._known: dict[int, tuple[Any, Value]] = {}  # by id of the array, while that lives
        self._whole: dict[int, Tensor] = {}  # the Tensor that an array is the whole of
        for tensor in self.tensors():
            other = self._whole.setdefault(id(tensor._data), tensor)
            if other is not tensor and (id(tensor) in fresh or id(other) in fresh):
                refuse("two tensors share one array", "pass one of them")
        for _, argument in fresh.values():
            if isinstance(argument, np.ndarray) and argument.__class__ is not np.ndarray:
                refuse(f"an argument is a {type(argument).__name__}", "pass np.asarray of it")

    def tensors(self) -> list[Tensor]:
        """Every Tensor the step can reach."""
        return [x for x in (*self.fixed.values(), *self._arguments()) if isinstance(x, Tensor)]

    def _arguments(self) -> list[Any]:
        return [thing for _, thing in self.fresh.values()]

    def is_outside(self, thing: Any) -> bool:
        return id(thing) in self.fixed or id(thing) in self.fresh

    def place(self, tensor: Tensor) -> str | None:
        """The expression of an argument, None for what stays."""
        return self.fresh[id(tensor)][0] if id(tensor) in self.fresh else None

    def placed(self, tensor: Tensor) -> str | None:
        """The same; the program depends on this tensor."""
        self.leaves[id(tensor)] = tensor
        return self.place(tensor)

    def know(self, array: Any, value: Value) -> Value:
        if value.kind != "step":
            value.strides = array.strides
        known, key = self._known, id(array)
        known[key] = ref(array, lambda _: known.pop(key, None)), value
        return value

    def known(self, array: Any) -> Value | None:
        found = self._known.get(id(array))
        return found[1] if found is not None else None

    def is_shared(self, array: Any) -> bool:
        """Whether another array that is known lies in the same memory."""
        others = [held() for held, _ in list(self._known.values())]
        others = [x for x in others if x is not None and x is not array and x is not array.base]
        return any(np.may_share_memory(x, array) for x in others)

    def constant(self, array: Any) -> Value:
        return self.know(array, self.program.constant(array))

    def value_of(self, item: Any) -> Value:
        """The Value of a Tensor or array."""
        return self._of_tensor(item) if item.__class__ is Tensor else self._of_array(item)

    def symbol_of(self, item: Any) -> Any:
        """What a kernel is handed in place of a Tensor or array; anything else as it is."""
        if item.__class__ in (tuple, list):
            return item.__class__(map(self.symbol_of, item))
        if item.__class__ is not Tensor and not isinstance(item, np.ndarray):
            return item
        value, array = self.value_of(item), _array(item)
        bare = value.kind == "constant" and item.__class__ is not Tensor
        return plain(array) if bare else Symbol(self.program, value, plain(array))

    def written(self) -> bool:
        """Whether the step wrote into an array that comes from outside."""
        return any(_checksum(array) != before for array, before in self._sums)

    def _of_tensor(self, tensor: Tensor) -> Value:
        array, outside = tensor._data, self.is_outside(tensor)
        known = self.known(array)
        if known is None and tensor._node is not None:
            if tensor._needs or not outside:
                self.refuse("a tensor with a graph of its own comes from outside", "detach() it")
            return self._of_array(array)
        if known is None and not outside and self._owner(array) is not None:
            return self._of_array(array)
        if known is None or outside:
            self.leaves[id(tensor)] = tensor
        if known is not None:
            return known
        place = self.place(tensor)
        kind, what = ("leaf", tensor) if place is None else ("argument", f"{place}._data")
        return self._input(array, kind, what, tensor.name or self.names.get(id(tensor)))

    def _of_array(self, array: Any) -> Value:
        known = self.known(array)
        if known is not None:
            return known
        if id(array) in self._whole:
            return self._of_tensor(self._whole[id(array)])
        if not self.is_outside(array):
            entry = self.entry_of(array)
            owner = self._owner(array) if entry is None else None
            if entry is not None or owner is not None:
                return entry or self._cut(array, owner)
            self._sums.append((array, _checksum(array)))
            return self.constant(array)
        self._sums.append((array, _checksum(array)))
        fixed, name = id(array) in self.fixed, self.names.get(id(array))
        what = array if fixed else self.fresh[id(array)][0]
        return self._input(array, "captured" if fixed else "argument", what, name)

    def _input(self, array: Any, kind: str, what: Any, name: str | None) -> Value:
        value = Value(kind, what, array.shape, array.dtype)
        value.name = name
        return self.know(array, value)

    def _owner(self, array: Any) -> Any:
        """What an array shows a part of: what was computed, or something from outside."""
        owner = array.base
        while isinstance(owner, np.ndarray) and not self.is_outside(owner):
            known = self.known(owner) or self.entry_of(owner)
            if known is not None and known.kind in ("step", "grad"):
                return owner
            owner = owner.base
        arguments, others = (
            [x for x in map(_array, things) if _shares(x, array)]
            for things in (self._arguments(), self.fixed.values())
        )
        if arguments and len(arguments + others) > 1:
            self.refuse("an array lies in memory that several arguments share", "pass copies")
        return next(iter(arguments + others), None)

    def _cut(self, array: Any, owner: Any) -> Value:
        """An array cut from one that is known: the same cut, whatever that one then holds."""
        base, offset = self._of_array(owner), address(array) - address(owner)
        for held, value in list(self._known.values()):
            if (other := held()) is not None and _form(other) == _form(array):
                return self.know(array, value)
        if base.kind in ("captured", "constant"):
            return self._input(array, base.kind, array, None)
        if array.dtype != owner.dtype:
            self.refuse("an array is seen as another dtype", "use astype")
        inside = 0 <= offset and offset + np.lib.array_utils.byte_bounds(array)[1] - address(array)
        if not (owner.flags.c_contiguous and is_whole(base) and inside <= owner.nbytes):
            why = "an array is cut from one whose axes lie in an order of their own"
            self.refuse(why, "cut it from the argument within the step")
        step = Step("view", "cut", cut, (base, array.shape, array.strides, offset))
        (value,) = self.program.add(step, (array.shape, array.dtype))
        value.strides, value.offset = array.strides, base.offset + offset
        return self.know(array, value)


def _array(thing: Any) -> Any:
    return thing._data if thing.__class__ is Tensor else thing


def _shares(other: Any, array: Any) -> bool:
    return isinstance(other, np.ndarray) and np.may_share_memory(other, array)


def _form(array: Any) -> tuple[Any, ...]:
    return array.shape, array.strides, array.dtype, address(array)


def _checksum(array: Any) -> int:
    """Of an array's bytes: of some rows, if there are millions; 0 for an array of objects."""
    if array.dtype.hasobject or not array.size:
        return 0
    rows = np.atleast_1d(plain(array))[:: 1 + (array.nbytes >> 20)]
    return crc32(np.ascontiguousarray(rows).tobytes())
