"""A terminal's width, colours and characters, and columns that fit into it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from .colors import FIXED, Scale

__all__ = ["Column", "Paint", "bar", "cells", "finished", "fitted", "grid", "share_bar", "wide"]

CODES = {"alarm": "31", "good": "32", "dim": "2", "bold": "1"}
_ESCAPE = re.compile(r"\x1b\[\d+m")
BAR, LEAST = 10, 8  # cells of a bar, and the fewest characters a shrunk column keeps


def wide(width: int | None) -> int:
    return shutil.get_terminal_size((100, 24)).columns if width is None else width


def finished(text: str) -> str:
    """No trailing blanks."""
    return "\n".join(line.rstrip() for line in text.split("\n"))


class Paint:
    """Colours text, if stdout is a terminal and NO_COLOR is not set."""

    def __init__(self) -> None:
        terminal = sys.stdout is not None and sys.stdout.isatty()
        self.on = terminal and not os.environ.get("NO_COLOR")

    def __call__(self, kind: str, text: str) -> str:
        return f"\x1b[{CODES[kind]}m{text}\x1b[0m" if self.on and kind else text

    def bold(self, text: str) -> str:
        return self("bold", text)


def bar(rms: float | None, scale: Scale = FIXED) -> str:
    """A bar on a log scale; empty where there is no size or it is zero.

    >>> bar(1e-2), bar(1e9), bar(0.0)
    ('█████', '██████████', '')
    """
    if rms is None or not rms > 0 or not isfinite(rms):
        return ""
    eighths = max(1, round(scale.place(rms) * BAR * 8))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def share_bar(share: float) -> str:
    """A share of 1 as a bar.

    >>> share_bar(0.3)
    '███'
    """
    return "█" * round(BAR * share) if isfinite(share) else ""


# ---------------------------------------------------------------- columns


@dataclass(frozen=True)
class Column:
    """A column: `shrink` says which end may be cut; the lowest `drop` is left out first."""

    title: str
    right: bool = False
    shrink: str = ""
    drop: int = 0


def cells(text: str) -> int:
    """How many columns a terminal gives a text: wide characters take two, combining ones none."""
    text = _ESCAPE.sub("", text)
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def fitted(text: str, width: int, cut: str, right: bool = True) -> str:
    """The text in so many cells, cut at its "start" or "end" if need be, or at neither."""
    if cut and cells(text) > width:
        while text and cells(text) > width - 1:
            text = text[1:] if cut == "start" else text[:-1]
        text = f"…{text}" if cut == "start" else f"{text}…"
    blank = " " * (width - cells(text))
    return blank + text if right else text + blank


def grid(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> str:
    """Rows under their titles, cut to `width` cells as far as columns can be cut or left out."""
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    sizes = [
        max(cells(t) for t in (columns[i].title, *(row[i] for row in rows)))
        for i in range(len(columns))
    ]

    def least(kept: Sequence[int]) -> int:
        floor = sum(min(sizes[i], LEAST) if columns[i].shrink else sizes[i] for i in kept)
        return floor + 2 * (len(kept) - 1)

    for i in sorted((i for i in used if columns[i].drop), key=lambda i: columns[i].drop):
        if least(used) <= width:
            break
        used.remove(i)
    over = sum(sizes[i] for i in used) + 2 * (len(used) - 1) - width
    for i in sorted((i for i in used if columns[i].shrink), key=lambda i: -sizes[i]):
        cut = max(0, min(over, sizes[i] - LEAST))
        sizes[i], over = sizes[i] - cut, over - cut
    lines = [[columns[i].title for i in used], *([row[i] for i in used] for row in rows)]
    return "\n".join(
        "  ".join(
            fitted(text, sizes[i], columns[i].shrink, right=columns[i].right)
            for i, text in zip(used, line, strict=True)
        )
        for line in lines
    )
