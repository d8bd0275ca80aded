"""Matrices as text: numbers where they fit, shades where not, pooled where not even those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .plain import one_line, sized

__all__ = ["Grid", "heatmaps", "legend"]

Array = NDArray[Any]
LABEL, MOST = 8, 12  # characters of a token, and columns of numbers
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


def heatmaps(grids: Sequence[Grid], width: int, ascii: bool) -> str:
    """Grids of one shape beside one another if the width allows, or one below the other."""
    cell, beside, pool = _layout(grids, width)
    blocks = [_block(_pooled(grid, pool), cell, ascii) for grid in grids]
    note = [f"each cell is the largest of {pool} × {pool}"] if pool > 1 else []
    if not beside:
        return "\n".join(["\n".join(block) for block in blocks] + note)
    wide = [max(map(len, block)) for block in blocks]
    lines = (
        GAP.join(p.ljust(w) for p, w in zip(row, wide, strict=True))
        for row in zip(*blocks, strict=True)
    )
    return "\n".join([*(line.rstrip() for line in lines), *note])


def legend(ascii: bool) -> str:
    """What the shades mean."""
    shades, masked = SHADES[ascii], MASKED[ascii]
    steps = " ".join(f"{shades[k]} {k / 4:.2f}" for k in range(1, 5))
    return f"shades: {steps} (nearest); {masked} masked; a gradient's sign stands before its shade"


def _label(grid: Grid) -> int:
    return max(min(LABEL, max(map(len, grid.rows), default=1)), 2)


def _layout(grids: Sequence[Grid], width: int) -> tuple[int, bool, int]:
    """Width of a cell, whether grids stand side by side, and how many entries a cell pools."""
    m = grids[0].values.shape[1]
    label, count = _label(grids[0]) + 1, len(grids)
    for cell in (6, 2, 1):
        one = label + m * cell
        if cell == 6 and m > MOST:
            continue
        if count * one + (count - 1) * len(GAP) <= width:
            return cell, True, 1
        if one <= width:
            return cell, False, 1
    return 1, False, -(-m // max(width - label, 1))


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
    label = _label(grid)
    unit = f", in units of {sized(grid.scale)}" if grid.signed else ""
    lines = [f"{grid.title}{unit}"]
    if cell == 6:
        lines.append(" " * label + "".join(f" {_short(name, 5):>5}" for name in grid.columns))
    for name, values, forbidden in zip(grid.rows, grid.values, grid.forbidden, strict=True):
        cells = (
            _cell(float(v) / grid.scale, bool(f), cell, grid.signed, ascii)
            for v, f in zip(values, forbidden, strict=True)
        )
        lines.append(f"{_short(name, label):>{label}}" + (" " if cell < 6 else "") + "".join(cells))
    return lines


def _cell(x: float, forbidden: bool, cell: int, signed: bool, ascii: bool) -> str:
    if forbidden:
        return MASKED[ascii].rjust(cell)
    if cell == 6:
        return f" {x:+5.2f}" if signed else f" {x:5.2f}"
    if not np.isfinite(x):
        return "?" * cell
    shade = SHADES[ascii][min(4, round(abs(x) * 4))]
    if not signed:
        return shade * cell
    sign = " " if shade == " " else "+" if x > 0 else "-"
    return sign + shade if cell == 2 else sign


def _short(name: str, limit: int) -> str:
    return one_line(name, limit) if len(name) <= limit else one_line(name)[: limit - 1] + "~"
