"""Flow: what a training run was, step by step, as plain data; and lines of JSON that hold it.

A record has rows (a parameter, or a value that layers hand on, by path) and samples: the figures of
every row at the steps that were looked at. `sampler` fills it, `diagnose` and views read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from ..engine.errors import ArgumentError

if TYPE_CHECKING:
    from .trace import Trace

__all__ = ["FlowRecord", "Row", "Sample", "number"]

MOST_SAMPLES, MOST_LOGGED = 400, 20_000  # beyond, every second one is let go of


def number(x: Any) -> Any:
    """A float of six digits, fit for JSON: what is not finite as text.

    >>> number(1 / 3), number(float("nan"))
    (0.333333, 'nan')
    """
    if not isinstance(x, float):
        return x
    return float(f"{x:.6g}") if isfinite(x) else str(x)


def _numbers(figures: dict[str, float]) -> dict[str, Any]:
    return {name: number(x) for name, x in figures.items()}


def _float(x: Any) -> Any:
    """The way back."""
    return float(x) if x in ("nan", "inf", "-inf") else x


class Row:
    """What one row of the record is: a parameter ("weight") or a value of the forward pass.

    Attributes: path; kind; op: what made it; flat: how its op's slope vanishes ("bounded",
        "one-sided" or ""); shape; name: of a parameter, as `named_parameters` gives it.
    """

    def __init__(self, path: str, kind: str, **facts: Any) -> None:
        self.path, self.kind = path, kind
        self.op: str = facts.get("op", "")
        self.flat: str = facts.get("flat", "")
        self.shape: tuple[int, ...] = tuple(facts.get("shape", ()))
        self.name: str = facts.get("name", "")

    def to_dict(self) -> dict[str, Any]:
        return {key: list(x) if key == "shape" else x for key, x in vars(self).items() if x}


class Sample:
    """One step that was looked at.

    Attributes: step; lr; rows: path to figures by name (value, gradient, update …); notes: what a
        figure cannot say, such as why a parameter has no gradient; entries: some of each row's
        values and gradients, for histograms, not part of the data.
    """

    def __init__(self, step: int, **facts: Any) -> None:
        self.step = step
        self.lr: float | None = facts.get("lr")
        self.rows: dict[str, dict[str, float]] = facts.get("rows", {})
        self.notes: dict[str, str] = facts.get("notes", {})
        self.entries: dict[str, list[Any]] = {}

    def to_dict(self) -> dict[str, Any]:
        rows = {path: _numbers(row) for path, row in self.rows.items()}
        return {"step": self.step, "lr": number(self.lr), "rows": rows, "notes": dict(self.notes)}


class FlowRecord:
    """Rows, samples, what was logged, and a few whole traces, each by its step.

    >>> flow = FlowRecord(every=10)
    >>> flow.add_row(Row("mlp/W", "weight"))
    >>> flow.add_sample(Sample(0, rows={"mlp/W": {"gradient": 0.5}}))
    >>> flow.series("mlp/W", "gradient")
    [(0, 0.5)]
    """

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.rows: dict[str, Row] = {}
        self.samples: list[Sample] = []
        self.logged: list[dict[str, float]] = []
        self.traces: dict[int, Trace] = {}
        self.events: list[dict[str, Any]] = []  # the first number that was not finite
        self.steps = 0
        self.file: TextIO | None = None  # takes a line for each part, as it comes

    def add_row(self, row: Row) -> None:
        self.rows[row.path] = row
        self._write("rows", row.to_dict)

    def add_sample(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._write("samples", sample.to_dict)
        if len(self.samples) > MOST_SAMPLES:
            del self.samples[1:-1:2]

    def add_logged(self, entry: dict[str, float]) -> None:
        self.logged.append(entry)
        self._write("logged", lambda: _numbers(entry))
        if len(self.logged) > MOST_LOGGED:
            del self.logged[1:-1:2]

    def add_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self._write("events", lambda: event)

    def begin_file(self, path: str | Path) -> None:
        """From now on, write each part as a line of JSON; earlier lines stay as they are."""
        self.file = Path(path).open("a", encoding="utf-8")
        self._write("every", lambda: self.every)

    def end_file(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def _write(self, part: str, data: Callable[[], Any]) -> None:
        if self.file is not None:
            line = json.dumps({part: data()}, allow_nan=False, separators=(",", ":"))
            self.file.write(line + "\n")
            self.file.flush()

    # ------------------------------------------------------------------ reading

    def series(self, path: str, figure: str) -> list[tuple[int, float]]:
        """(step, figure) of one row, where it was measured."""
        found = ((s.step, s.rows.get(path, {}).get(figure)) for s in self.samples)
        return [(step, x) for step, x in found if x is not None]

    def logs(self, name: str) -> list[tuple[int, float]]:
        """(step, number) of what was logged under a name."""
        return [(int(e["step"]), e[name]) for e in self.logged if name in e]

    @property
    def log_names(self) -> list[str]:
        return [*dict.fromkeys(name for e in self.logged for name in e if name != "step")]

    def of_kind(self, kind: str) -> list[Row]:
        return [row for row in self.rows.values() if row.kind == kind]

    # ------------------------------------------------------------------ as data

    def to_dict(self) -> dict[str, Any]:
        """All of it but traces, ready for JSON; numbers that are not finite are text."""
        return {
            "version": 1,
            "every": self.every,
            "steps": self.steps,
            "rows": [row.to_dict() for row in self.rows.values()],
            "samples": [sample.to_dict() for sample in self.samples],
            "logged": [_numbers(entry) for entry in self.logged],
            "events": list(self.events),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        made = cls(data.get("every", 1))
        made.steps = data.get("steps", 0)
        for part in ("rows", "samples", "logged", "events"):
            for one in data.get(part, ()):
                made.take({part: one})
        return made

    def take(self, line: dict[str, Any]) -> None:
        """One line of a file, or one part of a dict."""
        for part, one in line.items():
            if part == "rows":
                self.add_row(Row(**one))
            elif part == "samples":
                rows = {p: {k: _float(x) for k, x in r.items()} for p, r in one["rows"].items()}
                self.add_sample(Sample(**one | {"rows": rows}))
                self.steps = max(self.steps, one["step"] + 1)
            elif part == "logged":
                self.add_logged({k: _float(x) for k, x in one.items()})
            elif part == "events":
                self.events.append(one)
            elif part == "every":  # the first line of a run
                vars(self).update(vars(type(self)(one)))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The last run in a file that `watch(path=...)` wrote; a torn last line is left out.

        Raises: ArgumentError for a file that holds no such lines.
        """
        made, lines = cls(), Path(path).read_text(encoding="utf-8").split("\n")
        for i, line in enumerate(lines):
            try:
                parsed = json.loads(line) if line else {}
                made.take(parsed)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if i == len(lines) - 1 and made.rows:
                    break
                raise ArgumentError(
                    f"read({str(path)!r}): line {i + 1} is none of a flow's: {error!r}"
                ) from error
        return made
