"""Attention weights with their tokens, as text: a number a cell, darker where it is larger."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from ..views.plain import one_line

__all__ = ["heatmap"]

SHADES = ((0.05, " "), (0.2, "░"), (0.4, "▒"), (0.7, "▓"), (2.0, "█"))
MOST_TOKENS, MOST_HEADS = 16, 8  # shown unless all are asked for
LABEL, GAP = 10, "   "


def heatmap(
    weights: Any, tokens: Sequence[str], allowed: Any, width: int, *, ascii: bool, everything: bool
) -> str:
    """One map a head, side by side as far as they fit: a token that asks in each row.

    Args:
        weights: (h, n, n), rows sum to 1.
        allowed: (n, n), False where a cell is masked.
        width: columns of the terminal; wider maps go on below.
        everything: show all tokens and heads; else a long text's first and last, and say so.
    """
    heads, n = len(weights), len(tokens)
    half, shown_heads = MOST_TOKENS // 2, heads if everything else min(heads, MOST_HEADS)
    shown: list[int | None] = [*range(n)]
    if n > MOST_TOKENS and not everything:
        shown = [*range(half), None, *range(n - half, n)]  # None: what is left out
    sheet = _Sheet([one_line(token) for token in tokens], allowed, shown, width, ascii)
    blocks = [
        block
        for head in range(shown_heads)
        for block in sheet.blocks(weights[head], f"head {head + 1}" if heads > 1 else "weights")
    ]
    notes = []
    if None in shown:
        notes.append(f"{2 * half} of {n} tokens shown, the first {half} and the last {half}")
    if shown_heads < heads:
        notes.append(f"{shown_heads} of {heads} heads shown")
    if notes:
        notes[-1] += " (--all shows everything, trace.json has it)"
    if sheet.blind:
        notes.append("rows that may attend to none of the keys beside them are left out")
    said = [textwrap.fill("; ".join(notes), width)] if notes else []
    return "\n\n".join([_side_by_side(blocks, width), *said])


class _Sheet:
    """How one head's map is laid out: the same for all heads."""

    def __init__(
        self, names: list[str], allowed: Any, shown: list[int | None], width: int, ascii: bool
    ) -> None:
        self.names, self.allowed, self.shown, self.ascii = names, allowed, shown, ascii
        self.label = min(LABEL, max(cells(self.name(i)) for i in shown))
        self.shaded = not ascii and self.label + 5 * len(shown) <= width
        self.size = 4 if self.shaded else 3
        self.fitting = max(1, (width - self.label) // (self.size + 1))
        self.blind = False  # whether a row was left out because it sees nothing of its block

    def name(self, i: int | None) -> str:
        dots = "..." if self.ascii else "…"
        return dots if i is None else self.names[i]

    def blocks(self, weights: Any, title: str) -> list[list[str]]:
        """The lines of one head's map, in as many blocks as its keys need."""
        made = []
        for start in range(0, len(self.shown), self.fitting):
            columns = self.shown[start : start + self.fitting]
            keys = [j for j in columns if j is not None]
            part = len(columns) < len(self.shown)
            where = f", keys {keys[0] + 1} to {keys[-1] + 1}" if part and keys else ""
            heads = "".join(" " + fit(self.name(j), self.size, self.ascii) for j in columns)
            lines = [title + where, " " * self.label + heads]
            for i in self.shown:
                if part and i is not None and not self.allowed[i, keys].any():
                    self.blind = True
                    continue
                row = "".join(f" {self.cell(weights, i, j):<{self.size}}" for j in columns)
                lines.append(fit(self.name(i), self.label, self.ascii) + row)
            made.append(lines)
        return made

    def cell(self, weights: Any, i: int | None, j: int | None) -> str:
        blank = "  " if self.shaded else " "
        if i is None or j is None:
            return blank + ("~" if self.ascii else "…")
        if not self.allowed[i, j]:
            return blank + ("-" if self.ascii else "·")
        weight = float(weights[i, j])
        number = f"{weight:.2f}".removeprefix("0")[:3]  # .27, or 1.0
        shade = next((mark for most, mark in SHADES if weight < most), "?")  # "?" for NaN
        return (shade if self.shaded else "") + number


def _side_by_side(blocks: list[list[str]], width: int) -> str:
    """Blocks of lines from left to right, in as many rows as the width asks for."""
    rows: list[list[list[str]]] = []
    used = 0
    for block in blocks:
        wide = max(cells(line) for line in block)
        if rows and used + len(GAP) + wide <= width:
            rows[-1].append(block)
            used += len(GAP) + wide
        else:
            rows.append([block])
            used = wide
    parts = []
    for row in rows:
        sizes = [max(cells(line) for line in block) for block in row]
        for lines in zip_longest(*row, fillvalue=""):
            filled = (
                line + " " * (size - cells(line)) for line, size in zip(lines, sizes, strict=True)
            )
            parts.append(GAP.join(filled).rstrip())
        parts.append("")
    return "\n".join(parts[:-1])


def cells(text: str) -> int:
    """How many columns a terminal gives a text: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def fit(text: str, width: int, ascii: bool = False) -> str:
    """The text in exactly so many cells, cut if need be.

    >>> fit("animal", 4), fit("it", 4)
    ('ani…', 'it  ')
    """
    text = text.encode("ascii", "backslashreplace").decode() if ascii else text
    if cells(text) > width:
        end = "~" if ascii else "…"
        while cells(text) > width - 1:
            text = text[:-1]
        text += end
    return text + " " * (width - cells(text))
