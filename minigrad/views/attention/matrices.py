"""Matrices as text at any width: numbers where they fit, or else below one another, or shades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...engine.types import Array
from ..plain import one_line, sized
from ..pooling import pooled
from ..terminal import cells, fitted

__all__ = ["Grid", "legend", "matrices"]

TOKEN_WIDTH = 10  # cells of a terminal at most
MOST_NUMBERS = 12  # columns at most in which entries are written as numbers
SHADE_BOUNDS = (0.05, 0.2, 0.4, 0.7)  # where the next shade begins
SHADES = " ░▒▓█"
GAP = "   "


class EntryStyle(NamedTuple):
    """How an entry is written, and in how many cells."""

    cell: int
    number: bool = False  # 0.27, and +0.27 if it is signed


# from the most that can be said of an entry to the least
ENTRY_STYLES = [EntryStyle(6, number=True), EntryStyle(2), EntryStyle(1)]
MASKED_SIGN = "·"


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
        """Each k × k entries as the one furthest from zero of those not masked, if there are any.

        A masked pair has a gradient too, which is not shown.
        """
        if k == 1:
            return self
        values = pooled(np.where(self.forbidden, 0.0, self.values), k, k)
        seen = pooled(~self.forbidden, k, k)
        return Grid(self.title, values, ~seen, self.rows[::k], self.columns[::k], self.signed)


def legend() -> str:
    steps = " ".join(f"{SHADES[k]} {step:.2f}" for k, step in enumerate(SHADE_BOUNDS, 1))
    return f"shades from: {steps}; {MASKED_SIGN} masked; a gradient's sign stands before its shade"


def matrices(grids: Sequence[Grid], width: int) -> tuple[str, list[str]]:
    """Grids of one shape side by side as far as they fit, and notes on what is not shown.

    A row is never broken: numbers give way to shades, and these are pooled.
    """
    m, label = grids[0].values.shape[1], _label_width(grids[0].rows)
    styles = [style for style in ENTRY_STYLES if m <= MOST_NUMBERS or not style.number]
    # numbers have room before them, shades stand behind a blank
    starts = {style: label + (not style.number) for style in styles}
    fitting = [style for style in styles if starts[style] + m * style.cell <= width]
    style = fitting[0] if fitting else styles[-1]
    notes = []
    if not fitting:
        k = -(-m // max(width - starts[style], 1))
        grids = [grid.pooled(k) for grid in grids]
        notes.append(f"each cell is the largest of {k} × {k}")
    blocks = [_block(grid, style, label) for grid in grids]
    return "\n".join(_side_by_side(blocks, width)), notes


def _block(grid: Grid, style: EntryStyle, label: int) -> list[str]:
    """The lines of a grid: title, names of its columns where they fit, rows."""
    unit = f", in units of {sized(grid.scale)}" if grid.signed else ""
    lines = [f"{grid.title}{unit}"]
    if style.number:
        heads = (" " + _name(name, style.cell - 1) for name in grid.columns)
        lines.append(" " * label + "".join(heads))
    n, m = grid.values.shape
    for i in range(n):
        named = _name(grid.rows[i], label) + " " * (not style.number)
        lines.append(named + "".join(_cell(grid, i, j, style) for j in range(m)))
    return lines


def _name(name: str, size: int) -> str:
    """A name on one line, in exactly so many cells."""
    return fitted(one_line(name, 4 * TOKEN_WIDTH), size, "end")


def _cell(grid: Grid, i: int, j: int, style: EntryStyle) -> str:
    if grid.forbidden[i, j]:
        return MASKED_SIGN.rjust(style.cell)
    x = float(grid.values[i, j]) / grid.scale
    if style.number:
        return f" {x:+5.2f}" if grid.signed else f" {x:5.2f}"
    if not np.isfinite(x):
        return "?" * style.cell
    shade = SHADES[sum(abs(x) >= step for step in SHADE_BOUNDS)]
    if not grid.signed:
        return shade * style.cell
    sign = " " if shade == " " else "+" if x > 0 else "-"
    return (sign + shade)[: style.cell]


def _label_width(names: Sequence[str]) -> int:
    return max(min(TOKEN_WIDTH, max((cells(one_line(name)) for name in names), default=1)), 2)


def _side_by_side(blocks: Sequence[list[str]], width: int) -> list[str]:
    """Blocks of as many lines each from left to right where they fit, or else below one another."""
    sizes = [max(map(cells, block)) for block in blocks]
    if sum(sizes) + len(GAP) * (len(blocks) - 1) > width:
        return [line.rstrip() for block in blocks for line in block]
    padded = [
        [line + " " * (size - cells(line)) for line in block]
        for block, size in zip(blocks, sizes, strict=True)
    ]
    return [GAP.join(parts).rstrip() for parts in zip(*padded, strict=True)]
