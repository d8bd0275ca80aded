"""What a step reads by name: its closure, its globals, and the attributes of its objects.

Whatever binds names is remembered as a Binding, with what it held: plain values by what they are,
arrays, Tensors, modules and other objects by identity. So a later call can tell whether anything
was bound anew, and a recording whether the step itself did that.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any
from zlib import crc32

import numpy as np

from ...engine.op import owner_of
from ...engine.tensor import Tensor

__all__ = ["PLAIN_KINDS", "Binding", "Bindings", "frozen", "is_library"]

PLAIN_KINDS = (
    bool, int, float, complex, str, bytes, type(None), type(...), slice, np.dtype, np.generic,
)  # fmt: skip
MANY = 1000  # a container with more entries counts as one object
LARGE = 1 << 24  # bytes: of larger arrays it is not noticed that the step writes into them
FEW = 4096  # so many entries of an array that Python reads are compared at each call
STANDS_FOR = ("func", "args", "keywords", "__self__", "__func__", "fget", "__wrapped__")


def frozen(x: Any) -> Any:
    """What must be equal of a value for it to count as the same."""
    if isinstance(x, PLAIN_KINDS):
        return x.__class__, repr(x)
    return (tuple, *map(frozen, x)) if x.__class__ is tuple else id(x)


@dataclass(eq=False)
class Binding:
    """Where names are bound, and what they held before the step ran.

    Attributes:
        title: in words.  owner: the dict, list, cells, object or array.
        read: what its names hold.
        looks: functions that list the same, or less that tells as much, and quicker; none for an
            array or a generator, which only the step itself must leave as it is.
        kept: names that a layer binds to what it keeps of its last call.
        changes: how often any other attribute of a layer was set.
    """

    title: str
    owner: Any
    read: Callable[[], dict[Any, Any]]
    looks: Sequence[Callable[[], Iterable[Any]]] = ()

    def __post_init__(self) -> None:
        self.kept: set[Any] = set()
        self.changes = getattr(self.owner, "_changes", None)
        self._held = self._forms()

    def _forms(self) -> dict[Any, Any]:
        return {name: frozen(x) for name, x in self.read().items()}

    def changed(self) -> list[Any]:
        """The names that are bound to something else by now."""
        differing = dict(self._held.items() ^ self._forms().items())
        return [name for name in differing if name not in self.kept]

    def called(self, name: Any) -> str:
        """One of its names, in words."""
        return f"{self.title}.{name}".strip(".")


class Bindings:
    """All that is found from a step and from objects among its arguments.

    Attributes:
        all: in the order in which they were found.
        tensors: those found.  names: of Tensors, and of the memory of arrays, by id.
    """

    def __init__(self, step: Any, given: Iterable[tuple[str, Any]]) -> None:
        self.all: list[Binding] = []
        self.tensors: list[Tensor] = []
        self.names: dict[int, str] = {}
        self._arrays: list[tuple[str, str, Any]] = []  # with titles and names
        self._code: dict[str, set[str]] = {}  # by a function's name, the names in it
        self._seen: dict[int, Any] = {}
        self._used: set[str] = set()  # names in the step's own code
        self._waiting = [*given, ("", step)]
        while self._waiting:
            title, x = self._waiting.pop()
            if not isinstance(x, PLAIN_KINDS) and id(x) not in self._seen:
                self._seen[id(x)] = x
                self._visit(title, x)

    def _visit(self, title: str, x: Any) -> None:
        name = ([""] + [part for part in title.split(".") if not part.isdigit()])[-1]
        if isinstance(x, Tensor):
            self.tensors.append(x)
            self.names[id(x)] = name
        elif isinstance(x, np.ndarray):
            self.names[id(owner_of(x))] = name
            self._arrays.append((title, name, x))
            if x.nbytes < LARGE:
                self.add(title, x, lambda: {"": crc32(x.tobytes())})
        elif isinstance(x, np.random.Generator):
            self.add(title, x, lambda: {"": repr(x.bit_generator.state)})
        elif isinstance(x, list | set | dict) and len(x) > MANY:
            self.hold(title, x, x.__len__)
        elif isinstance(x, dict):
            self._bind(title, x, x.copy, x.__iter__, x.values)
        elif isinstance(x, list | set):
            self._bind(title, x, lambda: dict(enumerate(x)), x.__iter__)
        elif isinstance(x, tuple):
            self._visit_all(title, dict(enumerate(x)))
        elif isinstance(x, FunctionType):
            if not title or not is_library(x.__module__):  # the step itself may be anybody's
                self._visit_function(name, x)
        elif isinstance(x, ModuleType | type):
            library = x.__name__ if isinstance(x, ModuleType) else x.__module__
            if not is_library(library):
                names = self._used if isinstance(x, ModuleType) else {*vars(x)}
                self._bind_names(x.__name__, vars(x), names)
        else:
            self._visit_object(title, x)

    def add(self, title: str, owner: Any, read: Any, *looks: Any) -> None:
        self.all.append(Binding(title, owner, read, looks))

    def hold(self, title: str, x: Any, fact: Callable[[], Any]) -> None:
        """Let a program fit only as long as a fact of x is the same."""
        before = fact()
        self.add(title, x, lambda: {"": fact()}, lambda: [fact() == before])

    def read_by_python(self) -> dict[str, Any]:
        """The arrays that are named in code that the step may run, by title."""
        used = ["", *STANDS_FOR]
        for name in used:  # a function that is named may name others
            used += self._code.pop(name, ())
        return {title: x for title, name, x in self._arrays if name in used}

    def _visit_all(self, title: str, parts: dict[Any, Any]) -> None:
        """Next of all; but modules and optimizers last, when all names are known."""
        for name, x in reversed(parts.items()):
            is_late = isinstance(x, ModuleType) or _is_of(type(x), "minigrad.optim")
            at = 0 if is_late else len(self._waiting)
            self._waiting.insert(at, (f"{title}.{name}".strip("."), x))

    def _bind(self, title: str, owner: Any, read: Any, *looks: Any) -> None:
        """Remember a binding, and visit what it holds."""
        self.add(title, owner, read, *(looks or [lambda: read().values()]))
        self._visit_all(title, read())

    def _bind_names(self, title: str, owner: Mapping[str, Any], used: set[str]) -> None:
        """Of a namespace, the names that the step uses."""
        names = sorted(used & owner.keys())
        if names:
            read = lambda: {name: owner.get(name) for name in names}  # noqa: E731
            self._bind(title, owner, read, partial(map, owner.get, names))

    def _visit_function(self, name: str, function: FunctionType) -> None:
        codes = [function.__code__]
        for code in codes:  # those of functions within it come behind
            codes += [part for part in code.co_consts if isinstance(part, CodeType)]
        names = {name for code in codes for name in (*code.co_names, *code.co_freevars)}
        self._code[name] = names | self._code.get(name, set())
        self._used |= names
        filled = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        cells = {name: cell for name, cell in filled if cell != CellType()}
        read = lambda: {name: cell.cell_contents for name, cell in cells.items()}  # noqa: E731
        if cells:
            self._bind("", (*cells.values(),), read)
        loads = [x for code in codes for x in dis.get_instructions(code)]
        used = {x.argval for x in loads if x.opname == "LOAD_GLOBAL"}
        self._bind_names("", function.__globals__, used)
        defaults = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
        self._visit_all("", dict(enumerate(defaults)))

    def _visit_object(self, title: str, x: Any) -> None:
        kind = type(x)
        own = [base for base in kind.__mro__ if not is_library(base.__module__)]
        if _is_of(kind, "minigrad.optim"):  # which a program calls as it is
            self._bind_names(title, vars(x), self._used)
            held = {k: v for k, v in vars(x).items() if isinstance(v, Tensor) or k == "parameters"}
            self._visit_all(title, held)
        elif own or _is_of(kind, "layers") or kind.__name__.endswith("Namespace"):
            self._visit_all("", {base.__name__: base for base in own})
            attributes = getattr(x, "__dict__", {})
            slots = [name for base in own for name in vars(base).get("__slots__", ())]
            read = lambda: attributes | {name: getattr(x, name, None) for name in slots}  # noqa: E731
            looks = []
            if _is_of(kind, "layers.module"):  # it counts how often any was set
                looks = [partial(map, attrgetter("_changes"), [x])]
            self._bind(title, x, read, *looks)
        else:  # of a library, which a partial, a method, a property or a wrapper is too
            parts = {name: getattr(x, name) for name in STANDS_FOR if hasattr(x, name)}
            self._visit_all(title, parts)


def _is_of(kind: type, package: str) -> bool:
    return any(str(base.__module__).startswith(package) for base in kind.__mro__)


def is_library(module: Any) -> bool:
    """Whether a module is none of those that a user writes; types of C may hold no name of one."""
    top = "" if module is None else str(module).partition(".")[0]
    if top in ("minigrad", "layers") or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(str(module)), "__file__", None) or ""
    return "site-packages" in file
