"""A terminal's width, colours and characters, and columns that fit into it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from .theme import Scale

__all__ = ["Column", "bar", "cells", "fitted", "grid", "number", "paint", "wide"]

CODES = {"alarm": "31", "good": "32", "dim": "2", "bold": "1"}
_ESCAPE = re.compile(r"\x1b\[\d+m")
BAR, LEAST = 10, 8  # cells of a bar, and the fewest characters a shrunk column keeps


def wide(width: int | None) -> int:
    return shutil.get_terminal_size((100, 24)).columns if width is None else width


def paint(kind: str, text: str) -> str:
    """Coloured text, if stdout is a terminal and NO_COLOR is not set."""
    terminal = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"\x1b[{CODES[kind]}m{text}\x1b[0m" if terminal and kind and text else text


def bar(size: float | None, scale: Scale) -> str:
    """A bar on a log scale; empty where there is no size or it is zero.

    >>> bar(1e-4, Scale(-8, 0)), bar(1e9, Scale(-8, 0)), bar(0.0, Scale(-8, 0))
    ('█████', '██████████', '')
    """
    if size is None or not size > 0 or size == float("inf"):
        return ""
    eighths = max(1, round(scale.place(size) * BAR * 8))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


class Column(NamedTuple):
    """A column: `shrink` says which end may be cut; the lowest `drop` is left out first."""

    title: str
    right: bool = False
    shrink: str = ""
    drop: int = 0


def number(title: str, drop: int = 0) -> Column:
    """A column of numbers."""
    return Column(title, right=True, drop=drop)


def cells(text: str) -> int:
    """How many columns a terminal gives a text: wide characters take two, combining ones none."""
    text = _ESCAPE.sub("", text)
    wide_ones = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide_ones - sum(unicodedata.combining(c) > 0 for c in text)


def fitted(text: str, width: int, column: Column) -> str:
    """The text in so many cells, cut where the column allows it."""
    if column.shrink and cells(text) > width:
        while text and cells(text) > width - 1:
            text = text[1:] if column.shrink == "start" else text[:-1]
        text = f"…{text}" if column.shrink == "start" else f"{text}…"
    blank = " " * (width - cells(text))
    return blank + text if column.right else text + blank


def grid(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> str:
    """Rows under their titles, cut to `width` cells as far as columns can be cut or left out."""
    table = [[column.title for column in columns], *rows]
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    sizes = {i: max(cells(line[i]) for line in table) for i in used}

    def over(least: int) -> int:
        """By how many cells it is too wide, with columns that can be cut as narrow as this."""
        kept = (min(n, least) if columns[i].shrink else n for i, n in sizes.items())
        return sum(kept) + 2 * (len(sizes) - 1) - width

    for i in sorted(used, key=lambda i: columns[i].drop):
        if columns[i].drop and over(LEAST) > 0:
            del sizes[i]
    for i in sorted(sizes, key=lambda i: -sizes[i]):
        if columns[i].shrink:
            sizes[i] -= max(0, min(over(sizes[i]), sizes[i] - LEAST))
    return "\n".join(
        "  ".join(fitted(line[i], sizes[i], columns[i]) for i in sizes).rstrip() for line in table
    )
