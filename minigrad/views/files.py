"""Files that lie beside the views: templates, styles, scripts."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from ..engine.errors import ArgumentError

__all__ = ["asset", "filled", "one_of"]


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
