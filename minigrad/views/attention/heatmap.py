"""Matrices as text, in one of two ways.

`heatmaps` keeps to the width at any size: numbers where they fit, shades where not, pooled where
not even those. `sheets` keeps every number beside its shade, and goes on below where columns end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plain import one_line, sized
from ..terminal import cells

__all__ = ["Grid", "heatmaps", "legend", "sheets"]

Array = NDArray[Any]
LABEL, MOST = 10, 12  # cells of a token, and columns of numbers
STEPS = (0.05, 0.2, 0.4, 0.7)  # where the next shade begins
SHADES = (" ░▒▓█", " :=*#")
MASKED = ("·", ".")
GAP = "   "


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


def legend(ascii: bool) -> str:
    """What the shades mean."""
    shades, masked = SHADES[ascii], MASKED[ascii]
    steps = " ".join(f"{shades[k]} {step:.2f}" for k, step in enumerate(STEPS, 1))
    return f"shades from: {steps}; {masked} masked; a gradient's sign stands before its shade"


# ---------------------------------------------------------------- as wide as there is room


def heatmaps(grids: Sequence[Grid], width: int, ascii: bool) -> str:
    """Grids of one shape beside one another if the width allows, or one below the other."""
    cell, room, pool = _layout(grids, width)
    blocks = [_block(_pooled(grid, pool), cell, ascii) for grid in grids]
    note = [f"each cell is the largest of {pool} × {pool}"] if pool > 1 else []
    return "\n".join([*_side_by_side(blocks, room), *note])


def _label(names: Sequence[str | None]) -> int:
    return max(min(LABEL, max((cells(one_line(n or "...")) for n in names), default=1)), 2)


def _layout(grids: Sequence[Grid], width: int) -> tuple[int, int, int]:
    """Width of a cell, the room that grids side by side may take, how many entries a cell pools."""
    m = grids[0].values.shape[1]
    label, count = _label(grids[0].rows) + 1, len(grids)
    for cell in (6, 2, 1):
        one = label + m * cell
        if cell == 6 and m > MOST:
            continue
        if count * one + (count - 1) * len(GAP) <= width:
            return cell, 10**6, 1
        if one <= width:
            return cell, 0, 1
    return 1, 0, -(-m // max(width - label, 1))


def _pooled(grid: Grid, k: int) -> Grid:
    """Each k × k entries become the one furthest from zero, masked if all of them are."""
    if k == 1:
        return grid
    n, m = grid.values.shape
    rows, columns = range(0, n, k), range(0, m, k)
    values, forbidden = (
        np.zeros((len(rows), len(columns))),
        np.zeros((len(rows), len(columns)), dtype=bool),
    )
    for a, i in enumerate(rows):
        for b, j in enumerate(columns):
            part = grid.values[i : i + k, j : j + k]
            values[a, b] = part.flat[np.abs(part).argmax()]
            forbidden[a, b] = grid.forbidden[i : i + k, j : j + k].all()
    names = ([grid.rows[i] for i in rows], [grid.columns[j] for j in columns])
    return Grid(grid.title, values, forbidden, *names, grid.signed)


def _block(grid: Grid, cell: int, ascii: bool) -> list[str]:
    """The lines of one grid: title, names of the columns where they fit, rows."""
    label = _label(grid.rows)
    unit = f", in units of {sized(grid.scale)}" if grid.signed else ""
    lines = [f"{grid.title}{unit}"]
    if cell == 6:
        heads = (f" {_fit(name, 5, ascii, right=True)}" for name in grid.columns)
        lines.append(" " * label + "".join(heads))
    for name, values, forbidden in zip(grid.rows, grid.values, grid.forbidden, strict=True):
        row = (
            _cell(float(v) / grid.scale, bool(f), cell, grid.signed, ascii)
            for v, f in zip(values, forbidden, strict=True)
        )
        named = _fit(name, label, ascii, right=True)
        lines.append(named + (" " if cell < 6 else "") + "".join(row))
    return lines


def _cell(x: float, forbidden: bool, cell: int, signed: bool, ascii: bool) -> str:
    if forbidden:
        return MASKED[ascii].rjust(cell)
    if cell == 6:
        return f" {x:+5.2f}" if signed else f" {x:5.2f}"
    if not np.isfinite(x):
        return "?" * cell
    shade = _shade(x, ascii)
    if not signed:
        return shade * cell
    sign = " " if shade == " " else "+" if x > 0 else "-"
    return sign + shade if cell == 2 else sign


# ---------------------------------------------------------------- every number


def sheets(
    grids: Sequence[Grid], width: int, *, ascii: bool, most: int | None = None
) -> tuple[str, list[str]]:
    """Grids of numbers from 0 to 1 with their shades, and notes on what is not shown.

    They stand side by side as far as they fit; columns that do not fit go on below, without the
    rows that are masked in all of them.

    Args: most: rows and columns to show; of more, the first and the last.
    """
    sheet = _Sheet(grids[0], width, ascii, most)
    blocks = [block for grid in grids for block in sheet.blocks(grid)]
    return "\n".join(_side_by_side(blocks, width, below=[""])), sheet.notes


class _Sheet:
    """How one grid is laid out: the same for all of the same names."""

    def __init__(self, grid: Grid, width: int, ascii: bool, most: int | None) -> None:
        self.ascii, self.notes = ascii, list[str]()
        self.rows, self.columns = _ends(len(grid.rows), most), _ends(len(grid.columns), most)
        if None in (*self.rows, *self.columns) and most is not None:
            n, half = max(len(grid.rows), len(grid.columns)), most // 2
            said = f"{2 * half} of {n} tokens shown, the first {half} and the last {half}"
            self.notes.append(said)
        self.label = _label([None if i is None else grid.rows[i] for i in self.rows])
        self.shaded = not ascii and self.label + 5 * len(self.columns) <= width
        self.size = 4 if self.shaded else 3
        self.fitting = max(1, (width - self.label) // (self.size + 1))

    def blocks(self, grid: Grid) -> list[list[str]]:
        """The lines of one grid, in as many blocks as its columns need."""
        starts = range(0, len(self.columns), self.fitting)
        return [self.block(grid, self.columns[s : s + self.fitting]) for s in starts]

    def block(self, grid: Grid, columns: list[int | None]) -> list[str]:
        keys = [j for j in columns if j is not None]
        part = len(columns) < len(self.columns)
        where = f", keys {keys[0] + 1} to {keys[-1] + 1}" if part and keys else ""
        names = (" " + self.name(grid.columns, j, self.size) for j in columns)
        lines = [grid.title + where, " " * self.label + "".join(names)]
        for i in self.rows:
            if part and i is not None and grid.forbidden[i, keys].all():
                said = "rows that may attend to none of the keys beside them are left out"
                self.notes += [said] if said not in self.notes else []
                continue
            row = "".join(f" {self.cell(grid, i, j):<{self.size}}" for j in columns)
            lines.append(self.name(grid.rows, i, self.label) + row)
        return lines

    def name(self, names: Sequence[str], i: int | None, size: int) -> str:
        return _fit(("..." if self.ascii else "…") if i is None else names[i], size, self.ascii)

    def cell(self, grid: Grid, i: int | None, j: int | None) -> str:
        blank = "  " if self.shaded else " "
        if i is None or j is None:
            return blank + ("~" if self.ascii else "…")
        if grid.forbidden[i, j]:
            return blank + ("-" if self.ascii else "·")  # here "." begins a number
        x = float(grid.values[i, j])
        number = f"{x:.2f}".removeprefix("0")[:3]  # .27, or 1.0
        return (_shade(x, self.ascii) if self.shaded else "") + number


def _ends(n: int, most: int | None) -> list[int | None]:
    """All of n, or the first and the last and None for what is left out."""
    if most is None or n <= most:
        return [*range(n)]
    return [*range(most // 2), None, *range(n - most // 2, n)]


# ---------------------------------------------------------------- both


def _shade(x: float, ascii: bool) -> str:
    return SHADES[ascii][sum(abs(x) >= step for step in STEPS)] if x == x else "?"


def _fit(name: str, size: int, ascii: bool, right: bool = False) -> str:
    """A name in exactly so many cells, harmless, cut if need be."""
    text = one_line(name)
    text = text.encode("ascii", "backslashreplace").decode() if ascii else text
    if cells(text) > size:
        while cells(text) > size - 1:
            text = text[:-1]
        text += "~" if ascii else "…"
    blank = " " * (size - cells(text))
    return blank + text if right else text + blank


def _side_by_side(blocks: Sequence[list[str]], width: int, below: Sequence[str] = ()) -> list[str]:
    """Blocks of lines from left to right, in as many rows as the width asks for."""
    rows: list[list[list[str]]] = []
    used = 0
    for block in blocks:
        wide = max(map(cells, block))
        if rows and used + len(GAP) + wide <= width:
            rows[-1].append(block)
            used += len(GAP) + wide
        else:
            rows.append([block])
            used = wide
    lines: list[str] = []
    for k, row in enumerate(rows):
        lines += below if k else ()
        sizes = [max(map(cells, block)) for block in row]
        for parts in zip_longest(*row, fillvalue=""):
            filled = (p + " " * (size - cells(p)) for p, size in zip(parts, sizes, strict=True))
            lines.append(GAP.join(filled).rstrip())
    return lines
