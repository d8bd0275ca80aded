"""Attention weights beside their gradients, of a record or of arrays: as text, and as an SVG.

t.attention(tokens)                    what a run looked at; print it, or .draw("a.svg")
read_attention(tokens, weights)        the same of plain arrays
entropy sparsity patterns looks_at     one figure a head
rollout gradient_times_attention       over heads and layers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..engine.errors import ShapeError
from ..record.attention import AttentionWeights, attention_weights, fitting, texts_of
from ..record.finish import finish
from ..record.heads import by_head, entropy, sparsity
from ..record.record import Array, Record
from ..saving import write
from . import words
from .scores import figures, gradient_times_attention, looks_at, patterns, pooled, rollout
from .terminal import Column, cells, fitted, wide
from .theme import END, Light, svg_box, svg_page, svg_text

__all__ = [
    "Attentions", "attention_svg", "attentions", "entropy", "gradient_times_attention", "looks_at",
    "patterns", "read_attention", "rollout", "sparsity",
]  # fmt: skip

SHADES, BOUNDS = " ░▒▓█", (0.05, 0.2, 0.4, 0.7)
MASKED = "·"
POSITION = Column("", shrink="end")  # a name of a position, cut where it is long
TOKEN_LETTERS = 10  # letters of a position's name
NUMBER = 6  # cells of a number, with the blank before it
MOST_NUMBERS = 12  # columns that are shown as numbers, and not as shades
CELL, STEPS_OF_BAR = 14, 20  # points of a cell of an SVG, and boxes of a colour bar
MOST_CELLS, MOST_HEADS = 48, 16  # along a side of an SVG, and in all of it
WEIGHTS = "f5f4f9", "36266f"  # of 0 and of 1
SLOPES = "174f8a", "f3f2ee", "9c3a05"  # lowers the loss, no change, raises it


class Grid(NamedTuple):
    """A matrix with names of its rows and columns; a gradient is in units of its largest entry."""

    title: str
    values: Array
    forbidden: Array
    rows: Sequence[str]
    columns: Sequence[str]
    unit: float = 1.0
    signed: bool = False

    def at_most(self, side: int) -> tuple[Grid, int]:
        """The grid with at most so many cells along a side, and how many entries each holds."""
        k = -(-max(self.values.shape) // side)
        if k == 1:
            return self, 1
        values = pooled(np.where(self.forbidden, 0.0, self.values), k, k)
        forbidden = ~pooled(~self.forbidden, k, k)
        rows, columns = self.rows[::k], self.columns[::k]
        return self._replace(values=values, forbidden=forbidden, rows=rows, columns=columns), k


def grids(weights: AttentionWeights, head: int) -> list[Grid]:
    """A, and ∂L/∂A if there is one, of one head, for the first of a batch."""
    forbidden = weights.forbidden[0, head]
    names = forbidden, weights.queries, weights.keys
    maps = [Grid("A", weights.A[0, head], *names)]
    if weights.dA is not None:
        dA = weights.dA[0, head]
        largest = np.abs(dA[np.isfinite(dA) & ~forbidden]).max(initial=0.0)
        maps.append(Grid("∂L/∂A", dA, *names, float(largest) or 1.0, signed=True))
    return maps


class Attentions(list[AttentionWeights]):
    """Attention in the order it was computed. Print it for heat maps; `draw` writes an SVG."""

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        lines = [f"Attention {words.one_line(a.path, 60)}: A {a.A.shape}" for a in self]
        return "\n".join(["Attentions, which print() shows as heat maps:", *lines])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "image/svg+xml": attention_svg(self, theme="light")}

    def text(self, width: int | None = None) -> str:
        """Heat maps as text, for the first of a batch.

        Args: width: columns to fit in, the terminal's by default.
            Numbers give way to shades, and shades to the largest of several.
        """
        if not self:
            return "no attention: no softmax's result is named A"
        width = wide(width)
        parts = list[str]()
        for weights in self:
            for head, figure in enumerate(figures(weights)):
                line = f"{words.one_line(weights.path, 60)}, head {head}: {figure}"
                parts.append(fill(line, width, subsequent_indent="  "))
                parts += [*(_text(grid, width) for grid in grids(weights, head)), ""]
        steps = (f"{shade} from {step}" for shade, step in zip(SHADES[1:], BOUNDS, strict=True))
        signs = f"{', '.join(steps)}; {MASKED} masked; a gradient is in units of its largest entry"
        return "\n".join([*parts, fill(signs, width)])

    def draw(self, path: str | Path) -> Path:
        """Write an SVG: a row for each head, A beside ∂L/∂A, for the first of a batch."""
        return write(path, attention_svg(self))


def attentions(record: Record, tokens: Any = None) -> Attentions:
    """The attention weights of a record, their positions named where names are as many.

    Args: tokens: names of the positions; or several lists, such as the queries' and the keys'.
    Raises: ShapeError if no axis is as long as any list.
    """
    return _named(attention_weights(finish(record)), tokens, "attention(tokens)")


def _named(every: list[AttentionWeights], tokens: Any, call: str) -> Attentions:
    """Queries go by the first list that fits; keys by the second, or else by the first."""
    texts = texts_of(tokens, every, call)
    attentions = Attentions()
    for weights in every:
        n, m = weights.A.shape[-2:]
        queries, [keys, *_] = fitting(texts, n)[0], fitting(texts[1::-1], m)
        attentions.append(replace(weights, queries=tuple(queries), keys=tuple(keys)))
    return attentions


def read_attention(
    tokens: Sequence[object] | None,
    weights: ArrayLike,
    gradient: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> Attentions:
    """Heat maps and patterns of plain arrays: print them, or `.draw(path)` them.

    Args:
        tokens: a name for each position, or two lists, of the queries' and of the keys'.
        weights: A (..., n, m), rows sum to 1; axis −3, if there is one, is the heads.
        gradient: ∂L/∂A of the same shape.  mask: True where a query may look, broadcast to A.
    Raises: ShapeError where they do not fit.

    >>> print(read_attention(["the", "cat"], [[0.9, 0.1], [0.2, 0.8]]).text(60))
    A, head 0: diagonal 0.70; entropy 0.41 nats, 60% of the largest possible
    A
          the   cat
    the  0.90  0.10
    cat  0.20  0.80
    ...
    """
    A = by_head(weights, "read_attention")
    shape = np.asarray(weights).shape
    dA = None if gradient is None else by_head(gradient, "read_attention")
    if dA is not None and dA.shape != A.shape:
        raise ShapeError(f"read_attention: weights are {shape} but gradient {dA.shape}")
    allowed = np.broadcast_to(True if mask is None else np.asarray(mask, bool), shape)
    forbidden = by_head(~allowed, "read_attention").astype(bool)
    return _named([AttentionWeights(-1, "A", A, dA, forbidden)], tokens, "read_attention")


# ---------------------------------------------------------------- as text


def _text(grid: Grid, width: int) -> str:
    """A line for each query: numbers where there is room, or shades, or those of the largest."""
    longest = max(cells(words.one_line(name)) for name in grid.rows)
    label = max(min(TOKEN_LETTERS, longest), 2)
    numbers = len(grid.columns) <= MOST_NUMBERS and label + len(grid.columns) * NUMBER <= width
    unit = f", in units of {words.sized(grid.unit)}" if grid.signed else ""
    lines = [f"{grid.title}{unit}"]
    if numbers:
        heads = (f"{words.one_line(name, NUMBER - 1):>{NUMBER}}" for name in grid.columns)
        lines.append(" " * label + "".join(heads))
    else:
        grid, k = grid.at_most(max((width - label - 1) // 2, 4))
        if k > 1:
            lines[0] += f"; each cell is the largest of {k} × {k}"
        label += 1
    for i, name in enumerate(grid.rows):
        row = "".join(_cell(grid, i, j, numbers) for j in range(len(grid.columns)))
        lines.append(fitted(words.one_line(name), label, POSITION) + row)
    return "\n".join(lines)


def _cell(grid: Grid, i: int, j: int, number: bool) -> str:
    if grid.forbidden[i, j]:
        return MASKED.rjust(NUMBER if number else 2)
    x = float(grid.values[i, j]) / grid.unit
    if number:
        return f"{x:+{NUMBER}.2f}" if grid.signed else f"{x:{NUMBER}.2f}"
    if not np.isfinite(x):
        return "??"
    shade = SHADES[sum(abs(x) >= step for step in BOUNDS)]
    return (("+" if x > 0 else "-") if shade != " " else " ") + shade if grid.signed else 2 * shade


# ---------------------------------------------------------------- as SVG


def attention_svg(every: Sequence[AttentionWeights], theme: str = "auto") -> str:
    """A row for each head: A beside ∂L/∂A, with names on both axes, and a colour bar."""
    parts = list[str]()
    top, right = 8.0, 240.0
    heads = [(weights, head) for weights in every for head in range(weights.heads)]
    for weights, head in heads[:MOST_HEADS]:
        title = f"{words.one_line(weights.path, 60)}, head {head}"
        parts.append(svg_text(8, top + 14, title, Light.ink, ' font-weight="bold"'))
        left, below = 8.0, top
        for grid in grids(weights, head):
            drawn, across, low = _map(grid, left, top + 24)
            parts += drawn
            left, below = across + 24, max(below, low)
        top, right = below + 20, max(right, left)
    rest = f"{MOST_HEADS} of {len(heads)} heads" if len(heads) > MOST_HEADS else ""
    parts.append(svg_text(8, top + 6, rest if heads else "no attention in this record"))
    return svg_page("attention weights and their gradients", right, top + 14, parts, theme)


def _map(grid: Grid, left: float, top: float) -> tuple[list[str], float, float]:
    """One heat map with its axes and colour bar, and where it ends at the right and below."""
    grid, k = grid.at_most(MOST_CELLS)
    rows = [words.one_line(name, TOKEN_LETTERS) for name in grid.rows]
    columns = [words.one_line(name, TOKEN_LETTERS) for name in grid.columns]
    long = 5.5 * max(map(len, ("query", *rows, *columns)))
    x0, y0 = left + long + 16, top + long * 0.87 + 32
    right, below = x0 + CELL * len(columns), y0 + CELL * len(rows)
    low, high = "0", "1"
    if grid.signed:
        low, high = words.sized(-grid.unit), words.sized(grid.unit)
    title = f"{grid.title}, {low} to {high}"
    if k > 1:
        title += f", the largest of {k} × {k} entries"
    parts = [svg_text(x0, top + 8, title, Light.ink), svg_text(x0, top + 20, "key →")]
    parts.append(svg_text(left, y0 - 4, "query ↓"))
    for j, name in enumerate(columns):
        x, y = x0 + CELL * j + 9, y0 - 4
        parts.append(svg_text(x, y, name, more=f' transform="rotate(-60 {x:.0f} {y:.0f})"'))
    for i, name in enumerate(rows):
        parts.append(svg_text(x0 - 4, y0 + CELL * i + 11, name, more=END))
    parts += _rectangles(grid, x0, y0)
    frame = f' stroke="{Light.border}"'
    parts.append(svg_box("none", x0, y0, right - x0, below - y0, frame))
    each = (below - y0) / STEPS_OF_BAR
    for step, x in enumerate(np.linspace(1, -1 if grid.signed else 0, STEPS_OF_BAR)):
        paint = _colour(x, grid.signed)
        parts.append(svg_box(paint, right + 8, y0 + step * each, 8, each + 0.5))
    parts += [svg_text(right + 19, y0 + 8, high), svg_text(right + 19, below, low)]
    return parts, right + 58, below


def _rectangles(grid: Grid, x0: float, y0: float) -> Iterator[str]:
    for i, j in np.ndindex(grid.values.shape):
        x = float(grid.values[i, j])
        text = words.digits(x, 3)
        paint = _colour(x / grid.unit, grid.signed) if np.isfinite(x) else Light.alarm
        if grid.forbidden[i, j]:
            paint = Light.edge
            text = "masked"
        cell = svg_box(paint, x0 + CELL * j, y0 + CELL * i, CELL, CELL)
        pair = f"{words.one_line(grid.rows[i], 40)} → {words.one_line(grid.columns[j], 40)}"
        yield f"<g>{cell}<title>{escape(f'{pair}: {text}')}</title></g>"


def _colour(x: float, signed: bool) -> str:
    """Of a weight, 0 to 1; or of a signed share, −1 to 1."""
    none, most = WEIGHTS
    if signed:
        none, most = SLOPES[1], SLOPES[2] if x > 0 else SLOPES[0]
    part = min(1.0, abs(x))
    ends = zip(bytes.fromhex(none), bytes.fromhex(most), strict=True)
    return "#" + bytes(round(a + (b - a) * part) for a, b in ends).hex()
