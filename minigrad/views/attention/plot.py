"""Heatmaps of attention by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...engine.errors import ArgumentError, MissingDependencyError
from ...saving import write
from ..plain import one_line, sized
from .matrices import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot"]

PANEL_INCHES = 2.8
MOST_TOKENS = 24  # named on an axis
MOST_LETTERS = 12  # of a token's name


def plot(rows: Sequence[Sequence[tuple[str, Grid]]], path: str | Path | None) -> Figure | Path:
    """Rows of heatmaps, each under its title: a figure, or the path it was written to."""
    if not rows:
        raise ArgumentError("attention.plot: no attention in this record")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "attention.plot: matplotlib is not installed: pip install 'minigrad[plot]'; "
            "print the attention to see it as text"
        ) from error
    columns = max(map(len, rows))
    inches = PANEL_INCHES * columns + 0.8, PANEL_INCHES * len(rows) + 0.6
    figure = Figure(inches, layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for of_row, row in zip(axes, rows, strict=True):
        for axis in of_row[len(row) :]:
            axis.set_axis_off()
        for axis, (title, grid) in zip(of_row, row, strict=False):
            _panel(axis, grid, title)
    return figure if path is None else _saved(figure, Path(path))


def _panel(axis: Axes, grid: Grid, title: str) -> None:
    """One heatmap with its colour bar: weights from 0 to 1, gradients centred on zero, masked cells
    hatched.
    """
    low, colours = (-grid.scale, "RdBu_r") if grid.signed else (0, "cividis")
    masked = np.ma.masked_array(grid.values, grid.forbidden)
    axis.patch.set(facecolor="#ffffff", edgecolor="#bbbbbb", hatch="////")
    image = axis.imshow(masked, cmap=colours, vmin=low, vmax=grid.scale)
    bar = axis.figure.colorbar(image, ax=axis, shrink=0.8)
    bar.ax.tick_params(labelsize=6)
    axis.set_xlabel("key", fontsize=7)
    axis.set_ylabel("query", fontsize=7)
    unit = f" (±{sized(grid.scale)})" if grid.signed else ""
    axis.set_title(_plain(f"{title}\n{grid.title}{unit}"), fontsize=8)
    for set_ticks, names, turned in (
        (axis.set_xticks, grid.columns, 90),
        (axis.set_yticks, grid.rows, 0),
    ):
        every = range(0, len(names), -(-len(names) // MOST_TOKENS))
        labels = [_plain(one_line(names[i], MOST_LETTERS)) for i in every]
        set_ticks(list(every), labels, fontsize=7, rotation=turned)


def _plain(text: str) -> str:
    """Text in which matplotlib reads no mathematics."""
    return text.replace("$", r"\$")


def _saved(figure: Figure, path: Path) -> Path:
    format = path.suffix.lower().lstrip(".")
    if format not in figure.canvas.get_supported_filetypes():
        said = f"the path must end in .png, .svg or .pdf, got {one_line(str(path), 60)!r}"
        raise ArgumentError(f"attention.plot: {said}")
    held = BytesIO()
    dates: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(held, format=format, dpi=144, metadata=dates.get(format))
    return write(path, held.getvalue(), "attention.plot")
