"""Attention as HTML: each head's weights beside their gradient, as cells that say their pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite

import numpy as np

from ..colors import LIGHT
from ..plain import one_line
from .matrices import Grid

__all__ = ["attentions_html"]

MOST_CELLS = 32  # along a side
PIXELS = 12  # of a cell
SIDE_BY_SIDE = "display:flex;flex-wrap:wrap;gap:8px 20px"
PALE = "#f3f2ee"
RAISES = "#9c3a05"
LOWERS = "#174f8a"
MASKED_COLOUR = "#d3d8e0"
# as the page colours them
WEIGHT_OF_0 = "#f5f4f9"
WEIGHT_OF_1 = "#36266f"


def attentions_html(heads: Iterable[tuple[str, Sequence[Grid]]]) -> str:
    """Each head under its name."""
    found = "".join(_head(name, grids) for name, grids in heads)
    return f"<div style='{SIDE_BY_SIDE}'>{found or 'no attention in this record'}</div>"


def _head(name: str, grids: Sequence[Grid]) -> str:
    maps = "".join(map(_figure, grids))
    return f"<div><div>{escape(name)}</div><div style='{SIDE_BY_SIDE}'>{maps}</div></div>"


def _figure(grid: Grid) -> str:
    caption = f"<figcaption>{escape(grid.title)}</figcaption>"
    return f"<figure style='margin:0'>{_cells(grid)}{caption}</figure>"


def _cells(grid: Grid) -> str:
    rows, columns = grid.values.shape
    few = grid.pooled(-(-max(rows, columns) // MOST_CELLS))
    cells = "".join(_cell(few, i, j) for i, j in np.ndindex(few.values.shape))
    high, wide = (PIXELS * n for n in few.values.shape)
    label = f"{grid.title}, {rows} queries by {columns} keys"
    return (
        f"<svg role='img' aria-label='{escape(label)}' width='{wide}' height='{high}'>{cells}</svg>"
    )


def _cell(grid: Grid, i: int, j: int) -> str:
    masked, x = bool(grid.forbidden[i, j]), float(grid.values[i, j])
    said = "masked" if masked else f"{x:.3g}"
    title = escape(one_line(f"{grid.rows[i]} → {grid.columns[j]}: {said}", 100))
    place = f"x='{PIXELS * j}' y='{PIXELS * i}' width='{PIXELS - 1}' height='{PIXELS - 1}'"
    fill = MASKED_COLOUR if masked else _shade(grid, x)
    return f"<rect {place} fill='{fill}'><title>{title}</title></rect>"


def _shade(grid: Grid, x: float) -> str:
    if not isfinite(x):
        return LIGHT.alarm
    part = min(1.0, abs(x) / grid.scale)
    if not grid.signed:
        return _mixed(WEIGHT_OF_0, WEIGHT_OF_1, part)
    return _mixed(PALE, RAISES if x > 0 else LOWERS, part)


def _mixed(one: str, other: str, part: float) -> str:
    pairs = [(int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)
