"""Tensors of a run by path: which of them a pattern names, and the nearest paths if none."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

__all__ = ["is_pattern", "matches", "nearest"]


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern names a path: whole, or from one of its scopes on.

    `*` stands for any characters within one name, `?` for one; a `/` in front for the outermost.

    >>> matches("blocks.*/attention/A", "model/blocks.3/attention/A"), matches("/A", "attention/A")
    (True, False)
    """
    patterns = pattern.replace("[", "[[]").split("/")
    names = f"/{path}".split("/")[-len(patterns) :]
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))


def is_pattern(path: str) -> bool:
    """Whether a path may name several tensors."""
    return any(character in path for character in "*?")


def nearest(pattern: str, paths: Iterable[str]) -> str:
    """The three paths most like a pattern, cut to as many names, as the end of an error."""
    count = pattern.count("/") + 1
    tails = {"/".join(path.split("/")[-count:]) for path in paths}
    found = get_close_matches(pattern, sorted(tails), cutoff=0.0)
    return f"; nearest: {', '.join(found)}" if found else ""
