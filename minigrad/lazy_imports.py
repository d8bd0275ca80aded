"""Names of a package whose modules are imported at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from .engine.refusals import runs
from .habits import missing

__all__ = ["in_a_notebook", "lazy_imports", "missing_name", "public_names"]


def missing_name(module: str, name: str) -> AttributeError | ImportError:
    """The error of a module's `__getattr__` for a name that is not there, with what to write.

    In `from module import name` it is an ImportError, as Python would drop the text of another.
    """
    error = missing(f"module {module!r}", name, sys.modules[module].__all__)
    if runs(sys._getframe(2), "IMPORT_FROM"):
        return ImportError(str(error), name=name)
    return error


def public_names(package: str, later: dict[str, str], without: Iterable[str] = ()) -> list[str]:
    """The `__all__` of a package: its own names but modules, together with those of `later`.

    Args: without: names to leave out.
    """
    there = sys.modules[package]
    hidden = {"TYPE_CHECKING", *without}
    named = {name for name in vars(there) if name[0] != "_" and name not in hidden}
    modules = {name for name in named if isinstance(vars(there)[name], ModuleType)}
    names = {name for theirs in later.values() for name in theirs.split()}
    return sorted(named - modules | names)


def lazy_imports(
    package: str, names: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package, for names and modules imported at first use.

    Args: names: by module, its names. `dir()` shows the package's `__all__`.

    >>> find, everything = lazy_imports("minigrad", {"check": "gradcheck"})
    >>> find("gradcheck").__module__, "compare" in everything()
    ('minigrad.check', True)
    """
    module_of = {
        name: module for module, theirs in names.items() for name in (module, *theirs.split())
    }

    def find(name: str) -> Any:
        if name not in module_of:
            raise missing_name(package, name)
        module = import_module(f"{package}.{module_of[name]}")
        found = module if name == module_of[name] else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    def everything() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return find, everything


def in_a_notebook(view: str) -> Any:
    """A `_repr_mimebundle_` that calls this function of views.notebook, imported only then."""

    def bundle(shown: Any, include: Any = None, exclude: Any = None) -> Any:
        return getattr(import_module("minigrad.views.notebook"), view)(shown)

    return bundle
