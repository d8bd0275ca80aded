"""Which Value of the program an array, a Tensor or a `.grad` of the recorded run is, and what NumPy
computes of them outside the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from weakref import WeakValueDictionary, ref
from zlib import crc32

import numpy as np

from ...engine.followed import Followed, Follower, plain
from ...engine.tensor import Tensor, TensorOrArray
from ...engine.types import Array, DType, Kernel
from ...engine.writes import DataView
from .compare import difference
from .dependencies import Dependencies
from .program import (
    ExistingTensor,
    Program,
    ProgramStep,
    Value,
    address,
    has_layout,
    is_whole,
    nbytes,
    root,
    substitute,
)
from .symbol import Symbol, Untraceable

__all__ = ["Gradients", "OutsideOps", "ValueMap", "form", "is_same_view"]

View: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], DType, int]
_AS_ARRAY = "write it as an op of minigrad, or pass the number as an argument"
_RETURNED = f"{_AS_ARRAY}; to print or keep a result, return it and look at it after the call"


def cut(array: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """Part of an array without gaps, from so many bytes on."""
    return np.ndarray(shape, array.dtype, array, offset, strides)


class ValueMap:
    """The Values of Tensors and arrays, by identity.

    What is not known and comes from outside is read at each call. An array that NumPy made within
    the step, of nothing that is known, is a constant.

    Args:
        fresh: the Tensors and arrays among the arguments: expression and thing, by id.
        refuse: called with the reason and the remedy when something cannot be known.
    Attributes:
        leaves: every Tensor that the program reads or writes and did not make, by id.
        entry_of: gives the Value of what some leaf's `.grad` was at the start.
        cuts: what the step has cut from arguments, by the entries that it shows.
    """

    def __init__(
        self,
        program: Program,
        found: Dependencies,
        fresh: dict[int, tuple[str, Tensor | Array]],
        names: dict[int, str],
        refuse: Callable[..., None],
    ) -> None:
        self.program, self.refuse = program, refuse
        self.fixed = found.things
        self.fresh = fresh
        self.names = names
        self.leaves: dict[int, Tensor] = {}
        self.entry_of: Callable[[Array], Value | None] = lambda array: None
        self._sums = [(x, _checksum(x)) for x in found.arrays()]  # of arrays from outside
        self.cuts: dict[View, list[Value]] = {}
        self._known: dict[int, tuple[ref[Array], Value]] = {}  # by id, while the array lives
        self._whole: dict[int, Tensor] = {}  # the Tensor that an array is the whole of
        for tensor in self.tensors():
            other = self._whole.setdefault(id(tensor._data), tensor)
            if other is not tensor and (id(tensor) in fresh or id(other) in fresh):
                refuse("two tensors share one array", "pass one of them")
        for _, argument in fresh.values():
            known = np.ndarray, DataView, Tensor
            if argument.__class__ not in known and isinstance(argument, np.ndarray):
                refuse(f"an argument is a {type(argument).__name__}", "pass np.asarray of it")

    def tensors(self) -> list[Tensor]:
        """Every Tensor the step can reach."""
        return [x for x in (*self.fixed.values(), *self._arguments()) if isinstance(x, Tensor)]

    def _arguments(self) -> list[Tensor | Array]:
        return [thing for _, thing in self.fresh.values()]

    def is_outside(self, thing: object) -> bool:
        return id(thing) in self.fixed or id(thing) in self.fresh

    def existing(self, tensor: Tensor) -> ExistingTensor:
        return ExistingTensor(tensor, self.fresh.get(id(tensor), (None,))[0])

    def depend_on(self, tensor: Tensor) -> ExistingTensor:
        self.leaves[id(tensor)] = tensor
        return self.existing(tensor)

    def know(self, array: Array, value: Value) -> Value:
        if value.kind != "step":
            value.strides = array.strides
        known, key = self._known, id(array)
        known[key] = ref(array, lambda _: known.pop(key, None)), value
        return value

    def known(self, array: object) -> Value | None:
        found = self._known.get(id(array))
        return found[1] if found is not None else None

    def is_shared(self, array: Array) -> bool:
        """Whether it shows what is no result of the step, or another known array shares its memory,
        other than the owner of that, which holds the same entries in the same order.
        """
        own = self.known(array)
        if own is None or root(own).kind != "step":
            return True
        same = is_whole(own) and is_whole(root(own)) and nbytes(own) == nbytes(root(own))
        return any(
            value is not own and not (same and value is root(own) and x is array.base)
            for x, value in self._in_memory_of(array)
        )

    def written_as(self, array: Array, new: Symbol) -> None:
        """An array of the step was overwritten by a new one: so is all that shows it."""
        for other, _ in self._in_memory_of(array):
            self.know(other, (new if other.shape == new.shape else new.reshape(other.shape)).value)

    def _in_memory_of(self, array: Array) -> list[tuple[Array, Value]]:
        """The known arrays that share an array's memory, itself among them."""
        known = [(held(), value) for held, value in list(self._known.values())]
        return [(x, v) for x, v in known if x is not None and np.may_share_memory(x, array)]

    def constant(self, array: Array) -> Value:
        return self.know(array, self.program.constant(array))

    def value_of(self, item: TensorOrArray) -> Value:
        """The Value of a Tensor or array."""
        return self._of_tensor(item) if isinstance(item, Tensor) else self._of_array(item)

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
        name = tensor.name or self.names.get(id(tensor))
        if id(tensor) not in self.fresh:
            return self._input(array, "leaf", tensor, name)
        return self._input(array, "argument", f"{self.fresh[id(tensor)][0]}._data", name)

    def _of_array(self, array: Array) -> Value:
        known = self.known(array)
        if known is not None:
            return known
        if id(array) in self._whole:
            return self._of_tensor(self._whole[id(array)])
        outside = self.is_outside(array)
        if not outside and (entry := self.entry_of(array)) is not None:
            return entry
        for x in self._arguments():  # the view as which the step is given it: no cut of another
            if array.__class__ is Followed and array.base is x and is_same_view(x, array):
                return self.know(array, self._of_array(x))
        if not outside and (owner := self._owner(array)) is not None:
            return self._cut(array, owner)
        self._sums.append((array, _checksum(array)))
        if not outside:
            return self.constant(array)
        name = self.names.get(id(array))
        if id(array) in self.fixed:
            return self._input(array, "captured", array, name)
        return self._input(array, "argument", self.fresh[id(array)][0], name)

    def _input(self, array: Array, kind: str, what: object, name: str | None) -> Value:
        value = Value(kind, what, array.shape, array.dtype)
        value.name = name
        return self.know(array, value)

    def _owner(self, array: Array) -> Array | None:
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
            if others or self._only_one_with_view(array) is None:
                self.refuse("an array lies in memory that several arguments share", "pass copies")
        return next(iter(arguments + others), None)

    def _only_one_with_view(self, array: Array) -> Value | None:
        """What shows these very entries of an argument's memory: an argument or what the step has
        cut from one; None unless that is one Value. Arguments may be windows of one array.
        """
        given = [x for x in self._arguments() if isinstance(x, np.ndarray)]
        found = [self._of_array(x) for x in given if is_same_view(x, array)]
        found += self.cuts.get(_view_of(array), [])
        return found[0] if len(set(map(id, found))) == 1 else None

    def _cut(self, array: Array, owner: Array) -> Value:
        """An array cut from one that is known: the same cut, whatever that one then holds."""
        if (same := self._only_one_with_view(array)) is not None:
            return self.know(array, same)
        base, offset = self._of_array(owner), address(array) - address(owner)
        for held, value in list(self._known.values()):
            if (other := held()) is not None and is_same_view(other, array):
                return self.know(array, value)
        if base.kind in ("captured", "constant"):
            return self._input(array, base.kind, array, None)
        if array.dtype != owner.dtype:
            self.refuse("an array is seen as another dtype", "use astype")
        inside = 0 <= offset and offset + np.lib.array_utils.byte_bounds(array)[1] - address(array)
        if not (owner.flags.c_contiguous and is_whole(base) and inside <= owner.nbytes):
            why = "an array is cut from one whose axes lie in an order of their own"
            self.refuse(why, "cut it from the argument within the step")
        step = ProgramStep("view", "cut", cut, (base, array.shape, array.strides, offset))
        (value,) = self.program.add(step, (array.shape, array.dtype))
        value.strides, value.offset = array.strides, base.offset + offset
        return self.know(array, value)


