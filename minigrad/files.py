"""Writing a file: it is there whole, under its own name and mode, or nothing has changed.

A symbolic link is followed; a device or a pipe is written to; a folder is refused.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import ENXIO
from glob import escape
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from time import time
from typing import IO, TextIO

from .engine.errors import ArgumentError, FileError

__all__ = [
    "append",
    "is_special",
    "make_folder",
    "move_into_place",
    "open_regular",
    "resolve",
    "write",
    "writing",
]

MOST_NAME = 60  # characters of a name that an error shows
UNFINISHED = ".unfinished"
ABANDONED = 3600  # seconds after which an unfinished file is that of a process that was killed


def resolve(path: str | os.PathLike[str], call: str) -> Path:
    """The path that a write to `path` goes to: where a symbolic link points, else `path` itself.

    Raises: ArgumentError, naming the call, if `path` is a folder, if there is no folder to write it
        into, or if no file can have such a name.
    """
    path = Path(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = 0
    except NotADirectoryError:
        raise ArgumentError(_no_folder(path, call)) from None
    except PermissionError as error:
        raise ArgumentError(f"{call}: {str(path)!r}: {error.strerror}") from None
    except (OSError, ValueError):  # too long, a NUL, links that lead back to themselves
        named = repr(path.name if len(path.name) <= MOST_NAME else path.name[:MOST_NAME] + "…")
        raise ArgumentError(f"{call}: no file can be named {named}") from None
    if stat.S_ISDIR(mode):
        raise ArgumentError(f"{call}: {str(path)!r} is a folder; name a file in it")
    if path.is_symlink() and not _special(mode):
        path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise ArgumentError(_no_folder(path, call))
    return path


def make_folder(folder: Path, call: str) -> None:
    """Make a folder and those above it. Raises: ArgumentError if no folder can be there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ArgumentError(
            f"{call}: {str(folder)!r} is a file, or lies below one; a folder is needed"
        ) from None
    except ValueError:
        raise ArgumentError(f"{call}: no folder can be named {str(folder)!r}") from None


def is_special(path: Path) -> bool:
    """Whether this is a device, a pipe or a socket, which is written to and never replaced."""
    return path.exists() and _special(path.stat().st_mode)


def write(path: str | os.PathLike[str], content: str | bytes, call: str = "draw") -> Path:
    """Write a file so that it is there whole or not at all. Returns: the path.

    Raises: ArgumentError as `resolve` does; OSError, as of a full disk.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write(f"{folder}/notes.md", "Q = X W_Q").read_text()
    'Q = X W_Q'
    """
    with writing(path, call) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


@contextmanager
def writing(
    path: str | os.PathLike[str],
    call: str,
    *,
    sync: bool = False,
    before: Callable[[], None] = lambda: None,
) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` once all is written.

    Each writer has an unfinished file of its own, so that two of one path never share one. A device
    or a pipe is written to itself.

    Args:
        sync: write it to the disk before it takes the place.
        before: called when it is whole, before it takes the place.
    """
    target = resolve(path, call)
    if is_special(target):
        with _opened(target, call) as sink, TemporaryFile() as file:
            yield file  # one that can seek, as the zip format needs
            file.seek(0)
            shutil.copyfileobj(file, sink)
        return
    _remove_abandoned(target)
    unfinished = target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}{UNFINISHED}")
    mode = _mode(target)
    try:
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode or 0o666)
        with open(handle, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        before()
        move_into_place(unfinished, target, call)
    finally:
        unfinished.unlink(missing_ok=True)


def move_into_place(made: Path, path: str | os.PathLike[str], call: str) -> None:
    """Give a file that is whole the name `path`, with the mode of what is there now.

    Its content goes where a link points, or into a device or pipe.
    """
    target = resolve(path, call)
    if is_special(target):
        with made.open("rb") as source, _opened(target, call) as sink:
            shutil.copyfileobj(source, sink)
        made.unlink()
        return
    if (mode := _mode(target)) is not None:
        made.chmod(mode)
    os.replace(made, target)


def append(path: str | os.PathLike[str], call: str) -> TextIO:
    """A text file open for appending. Raises: as `resolve` does."""
    target = resolve(path, call)
    if is_special(target):
        return TextIOWrapper(_opened(target, call), encoding="utf-8")
    return target.open("a", encoding="utf-8")


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """A regular file open for reading: reading a pipe would block, a device may never end.

    Raises: FileError for anything else that is there; OSError if it cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileError(f"{path} is no regular file")
    return open(handle, "rb")


def _prefix(target: Path) -> str:
    return f".{target.name[:40]}."


def _remove_abandoned(target: Path) -> None:
    """Remove unfinished files of this name, which processes that were killed left behind."""
    for left in target.parent.glob(f"{escape(_prefix(target))}*{UNFINISHED}"):
        with suppress(OSError):
            if time() - left.stat().st_mtime > ABANDONED:
                left.unlink()


def _opened(target: Path, call: str) -> IO[bytes]:
    """A device or a pipe that someone reads. Raises: ArgumentError if none does, or of a socket."""
    try:
        handle = os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        what = (
            "is a pipe that nobody reads, or a socket" if error.errno == ENXIO else error.strerror
        )
        raise ArgumentError(f"{call}: {str(target)!r} {what}; name a file") from None
    os.set_blocking(handle, True)
    return open(handle, "wb")


def _special(mode: int) -> bool:
    return mode != 0 and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _mode(path: Path) -> int | None:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    return None


def _no_folder(path: Path, call: str) -> str:
    return f"{call}: there is no folder {str(path.parent)!r} to write {path.name!r} into"
