"""CacheEntry: one recorded run of a step, the program made of it, and when that fits a call's
CallArguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from threading import Lock
from typing import Any

import numpy as np

from ...engine.context import current
from ...engine.followed import Followed
from ...engine.tensor import Tensor
from ...engine.types import Arguments, Array, Kernel
from ...engine.writes import DataView
from .dependencies import BUILTIN, MISSING, Contents, Dependencies
from .program import (
    SMALL_BYTES,
    data_parts,
    made_of,
    parts_of,
)
from .record import ProgramRecorder
from .values import form

__all__ = [
    "CacheEntry",
    "CallArguments",
    "FollowedArguments",
    "leaves_of",
    "sample",
    "small_bytes",
]

_FITS = """
def fits(given):
    try:
        return {}
    except (AttributeError, KeyError, ValueError):
        return False
"""


class CallArguments:
    """One call's arguments.

    Attributes:
        args, kwargs: as they were given.
        key: equal for calls that one program may serve. It holds plain values by type and value;
            arrays and Tensors by shape, strides, dtype, flags and which are one and the same; other
            objects by identity; and whether a graph is recorded.
        arrays: every Tensor and array, in order, as often as it is given.
    """

    __slots__ = ("args", "arrays", "key", "kwargs")

    def __init__(self, args: Arguments, kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.arrays: list[Any] = []
        key: list[Hashable] = [current().recording]
        if args or kwargs:
            self._add(args, key)
            self._add(kwargs, key)
            if len(self.arrays) > 1:
                first: dict[int, int] = {}
                key += [first.setdefault(id(x), i) for i, x in enumerate(self.arrays)]
        self.key = tuple(key)

    def _add(self, item: Any, key: list[Hashable]) -> None:
        kind = item.__class__
        if kind is np.ndarray or kind is DataView:
            key += np.ndarray, item.shape, item.strides, item.dtype
            self.arrays.append(item)
        elif kind is Tensor:
            array, needs = item._data, item._needs
            key += kind, array.shape, array.strides, array.dtype, needs, bool(item._hooks)
            key.append(needs and item._node is not None)
            self.arrays.append(item)
        elif kind is tuple or kind is list or kind is dict:
            key += kind, (tuple(item) if kind is dict else len(item))
            for entry in item.values() if kind is dict else item:
                self._add(entry, key)
        elif isinstance(item, BUILTIN):  # as text, 0.0 is not -0.0, and NaN equals itself
            key += kind, repr(item)
        elif (parts := data_parts(item)) is not None:
            key += kind, tuple(parts)
            for entry in parts.values():
                self._add(entry, key)
        else:
            key += kind, id(item)


def leaves_of(expression: str, item: object) -> Iterator[tuple[str, Any]]:
    """(expression, item) of everything in nested containers, by which it is found.

    >>> list(leaves_of("args[0]", {"x": 1, "more": [2]}))
    [("args[0]['x']", 1), ("args[0]['more'][0]", 2)]
    """
    parts = data_parts(item)
    if parts is None:
        yield expression, item
        return
    for key, part in parts.items():
        yield from leaves_of(place_of(expression, item, key), part)


def place_of(expression: str, container: object, key: object) -> str:
    """How the source finds one part of a container."""
    indexed = container.__class__ in (tuple, list) or isinstance(container, dict)
    return f"{expression}[{key!r}]" if indexed else f"{expression}.{key}"


class FollowedArguments:
    """Arguments with Followed views in place of arrays, in copies of the containers.

    Args: names: what the step calls each of `call.args`.
    Attributes:
        args, kwargs: what the step gets.
        arrays: the Tensors and arrays: how the source finds each, its name, and the thing itself.
        others: what else there is, and the containers' classes, whose methods the step may call.
        originals: of views and copies, by their ids.
    """

    def __init__(self, names: list[str], call: CallArguments) -> None:
        self._copies: list[tuple[str, Any, Any, Contents]] = []  # place, original, copy, its parts
        self.arrays: list[tuple[str, str, Tensor | Array]] = []
        self.others: list[object] = []
        self.originals: dict[int, Any] = {}
        named = enumerate(zip(names, call.args, strict=True))
        self.args = [self._follow(f"args[{i}]", item, name) for i, (name, item) in named]
        self.kwargs = self._follow("kwargs", call.kwargs)

    def _follow(self, expression: str, item: Any, name: str = "") -> Any:
        """An argument, or part of one, as the step gets it."""
        made = item
        parts = data_parts(item)
        if parts is not None:
            self.others.append(item.__class__)
            held = {}
            for key, part in parts.items():
                word = key if isinstance(key, str) else name
                held[key] = self._follow(place_of(expression, item, key), part, word)
            made = made_of(item.__class__, held)
            self._copies.append((expression, item, made, held))
        elif isinstance(item, Tensor | np.ndarray):
            self.arrays.append((expression, name, item))
            made = _as_followed(item)
        else:
            self.others.append(item)
        self.originals[id(made)] = item
        return made

    def return_changes(self, as_eagerly: Callable[[Any], Any]) -> list[str]:
        """Change the containers as the step changed its copies; which parts it has changed."""
        changed = []
        for place, original, copy, then in self._copies:
            now = parts_of(copy) or {}
            names = [k for k in {**then, **now} if now.get(k, MISSING) is not then.get(k, MISSING)]
            if names:
                changed.append(place_of(place, original, names[0]))
                _refill(original, {key: as_eagerly(part) for key, part in now.items()})
        return changed


def _as_followed(item: Any) -> Any:
    """A Followed view of an array; a Tensor, or an array of a class of its own, as it is."""
    if item.__class__ is DataView and item.written is not None:  # it writes into its tensor's array
        item = item.written
    return item.view(Followed) if item.__class__ in (np.ndarray, DataView) else item


def _refill(container: Any, parts: Contents) -> None:
    if isinstance(container, list):
        container[:] = parts.values()
    elif isinstance(container, dict):
        container.clear()
        container.update(parts)
    else:
        for name in (parts_of(container) or {}).keys() - parts.keys():
            object.__delattr__(container, name)
        for name, part in parts.items():
            object.__setattr__(container, name, part)


def small_bytes(array: object) -> bytes | None:
    """What a small array holds; None for others."""
    if not isinstance(array, np.ndarray) or array.nbytes > SMALL_BYTES or array.dtype.hasobject:
        return None
    return array.tobytes()


def sample(array: Array) -> Array:
    """Entries that tell whether an array was changed: all of a small one, up to 100 of others."""
    if array.nbytes <= SMALL_BYTES or not array.ndim:
        return array
    most = int(64 ** (1 / array.ndim))
    return array[tuple([slice(None, None, 1 + n // most) for n in array.shape])]


class CacheEntry:
    """One recorded run.

    Attributes:
        run: the program, called with args and kwargs; None if the step runs eagerly. Its arrays are
            made when it first runs, and again after `release`.
        reason, remedy: why it does, and what to do about it.
        source: the program as text, or a comment that says why there is none.
        calls: how often it ran, when it was recorded included.
        largest: the largest entry of a gradient that an audit has seen, which sets what rounding
            may do to those that have become small.
        fits: whether it is the program for a call with such Tensors and arrays.
        has_effects: whether an op does more than compute, as one that sends: such a step is only
            audited by the number of the call, which is the same for all who take part.
        lock: held while the program runs, whose buffers serve one call at a time.
    """

    def __init__(
        self,
        found: Dependencies,
        recorder: ProgramRecorder,
        call: CallArguments,
        samples: list[bytes | None],
    ) -> None:
        self.found = found
        self.program = recorder.program
        self.lock = Lock()
        self.calls = 1
        self.run: Kernel | None = None
        self._build: Callable[[], Kernel] | None = None
        self.reason = recorder.reason
        self.remedy = recorder.remedy
        self.source = ""
        fresh = recorder.values.fresh
        leaves = {key: x for key, x in recorder.values.leaves.items() if key not in fresh}
        self._leaves = list(leaves.values())
        small: list[tuple[Any, bytes | None]] = [*enumerate(samples)]
        small += [(x, x.tobytes()) for x in map(sample, found.arrays())]
        self._unseen = [(where, kept) for where, kept in small if kept is not None]
        self._octave, self.largest = 0, 0.0
        self.has_effects = any(step.kind == "effect" for step in self.program.steps)
        self.fits = _fits(found, recorder, call, leaves)

    def write(self, build: Callable[[], Kernel], source: str) -> None:
        """Take a program, which `build` makes with its arrays."""
        self._build, self.source = build, source
        self.release()

    def release(self) -> None:
        """Let go of the program's arrays until it runs again."""

        def first(args: Arguments, kwargs: dict[str, Any]) -> Any:
            assert self._build is not None
            self.run = self._build()
            return self.run(args, kwargs)

        if self._build is not None:
            self.run = first

    def has_unaudited_values(self, call: CallArguments) -> bool:
        """Whether a small array, or a sample of a large one that the step reaches by itself, holds
        other numbers for the first time: they may have been frozen where nobody saw it.
        """
        octave, arrays = self.calls.bit_length(), call.arrays
        if octave == self._octave or self.has_effects:  # one such audit between calls 2ᵏ and 2ᵏ⁺¹
            return False
        for where, kept in self._unseen:
            array = arrays[where] if where.__class__ is int else where
            if array.tobytes() != kept:
                self._octave = octave
                return True
        return False

    def note_news(self, call: CallArguments) -> None:
        """A call with these arrays was audited."""
        arrays = [call.arrays[w] if w.__class__ is int else w for w, _ in self._unseen]
        pairs = zip(arrays, self._unseen, strict=True)
        self._unseen = [entry for array, entry in pairs if array.tobytes() == entry[1]]

    def tensors(self, call: CallArguments) -> list[Tensor]:
        """Every Tensor that the step can reach, each once."""
        every = [*self.found.of(Tensor), *self._leaves, *call.arrays]
        return list({id(x): x for x in every if isinstance(x, Tensor)}.values())