def _array(thing: Any) -> Any:
    return thing._data if thing.__class__ is Tensor else thing


def _shares(other: object, array: Array) -> bool:
    return isinstance(other, np.ndarray) and np.may_share_memory(other, array)


def is_same_view(array: Array, other: Array) -> bool:
    """Whether two arrays show the same entries of the same memory."""
    return _view_of(array) == _view_of(other)


def _view_of(array: Array) -> View:
    return array.shape, array.strides, array.dtype, address(array)


def _checksum(array: Array) -> int:
    """Of an array's bytes: of some rows, if there are millions; 0 for an array of objects."""
    if array.dtype.hasobject or not array.size:
        return 0
    rows = np.atleast_1d(plain(array))[:: 1 + (array.nbytes >> 20)]
    return crc32(np.ascontiguousarray(rows).tobytes())


# ---------------------------------------------------------------- what `.grad` holds


def form(gradient: Array | None) -> tuple[tuple[int, ...], ...] | None:
    """What a program needs to know of a `.grad` that it reads."""
    return None if gradient is None else (gradient.shape, gradient.strides)


class _LeafGradient:
    """One leaf's.

    Attributes:
        before: what it was at the start, as the caller has it.
        entry: the same as a followed array.  set_to: what the program has set it to, so far.
        settled: whether `needed` says already what it was at the start, or that does not matter.
    """

    __slots__ = ("before", "entry", "leaf", "set_to", "settled")

    def __init__(self, leaf: Tensor) -> None:
        self.leaf = leaf
        self.before: Any = leaf.grad
        self.entry = self.before.view(Followed) if type(self.before) is np.ndarray else self.before
        leaf.grad = self.entry
        self.set_to: Any = self.entry
        self.settled = False

    @property
    def is_untouched(self) -> bool:
        return self.set_to is self.entry


