"""One run under a trace: what is printed of it, what is recorded, what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..engine.errors import MissingDependencyError
from ..recording.record import Checks
from ..tracing import Trace
from ..views.data import trace_to_dict
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
        data = trace_to_dict(self.trace) | {"explain": self.known}
        return json.dumps(data, indent=1, allow_nan=False)

    def write(self, folder: Path, theme: str, depth: int | None) -> str:
        """Write the four files; returns why there is no picture, if so."""
        (folder / "trace.json").write_text(self.record() + "\n", encoding="ascii")
        self.trace.derivation(folder / "derivation.md")
        self.trace.html(folder / "explain.html", tokens=self.tokens, title=self.title)
        try:
            self.trace.draw(folder / "graph.svg", theme=theme, depth=depth)
        except MissingDependencyError as error:
            return f"graph.svg not drawn: {one_line(str(error).splitlines()[0])}"
        return ""
