"""What a step reaches by name: its closure, its globals, and the attributes of its objects.

Each place where names are bound is remembered with what it held: plain values by what they are,
arrays, Tensors, modules and other objects by identity. So a later call can tell whether anything
was bound anew, and a recording whether the step itself did that.
"""

from __future__ import annotations

import io
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from types import (
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)  # fmt: skip
from typing import Any

import numpy as np

from ...engine.tensor import Tensor

__all__ = ["MANY", "PLAIN_KINDS", "Place", "Reach", "frozen", "owner_of"]

PLAIN_KINDS = (
    bool, int, float, complex, str, bytes, type(None), type(...), slice, np.dtype, np.generic,
)  # fmt: skip
MANY = 1000  # a container with more entries counts as one object


def frozen(x: Any) -> Any:
    """What must be equal of a value for it to count as the same."""
    if isinstance(x, PLAIN_KINDS):
        return x.__class__, x if x == x else "nan"
    return (tuple, *map(frozen, x)) if x.__class__ is tuple else id(x)


def owner_of(array: Any) -> Any:
    """The array that owns the memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Place:
    """Where names are bound, and what they held before the step ran.

    Attributes:
        title: in words.  owner: the dict, list, cells or object that binds them.
        code: Python for what is the same as long as they hold the same, with {} for the owner.
        kept: names that a layer binds to what it keeps of its last call.
    """

    def __init__(self, title: str, owner: Any, code: str, read: Callable[[], dict[Any, Any]]):
        self.title = title
        self.owner = owner
        self.code = code
        self.kept: set[Any] = set()
        self.read = read
        self._held = self._forms()

    def _forms(self) -> dict[Any, Any]:
        return {name: frozen(x) for name, x in self.read().items()}

    def changed(self) -> list[Any]:
        """The names that are bound to something else by now."""
        old, new = self._held, self._forms()
        return [
            name
            for name in old | new
            if name not in self.kept
            and (name in old, old.get(name)) != (name in new, new.get(name))
        ]


class Reach:
    """All places that are found from a step and from objects among its arguments.

    Attributes:
        tensors: those found.
        names: of Tensors, and of the memory of arrays, by id.
        others: arrays and generators of random numbers, with their names.
        iterator: the name of one, if one is there.
    """

    def __init__(self, step: Any, given: list[tuple[str, Any]]) -> None:
        self.places: list[Place] = []
        self.tensors: list[Tensor] = []
        self.names: dict[int, str] = {}
        self.others: list[tuple[str, Any]] = []
        self.iterator = ""
        self._seen: dict[int, Any] = {}
        self._used: set[str] = set()  # names of globals and attributes in the step's own code
        self._waiting = [*given, ("", step)]
        while self._waiting:
            self._visit(*self._waiting.pop())

    def arrays(self) -> list[np.ndarray]:
        return [x for x in self._seen.values() if isinstance(x, np.ndarray)]

    def _visit(self, title: str, x: Any) -> None:
        if isinstance(x, PLAIN_KINDS) or id(x) in self._seen:
            return
        self._seen[id(x)] = x
        if isinstance(x, Tensor):
            self.tensors.append(x)
            self.names[id(x)] = title.rpartition(".")[2]
        elif isinstance(x, np.ndarray):
            self.names[id(owner_of(x))] = title.rpartition(".")[2]
            self.others.append((title, x))
        elif isinstance(x, tuple | list | set | deque | dict | MappingProxyType):
            self._visit_container(title, x)
        elif isinstance(x, np.random.Generator | np.random.RandomState | Random):
            self.others.append((title, x))
        elif isinstance(x, Iterator) and not isinstance(x, io.IOBase):
            self.iterator = self.iterator or title
        elif isinstance(x, FunctionType):
            if not title or not _is_library(x.__module__):  # the step itself may be anybody's
                self._visit_function(x)
        elif isinstance(x, ModuleType):
            if not _is_library(x.__name__):
                self._bind_names(x.__name__, vars(x), self._used)
        else:
            self._visit_object(title, x)

    def _visit_all(self, title: str, parts: dict[Any, Any]) -> None:
        """Next of all; but modules and optimizers last, when all names are known."""
        for name, x in reversed(parts.items()):
            is_late = isinstance(x, ModuleType) or _is_updating(x)
            self._waiting.insert(
                0 if is_late else len(self._waiting), (f"{title}.{name}".strip("."), x)
            )

    def _bind(self, *place: Any) -> None:
        """Remember a place, and visit what it holds."""
        self.places.append(Place(*place))
        self._visit_all(self.places[-1].title, self.places[-1].read())

    def _bind_dict(self, title: str, owner: Any) -> None:
        self._bind(title, owner, "*{0}, *{0}.values()", lambda: dict(owner))

    def _bind_names(self, title: str, owner: dict[str, Any], used: set[str]) -> None:
        """Of a dict, the names that the step uses."""
        names = sorted(used & owner.keys())
        read = lambda: {name: owner.get(name) for name in names}  # noqa: E731
        self._bind(title, owner, ", ".join(f"{{0}}.get({name!r})" for name in names), read)

    def _visit_container(self, title: str, x: Any) -> None:
        if isinstance(x, tuple):
            self._visit_all(title, dict(enumerate(x)))
        elif len(x) > MANY:
            self.places.append(Place(title, x, "len({0})", lambda: {"length": len(x)}))
        elif isinstance(x, dict | MappingProxyType):
            self._bind_dict(title, x)
        else:
            self._bind(title, x, "*{0}", lambda: dict(enumerate(x)))

    def _visit_function(self, function: FunctionType) -> None:
        used = {name for code in _codes(function.__code__) for name in code.co_names}
        self._used |= used
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        cells = {name: cell for name, cell in cells.items() if _is_filled(cell)}
        code = ", ".join(f"{{0}}[{i}].cell_contents" for i in range(len(cells)))
        read = lambda: {name: cell.cell_contents for name, cell in cells.items()}  # noqa: E731
        self._bind("", tuple(cells.values()), code, read)
        self._bind_names("", function.__globals__, used)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._visit_all("", dict(enumerate(defaults)))

    def _visit_object(self, title: str, x: Any) -> None:
        kind = x if isinstance(x, type) else type(x)
        if isinstance(x, partial):
            self._visit_all(title, {"function": x.func, "args": x.args, "keywords": x.keywords})
        elif isinstance(x, MethodType):
            self._visit_all(title, {"self": x.__self__, "": x.__func__})
        elif isinstance(x, property | staticmethod | classmethod):
            self._visit_all(title, {"": x.fget if isinstance(x, property) else x.__func__})
        elif _is_updating(x):
            self._bind_names(title, vars(x), self._used)
            held = {k: v for k, v in vars(x).items() if isinstance(v, Tensor) or k == "parameters"}
            self._visit_all(title, held)
        elif _is_library(kind.__module__) and (x is kind or not _is_shown(kind)):
            self._visit(title, getattr(x, "__wrapped__", None))
        elif x is kind:
            self._bind_dict(title, vars(x))
        else:
            self._visit_all("", {base.__name__: base for base in kind.__mro__})
            self._visit_attributes(title, x, kind)

    def _visit_attributes(self, title: str, x: Any, kind: type) -> None:
        own = [base for base in kind.__mro__ if not _is_library(base.__module__)]
        slots = [name for base in own for name in vars(base).get("__slots__", ())]
        attributes = getattr(x, "__dict__", None)
        reads = [f"getattr({{0}}, {name!r}, None)" for name in slots]
        if attributes is not None:  # a Module counts how often they were set
            counts = isinstance(getattr(kind, "_changes", None), MemberDescriptorType)
            reads.append("{0}._changes" if counts else "*{0}.__dict__.values()")
        read = lambda: (attributes or {}) | {n: getattr(x, n, None) for n in slots}  # noqa: E731
        self._bind(title, x, ", ".join(reads), read)


def _is_updating(x: Any) -> bool:
    """Whether it is an optimizer or the like, which a program calls as it is."""
    return any(str(base.__module__).startswith("minigrad.optim") for base in type(x).__mro__)


def _is_shown(kind: type) -> bool:
    """Whether the attributes of a library's class are the user's all the same."""
    return kind.__module__.startswith("layers") or kind.__name__ in ("SimpleNamespace", "Namespace")


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code, and those of the functions within it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)


def _is_library(module: str | None) -> bool:
    """Whether a module is none of those that a user writes."""
    top = (module or "").partition(".")[0]
    if top == "__main__":
        return False
    if top in ("minigrad", "layers", "numpy", "builtins") or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in file
