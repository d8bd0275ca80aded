"""A user's own function as a source: how it is found and run, and how its errors are shown.

It is named FILE.py:FUNCTION or package.module:function, takes no arguments, and may name tokens. A
file is run as Python runs a script, with its folder first on sys.path, but not as `__main__`.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import TracebackException
from types import ModuleType
from typing import Any

from ..engine.errors import ArgumentError, MinigradError
from ..playing.run import Source
from ..views.plain import one_line

__all__ = ["own_function"]

ALIAS = "__explained__"  # what a file's module is called while it runs: no module has this name
MOST_NAMES = 8
HERE = Path(__file__).resolve().parents[2]
INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
NOT_THE_USERS = [HERE / "minigrad", HERE / "layers", *INSTALLED]


def own_function(name: str) -> Source:
    """The function FILE.py:FUNCTION or package.module:function.

    Its attribute `tokens`, where it has one, names the positions that attention looks at:
    `tired.tokens = ["The", "animal", …]`, or a list of such lists, one for each of the batch.
    Raises: ArgumentError if there can be no such name.
    """
    target = Target(name)

    def load() -> Callable[[], Any]:
        function = target.load()
        source.tokens = _tokens(function, target)
        source.facts = [f'on "{one_line(" ".join(text), 120)}"' for text in source.tokens or ()]
        return function

    source = Source(
        load,
        str(target),
        known={"function": str(target)},
        around=lambda: users_code(target),
        python=target.python,
        name=target.function,
    )
    return source


def _tokens(function: Callable[[], Any], target: Target) -> list[list[str]] | None:
    tokens = getattr(function, "tokens", None)
    if tokens is None:
        return None
    several = isinstance(tokens, list | tuple) and tokens and isinstance(tokens[0], list | tuple)
    texts = tokens if several else [tokens]
    lists = all(isinstance(text, list | tuple) for text in texts)
    if not lists or not all(text and all(isinstance(t, str) for t in text) for text in texts):
        raise ArgumentError(f"{target}.tokens must be a list of words, or of such lists")
    return [list(text) for text in texts]


class Target:
    """The two parts of FILE.py:FUNCTION. Raises: ArgumentError if one of them is missing."""

    def __init__(self, text: str) -> None:
        self.place, _, self.function = text.rpartition(":")
        if not self.place or not self.function or "\0" in text:
            named = "a function is named FILE.py:FUNCTION or package.module:function"
            raise ArgumentError(f"{named}, got {one_line(text)}")
        of_file = self.place.endswith(".py") or os.path.basename(self.place) != self.place
        self.path = Path(os.path.abspath(self.place)) if of_file else None
        self.module: ModuleType | None = None  # the file's, once it has run
        # what comes first on sys.path: the file's folder, or where the command was called
        self.folder = str(self.path.resolve().parent) if self.path else os.getcwd()

    def __str__(self) -> str:
        return one_line(f"{self.place}:{self.function}")

    @property
    def python(self) -> str:
        """Statements that give the function to a program of one's own."""
        if self.path is None:
            return f"from {self.place} import {self.function}"
        found = f'{self.function} = runpy.run_path({self.place!r})["{self.function}"]'
        return f"import runpy\nimport sys\n\nsys.path.insert(0, {self.folder!r})\n{found}"

    def load(self) -> Callable[[], Any]:
        """The function itself, once what it stands in has run.

        Raises: ArgumentError if there is no such function, or it cannot be called with nothing.
        """
        module = self._run_file(self.path) if self.path else self._module()
        found = getattr(module, self.function, None)
        if not callable(found):
            raise ArgumentError(f"{one_line(self.place)} has no function {self._hint(module)}")
        if needed := _needed(found):
            arguments = f"argument{'s' * (len(needed) > 1)} {', '.join(needed)}"
            raise ArgumentError(f"{self} needs {arguments}; explain calls it without any")
        return found

    def _run_file(self, path: Path) -> ModuleType:
        place = one_line(self.place)
        if path.is_dir():
            raise ArgumentError(f"{place} is a folder; a .py file is needed")
        try:
            source = path.read_bytes()
        except FileNotFoundError as error:
            raise ArgumentError(f"no such file: {place}") from error
        except OSError as error:
            raise ArgumentError(f"{place} cannot be read: {error.strerror}") from error
        module = ModuleType(ALIAS)
        module.__file__ = str(path)
        self.module = sys.modules[ALIAS] = module  # where dataclasses, for one, look for it
        exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
        return module

    def _module(self) -> ModuleType:
        name = self.place
        unknown = f"no module named {one_line(name)!r}; a file is named with its .py"
        if not all(name.split(".")):
            raise ArgumentError(unknown)
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                raise ArgumentError(unknown) from error
            raise  # something that it imports

    def _hint(self, module: ModuleType) -> str:
        """Names of functions that the module does define, the nearest if any is near."""
        here = module.__name__
        found = (pair for pair in vars(module).items() if inspect.isfunction(pair[1]))
        own = [name for name, value in found if value.__module__ == here]
        if near := get_close_matches(self.function, own, n=3):
            return f"{one_line(self.function)!r}, did you mean {' or '.join(near)}?"
        more = f" and {len(own) - MOST_NAMES} more" if len(own) > MOST_NAMES else ""
        return f"{one_line(self.function)!r}, it has {', '.join(own[:MOST_NAMES]) or 'none'}{more}"


