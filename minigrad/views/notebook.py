"""What a notebook's cell shows: text, and a picture, a page or a table beside it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.errors import MissingDependencyError
from ..record.record import Record, rms
from . import words
from .flow import svg, table
from .page import content, frame, html_of
from .picture import dot_of, svg_of

if TYPE_CHECKING:
    from ..engine.tensor import Tensor
    from ..record.flow import FlowRecord as Flow

__all__ = ["Cell", "cell", "flow_bundle", "record_bundle", "tensor_bundle"]

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
        return frame(self.height, srcdoc=self.page)


def cell(record: Record, *, height: int = 720, tokens: Any = None, title: str = "") -> Cell:
    return Cell(html_of(content(record, tokens=tokens, title=title)), height)


def record_bundle(record: Record, text: str) -> dict[str, str]:
    """The text, and the record as a picture where it can be drawn."""
    bundle = {"text/plain": text}
    if not record.entries:
        return bundle
    try:
        return bundle | {"image/svg+xml": svg_of(dot_of(record, theme="light"))}
    except MissingDependencyError:
        return bundle


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
    cells = ["".join(f"<td style='{CELL_STYLE}'>{x}</td>" for x in row) for row in rows]
    table = f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
    name, said = (escape(words.one_line(x)) for x in (tensor.name or "tensor", ", ".join(facts)))
    return {"text/plain": repr(tensor), "text/html": f"<div><b>{name}</b> {said}{table}</div>"}


def flow_bundle(flow: Flow) -> dict[str, str]:
    """The heat map of a training run, and its table."""
    return {"text/plain": table(flow, 100), "image/svg+xml": svg(flow, theme="light")}
