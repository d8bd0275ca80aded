"""A user's own function, named FILE.py:FUNCTION or package.module:function: found and loaded.

A file is run as Python runs a script, with its folder first on sys.path, but not as `__main__`.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ..engine.errors import ArgumentError
from ..views.plain import one_line

__all__ = ["Target", "surroundings"]

ALIAS = "__explained__"  # what a file's module is called while it runs: no module has this name
MOST_NAMES = 8


class Target:
    """The two parts of FILE.py:FUNCTION. Raises: ArgumentError if one of them is missing."""

    def __init__(self, text: str) -> None:
        self.place, _, self.function = text.rpartition(":")
        if not self.place or not self.function or "\0" in text:
            raise ArgumentError(
                f"a function is named FILE.py:FUNCTION or package.module:function, "
                f"got {one_line(text)}"
            )
        of_file = self.place.endswith(".py") or os.path.basename(self.place) != self.place
        self.path = Path(os.path.abspath(self.place)) if of_file else None

    def __str__(self) -> str:
        return one_line(f"{self.place}:{self.function}")

    @property
    def folder(self) -> str:
        """What comes first on sys.path: the file's folder, or where the command was called."""
        return os.getcwd() if self.path is None else str(self.path.resolve().parent)

    def load(self) -> Callable[[], Any]:
        """The function itself, once what it stands in has run.

        Raises: ArgumentError if there is no such function, or it cannot be called with nothing.
        """
        module = _module(self.place) if self.path is None else _run_file(self.path, self.place)
        found = getattr(module, self.function, None)
        if not callable(found):
            raise ArgumentError(f"{one_line(self.place)} has no function {self._hint(module)}")
        if needed := _needed(found):
            s = "s" * (len(needed) > 1)
            raise ArgumentError(
                f"{self} needs argument{s} {', '.join(needed)}; explain calls it without any"
            )
        return found  # type: ignore[no-any-return]

    def _hint(self, module: ModuleType) -> str:
        """Names of functions that the module does define, the nearest if any is near."""
        own = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        if near := get_close_matches(self.function, own, n=3):
            return f"{one_line(self.function)!r}, did you mean {' or '.join(near)}?"
        more = f" and {len(own) - MOST_NAMES} more" if len(own) > MOST_NAMES else ""
        listed = ", ".join(own[:MOST_NAMES]) or "none"
        return f"{one_line(self.function)!r}, it has {listed}{more}"


def _needed(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments that a call must give."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell
        return []
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in free]


def _run_file(path: Path, said: str) -> ModuleType:
    try:
        source = path.read_bytes()
    except IsADirectoryError as error:
        raise ArgumentError(f"{one_line(said)} is a folder; a .py file is needed") from error
    except FileNotFoundError as error:
        raise ArgumentError(f"no such file: {one_line(said)}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ArgumentError(f"{one_line(said)} cannot be read: {why}") from error
    module = ModuleType(ALIAS)
    module.__file__ = str(path)
    sys.modules[ALIAS] = module  # where dataclasses, for one, look for it
    exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    return module


def _module(name: str) -> ModuleType:
    unknown = f"no module named {one_line(name)!r}; a file is named with its .py"
    if not all(name.split(".")):
        raise ArgumentError(unknown)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ArgumentError(unknown) from error
        raise  # something that it imports


@contextmanager
def surroundings(target: Target) -> Iterator[None]:
    """The folder on sys.path; afterwards sys.path and the working folder are as they were."""
    paths, folder = list(sys.path), os.getcwd()
    sys.path.insert(0, target.folder)
    try:
        yield
    finally:
        sys.path[:] = paths
        sys.modules.pop(ALIAS, None)
        os.chdir(folder)
