"""One run under a trace: what is printed of it, what is recorded, what is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..engine.errors import MissingDependencyError
from ..files import write
from ..recording.record import Checks
from ..tracing import Trace
from ..views.data import number, trace_to_dict
from ..views.page import write_page
from ..views.plain import one_line

__all__ = ["FILES", "MOST_HEADS", "Explanation"]

MOST_HEADS = 8  # shown unless all are asked for
FILES = {
    "graph.svg": "the graph, forward and backward",
    "explain.html": "a page that steps through it; open it in a browser, ? lists its keys",
    "derivation.md": "the backward pass written out, formula by formula",
    "trace.json": "every step, size and check",
}


class Explanation:
    """A run, of a sentence or of a user's function, which say what is particular to each."""

    title: str
    trace: Trace
    checks: Checks
    known: dict[str, Any]  # what the command knows besides the trace, as plain data
    tokens: Any = None  # names of the positions, if they have any
    page: Mapping[str, Any] = MappingProxyType({})  # options of the page

    def succeeded(self) -> bool:
        """Whether nothing that was measured is wrong."""
        return self.checks.first_wrong is None and self.checks.wrong_step is None

    def parts(self, width: int, ascii: bool, everything: bool) -> list[str]:
        """Paragraphs of the report, up to what was written."""
        raise NotImplementedError

    def closing(self, width: int) -> list[str]:
        """Paragraphs after that."""
        return []

    def record(self) -> str:
        """The trace and what is known besides, under "explain", as JSON."""
        data = trace_to_dict(self.trace) | {"explain": _finite(self.known)}
        return json.dumps(data, indent=1, allow_nan=False)

    def write(self, folder: Path, theme: str, depth: int | None) -> str:
        """Write the four files; returns why there is no picture, if so."""
        write(folder / "trace.json", self.record() + "\n", "explain")
        self.trace.derivation(folder / "derivation.md")
        page = {"tokens": self.tokens, "title": self.title, **self.page}
        write_page(self.trace, folder / "explain.html", **page)
        try:
            self.trace.draw(folder / "graph.svg", theme=theme, depth=depth)
        except MissingDependencyError as error:
            return f"graph.svg not drawn: {one_line(str(error).splitlines()[0])}"
        return ""


def _finite(value: Any) -> Any:
    """The same data; numbers that JSON has not, such as NaN, by their names."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_finite, value)]
    return number(value) if isinstance(value, float) else value
