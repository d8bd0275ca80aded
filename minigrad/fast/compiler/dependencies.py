"""What a step depends on besides its arguments, found by walking from what its code names.

The walk follows closures, globals, defaults, containers and attributes. Of everything that holds
others (a *holder*) it notes what it holds. A program fits as long as each still holds the same
objects, or plain values that are equal. Modules count how often an attribute was set, so one number
stands for all that they hold.
"""

from __future__ import annotations

import os
import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextvars import ContextVar
from dis import get_instructions
from functools import lru_cache, partial
from inspect import getattr_static
from operator import is_
from types import (
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, TypeAlias

import numpy as np

from ...engine.op import Op
from ...engine.tensor import Tensor
from ...engine.writes import writes

__all__ = [
    "BUILTIN",
    "GENERATORS",
    "MISSING",
    "Contents",
    "Dependencies",
    "generator_state",
    "same",
    "set_generator_state",
    "shared_states",
]

BUILTIN = (bool, int, float, complex, str, bytes, type(None), range, slice, np.generic, np.dtype)
GENERATORS = (np.random.Generator, random.Random)
_COLLECTIONS = (list, tuple, dict, set, frozenset, deque)
_LARGEST = 1000  # entries up to which each entry of a container is compared
_MOST = 20_000  # objects, after which the walk ends
Contents: TypeAlias = dict[Any, Any]  # what something holds, by index, key or name
_FOLDERS_OF_PACKAGES = [f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist")]
_OWN = ("__code__", "__defaults__", "__kwdefaults__")
# Not followed: a step seldom runs them, and what they name, a counter of objects say, may change.
_SELDOM = ("__init__", "__new__", "__repr__", "__str__", "__del__")


def same(now: object, then: object) -> bool:
    """One and the same, or plain values of one type and equal; 0.0 is not -0.0, NaN equals itself.

    >>> same(float("nan"), float("nan")), same(0.0, -0.0), same(2, 2.0)
    (True, False, False)
    """
    if now is then:
        return True
    return type(now) is type(then) and isinstance(now, BUILTIN) and repr(now) == repr(then)


class _Missing:
    """What a name that holds nothing stands for."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


class Holder:
    """Something that holds others.

    Attributes:
        then: what it held when the program was recorded, by name.
        changing: names of what the step itself sets.
        state: the dictionary of an object's attributes, or None.
        counter: an object whose `version` tells that nothing was set, or None.
        function: a function, its cells and the globals that it names; or None.
        container: a list, dict or the like; or None.
    """

    def __init__(self, read: Callable[[], Contents], **more: Any) -> None:
        self._read = read
        self.state, self.counter, self.function = map(more.get, ("state", "counter", "function"))
        self.container = more.get("container")
        self.changing: set[Hashable] = set()
        self.then = self.read()

    def read(self) -> Contents:
        """What it holds now, by name; but not what the step itself sets, which may be large."""
        held = self._read()
        for name in self.changing:
            held.pop(name, None)
        return held

    def changes(self) -> Iterator[tuple[Any, object, object]]:
        """(name, then, now) of what is no longer the same."""
        now = self.read()
        for name in {**self.then, **now}:
            before, after = self.then.get(name, MISSING), now.get(name, MISSING)
            if not same(after, before):
                yield name, before, after


class Dependencies:
    """All that a step reaches.

    Attributes:
        things: what was reached, by id. They are kept alive, so an id stays theirs.
        names: what variables and attributes call them, by id.
        iterator: whether something can be used up.
        words: the names and strings in the code of the functions that were reached.
    """

    def __init__(self, step: object, arguments: Iterable[object]) -> None:
        self.things: dict[int, object] = {}
        self.names: dict[int, str] = {}
        self.iterator = False
        self.words: set[str] = set()
        self.holders: list[Holder] = []
        self._step = step
        self._settings: dict[int, tuple[set[str], Holder]] = {}  # by an optimizer's id
        self._walk([step, *arguments])
        for thing in filter(_is_optimizer, list(self.things.values())):
            names: set[str] = set()
            holder = Holder(partial(_attributes_named, thing, names), state=vars(thing))
            self._settings[id(thing)] = names, holder
            self.holders.append(holder)
        self.note()

    def add_setting(self, optimizer: object, name: str, value: object) -> None:
        """The step reads this attribute of an optimizer or a schedule: it depends on it."""
        if id(optimizer) in self._settings:
            names, holder = self._settings[id(optimizer)]
            names.add(name)
            holder.then.setdefault(name, value)

    def of(self, kind: type | tuple[type, ...]) -> list[Any]:
        """Everything of a type, or of one of several, that was reached."""
        return [thing for thing in self.things.values() if isinstance(thing, kind)]

    def arrays(self) -> list[Any]:
        """Every array that was reached but those in Tensors' memory: its writes are known."""
        held = {id(writes.owner(tensor._data)) for tensor in self.of(Tensor)}
        return [array for array in self.of(np.ndarray) if id(writes.owner(array)) not in held]

    # ------------------------------------------------------------------ is all as it was?

    def note(self) -> None:
        """Take what everything holds now as what later calls expect."""
        for holder in self.holders:
            holder.then = holder.read()
        self.versions = [getattr(h.counter, "version", None) for h in self.holders]

    def conditions(self, bind: Callable[[object], str]) -> Iterator[str]:
        """Expressions that all hold as long as nothing has changed."""
        alike, identical = bind(same), bind(is_)
        for i, holder in enumerate(self.holders):
            if holder.counter is not None:
                fits = f"{bind(holder.counter)}.version == {bind(self.versions)}[{i}]"
                yield f"({fits} or {bind(self._is_same)}({i}))"
            elif holder.function is None:
                then = bind(holder.then)
                yield f"(now := {bind(holder.read)}()).keys() == {then}.keys()"
                pairs = f"now.values(), {bind(list(holder.then.values()))}"
                yield f"(all(map({identical}, {pairs})) or all(map({alike}, {pairs})))"
            else:
                function, cells, named = holder.function
                yield from (
                    f"{bind(function)}.{name} is {bind(holder.then[name])}" for name in _OWN
                )
                held = {name: f"{bind(cell)}.cell_contents" for name, cell in cells.items()}
                values = [(text, holder.then[name]) for name, text in held.items()]
                values += [(f"{bind(space)}[{word!r}]", space[word]) for space, word in named]
                for text, then in values:
                    known = bind(then)
                    yield f"({text} is {known} or {alike}({text}, {known}))"

    def _is_same(self, i: int) -> bool:
        """Whether a holder's attributes are as they were, though some were set."""
        holder = self.holders[i]
        if any(True for _ in holder.changes()):
            return False
        self.versions[i] = getattr(holder.counter, "version", None)
        return True

    def changes(self) -> Iterator[tuple[Holder, Any, object, object]]:
        """(holder, name, then, now) of everything that is no longer the same."""
        for holder in self.holders:
            for change in holder.changes():
                yield holder, *change

    def called(self, holder: Holder, name: Any) -> object:
        """What a holder has under this name, as the step's code would write it."""
        held = holder.container
        container = None if held is None else self.names.get(id(held))
        return f"{container}[{name!r}]" if container else name

    # ------------------------------------------------------------------ the walk

    def _walk(self, things: list[object]) -> None:
        stack = things[::-1]
        while stack and len(self.things) < _MOST:
            thing = stack.pop()
            if isinstance(thing, BUILTIN) or id(thing) in self.things:
                continue
            self.things[id(thing)] = thing
            self.iterator |= hasattr(type(thing), "__next__")
            stack += reversed(list(self._parts(thing)))

    def _hold(self, read: Callable[[], Contents], **more: Any) -> Iterable[Any]:
        """Note a holder; returns what it holds."""
        holder = Holder(read, **more)
        self.holders.append(holder)
        for name, part in holder.then.items():
            if isinstance(name, str):
                self.names.setdefault(id(part), name)
        return holder.then.values()

    def _parts(self, thing: object) -> Iterable[object]:
        """What a thing leads to."""
        kind = type(thing)
        if isinstance(thing, FunctionType):
            return self._of_function(thing)
        if isinstance(thing, _COLLECTIONS):
            return self._hold(partial(_contents, thing), container=thing)
        if isinstance(thing, partial):
            return thing.func, thing.args, thing.keywords
        if isinstance(thing, MethodType):
            return thing.__self__, thing.__func__
        if isinstance(thing, ContextVar):
            return self._hold(lambda: {thing.name: thing.get(None)})
        if isinstance(thing, type):
            return self._of_class(thing)
        if isinstance(thing, property | staticmethod | classmethod):
            return getattr(thing, "fget", None), getattr(thing, "__func__", None)
        if _is_optimizer(thing):
            return *(getattr(thing, name, None) for name in ("parameters", "optimizer")), kind
        if isinstance(thing, Tensor | np.ndarray | ModuleType | Op):
            return ()
        if _is_closed(kind):  # a cached function, say, or another compiled step
            return (getattr_static(thing, "__wrapped__", None),)
        return self._of_object(thing, kind)

    def _of_object(self, thing: object, kind: type) -> Iterable[object]:
        slots = [
            name
            for base in kind.__mro__
            for name, member in vars(base).items()
            if isinstance(member, MemberDescriptorType) and not _is_private_to_us(base, name)
        ]
        state = getattr_static(thing, "__dict__", None) and vars(thing)
        if state is None and not slots:
            return ()
        counts = any(base.__module__.startswith("layers.") for base in kind.__mro__)
        counter = thing if counts and hasattr(kind, "version") else None
        read = partial(_attributes, thing, state, slots)
        return *self._hold(read, state=state, counter=counter), kind

    def _of_class(self, kind: type) -> Iterable[object]:
        if _is_closed(kind) or kind.__module__.startswith("layers."):
            return ()
        return *self._hold(partial(_class_attributes, kind)), *kind.__bases__

    def _of_function(self, function: FunctionType) -> Iterable[object]:
        """Cells, the globals that the code names, attributes of modules that it names, defaults."""
        code = function.__code__
        installed = _is_installed(function.__module__ or "", code.co_filename)
        if installed and function is not self._step:
            return (getattr(function, "__wrapped__", None),)
        codes = list(_with_nested(code))
        words = {name for part in codes for name in part.co_names}
        texts = {x for part in codes for x in part.co_consts if isinstance(x, str)}
        self.words |= words | texts  # getattr and vars() find attributes by strings
        variables = frozenset().union(*map(_variables, codes))
        spaces = [function.__globals__]
        for space in spaces:  # modules within modules too
            found = [x for word in words if isinstance(x := space.get(word), ModuleType)]
            own = [
                m for m in found if not _is_installed(m.__name__, getattr(m, "__file__", "") or "")
            ]
            spaces += [vars(m) for m in own if all(vars(m) is not known for known in spaces)]
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
        named = [
            (space, word)
            for space in spaces
            for word in sorted(variables if space is function.__globals__ else words)
            if word in space
        ]
        read = partial(_named, cells, named, function)
        return self._hold(read, function=(function, cells, named))


def _named(
    cells: dict[str, CellType], named: list[tuple[dict[str, Any], str]], function: FunctionType
) -> Contents:
    held: Contents = {name: _content(cell) for name, cell in cells.items()}
    for space, word in named:
        held[word if word not in held else (word, id(space))] = space.get(word, MISSING)
    return held | {name: getattr(function, name) for name in _OWN}


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return MISSING


def _contents(container: Collection[object]) -> Contents:
    if len(container) > _LARGEST:
        return {"length": len(container)}
    if isinstance(container, dict):
        return dict(container)
    return dict(enumerate(container))


def _attributes(thing: object, state: Contents | None, slots: list[str]) -> Contents:
    return dict(state or ()) | {slot: getattr(thing, slot, MISSING) for slot in slots}


def _attributes_named(thing: object, names: set[str]) -> Contents:
    return {name: vars(thing).get(name, MISSING) for name in names}


def _class_attributes(kind: type) -> Contents:
    """Of the methods with names of Python's own, those that a step runs, such as __call__."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("__") or (isinstance(value, FunctionType) and name not in _SELDOM)
    }


def _is_private_to_us(kind: type, slot: str) -> bool:
    """Whether a slot of a layer is for bookkeeping: its `version` tells whether others were set."""
    return kind.__module__.startswith("layers.") and (slot.startswith("_") or slot == "version")


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions and classes within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


@lru_cache(maxsize=1024)
def _variables(code: CodeType) -> frozenset[str]:
    """The global variables that it names; `co_names` has the names of attributes too."""
    kinds = "_GLOBAL", "_NAME", "_GLOBALS"
    return frozenset(x.argval for x in get_instructions(code) if x.opname.endswith(kinds))


def _is_installed(module: str, file: str) -> bool:
    """Whether code belongs to us, to Python or to an installed package: taken not to change."""
    package = module.partition(".")[0]
    ours = package in ("minigrad", "numpy", "layers", "builtins")
    installed = any(folder in file for folder in _FOLDERS_OF_PACKAGES)
    return ours or installed or package in sys.stdlib_module_names


def _is_closed(kind: type) -> bool:
    """Whether the walk ends at such objects: files, locks, ops."""
    package = kind.__module__.partition(".")[0]
    if kind is SimpleNamespace or package == "layers":
        return False
    return _is_installed(kind.__module__, getattr(sys.modules.get(package), "__file__", "") or "")


def _is_optimizer(thing: object) -> bool:
    return any(base.__module__.startswith("minigrad.optim") for base in type(thing).__mro__)


# ---------------------------------------------------------------- random generators


def generator_state(generator: np.random.Generator | random.Random) -> Any:
    """Where a generator stands."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state


def set_generator_state(generator: np.random.Generator | random.Random, state: Any) -> None:
    """Put a generator back to where it stood."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.bit_generator.state = state


def shared_states() -> tuple[object, ...]:
    """The states of the generators that Python and NumPy share."""
    shared: Any = np.random.get_state(legacy=False)  # noqa: NPY002, it is only looked at
    return random.getstate(), shared["state"]["key"].tobytes(), shared["state"]["pos"]
