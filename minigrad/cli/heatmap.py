"""Attention weights with their tokens, as text: a number a cell, darker where it is larger."""

from __future__ import annotations

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
    """One map a head, side by side as far as they fit; a row is the token that asks, a column one it looks at.

    Args:
        weights: (h, n, n), rows sum to 1.
        allowed: (n, n), False where a cell is masked.
        width: columns of the terminal; wider maps go on below.
        everything: show all tokens and heads, however many; else a long text's first and last, and say so.
    """
    heads, n = len(weights), len(tokens)
    shown = list(range(n))
    if n > MOST_TOKENS and not everything:
        shown = [*range(MOST_TOKENS // 2), *range(n - MOST_TOKENS // 2, n)]
    some = range(heads if everything else min(heads, MOST_HEADS))
    names = [one_line(token) for token in tokens]
    label = min(LABEL, max(cells(names[i]) for i in shown))
    shaded = not ascii and label + 5 * len(shown) <= width
    size = 4 if shaded else 3
    fitting = max(1, (width - label) // (size + 1))
    blocks = []
    for head in some:
        for start in range(0, len(shown), fitting):
            columns = shown[start : start + fitting]
            title = f"head {head + 1}" if heads > 1 else "weights"
            if start or fitting < len(shown):
                title += f", keys {columns[0] + 1} to {columns[-1] + 1}"
            lines = [title, " " * label + "".join(" " + fit(names[j], size, ascii) for j in columns)]
            for i in shown:
                row = [_cell(weights[head][i, j], allowed[i, j], shaded, ascii) for j in columns]
                lines.append(fit(names[i], label, ascii) + "".join(f" {cell:<{size}}" for cell in row))
            blocks.append(lines)
    notes = []
    if len(shown) < n:
        half = MOST_TOKENS // 2
        notes.append(f"{len(shown)} of {n} tokens shown, the first {half} and the last {half}")
    if len(some) < heads:
        notes.append(f"{len(some)} of {heads} heads shown")
    said = ["; ".join(notes) + "; --all shows everything, trace.json has it"] if notes else []
    return "\n".join([_side_by_side(blocks, width), *said])


def _cell(weight: float, allowed: bool, shaded: bool, ascii: bool) -> str:
    if not allowed:
        dot = "-" if ascii else "·"
        return f"  {dot}" if shaded else f" {dot}"
    number = f"{weight:.2f}".removeprefix("0")[:3]  # .27, or 1.0
    if weight != weight:
        number = "nan"
    return (next((shade for most, shade in SHADES if weight < most), "?") if shaded else "") + number


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
            filled = (line + " " * (size - cells(line)) for line, size in zip(lines, sizes, strict=True))
            parts.append(GAP.join(filled).rstrip())
        parts.append("")
    return "\n".join(parts[:-1])


def cells(text: str) -> int:
    """How many columns a terminal gives a text: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text
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
