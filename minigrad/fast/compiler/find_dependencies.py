"""What a step depends on besides its arguments' numbers, found by walking from the function and its
arguments.

`survey` lists every plain value, container, object, Tensor and array that the function can reach
through its closure, the globals it names, its defaults and the attributes of objects. Each entry
knows where it was found, so a guard is one line of generated Python that compares now with then.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...engine.tensor import Tensor

__all__ = ["Entry", "Survey", "survey"]

_NUMBERS = (bool, int, float, complex, np.generic, np.dtype)
_PLAIN = (*_NUMBERS, str, bytes, type(None), range, slice, type(Ellipsis))
_HOLDING = (Tensor, np.ndarray, list, tuple, dict)
_OURS = {"minigrad", "numpy", "builtins"} | set(sys.stdlib_module_names)


class Entry:
    """One thing that was reached: what it is, and how to find it again from `owner` by `key`.

    Attributes:
        kind: "plain", "tensor", "array", "length" or "object".
        fresh: whether it comes as an argument.
    """

    __slots__ = ("fresh", "key", "kind", "owner", "value")

    def __init__(self, kind: str, owner: Any, key: Any, value: Any, fresh: bool) -> None:
        self.kind, self.owner, self.key, self.value, self.fresh = kind, owner, key, value, fresh


class Survey:
    """All entries, in the order of the walk; Tensors and arrays by id."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.fixed: dict[int, Any] = {}  # objects the step reaches by itself
        self.fresh: dict[int, tuple[str, Any]] = {}  # Tensors and arrays among the arguments
        self.iterator = False  # something can be used up
        self.names: dict[int, str] = {}  # what variables and entries call Tensors and arrays
        self._seen: set[int] = set()


