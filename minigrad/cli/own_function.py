"""A user's own function as a source: it takes no arguments, returns a loss, and may name tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine.errors import ArgumentError
from ..views.plain import one_line
from .load_function import Target, users_code
from .source import Source

__all__ = ["own_function"]


def own_function(name: str) -> Source:
    """The function FILE.py:FUNCTION or package.module:function.

    Its attribute `tokens`, where it has one, names the positions that attention looks at:
    `tired.tokens = ["The", "animal", …]`, or a list of such lists, one for each of the batch.
    Raises: ArgumentError if there can be no such name.
    """
    target = Target(name)

    def load() -> Callable[[], Any]:
        function = target.load()
        made.tokens = _tokens(function, target)
        made.facts = [f'on "{one_line(" ".join(text), 120)}"' for text in made.tokens or ()]
        return function

    made = Source(
        load,
        str(target),
        known={"function": str(target)},
        around=lambda: users_code(target),
        python=target.python,
        name=target.function,
    )
    return made


def _tokens(function: Any, target: Target) -> list[list[str]] | None:
    given = getattr(function, "tokens", None)
    if given is None:
        return None
    several = isinstance(given, list | tuple) and given and isinstance(given[0], list | tuple)
    texts = given if several else [given]
    lists = all(isinstance(text, list | tuple) for text in texts)
    if not lists or not all(text and all(isinstance(t, str) for t in text) for text in texts):
        raise ArgumentError(f"{target}.tokens must be a list of words, or of such lists")
    return [list(text) for text in texts]
