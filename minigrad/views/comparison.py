"""Two runs beside each other: the gradient of each value in one over that in the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ..recording.record import Edge, Entry
from ..recording.trace import TraceRecord
from .colors import Scale
from .plain import one_line, sized
from .terminal import Column, bar, finished, grid, wide

__all__ = ["ComparedRow", "Comparison"]

COMPARISON_COLUMNS = (
    Column("path", shrink="start"),
    Column("op", drop=1),
    Column("here", right=True),
    Column("there", right=True),
    Column("there / here", right=True),
    Column("smaller | larger", drop=2),
)


@dataclass(frozen=True)
class ComparedRow:
    """The rms of one gradient in both runs."""

    path: str
    op: str
    here: float
    there: float

    @property
    def ratio(self) -> float | None:
        """None for zeros and for what is not finite."""
        known = 0 < self.here and isfinite(self.here) and isfinite(self.there)
        return self.there / self.here if known else None


class Comparison:
    """What `t.compare(other)` finds: printed, it is a table; `draw`, `html` colour by ratios."""

    def __init__(self, here: TraceRecord, there: TraceRecord) -> None:
        here.analyze()
        there.analyze()
        twins = {key: entry for entry, key in _keyed(there)}
        pairs = [(e, twins[key]) for e, key in _keyed(here) if key in twins]
        self.here, self.there = here, there
        self.twin = {e.id: twin for e, twin in pairs}
        self._rows = {
            e.id: ComparedRow(e.path, e.op or e.kind, e.gradient_rms, twin.gradient_rms)
            for e, twin in pairs
            if e.gradient_rms is not None and twin.gradient_rms is not None
        }
        self.rows = [*self._rows.values()]
        matched = {twin.id for twin in self.twin.values()}
        self.only_here = [e.path for e in here.entries if e.id not in self.twin]
        self.only_there = [e.path for e in there.entries if e.id not in matched]

    def ratio(self, entry: Entry) -> float | None:
        """How many times larger the gradient of an entry is in the other run."""
        row = self._rows.get(entry.id)
        return None if row is None else row.ratio

    def ratio_along(self, edge: Edge) -> float | None:
        """The same of what one use sent back."""
        source, target = self.twin.get(edge.source), self.twin.get(edge.target)
        if source is None or target is None or edge.contribution_rms is None:
            return None
        uses = (e for e in self.there.into(target) if e.input == edge.input)
        sent = next((e.contribution_rms for e in uses if e.source == source.id), None)
        return None if sent is None else ComparedRow("", "", edge.contribution_rms, sent).ratio

    @property
    def summary(self) -> str:
        """The largest change, where it is, and how many values have no counterpart."""
        known = [(row.ratio, row) for row in self.rows if row.ratio]
        alone = len(self.only_here) + len(self.only_there)
        rest = f"; {alone} values are in one of the runs alone" if alone else ""
        if not known:
            return f"no gradient is in both runs{rest}"
        ratio, row = max(known, key=lambda pair: max(pair[0], 1 / pair[0]))
        where = f"at {one_line(row.path, 60)}: there ×{sized(ratio)} of here"
        return f"{len(self.rows)} gradients are in both runs and differ most {where}{rest}"

    def table(self, width: int | None = None) -> str:
        scale = Scale.either_way(r.ratio for r in self.rows)
        rows = []
        for r in self.rows:
            sizes = map(sized, (r.here, r.there, r.ratio))
            rows.append([one_line(r.path), r.op, *sizes, bar(r.ratio, scale)])
        return finished(f"{self.summary}\n\n{grid(COMPARISON_COLUMNS, rows, wide(width))}")

    def draw(self, path: str | Path, **options: Any) -> Path:
        """Draw the first run's graph in colours of the ratio; the options are `Trace.draw`'s."""
        from .picture import draw_trace

        return draw_trace(self.here, path, against=self, **options)

    def html(self, path: str | Path, **options: Any) -> Path:
        """The first run's page in colours of the ratio; the options are `Trace.html`'s."""
        from .page import write_page

        return write_page(self.here, path, against=self, **options)

    def to_dict(self) -> dict[str, Any]:
        """The rows as plain data."""
        rows = [vars(row) | {"ratio": row.ratio} for row in self.rows]
        return {"rows": rows, "only_here": self.only_here, "only_there": self.only_there}

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        alone = len(self.only_here) + len(self.only_there)
        return (
            f"Comparison: {len(self.rows)} gradients of two runs, {alone} in one of them alone; "
            'print() lists them, .draw("c.svg") shows them'
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from .notebook import comparison_bundle

        return comparison_bundle(self)


def _keyed(trace: TraceRecord) -> list[tuple[Entry, tuple[str, str, int]]]:
    """Entries, each with a key that is the same in another run: path, op, and a count."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for entry in trace.entries:
        path = entry.path if entry.name or entry.op else entry.scope
        key = path, entry.kind if entry.name else entry.op or entry.kind
        found.append((entry, (*key, seen[key])))
        seen[key] += 1
    return found