def _needed(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments that a call must give."""
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    with suppress(TypeError, ValueError):  # a builtin without a signature
        parameters = inspect.signature(function).parameters.values()
        return [p.name for p in parameters if p.default is p.empty and p.kind not in free]
    return []


@contextmanager
def users_code(target: Target) -> Iterator[None]:
    """The folder on sys.path, and afterwards sys.path and the working folder as they were.

    Whatever user code raises becomes a MinigradError of one line, with its traceback as a note.
    """
    paths, folder = list(sys.path), os.getcwd()
    sys.path.insert(0, target.folder)
    if target.module is not None:
        sys.modules[ALIAS] = target.module
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except BaseException as error:
        shown = TracebackException.from_exception(error)
        _keep_users_frames(shown, Path(target.folder))
        if isinstance(error, ArgumentError) and not shown.stack:
            raise  # it is ours: what was asked for cannot be
        failed = MinigradError(f"{target} raised {_summary(error)}")
        if _has_frames(shown) or isinstance(error, SyntaxError):  # which says its own file and line
            lines = "".join(shown.format()).splitlines()
            failed.add_note("\n".join(one_line(line.expandtabs()) for line in lines))
        raise failed from None
    finally:
        sys.path[:] = paths
        sys.modules.pop(ALIAS, None)
        os.chdir(folder)


def _summary(error: BaseException) -> str:
    first = ""
    with suppress(Exception):  # a message that cannot be computed
        first = one_line((str(error).strip().splitlines() or [""])[0])
    return f"{type(error).__name__}{f': {first}' if first else ''}"


def _keep_users_frames(shown: TracebackException, own: Path) -> None:
    """Drop the other frames, and causes that came from elsewhere altogether."""
    chain = [shown]
    for error in chain:  # the loop appends to it what each error came from
        error.stack[:] = [frame for frame in error.stack if _is_users(frame.filename, own)]
        chain += [e for e in (error.__cause__, error.__context__, *(error.exceptions or ())) if e]
    for error in reversed(chain):
        for origin in ("__cause__", "__context__"):
            if (before := getattr(error, origin)) is not None and not _has_frames(before):
                setattr(error, origin, None)


def _has_frames(error: TracebackException) -> bool:
    return bool(error.stack or error.__cause__ or error.__context__ or error.exceptions)


def _is_users(filename: str, own: Path) -> bool:
    """Whether a file is the user's: the innermost known folder around it decides."""
    if filename.startswith("<"):  # generated code, and what imports
        return False
    around = set(Path(filename).resolve().parents)
    inner = max((len(f.parts) for f in NOT_THE_USERS if f in around), default=-1)
    return inner < 0 or (own in around and len(own.parts) > inner)
