"""What a step reaches by name: its closure, its globals, and the attributes of its modules.

Each place where names are bound is remembered with what it held: plain values by what they are,
arrays, Tensors, modules and other objects by identity. So a later call can tell whether anything
was bound anew, and a recording whether the step itself did that.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...engine.tensor import Tensor

__all__ = ["PLAIN_KINDS", "Binding", "Reach", "frozen"]

PLAIN_KINDS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(...),
    slice,
    np.dtype,
    np.generic,
)
MANY = 1000  # a container with more entries counts as one object
MISSING = object()


def frozen(x: Any) -> Any:
    """What must be equal of a value for it to count as the same."""
    if isinstance(x, PLAIN_KINDS):
        return x.__class__, x if x == x else "nan"
    if x.__class__ is tuple:
        return (tuple, *map(frozen, x))
    return id(x)


class Binding:
    """Where names are bound, and what they held when it was looked at last.

    Attributes:
        title: of the place, in words.  owner: the dict, list, function or object that binds them.
        code: Python for what they hold, with {} for the owner: what a program's guard reads.
        versioned: whether the owner is a Module, which counts how often its attributes were set.
        left_out: names that a layer binds to what it keeps of its last call.
    """

    __slots__ = ("_held", "_read", "code", "left_out", "owner", "title", "versioned")

    def __init__(self, title: str, owner: Any, code: str, read: Callable[[], dict[Any, Any]]):
        self.title = title
        self.owner = owner
        self.code = code
        self._read = read
        self.left_out: set[str] = set()
        self.versioned = False
        self.look()

    def written(self, name: str, quick: bool) -> str:
        """Python for what is to be the same, with `name` for the owner; quick: or for what is the
        same unless that has changed, as the version of a Module is.
        """
        if quick and self.versioned:
            return f"{name}.version"
        if self.left_out and ".values()" in self.code:
            names = [n for n in self._held if n not in self.left_out]
            return ", ".join(f"{name}.__dict__.get({n!r})" for n in names)
        return self.code.format(name)

    def look(self) -> None:
        self._held = {k: frozen(x) for k, x in self._read().items() if k not in self.left_out}

    def differing(self) -> list[str]:
        """The names that are bound to something else by now."""
        old = self._held
        new = {k: frozen(x) for k, x in self._read().items()}
        return [
            str(name)
            for name in old | new
            if name not in self.left_out and old.get(name, MISSING) != new.get(name, MISSING)
        ]


class Reach:
    """All places that are found from a step and from objects among its arguments."""

    def __init__(self, step: Any, given: list[tuple[str, Any]]) -> None:
        self.places: list[Binding] = []
        self.owners: dict[int, Tensor] = {}  # by id of the array that one holds
        self._names: dict[int, tuple[Any, str]] = {}
        self._seen: dict[int, Any] = {}
        self._used: set[str] = set()
        self._waiting = [*given, ("", step)]
        while self._waiting:
            self._visit(*self._waiting.pop())

    def name(self, x: Any) -> str | None:
        """The name of an array or Tensor, None if none leads to it."""
        found = self._names.get(id(x))
        return found[1] if found is not None and found[0] is x else None

    def look(self) -> None:
        """Remember what everything is bound to now."""
        for place in self.places:
            place.look()

    def tensors(self) -> Iterator[Tensor]:
        return (x for x, _ in self._names.values() if isinstance(x, Tensor))

    # ------------------------------------------------------------------ the walk

    def _visit(self, title: str, x: Any) -> None:
        if isinstance(x, (*PLAIN_KINDS, type)) or id(x) in self._seen:
            return
        self._seen[id(x)] = x
        if isinstance(x, Tensor | np.ndarray):
            self._names[id(x)] = x, title.rpartition(".")[2]
            if isinstance(x, Tensor):
                self.owners[id(x._data)] = x
        elif isinstance(x, tuple | list | set | frozenset | dict):
            self._visit_container(title, x)
        elif isinstance(x, partial):
            self._visit_all(title, {"function": x.func, "args": x.args, "keywords": x.keywords})
        elif isinstance(x, MethodType):
            self._visit_all(title, {"self": x.__self__, "": x.__func__})
        elif isinstance(x, FunctionType):
            self._visit_function(title, x)
        elif isinstance(x, ModuleType):
            if not _is_library(x.__name__):
                self._bind_some(x.__name__, vars(x))
        else:
            self._visit_object(title, x)

    def _visit_all(self, title: str, parts: dict[Any, Any]) -> None:
        pairs = [(f"{title}.{k}".strip("."), x) for k, x in parts.items()]
        self._waiting += reversed(pairs)

    def _bind(self, title: str, owner: Any, code: str, read: Callable[[], dict[Any, Any]]) -> None:
        """Remember a place, and visit what it holds."""
        self.places.append(Binding(title, owner, code, read))
        self._visit_all(title, read())

    def _bind_some(self, title: str, owner: dict[str, Any], names: Any = None) -> None:
        """Of a dict, the names that the step uses."""
        chosen = sorted(n for n in (names or self._used) if n in owner)
        if chosen:
            code = ", ".join(f"{{0}}.get({n!r})" for n in chosen)
            self._bind(title, owner, code, lambda: {n: owner.get(n) for n in chosen})

    def _visit_container(self, title: str, x: Any) -> None:
        if len(x) > MANY:
            self.places.append(Binding(title, x, "len({0})", lambda: {"length": len(x)}))
        elif isinstance(x, tuple):
            self._visit_all(title, dict(enumerate(x)))
        elif isinstance(x, dict):
            self._bind(title, x, "*{0}, *{0}.values()", lambda: dict(x))
        else:
            self._bind(title, x, "*{0}, len({0})", lambda: dict(enumerate(x)))

    def _visit_function(self, title: str, function: FunctionType) -> None:
        if title and _is_library(function.__module__):  # the step itself may be anybody's
            return
        used = _names_in(function.__code__)
        self._used |= used
        names = function.__code__.co_freevars
        cells = function.__closure__ or ()
        if cells:
            code = ", ".join(f"{{0}}[{i}].cell_contents" for i in range(len(cells)))
            self._bind("", cells, code, lambda: dict(zip(names, map(_content, cells), strict=True)))
        self._bind_some("", function.__globals__, used)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._visit_all(title, dict(enumerate(defaults)))

    def _attributes(self) -> set[str]:
        """The names of attributes that the step's own functions read or set."""
        functions = [x for x in self._seen.values() if isinstance(x, FunctionType)]
        codes = [*_codes(*[x.__code__ for x in functions if not _is_library(x.__module__)])]
        steps = [one for code in codes for one in dis.get_instructions(code)]
        return {one.argval for one in steps if one.opname.endswith("_ATTR")}

    def _visit_object(self, title: str, x: Any) -> None:
        kind = type(x)
        attributes = getattr(x, "__dict__", None)
        in_optim = any(base.__module__.startswith("minigrad.optim") for base in kind.__mro__)
        if in_optim or kind.__module__.startswith("minigrad."):
            if attributes and in_optim:
                self._bind_some(title, attributes, self._attributes())  # what the step reads
                tensors = {k: v for k, v in attributes.items() if isinstance(v, Tensor)}
                self._visit_all(title, tensors | {"": getattr(x, "parameters", None)})
            return
        if _is_library(kind.__module__) and not kind.__module__.startswith("layers"):
            if kind.__name__ not in ("SimpleNamespace", "Namespace"):
                return
        if attributes is not None:
            self._bind(title, x, "*{0}.__dict__.values()", lambda: dict(attributes))
            self.places[-1].versioned = hasattr(x, "version")
        own = [base for base in kind.__mro__ if not _is_library(base.__module__)]
        slots = [n for base in own for n in vars(base).get("__slots__", ()) if n[:2] != "__"]
        if slots:
            code = ", ".join(f"getattr({{0}}, {n!r}, None)" for n in slots)
            self._bind(title, x, code, lambda: {n: getattr(x, n, None) for n in slots})
        for base in own:
            functions = {n: f for n, f in vars(base).items() if isinstance(f, FunctionType)}
            self._visit_all(title, functions)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _codes(*codes: CodeType) -> Iterator[CodeType]:
    """Codes, and those of the functions within them."""
    waiting = [*codes]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [part for part in code.co_consts if isinstance(part, CodeType)]


def _names_in(code: CodeType) -> set[str]:
    """The names of globals and attributes that some code uses."""
    return {name for part in _codes(code) for name in part.co_names}


def _is_library(module: str | None) -> bool:
    """Whether a module is none of those that a user writes."""
    top = (module or "").partition(".")[0]
    if top == "__main__":
        return False
    if top in ("minigrad", "layers", "numpy", "builtins") or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in file