class Gradients:
    """Those of every leaf that a step reaches, as followed arrays.

    Attributes:
        needed: the form of what `.grad` was at the start, where that matters, by the leaf's id.
    """

    def __init__(self, values: ValueMap) -> None:
        self.values = values
        self.needed: dict[int, tuple[tuple[int, ...], ...] | None] = {}
        self._held = {id(leaf): _LeafGradient(leaf) for leaf in values.tensors()}

    def arrive(self, leaf: Tensor, total: Symbol) -> None:
        """What a backward sends to a leaf is added to its `.grad`."""
        outside = self.values.value_of(leaf).kind in ("leaf", "argument")
        if id(leaf) not in self._held:
            self._held[id(leaf)] = _LeafGradient(leaf)
        held = self._held[id(leaf)]
        if leaf.grad is None:
            if outside and held.entry is None and held.set_to is None and not held.settled:
                self.needed[id(leaf)] = form(None)
            made, array = total, np.array(total.array)
        else:
            made = np.add(self.values.symbol_of(leaf.grad), total)
            made.value.name = f"d_{leaf.name or 'w'}"
            array = np.asarray(plain(leaf.grad) + total.array)
        leaf.grad = array.view(Followed)
        self.values.know(leaf.grad, made.value)

    def cleared(self, parameters: Sequence[Tensor]) -> None:
        """The step set these gradients to None: before anything else, the program does so too.

        What `.grad` was at the start does not matter then, not even whether there was any.
        """
        forgotten = []
        for leaf in parameters:
            held = self._held.get(id(leaf))
            if held is not None and held.is_untouched and not held.settled:
                held.set_to, held.settled = None, True
                forgotten.append(self.values.depend_on(leaf))
        if forgotten:
            self.values.program.write("forget", forgotten)

    def entry(self, array: Array) -> Value | None:
        """The Value of an array that was some leaf's `.grad` at the start."""
        for held in self._held.values():
            if any(one is array for one in (held.before, held.entry, held.set_to)):
                self.values.value_of(held.leaf)
                value = Value("grad", self.values.depend_on(held.leaf), array.shape, array.dtype)
                if held.is_untouched:
                    held.settled = True
                    self.needed[id(held.leaf)] = form(array)
                    self.values.know(held.before, value)
                return self.values.know(held.set_to, value)
        return None

    def record(self) -> None:
        """The program sets each `.grad` to what the step has made of it."""
        for key, held in self._held.items():
            now, leaf = held.leaf.grad, held.leaf
            reached = key in self.values.leaves or self.values.is_outside(leaf)
            if now is held.set_to or not reached:
                continue
            if now is not None and not isinstance(now, np.ndarray):
                self.values.refuse("the step sets a .grad to something that is no array")
                continue
            existing, write = self.values.depend_on(leaf), self.values.program.write
            if now is None:
                write("clear", existing)
            else:
                write("grad", existing, self.values.value_of(now))
            held.set_to = now

    def make_plain(self) -> None:
        """Give the leaves plain arrays while an update runs."""
        for held in self._held.values():
            if isinstance(held.set_to, Followed):
                known = self.values.known(held.set_to)
                grad = held.before if held.is_untouched else plain(held.set_to)
                if known is not None:
                    self.values.know(grad, known)
                held.leaf.grad = grad

    def make_followed(self) -> None:
        """Give them Followed views again, after it."""
        for held in self._held.values():
            if type(held.leaf.grad) is np.ndarray:
                held.leaf.grad = held.leaf.grad.view(Followed)
            held.set_to = held.leaf.grad

    def release(self) -> None:
        """Leave plain arrays to the caller."""
        for held in self._held.values():
            grad = held.leaf.grad
            held.leaf.grad = held.before if grad is held.entry else plain(grad)