def _fits(
    found: Dependencies, recorder: ProgramRecorder, call: CallArguments, leaves: dict[int, Tensor]
) -> Callable[[list[Any]], bool]:
    """A generated function `fits(given)`: whether the program is for arguments of the same key."""
    objects: dict[str, Any] = {"form": form}
    conditions: list[str] = []

    def bind(thing: object) -> str:
        name = f"o{len(objects)}"
        objects[name] = thing
        return name

    names = {key: bind(leaf) for key, leaf in leaves.items()}
    for key, name in names.items():
        leaf = leaves[key]
        conditions.append(f"{name}._data is {bind(leaf._data)}")
        conditions.append(f"{name}._needs == {leaf._needs} and not {name}._hooks")
    names |= {id(x): f"given[{i}]" for i, x in reversed([*enumerate(call.arrays)])}
    for key, needed in recorder.gradients.needed.items():
        gradient = f"{names[key]}.grad"
        same = f"{gradient} is None" if needed is None else f"form({gradient}) == {needed}"
        conditions.append(same)
    things = bind(found.things)
    for i, x in enumerate(call.arrays):  # which of them the step also reaches by itself
        known = f"== {id(x)}" if id(x) in found.things else f"not in {things}"
        conditions.append(f"id(given[{i}]) {known}")
    conditions += found.conditions(bind)
    exec(_FITS.format(" and ".join(conditions) or True), objects)
    fits: Callable[[list[Any]], bool] = objects["fits"]
    return fits
