"""A folder that gets all of its new files, or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..engine.errors import ArgumentError
from ..views.plain import one_line

__all__ = ["staged"]


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A place to write in; what lies there at the end is moved into `out`, each file whole.

    `out` and its parents are made if absent. If anything fails, what was in `out` stays as
    it was, and folders made for it are gone again.
    Raises: ArgumentError if `out` is a file or cannot be written, at once and not after the work.
    """
    made: list[Path] = []
    place = None
    try:
        with _telling(out):
            made = [folder for folder in (out, *out.parents) if not folder.exists()]
            out.mkdir(parents=True, exist_ok=True)
            place = Path(tempfile.mkdtemp(prefix=".minigrad-", dir=out))
        yield place
        _move(place, out)
        made = []
    finally:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
        for folder in made:
            with suppress(OSError, ValueError):  # something else lies in it now
                folder.rmdir()


def _move(place: Path, out: Path) -> None:
    new = sorted(place.iterdir())
    for file in new:  # all that can be known beforehand, so that no file moves alone
        if (out / file.name).is_dir():
            raise ArgumentError(f"--out {one_line(str(out))}: {file.name} is a folder there")
    with _telling(out):
        for file in new:
            os.replace(file, out / file.name)


@contextmanager
def _telling(out: Path) -> Iterator[None]:
    """Errors of the file system in the words of the command line."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, FileExistsError | NotADirectoryError):
            why = "is a file, or lies below one; a folder is needed"
        elif isinstance(error, OSError) and error.strerror:
            why = error.strerror[0].lower() + error.strerror[1:]
        raise ArgumentError(f"--out {one_line(str(out))}: {why}") from error
