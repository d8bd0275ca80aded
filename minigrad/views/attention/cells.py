"""Attention as HTML: each head's weights beside their gradient, as cells that say their pair."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite
from typing import Any

import numpy as np

from ..colors import LIGHT
from ..plain import one_line
from .matrices import Grid

__all__ = ["attentions_html"]

HEADS = 16
CELLS = 32
SIDE = 12  # heads of a layer, cells along a side at most; pixels of one
BESIDE = "display:flex;flex-wrap:wrap;gap:8px 20px"
PALE = "#f3f2ee"
RAISES = "#9c3a05"
LOWERS = "#174f8a"
MASKED = "#d3d8e0"
NONE, ALL = "#f5f4f9", "#36266f"  # of a weight from 0 to 1, as the page has them


def attentions_html(found: Sequence[Any]) -> str:
    """The first heads of each attention, for the first entry of the batch."""
    heads = (_head(one, k) for one in found for k in range(min(one.heads, HEADS)))
    return f"<div style='{BESIDE}'>{''.join(heads) or 'no attention in this record'}</div>"


def _head(one: Any, head: int) -> str:
    maps = "".join(map(_figure, one.grids(head)))
    said = f"{escape(one_line(one.path, 60))}, head {head}"
    return f"<div><div>{said}</div><div style='{BESIDE}'>{maps}</div></div>"


def _figure(grid: Grid) -> str:
    caption = f"<figcaption>{escape(grid.title)}</figcaption>"
    return f"<figure style='margin:0'>{_cells(grid)}{caption}</figure>"


def _cells(grid: Grid) -> str:
    rows, columns = grid.values.shape
    few = grid.pooled(-(-max(rows, columns) // CELLS)) if max(rows, columns) > CELLS else grid
    cells = "".join(_cell(few, i, j) for i, j in np.ndindex(few.values.shape))
    high, wide = (SIDE * n for n in few.values.shape)
    label = f"{grid.title}, {rows} queries by {columns} keys"
    return (
        f"<svg role='img' aria-label='{escape(label)}' width='{wide}' height='{high}'>{cells}</svg>"
    )


def _cell(grid: Grid, i: int, j: int) -> str:
    masked, x = bool(grid.forbidden[i, j]), float(grid.values[i, j])
    said = "masked" if masked else f"{x:.3g}"
    title = escape(one_line(f"{grid.rows[i]} → {grid.columns[j]}: {said}", 100))
    place = f"x='{SIDE * j}' y='{SIDE * i}' width='{SIDE - 1}' height='{SIDE - 1}'"
    fill = MASKED if masked else _shade(grid, x)
    return f"<rect {place} fill='{fill}'><title>{title}</title></rect>"


def _shade(grid: Grid, x: float) -> str:
    if not isfinite(x):
        return LIGHT.alarm
    part = min(1.0, abs(x) / grid.scale)
    return (
        _mixed(PALE, RAISES if x > 0 else LOWERS, part) if grid.signed else _mixed(NONE, ALL, part)
    )


def _mixed(one: str, other: str, part: float) -> str:
    pairs = [(int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)
