"""What a notebook's cell shows: a page, or text and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..engine.errors import MissingDependencyError
from ..record.record import Record
from ..record.training import TrainingRecord as Flow
from . import words
from .page import content, frame, html_of
from .picture import dot_of, svg_of
from .training import svg, table

__all__ = ["Cell", "cell", "flow_bundle", "record_bundle"]


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
        return bundle | {"image/svg+xml": svg_of(dot_of(record))}
    except MissingDependencyError:
        return bundle


def flow_bundle(flow: Flow) -> dict[str, str]:
    """The heat map of a training run, and its table."""
    return {"text/plain": table(flow, 100), "image/svg+xml": svg(flow, theme="light")}