# ---------------------------------------------------------------- outside the ops


class OutsideOps(Follower):
    """Listens to NumPy's calls on followed arrays.

    Attributes:
        quiet: within an op: what it does with arrays is known.
        reason: why the step must run eagerly, or None.
    """

    program: Program
    values: ValueMap
    quiet = False
    reason: str | None = None

    def __init__(self) -> None:
        self.scalars: dict[int, Array] = {}  # arrays that stand for NumPy's scalars
        self.of_tensors = WeakValueDictionary[int, Array]()  # what `.data` gave, by id

    def refuse(self, why: str, remedy: str = "") -> None:
        raise NotImplementedError

    def looked_at(self, use: str) -> None:
        if not self.quiet:
            self.refuse(f"numbers are taken out of an array ({use})", _RETURNED)

    def computed(self, name: str, call: Kernel, args: Any, kwargs: Any) -> Any:
        """What NumPy makes of followed arrays: written down, or computed and reported."""
        if self.quiet or self.reason is not None:
            return super().computed(name, call, args, kwargs)
        out = kwargs.pop("out", None)
        if id(out[0] if isinstance(out, tuple) else out) in self.scalars:
            out = None  # x += y of NumPy's scalars makes another one
        bare = substitute((args, kwargs), plain)
        before = len(self.program.steps)
        self.program.op, self.program.path = name, ""
        self.quiet = True
        try:
            symbols = substitute((args, kwargs), self.values.symbol_of)
            made = call(*symbols[0], **symbols[1])
            with np.errstate(all="ignore"):
                wanted = np.asarray(call(*bare[0], **bare[1]))
            if made.__class__ is not Symbol or difference(made.array, wanted):
                raise Untraceable(name)
            if out is not None:
                return self._written(out[0] if isinstance(out, tuple) else out, made)
        except Exception:
            self.program.forget(before)
            self.quiet = False
            self.looked_at(name)
            return call(*bare[0], **bare[1], **({} if out is None else {"out": plain(out)}))
        finally:
            self.quiet = False
        return self._answer(made)

    def _answer(self, made: Symbol) -> Array:
        """What was computed, as the step gets it; np.asarray of it is known too."""
        array = np.asarray(made.array)
        owner, whole = array.base, root(made.value)
        if isinstance(owner, np.ndarray) and owner.shape == whole.shape:
            if whole.kind == "step" and has_layout(owner, whole):
                self.values.know(owner, whole)  # it lives as long as what shows it, unlike `array`
        followed = array.view(Followed)
        if whole.kind == "argument":
            self.values.cuts.setdefault(_view_of(array), []).append(made.value)
        self.values.know(array, made.value)
        self.values.know(followed, made.value)
        step = made.value.step
        if not array.shape and (step is None or step.kind != "view"):
            self.scalars[id(followed)] = followed  # kept, so that its id stays its own
        return followed

    def _written(self, out: Array, made: Symbol) -> Array:
        """`x *= y` of a followed array: of a leaf's, or of what NumPy made in the step."""
        value = self.values.known(out)
        if value is None or (out.shape, out.dtype) != (made.shape, made.dtype):
            raise Untraceable("an array of the caller's is written")
        if value.kind == "leaf" and out.shape == value.shape:
            self.assign(value.what, value, made.value)
        elif value.kind != "step" or id(out) in self.of_tensors or self.values.is_shared(out):
            raise Untraceable("an array of the caller's, of a Tensor, or a view, is written")
        else:
            self.values.written_as(out, made)
        plain(out)[...] = made.array
        return out

    def assign(self, tensor: Tensor, value: Value, new: Value, index: Any = ...) -> None:
        """A leaf's array is overwritten, or its entries at an index."""
        of = self.values.value_of
        index = substitute(index, lambda part: of(part) if isinstance(part, np.ndarray) else part)
        self.program.write("assign", self.values.depend_on(tensor), value, new, index)

    def guard(self, array: Array) -> None:
        """The truth of an array is part of the program, where nothing was written yet."""
        if self.quiet or self.reason is not None:
            return
        try:
            symbol = self.values.symbol_of(array)
            if symbol.__class__ is Symbol:
                bool(symbol)
        except Untraceable:
            self.refuse("a condition is asked after random numbers or updates", _AS_ARRAY)
