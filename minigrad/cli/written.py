"""The four views of one run, written into a folder, and a line about each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ..engine.errors import MissingDependencyError
from ..recording.trace import Trace
from ..views.plain import one_line

__all__ = ["told", "write_views"]

FILES = {
    "graph.svg": "the graph, forward and backward",
    "explain.html": "a page that steps through it; open it in a browser, ? lists its keys",
    "derivation.md": "the backward pass written out, formula by formula",
    "trace.json": "every step, size and check",
}


class Subject(Protocol):
    """What was run: a sentence, or a user's function."""

    @property
    def trace(self) -> Trace: ...
    @property
    def title(self) -> str: ...
    @property
    def tokens(self) -> Sequence[str] | None: ...
    def record(self) -> dict[str, Any]: ...


def write_views(subject: Subject, folder: Path, theme: str, depth: int | None) -> tuple[str, str]:
    """Write all four. Returns the record as text, and why there is no picture if so."""
    record, trace = json.dumps(subject.record(), indent=1, allow_nan=False), subject.trace
    (folder / "trace.json").write_text(record + "\n", encoding="ascii")
    trace.derivation(folder / "derivation.md")
    trace.html(folder / "explain.html", tokens=subject.tokens, title=subject.title)
    try:
        trace.draw(folder / "graph.svg", theme=theme, depth=depth)
    except MissingDependencyError as error:
        return record, f"graph.svg not drawn: {one_line(str(error).splitlines()[0])}"
    return record, ""


def told(out: Path, undrawn: str) -> list[str]:
    """What was written and what for; the picture's line is why it was not drawn, if so."""
    said = [f"wrote {one_line(str(out / name))}: {what}" for name, what in FILES.items()]
    return [undrawn or said[0], *said[1:]]
