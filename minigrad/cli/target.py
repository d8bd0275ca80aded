"""A user's own function, named FILE.py:FUNCTION or package.module:function: found, loaded, guarded.

A file is run as Python runs a script, with its folder first on sys.path, but not as `__main__`.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import TracebackException
from types import ModuleType
from typing import Any

from ..engine.errors import ArgumentError, MinigradError
from ..views.plain import one_line

__all__ = ["Target", "guarded", "surroundings"]

ALIAS = "__explained__"  # what a file's module is called while it runs: no module has this name
MOST_NAMES = 8
HERE = Path(__file__).resolve().parents[2]
# frames in these are no user's
OTHERS = [
    HERE / "minigrad",
    HERE / "layers",
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")),
]


class Target:
    """The two parts of FILE.py:FUNCTION. Raises: ArgumentError if one of them is missing."""

    def __init__(self, text: str) -> None:
        self.place, _, self.function = text.rpartition(":")
        if not self.place or not self.function or "\0" in text:
            raise ArgumentError(
                f"a function is named FILE.py:FUNCTION or package.module:function, "
                f"got {one_line(text)}"
            )
        self.of_file = self.place.endswith(".py") or os.path.basename(self.place) != self.place
        self.path = Path(os.path.abspath(self.place)) if self.of_file else None

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
        module = _module(self.place) if self.path is None else _file(self.path, self.place)
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
            said = f"did you mean {' or '.join(near)}?"
        else:
            more = f" and {len(own) - MOST_NAMES} more" if len(own) > MOST_NAMES else ""
            said = f"it has {', '.join(own[:MOST_NAMES]) or 'none'}{more}"
        return f"{one_line(self.function)!r}, {said}"


def _needed(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments that a call must give."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell
        return []
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in free]


# ---------------------------------------------------------------- loading


def _file(path: Path, said: str) -> ModuleType:
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


# ---------------------------------------------------------------- what goes wrong inside


@contextmanager
def guarded(target: Target) -> Iterator[None]:
    """Whatever user code raises becomes a MinigradError of one line, its trail as a note."""
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except BaseException as error:
        if isinstance(error, ArgumentError) and error.__traceback__ is not None:
            if not _own_frames(error, target):
                raise  # it is ours: what was asked for cannot be
        try:
            said = str(error)
        except Exception:  # a message that cannot be told
            said = ""
        first = one_line((said.strip().splitlines() or [""])[0])
        name = type(error).__name__
        failed = MinigradError(f"{target} raised {name}{f': {first}' if first else ''}")
        if trail := _trail(error, target):
            failed.add_note(trail)
        raise failed from None


def _own_frames(error: BaseException, target: Target) -> bool:
    return any(_mine(f.filename, target) for f in TracebackException.from_exception(error).stack)


def _trail(error: BaseException, target: Target) -> str:
    """The traceback with no frames but the user's; nothing if there is none."""
    told = TracebackException.from_exception(error)
    chain = [told]
    for one in chain:  # grows as it goes: what this one came from
        one.stack[:] = [frame for frame in one.stack if _mine(frame.filename, target)]
        chain += [e for e in (one.__cause__, one.__context__, *(one.exceptions or ())) if e]
    for one in reversed(chain):  # what came from elsewhere altogether says nothing here
        if one.__cause__ is not None and not _tells(one.__cause__):
            one.__cause__ = None
        if one.__context__ is not None and not _tells(one.__context__):
            one.__context__ = None
    seen = _tells(told) or isinstance(error, SyntaxError)  # which says its own file and line
    text = "".join(told.format()) if seen else ""
    return "\n".join(one_line(line.expandtabs()) for line in text.splitlines())


def _tells(one: TracebackException) -> bool:
    return bool(one.stack or one.__cause__ or one.__context__ or one.exceptions)


def _mine(filename: str, target: Target) -> bool:
    """Whether a file is the user's: the innermost known folder around it decides."""
    if filename.startswith("<"):  # generated code, and what imports
        return False
    file = Path(filename).resolve()
    around = [folder for folder in OTHERS if folder in file.parents]
    own = Path(target.folder)
    inner = max((len(folder.parts) for folder in around), default=-1)
    return inner < 0 or (own in file.parents and len(own.parts) > inner)
