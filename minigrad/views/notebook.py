"""What a notebook's cell shows: text, and a picture, a page or a table beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.errors import MissingDependencyError
from ..record.record import Record, rms
from . import words
from .page import content, frame, html_of
from .picture import dot_of, svg_of
from .table import table

if TYPE_CHECKING:
    from ..engine.tensor import Tensor
    from ..record.flow import FlowRecord as Flow

__all__ = [
    "Cell",
    "cell",
    "flow_bundle",
    "record_bundle",
    "tensor_bundle",
]

SIDE = 6  # entries of a tensor along each axis
CELL_STYLE = "padding:1px 7px;text-align:right;font-family:monospace"


@dataclass(frozen=True)
class Cell:
    """A page in a notebook's cell: the cell's last value, or what `display` is given."""

    page: str
    height: int

    def __repr__(self) -> str:
        return f"<page of {words.of_bytes(len(self.page.encode()))}; a notebook shows it>"

    def _repr_html_(self) -> str:
        return frame(self.page, self.height)


def cell(record: Record, *, height: int = 720, tokens: Any = None, title: str = "") -> Cell:
    return Cell(html_of(content(record, tokens=tokens, title=title)), height)


def record_bundle(record: Record, text: str = "") -> dict[str, str]:
    """The record as a picture no wider than its cell, where it can be drawn, and as a table."""
    bundle = {"text/plain": text or table(record, width=100)}
    if not record.entries:
        return bundle
    try:
        svg = svg_of(dot_of(record, theme="light"), follow=False)
    except MissingDependencyError:
        return bundle
    return bundle | {"image/svg+xml": _fitted(svg)}


def _fitted(svg: str) -> str:
    """An SVG as wide as its cell, but no wider than it is."""
    size = re.compile(r'(<svg\b[^>]*?) width="([\d.]+)(pt)?"\s+height="[^"]+"')
    return size.sub(
        lambda m: f'{m[1]} width="100%" style="max-width:{m[2]}{m[3] or "px"};height:auto"',
        svg,
        count=1,
    )


def tensor_bundle(tensor: Tensor) -> dict[str, str]:
    """A tensor's facts and its first entries."""
    facts = [f"{words.shaped(tensor.shape)} {tensor.dtype}"]
    facts += [f"made by {tensor.node.op.name}"] if tensor.node is not None else []
    facts += ["requires a gradient"] if tensor.requires_grad and tensor.node is None else []
    facts += [f"rms of gradient {words.sized(rms(tensor.grad))}"] if tensor.grad is not None else []
    array = tensor.numpy()
    where = (0,) * max(array.ndim - 2, 0)
    shown = np.atleast_2d(array[where])[:SIDE] if array.size else np.zeros((0, 0))
    rows = [[*(f"{x:.4g}" for x in row[:SIDE]), *["…"] * (len(row) > SIDE)] for row in shown]
    return _bundle(
        repr(tensor),
        f"<b>{escape(words.one_line(tensor.name or 'tensor', 60))}</b> {escape(', '.join(facts))}",
        _rows([], rows),
    )


def flow_bundle(flow: Flow) -> dict[str, str]:
    """The heat map of a training run, and its table."""
    from . import flow as view

    return {
        "text/plain": view.table(flow, 100),
        "image/svg+xml": _fitted(view.svg(flow, theme="light")),
    }


def _bundle(text: str, *html: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"<div>{''.join(html)}</div>"}


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return (
            "<tr>"
            + "".join(
                f"<{tag} style='{CELL_STYLE}'>{escape(words.one_line(str(c), 400))}</{tag}>"
                for c in cells
            )
            + "</tr>"
        )

    body = [*[row(heads, "th")] * bool(heads), *(row(one, "td") for one in rows)]
    return f"<table>{''.join(body)}</table>"
