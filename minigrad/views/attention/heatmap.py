"""Matrices as text at any width: numbers where they fit, or else shades, or else pooled shades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..plain import one_line, sized
from ..pooling import pooled
from ..terminal import cells

__all__ = ["Grid", "fit", "heatmaps", "label_width", "legend", "shade", "side_by_side"]

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


def heatmaps(grids: Sequence[Grid], width: int, ascii: bool) -> str:
    """Grids of one shape beside one another if the width allows, or one below the other."""
    cell, room, pool = _layout(grids, width)
    blocks = [_block(_pooled(grid, pool), cell, ascii) for grid in grids]
    note = [f"each cell is the largest of {pool} × {pool}"] if pool > 1 else []
    return "\n".join([*side_by_side(blocks, room), *note])


def label_width(names: Sequence[str | None]) -> int:
    return max(min(LABEL, max((cells(one_line(n or "...")) for n in names), default=1)), 2)


def _layout(grids: Sequence[Grid], width: int) -> tuple[int, int, int]:
    """Width of a cell, the room that grids side by side may take, how many entries a cell pools."""
    m = grids[0].values.shape[1]
    label, count = label_width(grids[0].rows) + 1, len(grids)
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
    values, open_to = (pooled(array, k, k) for array in (grid.values, ~grid.forbidden))
    return Grid(grid.title, values, ~open_to, grid.rows[::k], grid.columns[::k], grid.signed)


def _block(grid: Grid, cell: int, ascii: bool) -> list[str]:
    """The lines of one grid: title, names of the columns where they fit, rows."""
    label = label_width(grid.rows)
    unit = f", in units of {sized(grid.scale)}" if grid.signed else ""
    lines = [f"{grid.title}{unit}"]
    if cell == 6:
        heads = (f" {fit(name, 5, ascii, right=True)}" for name in grid.columns)
        lines.append(" " * label + "".join(heads))
    for name, values, forbidden in zip(grid.rows, grid.values, grid.forbidden, strict=True):
        row = (
            _cell(float(v) / grid.scale, bool(f), cell, grid.signed, ascii)
            for v, f in zip(values, forbidden, strict=True)
        )
        named = fit(name, label, ascii, right=True)
        lines.append(named + (" " if cell < 6 else "") + "".join(row))
    return lines


def _cell(x: float, forbidden: bool, cell: int, signed: bool, ascii: bool) -> str:
    if forbidden:
        return MASKED[ascii].rjust(cell)
    if cell == 6:
        return f" {x:+5.2f}" if signed else f" {x:5.2f}"
    if not np.isfinite(x):
        return "?" * cell
    mark = shade(x, ascii)
    if not signed:
        return mark * cell
    sign = " " if mark == " " else "+" if x > 0 else "-"
    return sign + mark if cell == 2 else sign


# ---------------------------------------------------------------- parts of it


def shade(x: float, ascii: bool) -> str:
    return SHADES[ascii][sum(abs(x) >= step for step in STEPS)] if x == x else "?"


def fit(name: str, size: int, ascii: bool, right: bool = False) -> str:
    """A name in exactly so many cells, harmless, cut if need be."""
    text = one_line(name)
    text = text.encode("ascii", "backslashreplace").decode() if ascii else text
    if cells(text) > size:
        while cells(text) > size - 1:
            text = text[:-1]
        text += "~" if ascii else "…"
    blank = " " * (size - cells(text))
    return blank + text if right else text + blank


def side_by_side(blocks: Sequence[list[str]], width: int, below: Sequence[str] = ()) -> list[str]:
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
