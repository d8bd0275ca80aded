"""Which Value of the program an array or Tensor of the recorded run is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref
from zlib import crc32

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...engine.tensor import Tensor
from .dependencies import Dependencies
from .program import Program, Step, Value, address, lies
from .symbol import Symbol
from .watched import plain

__all__ = ["ValueMap", "cut"]


def cut(array: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """Part of an array, from so many bytes on."""
    if array.flags.c_contiguous:
        return np.ndarray(shape, array.dtype, array, offset, strides)
    start = [slice(None)] * array.ndim
    for axis in sorted(range(array.ndim), key=lambda a: -array.strides[a]):
        if array.strides[axis] > 0:
            first, offset = divmod(offset, array.strides[axis])
            start[axis] = slice(first, None)
    return np.lib.stride_tricks.as_strided(array[tuple(start)], shape, strides)


def _within(array: Any, other: Any) -> bool:
    """Whether an array's entries lie between the first and the last of another's."""
    (low, high), (first, last) = byte_bounds(array), byte_bounds(other)
    return bool(first <= low and high <= last)


def _is_all_of(view: Any, array: Any) -> bool:
    """Whether a view shows all of an array, as it is."""
    forms = [(address(x), x.shape, x.strides, x.dtype) for x in (view, array)]
    return forms[0] == forms[1]


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
        self.fixed, self.fresh, self.names = found.things, fresh, names
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
        everything = [*self.fixed.values(), *(value for _, value in self.fresh.values())]
        return [thing for thing in everything if isinstance(thing, Tensor)]

    def is_outside(self, thing: Any) -> bool:
        return id(thing) in self.fixed or id(thing) in self.fresh

    def place(self, tensor: Tensor) -> str | None:
        """The expression of an argument, None for what stays."""
        return self.fresh[id(tensor)][0] if id(tensor) in self.fresh else None

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
        if item.__class__ is Tensor:
            return Symbol(self.program, self._of_tensor(item), item._data)
        if isinstance(item, np.ndarray):
            value = self._of_array(item)
            bare = plain(item)
            return bare if value.kind == "constant" else Symbol(self.program, value, bare)
        if item.__class__ in (tuple, list):
            return item.__class__(map(self.symbol_of, item))
        return item

    def written(self) -> bool:
        """Whether the step wrote into an array that comes from outside."""
        return any(checksum(array) != before for array, before in self._sums)

    def _of_tensor(self, tensor: Tensor) -> Value:
        array = tensor._data
        known = self._known.get(id(array))
        if known is not None:
            if self.is_outside(tensor):
                self.leaves[id(tensor)] = tensor
            return known[1]
        if tensor._node is not None:
            if tensor._needs or not self.is_outside(tensor):
                self.refuse("a tensor with a graph of its own comes from outside", "detach() it")
            return self._of_array(array)
        if not self.is_outside(tensor):  # what it shares memory with may be known
            owner = self._whole.get(id(array))
            if owner is not None or self._base_of(array) is not None:
                return self._of_array(array)
        self.leaves[id(tensor)] = tensor
        expression = self.place(tensor)
        kind, what = ("leaf", tensor) if expression is None else ("argument", f"{expression}._data")
        value = Value(kind, what, array.shape, array.dtype)
        value.name = tensor.name or self.names.get(id(tensor))
        return self.know(array, value)

    def _of_array(self, array: Any) -> Value:
        known = self._known.get(id(array))
        if known is not None:
            return known[1]
        if id(array) in self._whole:
            return self._of_tensor(self._whole[id(array)])
        if id(array) not in self.fixed and id(array) not in self.fresh:
            entry = self.entry_of(array)
            if entry is not None:
                return entry
            owner = self._base_of(array)
            if owner is not None:
                return self._as_view(array, owner)
            self._sums.append((array, checksum(array)))
            return self.constant(array)
        self._sums.append((array, checksum(array)))
        if id(array) in self.fixed:
            value = Value("captured", array, array.shape, array.dtype)
        else:
            value = Value("argument", self.fresh[id(array)][0], array.shape, array.dtype)
        value.name = self.names.get(id(array))
        return self.know(array, value)

    def _outside_at(self, array: Any) -> tuple[list[Any], list[Any]]:
        """The arrays that share memory with an array: arguments, and those that stay."""
        both = [value for _, value in self.fresh.values()], self.fixed.values()
        whole = ([x._data if isinstance(x, Tensor) else x for x in things] for things in both)
        arguments, others = (
            [x for x in xs if isinstance(x, np.ndarray) and np.may_share_memory(x, array)]
            for xs in whole
        )
        return arguments, others

    def _base_of(self, array: Any) -> Any:
        """What an array was cut from, if that is known or comes from outside."""
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
            if id(owner) in self._known or id(owner) in self._whole or self.is_outside(owner):
                return owner
            if self.entry_of(owner) is not None:
                return owner
        arguments, others = self._outside_at(array)
        near = arguments + others
        if not near:
            return None
        if len(near) != 1 or not _within(array, near[0]):
            why = "an array lies in memory that several arguments share"
            self.refuse(why, "pass copies")
        return near[0]  # of what is cut from a view, NumPy knows only the first owner

    def _as_view(self, array: Any, owner: Any) -> Value:
        """An array cut from one that is known: the same cut, whatever that one then holds."""
        arguments, others = self._outside_at(array)
        owner = next((x for x in arguments if _is_all_of(owner, x)), owner)
        changing = arguments + others if any(x is owner for x in arguments) else arguments
        remedy = "cut it from the argument within the step"
        if any(x is not owner for x in changing):
            why = "an array may be cut from an argument, or from another that it is part of"
            self.refuse(why, remedy)
        base = self._of_array(owner)
        if array.dtype != owner.dtype:
            self.refuse("an array is seen as another dtype", "use astype")
        offset = address(array) - address(owner)
        if (array.shape, array.strides, offset) == (owner.shape, owner.strides, 0):
            return self.know(array, base)
        if not lies(owner, base):
            self.refuse("an array is cut from one whose axes lie in an order of their own", remedy)
        if address(cut(plain(owner), array.shape, array.strides, offset)) != address(array):
            self.refuse("an array is cut from another in a way that cannot be told", remedy)
        step = Step("view", "cut", cut, (base, array.shape, array.strides, offset))
        (value,) = self.program.add(step, (array.shape, array.dtype))
        value.strides, value.offset = array.strides, base.offset + offset
        return self.know(array, value)


def checksum(array: Any) -> int:
    """Of an array's bytes: of some rows, if there are millions; 0 for an array of objects."""
    if array.dtype.hasobject or not array.size:
        return 0
    rows = np.atleast_1d(plain(array))[:: 1 + (array.nbytes >> 20)]
    return crc32(np.ascontiguousarray(rows).tobytes())
