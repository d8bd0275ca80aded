"""Flow: what a training run was, step by step, as plain data; and lines of JSON that hold it.

A record has rows (a parameter, or a value between layers, by path) and samples: the figures of
every row at some of the steps. `sampler` fills it, `diagnose` and views read it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from ..engine.errors import ArgumentError
from ..saving import target_of, write

if TYPE_CHECKING:
    from .trace import TraceRecord

__all__ = ["FlowRecord", "FlowRow", "Sample", "number"]

MOST_KEPT = {"samples": 400, "logged": 20_000, "requests": 4000, "structure": 100}
"""Of longer lists every second entry is dropped."""


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


def _floats(figures: dict[str, Any]) -> dict[str, float]:
    return {name: float(x) if isinstance(x, str) else x for name, x in figures.items()}


@dataclass
class FlowRow:
    """A parameter ("weight") or a value of the forward pass.

    Attributes: op: what made it; saturates: what the op declares may saturate ("units dead",
        "entries saturated", "rows saturated"); name: of a parameter, as `named_parameters` gives
        it.
    """

    path: str
    kind: str
    op: str = ""
    saturates: str = ""
    shape: tuple[int, ...] = ()
    name: str = ""

    @property
    def is_matrix(self) -> bool:
        """Whether it is a parameter of two axes or more, which a bias is not."""
        return self.kind == "weight" and len(self.shape) > 1

    def to_dict(self) -> dict[str, Any]:
        return {key: list(x) if key == "shape" else x for key, x in vars(self).items() if x}


@dataclass
class Sample:
    """One step that was measured.

    Attributes: rows: path to figures by name (value, gradient, update …); notes: what is odd about
        a parameter, in a word; entries: some of each row's values and gradients, for histograms,
        which are no part of the data; loss: what backward began from; unit: Σ |∂L/∂out| of the
        model's last value, the scale of the loss; guess: the loss of the best constant guess;
        targets: some of the targets that the loss compares the model's result with.
    """

    step: int
    lr: float | None = None
    loss: float | None = None
    unit: float | None = None
    guess: float | None = None
    targets: list[float] = field(default_factory=list)
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    entries: dict[str, list[Any]] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        rows = {path: _numbers(row) for path, row in self.rows.items()}
        known = {"loss": self.loss, "unit": self.unit, "guess": self.guess}
        more = {name: number(x) for name, x in known.items() if x is not None}
        if self.targets:
            more["targets"] = [number(x) for x in self.targets]
        data = {"step": self.step, "lr": number(self.lr), **more}
        return data | {"rows": rows, "notes": dict(self.notes)}


class FlowRecord:
    """Rows, samples, what was logged, and a few whole traces, each by its step.

    Attributes: events: the first number that was not finite.  structure: what is odd in the graph
        of the first step.  steps: how many were taken.
        requests: of calls under `no_grad`, what each head of attention did, by path.  baseline:
        another record, whose requests these are held against.

    >>> flow = FlowRecord(every=10)
    >>> flow.add("rows", FlowRow("mlp/W", "weight"))
    >>> flow.add("samples", Sample(0, rows={"mlp/W": {"gradient": 0.5}}))
    >>> flow.series("mlp/W", "gradient")
    [(0, 0.5)]
    """

    def __init__(self, every: int = 1) -> None:
        self.every, self.steps = every, 0
        self.rows: dict[str, FlowRow] = {}
        self.samples: list[Sample] = []
        self.logged: list[dict[str, float]] = []
        self.requests: list[Sample] = []
        self.baseline: FlowRecord | None = None
        self.events: list[dict[str, Any]] = []
        self.structure: list[dict[str, Any]] = []
        self.traces: dict[int, TraceRecord] = {}
        self.file: TextIO | None = None  # takes a line for each part, as it comes

    def add(self, part: str, one: Any) -> None:
        """A FlowRow, a Sample, an entry of what was logged, or an event."""
        if part == "rows":
            self.rows[one.path] = one
        else:
            held = getattr(self, part)
            held.append(one)
            if len(held) > MOST_KEPT.get(part, 1):
                del held[1:-1:2]
        self._write(part, lambda: one.to_dict() if hasattr(one, "to_dict") else _numbers(one))

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
            **({"structure": list(self.structure)} if self.structure else {}),
            **({"requests": [one.to_dict() for one in self.requests]} if self.requests else {}),
        }

    def save(self, path: str | Path) -> Path:
        """Write all of it but traces as lines of JSON, which `read` reads: a baseline, say.

        Returns: the path.  Raises: ArgumentError where nothing can be written there.
        """
        data = self.to_dict()
        parts = ("rows", "samples", "logged", "events", "structure", "requests")
        lines: list[dict[str, Any]] = [{"every": self.every}]
        lines += [{part: one} for part in parts for one in data.get(part, [])]
        text = [json.dumps(line, allow_nan=False, separators=(",", ":")) for line in lines]
        return write(path, "\n".join(text) + "\n", "save")

    def csv(self, path: str | Path) -> Path:
        """Write a table for spreadsheets and data frames: a line for each step, row and figure.

            step,row,figure,value

        What was logged stands with an empty row, as the learning rate (`lr`) and the loss that
        backward began from (`began`) do. Numbers have six digits; `nan` and `inf` are text.

        Returns: the path.  Raises: ArgumentError where nothing can be written there.

        >>> from tempfile import mkdtemp
        >>> flow = FlowRecord()
        >>> flow.add("samples", Sample(0, lr=0.1, rows={"mlp/W": {"gradient": 0.5}}))
        >>> flow.add("logged", {"step": 0, "loss": 2.5})
        >>> print(flow.csv(Path(mkdtemp()) / "f.csv").read_text(), end="")
        step,row,figure,value
        0,,loss,2.5
        0,,lr,0.1
        0,mlp/W,gradient,0.5
        """
        lines = [(int(one["step"]), "", name, x) for one in self.logged for name, x in one.items()]
        lines = [line for line in lines if line[2] != "step"]
        for sample in self.samples:
            own = {"lr": sample.lr, "began": sample.loss}
            lines += [(sample.step, "", name, x) for name, x in own.items() if x is not None]
            for row, figures in sample.rows.items():
                lines += [(sample.step, row, name, x) for name, x in figures.items()]
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("step", "row", "figure", "value"))
        lines.sort(key=lambda line: (line[0], bool(line[1])))
        writer.writerows((*line[:3], number(line[3])) for line in lines)
        return write(path, text.getvalue(), "csv")

    def begin_file(self, path: str | Path) -> None:
        """From now on, write each part as a line of JSON; earlier lines stay as they are."""
        self.file = target_of(path, "watch").open("a", encoding="utf-8")
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

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The last run in a file that `watch(path=...)` wrote; a torn last line is left out.

        Raises: ArgumentError for a file that holds no such lines.
        """
        made, lines = cls(), Path(path).read_text(encoding="utf-8").split("\n")
        for i, line in enumerate(lines):
            try:
                for part, one in (json.loads(line) if line else {}).items():
                    made._take(part, one)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if i == len(lines) - 1 and made.rows:
                    break
                what = f"read({str(path)!r}): line {i + 1} is none of a flow's: {error!r}"
                raise ArgumentError(what) from error
        return made

    def _take(self, part: str, one: Any) -> None:
        if part == "every":  # the first line of a run
            vars(self).update(vars(type(self)(one)))
        elif part == "rows":
            known = {name: x for name, x in one.items() if name in FlowRow.__dataclass_fields__}
            self.add(part, FlowRow(**known | {"shape": tuple(one.get("shape", ()))}))
        elif part == "structure":
            self.add(part, one)
        elif part in ("samples", "requests"):
            rows = {path: _floats(row) for path, row in one["rows"].items()}
            floats = {k: float(one[k]) for k in ("loss", "unit", "guess") if k in one}
            targets = [float(x) for x in one.get("targets", ())]
            self.add(part, Sample(**one | floats | {"rows": rows, "targets": targets}))
            if part == "samples":
                self.steps = max(self.steps, one["step"] + 1)
        else:
            self.add(part, _floats(one) if part == "logged" else one)
            self.steps = max(self.steps, int(one["step"]) + 1)