def survey(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Survey:
    """Walk from the function, then from the arguments."""
    found = Survey()
    _walk(found, "function", function)
    for value, name in zip(args, _parameters(function), strict=False):
        found.names.setdefault(id(value), name)
    _arguments(found, "args", args)
    _arguments(found, "kwargs", kwargs)
    return found


def _walk(found: Survey, key: Any, value: Any) -> None:
    """Note a thing and all that can be reached from it."""
    stack: list[tuple[Any, Any, Any]] = [(None, key, value)]
    while stack:
        stack.extend(reversed(list(_reached(found, *stack.pop()))))


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _reached(found: Survey, owner: Any, key: Any, value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Note one thing that the step reaches by itself, and list what can be reached from it."""
    if isinstance(value, _PLAIN):
        found.entries.append(Entry("plain", owner, key, value, False))
        return
    if isinstance(value, ModuleType):
        return
    if not isinstance(value, type | FunctionType):
        found.entries.append(Entry(_kind(value), owner, key, value, False))
    name = found.names.get(id(owner)) if key == "cell_contents" else key
    if isinstance(name, str):
        found.names.setdefault(id(value), name)
    if id(value) in found._seen:
        return
    found._seen.add(id(value))
    found.fixed[id(value)] = value
    if hasattr(value, "__next__"):
        found.iterator = True
    yield from _parts(found, value)


def _kind(value: Any) -> str:
    if value.__class__ is Tensor:
        return "tensor"
    return "array" if isinstance(value, np.ndarray) else "object"


def _placeless(*parts: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Parts that stay what they are as long as what they are part of does."""
    return ((None, None, part) for part in parts)


def _parts(found: Survey, value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(owner, key, part) for each part of a container, function or object."""
    if isinstance(value, Tensor | np.ndarray | np.random.Generator):
        return
    if isinstance(value, list | tuple | dict | set | frozenset):
        found.entries.append(Entry("length", value, None, len(value), False))
        keyed = value.items() if isinstance(value, dict) else enumerate(value)
        if not isinstance(value, set | frozenset):
            yield from ((value, k, v) for k, v in keyed if isinstance(k, str | int | tuple))
    elif isinstance(value, partial):
        yield from _placeless(value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from _placeless(value.__self__, value.__func__)
    elif isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
        found.names.update((id(c), name) for name, c in cells)
        yield from _function_parts(value)
    elif isinstance(value, type):
        if _is_watched(sys.modules.get(value.__module__), value.__module__):
            for base in value.__mro__[:-1]:
                yield from (
                    (_Slots(base), k, v)
                    for k, v in vars(base).items()
                    if not k.startswith("__") and isinstance(v, (*_PLAIN, FunctionType))
                )
    elif _is_optimiser(value) or _is_ours(type(value).__module__):
        yield from _placeless(*(getattr(value, "parameters", ()) if _is_optimiser(value) else ()))
    elif hasattr(value, "__dict__"):
        found.entries.append(Entry("length", vars(value), None, len(vars(value)), False))
        yield from ((vars(value), k, part) for k, part in vars(value).items())
        for base in type(value).__mro__:
            for slot in vars(base).get("__slots__", ()):
                if (
                    slot not in ("__dict__", "__weakref__", "version")
                    and not slot.startswith("_")
                    and hasattr(value, slot)
                ):
                    yield (_Slots(value), slot, getattr(value, slot))
        yield from _placeless(type(value))


class _Slots:
    """Marks an owner whose key is an attribute kept in a slot."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def _function_parts(function: FunctionType) -> Iterator[tuple[Any, Any, Any]]:
    """What a function reaches: closure cells, the globals its code names, defaults."""
    module = function.__module__ or ""
    if (
        _is_ours(module)
        or module.partition(".")[0] == "layers"
        or _is_installed(function.__code__.co_filename)
    ):
        return
    for cell in function.__closure__ or ():
        try:
            yield (cell, "cell_contents", cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    names = set(_names(function.__code__))
    for name in sorted(names):
        if name in function.__globals__ and not hasattr(builtins, name):
            value = function.__globals__[name]
            yield (function.__globals__, name, value)
            if isinstance(value, ModuleType) and _is_watched(value, value.__name__):
                for attribute in sorted(names & set(vars(value))):
                    part = vars(value)[attribute]
                    if isinstance(part, (*_PLAIN, *_HOLDING, FunctionType)):
                        yield (vars(value), attribute, part)
    yield from _placeless(*(function.__defaults__ or ()))
    yield from _placeless(*(function.__kwdefaults__ or {}).values())
    yield from _placeless(getattr(function, "__wrapped__", None))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_watched(module: Any, name: str) -> bool:
    """Whether what a module holds may change from call to call."""
    return not (_is_ours(name) or _is_installed(getattr(module, "__file__", None)))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OURS


def _is_installed(file: str | None) -> bool:
    """Whether code belongs to an installed package: its globals are taken not to change."""
    return file is not None and ("site-packages" in file or "dist-packages" in file)


def _is_optimiser(value: Any) -> bool:
    return any(base.__module__.startswith("minigrad.optim.") for base in type(value).__mro__)


def _arguments(found: Survey, expression: str, value: Any) -> None:
    """Note an argument: arrays are fresh at each call, containers are looked into, objects are as
    if captured.
    """
    if isinstance(value, _PLAIN):
        found.entries.append(Entry("plain", None, expression, value, True))
    elif value.__class__ is Tensor or isinstance(value, np.ndarray):
        found.entries.append(Entry(_kind(value), None, expression, value, True))
        if id(value) not in found.fixed:
            found.fresh.setdefault(id(value), (expression, value))
    elif value.__class__ in (list, tuple, dict):
        found.entries.append(Entry("length", None, expression, (value.__class__, len(value)), True))
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            if isinstance(key, str):
                found.names.setdefault(id(part), key)
            _arguments(found, f"{expression}[{key!r}]", part)
    else:
        found.entries.append(Entry("object", None, expression, value, True))
        _walk(found, None, value)
