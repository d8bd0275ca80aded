"""Files that views write, and those that lie beside them: templates, styles, scripts."""

from __future__ import annotations

import os
import re
import secrets
from errno import ENAMETOOLONG
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..engine.errors import ArgumentError
from .plain import one_line

__all__ = ["asset", "filled", "one_of", "write"]


def one_of(call: str, known: Any, **given: Any) -> None:
    """Raises: ArgumentError, naming the call, if what is given for an option is not known."""
    ((name, value),) = given.items()
    if value not in known:
        said = ", ".join(filter(None, known))
        raise ArgumentError(f"{call}: {name} must be one of {said}, got {value!r}")


@cache
def asset(name: str) -> str:
    """The text of a file within `views`."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def filled(template: str, parts: dict[str, str]) -> str:
    """A template with its parts; what looks like a place within a part stays as it is.

    >>> filled("<p>{{text}}</p>", {"text": "{{text}}"})
    '<p>{{text}}</p>'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], template)


def write(path: str | Path, content: str | bytes, call: str = "draw") -> Path:
    """Write a file so that it is there whole or not at all. Returns: the path.

    Raises: ArgumentError, naming the call, if its folder does not exist, if the path is one itself,
        or if no file can have such a name.
    """
    path = Path(path)
    if os.path.isdir(path):  # False for a name that no file can have
        raise ArgumentError(f"{call}: {str(path)!r} is a folder; name a file in it")
    if not os.path.isdir(path.parent):
        raise ArgumentError(
            f"{call}: there is no folder {str(path.parent)!r} to write {path.name!r} into"
        )
    whole = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with open(whole, "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(whole, path)
    except BaseException as error:
        whole.unlink(missing_ok=True)
        if isinstance(error, ValueError) or getattr(error, "errno", None) == ENAMETOOLONG:
            raise ArgumentError(
                f"{call}: no file can be named {one_line(path.name, 60)!r}"
            ) from None
        raise
    return path
