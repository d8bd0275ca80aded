"""Matrices as text at any width: numbers where they fit, or else below one another, or shades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plain import one_line, sized
from ..pooling import pooled
from ..terminal import cells, fitted

__all__ = ["Grid", "legend", "matrices"]

Array = NDArray[Any]
LABEL, MOST_NUMBERS = 10, 12  # cells of a token; columns of long numbers
STEPS = (0.05, 0.2, 0.4, 0.7)  # where the next shade begins
SHADES = " ░▒▓█"
GAP = "   "


class Style(NamedTuple):
    """How an entry is written, and in how many cells."""

    cell: int
    number: str = ""  # "long" for 0.27 and +0.27, "short" for .27
    shaded: bool = False
    masked: str = "·"


# from the most that can be said of an entry to the least
STYLES = [Style(6, "long"), Style(2, shaded=True), Style(1, shaded=True)]
NUMBERS = [Style(5, "short", True, "· "), Style(4, "short", False, "· ")]
LEFT_OUT = "… "


@dataclass(frozen=True)
class Grid:
    """A matrix and the names of its rows and columns; if signed, in units of its largest entry."""

    title: str
    values: Array
    forbidden: Array
    rows: Sequence[str]
    columns: Sequence[str]
    signed: bool = False

    @property
    def scale(self) -> float:
        finite = np.abs(np.where(np.isfinite(self.values), self.values, 0.0))
        return (float(finite.max(initial=0.0)) or 1.0) if self.signed else 1.0

    def pooled(self, k: int) -> Grid:
        """Each k × k entries as the one furthest from zero, masked if all of them are."""
        values, seen = (pooled(array, k, k) for array in (self.values, ~self.forbidden))
        return Grid(self.title, values, ~seen, self.rows[::k], self.columns[::k], self.signed)


def legend() -> str:
    steps = " ".join(f"{SHADES[k]} {step:.2f}" for k, step in enumerate(STEPS, 1))
    masked = STYLES[0].masked
    return f"shades from: {steps}; {masked} masked; a gradient's sign stands before its shade"


def matrices(
    grids: Sequence[Grid], width: int, *, whole: bool = True, most: int | None = None
) -> tuple[str, list[str]]:
    """Grids of one shape side by side as far as they fit, and notes on what is not shown.

    Args:
        whole: never break a row: numbers give way to shades, and these are pooled. If not, numbers
            stay, and columns that do not fit go on below, less the rows that are masked there.
        most: rows and columns to show; of more, the first and the last.
    """
    n, m = grids[0].values.shape
    sheet = _Sheet(_ends(n, most), _ends(m, most), _label_width(grids[0].rows), width)
    if None in (*sheet.rows, *sheet.columns) and most is not None:
        said = f"{most // 2 * 2} of {max(n, m)} tokens shown, the first {most // 2} and the last"
        sheet.notes.append(f"{said} {most // 2}")
    styles = [s for s in STYLES if s.shaded or m <= MOST_NUMBERS] if whole else NUMBERS
    fitting = [style for style in styles if sheet.size(style) <= width]
    style = fitting[0] if fitting else styles[-1]
    room = max(width - sheet.size(style, columns=0), 1)  # for the cells of a row
    if whole and not fitting:
        k = -(-m // room)
        grids = [grid.pooled(k) for grid in grids]
        sheet.rows, sheet.columns = [*range(-(-n // k))], [*range(-(-m // k))]
        sheet.notes.append(f"each cell is the largest of {k} × {k}")
    step = max(room // style.cell, 1)
    starts = range(0, len(sheet.columns), step)
    blocks = [sheet.block(g, sheet.columns[s : s + step], style) for g in grids for s in starts]
    return "\n".join(_side_by_side(blocks, width, [] if whole else [""])), sheet.notes


@dataclass
class _Sheet:
    """Which rows and columns are shown, None for those left out between, and how wide a name is."""

    rows: list[int | None]
    columns: list[int | None]
    label: int
    width: int

    def __post_init__(self) -> None:
        self.notes: list[str] = []

    def size(self, style: Style, columns: int | None = None) -> int:
        """The width of a grid; numbers have room before them, shades stand behind a blank."""
        columns = len(self.columns) if columns is None else columns
        return self.label + (not style.number) + columns * style.cell

    def block(self, grid: Grid, columns: list[int | None], style: Style) -> list[str]:
        """The lines of some columns: title, their names where they fit, rows."""
        keys = [j for j in columns if j is not None]
        part = len(columns) < len(self.columns)
        unit = f", in units of {sized(grid.scale)}" if grid.signed else ""
        where = f", keys {keys[0] + 1} to {keys[-1] + 1}" if part and keys else ""
        lines = [f"{grid.title}{unit}{where}"]
        if style.number:
            heads = (" " + self.name(grid.columns, j, style.cell - 1) for j in columns)
            lines.append(" " * self.label + "".join(heads))
        for i in self.rows:
            if part and i is not None and grid.forbidden[i, keys].all():
                said = "rows that may attend to none of the keys beside them are left out"
                self.notes += [said] if said not in self.notes else []
                continue
            named = self.name(grid.rows, i, self.label) + " " * (not style.number)
            lines.append(named + "".join(self.cell(grid, i, j, style) for j in columns))
        return lines

    def name(self, names: Sequence[str], i: int | None, size: int) -> str:
        """A name in exactly so many cells, harmless, cut if need be."""
        text = "…" if i is None else one_line(names[i], 4 * LABEL)
        return fitted(text, size, "end")

    def cell(self, grid: Grid, i: int | None, j: int | None, style: Style) -> str:
        if i is None or j is None:
            return LEFT_OUT.rjust(style.cell)
        if grid.forbidden[i, j]:
            return style.masked.rjust(style.cell)
        x = float(grid.values[i, j]) / grid.scale
        if style.number == "long":
            return f" {x:+5.2f}" if grid.signed else f" {x:5.2f}"
        shade = SHADES[sum(abs(x) >= step for step in STEPS)] if x == x else "?"
        if style.number:
            number = f"{x:.2f}".removeprefix("0")[:3]  # .27, or 1.0
            return (shade * style.shaded + number).rjust(style.cell)
        if not np.isfinite(x):
            return "?" * style.cell
        if not grid.signed:
            return shade * style.cell
        sign = " " if shade == " " else "+" if x > 0 else "-"
        return (sign + shade)[: style.cell]


def _label_width(names: Sequence[str]) -> int:
    return max(min(LABEL, max((cells(one_line(name)) for name in names), default=1)), 2)


def _ends(n: int, most: int | None) -> list[int | None]:
    if most is None or n <= most:
        return [*range(n)]
    return [*range(most // 2), None, *range(n - most // 2, n)]


def _side_by_side(blocks: Sequence[list[str]], width: int, below: Sequence[str]) -> list[str]:
    """Blocks of lines from left to right, in as many rows as the width asks for."""
    rows: list[list[list[str]]] = []
    used = width
    for block in blocks:
        wide = max(map(cells, block))
        used += len(GAP) + wide
        if used > width:
            rows.append([])
            used = wide
        rows[-1].append(block)
    lines: list[str] = []
    for row in rows:
        lines += below if lines else ()
        sizes = [max(map(cells, block)) for block in row]
        for parts in zip_longest(*row, fillvalue=""):
            filled = (p + " " * (size - cells(p)) for p, size in zip(parts, sizes, strict=True))
            lines.append(GAP.join(filled).rstrip())
    return lines
