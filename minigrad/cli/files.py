"""A folder that gets all of its new files, or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    place: Path | None = None
    try:
        try:
            made = [folder for folder in (out, *out.parents) if not folder.exists()]
            out.mkdir(parents=True, exist_ok=True)
            place = Path(tempfile.mkdtemp(prefix=".minigrad-", dir=out))
        except (OSError, ValueError) as error:
            raise ArgumentError(f"--out {one_line(str(out))}: {_why(error)}") from error
        yield place
        _move(place, out)
        made = []
    finally:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
        for folder in made:
            _remove_if_empty(folder)


def _move(place: Path, out: Path) -> None:
    new = sorted(place.iterdir())
    for file in new:  # all that can be known beforehand, so that no file moves alone
        if (out / file.name).is_dir():
            raise ArgumentError(f"--out {one_line(str(out))}: {file.name} is a folder there")
    try:
        for file in new:
            os.replace(file, out / file.name)
    except OSError as error:
        raise ArgumentError(f"--out {one_line(str(out))}: {_why(error)}") from error


def _why(error: Exception) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "is a file, or lies below one; a folder is needed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except (OSError, ValueError):
        return
