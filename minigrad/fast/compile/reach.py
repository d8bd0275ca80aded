"""What a step reaches by name: its closure, its globals, and the attributes of its objects.

Whatever binds names, a holder, is remembered with what it held: plain values by what they are,
arrays, Tensors, modules and other objects by identity. So a later call can tell whether anything
was bound anew, and a recording whether the step itself did that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import CellType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any
from zlib import crc32

import numpy as np

from ...engine.tensor import Tensor

__all__ = ["PLAIN_KINDS", "Holder", "Reach", "frozen", "owner_of"]

PLAIN_KINDS = (
    bool, int, float, complex, str, bytes, type(None), type(...), slice, np.dtype, np.generic,
)  # fmt: skip
MANY = 1000  # a container with more entries counts as one object
LARGE = 1 << 24  # bytes: of larger arrays it is not noticed that the step writes into them
STANDS_FOR = ("func", "args", "keywords", "__self__", "__func__", "fget", "__wrapped__")


def frozen(x: Any) -> Any:
    """What must be equal of a value for it to count as the same."""
    if isinstance(x, PLAIN_KINDS):
        return x.__class__, repr(x) if x != x or x.__class__ is slice else x
    return (tuple, *map(frozen, x)) if x.__class__ is tuple else id(x)


def owner_of(array: Any) -> Any:
    """The array that owns the memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Holder:
    """Where names are bound, and what they held before the step ran.

    Attributes:
        title: in words.  owner: the dict, list, cells, object or array.
        code: Python for what is the same as long as it holds the same, with {0} for the owner; ""
            for an array or a generator, which only the step itself must leave as it is.
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
        differing = self._held.items() ^ self._forms().items()
        return [name for name in dict(differing) if name not in self.kept]


class Reach:
    """All holders that are found from a step and from objects among its arguments.

    Attributes: tensors: those found.  names: of Tensors, and of the memory of arrays, by id.
    """

    def __init__(self, step: Any, given: Iterable[tuple[str, Any]]) -> None:
        self.holders: list[Holder] = []
        self.tensors: list[Tensor] = []
        self.names: dict[int, str] = {}
        self._seen: dict[int, Any] = {}
        self._used: set[str] = set()  # names of globals and attributes in the step's own code
        self._waiting = [*given, ("", step)]
        while self._waiting:
            self._visit(*self._waiting.pop())

    def _visit(self, title: str, x: Any) -> None:
        if isinstance(x, PLAIN_KINDS) or id(x) in self._seen:
            return
        self._seen[id(x)] = x
        if isinstance(x, Tensor):
            self.tensors.append(x)
            self.names[id(x)] = title.rpartition(".")[2]
        elif isinstance(x, np.ndarray):
            self.names[id(owner_of(x))] = title.rpartition(".")[2]
            if x.nbytes < LARGE:
                self._hold(title, x, lambda: crc32(x.tobytes()))
        elif isinstance(x, tuple):
            self._visit_all(title, dict(enumerate(x)))
        elif isinstance(x, list | set | dict):
            if len(x) > MANY:
                self.holders.append(Holder(title, x, "len({0})", lambda: {"length": len(x)}))
            elif isinstance(x, dict):
                self._bind(title, x, "*{0}, *{0}.values()", lambda: dict(x))
            else:
                self._bind(title, x, "*{0}", lambda: dict(enumerate(x)))
        elif isinstance(x, FunctionType):
            if not title or not _is_library(x.__module__):  # the step itself may be anybody's
                self._visit_function(x)
        elif isinstance(x, ModuleType):
            if not _is_library(x.__name__):
                self._bind_names(x.__name__, vars(x), self._used)
        else:
            self._visit_object(title, x, type(x))

    def _hold(self, title: str, x: Any, look: Callable[[], Any], code: str = "") -> None:
        """Remember what may change though no name is bound anew."""
        self.holders.append(Holder(title, x, code, lambda: {"": look()}))

    def hold_entries(self, title: str, x: np.ndarray) -> None:
        """Let a program fit only as long as the entries of an array are the same."""
        self._hold(title, x, x.tobytes, "{0}.tobytes()")

    def _visit_all(self, title: str, parts: dict[Any, Any]) -> None:
        """Next of all; but modules and optimizers last, when all names are known."""
        for name, x in reversed(parts.items()):
            is_late = isinstance(x, ModuleType) or _is_updating(x)
            at = 0 if is_late else len(self._waiting)
            self._waiting.insert(at, (f"{title}.{name}".strip("."), x))

    def _bind(self, title: str, owner: Any, code: str, read: Callable[[], dict[Any, Any]]) -> None:
        """Remember a holder, and visit what it holds."""
        self.holders.append(Holder(title, owner, code, read))
        self._visit_all(title, read())

    def _bind_names(self, title: str, owner: dict[str, Any], used: set[str]) -> None:
        """Of a dict, the names that the step uses."""
        names = sorted(used & owner.keys())
        code = ", ".join(f"{{0}}.get({name!r})" for name in names)
        self._bind(title, owner, code, lambda: {name: owner.get(name) for name in names})

    def _visit_function(self, function: FunctionType) -> None:
        codes = [function.__code__]
        for code in codes:  # those of functions within it come behind
            codes += [part for part in code.co_consts if isinstance(part, CodeType)]
        used = {name for code in codes for name in code.co_names}
        self._used |= used
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        cells = {name: cell for name, cell in cells.items() if cell != CellType()}  # is filled
        reads = ", ".join(f"{{0}}[{i}].cell_contents" for i in range(len(cells)))
        read = lambda: {name: cell.cell_contents for name, cell in cells.items()}  # noqa: E731
        self._bind("", tuple(cells.values()), reads, read)
        self._bind_names("", function.__globals__, used)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._visit_all("", dict(enumerate(defaults)))

    def _visit_object(self, title: str, x: Any, kind: type) -> None:
        attributes = getattr(x, "__dict__", None)
        own = [base for base in kind.__mro__ if not _is_library(base.__module__)]
        if isinstance(x, type):
            if not _is_library(x.__module__):
                self._bind(x.__name__, vars(x), "*{0}.values()", lambda: dict(vars(x)))
        elif isinstance(x, np.random.Generator):
            self._hold(title, x, lambda: repr(x.bit_generator.state))
        elif _is_updating(x):
            self._bind_names(title, vars(x), self._used)
            held = {k: v for k, v in vars(x).items() if isinstance(v, Tensor) or k == "parameters"}
            self._visit_all(title, held)
        elif (
            own or str(kind.__module__).startswith("layers") or kind.__name__.endswith("Namespace")
        ):
            self._visit_all("", {base.__name__: base for base in own})
            slots = [name for base in own for name in vars(base).get("__slots__", ())]
            reads = [f"getattr({{0}}, {name!r}, None)" for name in slots]
            if attributes is not None:  # a Module counts how often they were set
                counts = isinstance(getattr(kind, "_changes", None), MemberDescriptorType)
                reads.append("{0}._changes" if counts else "*{0}.__dict__.values()")
            read = lambda: (attributes or {}) | {n: getattr(x, n, None) for n in slots}  # noqa: E731
            self._bind(title, x, ", ".join(reads), read)
        else:  # of a library, which a partial, a method, a property or a wrapper is too
            parts = {name: getattr(x, name) for name in STANDS_FOR if hasattr(x, name)}
            self._visit_all(title, parts)


def _is_updating(x: Any) -> bool:
    """Whether it is an optimizer or the like, which a program calls as it is."""
    return any(str(base.__module__).startswith("minigrad.optim") for base in type(x).__mro__)


def _is_library(module: Any) -> bool:
    """Whether a module is none of those that a user writes; types of C may hold no name of one."""
    top = "" if module is None else str(module).partition(".")[0]
    if top in ("minigrad", "layers", "numpy", "builtins") or top in sys.stdlib_module_names:
        return top != "__main__"
    file = getattr(sys.modules.get(str(module)), "__file__", None) or ""
    return "site-packages" in file or top[:1] == "<"
