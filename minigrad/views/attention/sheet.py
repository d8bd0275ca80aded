"""Matrices as text with every number, which go on below where their columns do not fit."""

from __future__ import annotations

from collections.abc import Sequence

from .heatmap import Grid, fit, label_width, shade, side_by_side

__all__ = ["sheets"]


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
    return "\n".join(side_by_side(blocks, width, below=[""])), sheet.notes


class _Sheet:
    """How one grid is laid out: the same for all of the same names."""

    def __init__(self, grid: Grid, width: int, ascii: bool, most: int | None) -> None:
        self.ascii, self.notes = ascii, list[str]()
        self.rows, self.columns = _ends(len(grid.rows), most), _ends(len(grid.columns), most)
        if None in (*self.rows, *self.columns) and most is not None:
            n, half = max(len(grid.rows), len(grid.columns)), most // 2
            said = f"{2 * half} of {n} tokens shown, the first {half} and the last {half}"
            self.notes.append(said)
        self.label = label_width([None if i is None else grid.rows[i] for i in self.rows])
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
        return fit(("..." if self.ascii else "…") if i is None else names[i], size, self.ascii)

    def cell(self, grid: Grid, i: int | None, j: int | None) -> str:
        blank = "  " if self.shaded else " "
        if i is None or j is None:
            return blank + ("~" if self.ascii else "…")
        if grid.forbidden[i, j]:
            return blank + ("-" if self.ascii else "·")  # here "." begins a number
        x = float(grid.values[i, j])
        number = f"{x:.2f}".removeprefix("0")[:3]  # .27, or 1.0
        return (shade(x, self.ascii) if self.shaded else "") + number


def _ends(n: int, most: int | None) -> list[int | None]:
    """All of n, or the first and the last and None for what is left out."""
    if most is None or n <= most:
        return [*range(n)]
    return [*range(most // 2), None, *range(n - most // 2, n)]
