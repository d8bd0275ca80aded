"""TrainingRecord: summaries of some steps of a training run, and what was logged, as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..engine.errors import ArgumentError
from .finish import json_ready
from .heads import Head

__all__ = ["Finding", "Moment", "Reading", "TrainingRecord"]


NOT_TRAINED = {"val", "valid", "validation", "eval", "test"}  # in the name of a loss


class Reading(NamedTuple):
    """A value or a parameter in one step.

    value, gradient: their rms; of a parameter before the update.
    share: of its units that are dead, or of entries or rows that are saturated.
    update: of a parameter, the size of its update over its own.
    """

    value: float
    gradient: float | None = None
    share: float | None = None
    update: float | None = None

    @property
    def finite(self) -> bool:
        return isfinite(self.value) and isfinite(self.gradient or 0.0)


@dataclass
class Moment:
    """One step that was looked at, or one request under `no_grad`.

    Attributes:
        loss: what backward began from.  guess: the loss of the best constant guess at its targets.
        readings: by path: of values in the order of the forward, then of parameters.
        missing: of parameters without a gradient, why.
        stale: parameters to whose gradient that of an earlier step was added.
        through_time: by the path of what has steps in time, rms of its gradient at the first step
            and at the last, and how many there are.
        heads: figures of each head by path and number, as attention/A[0].
    """

    step: int
    loss: float | None = None
    guess: float | None = None
    readings: dict[str, Reading] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    through_time: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)


class Finding(NamedTuple):
    """One problem of a run.

    Attributes: kind: as in `diagnose`.  path: where; empty of the loss.  first: the step.
        text: its figures in a sentence.  remedy: what to try.
    """

    kind: str
    path: str
    first: int
    text: str
    remedy: str

    def __str__(self) -> str:
        where = f", {self.path}" if self.path else ""
        return f"step {self.first}: {self.kind}{where}: {self.text}\n  try: {self.remedy}"


class Findings(list[Finding]):
    """All findings, what began first before the rest; printed, two lines each, or none found."""

    kinds = property(lambda self: [*dict.fromkeys(finding.kind for finding in self)])

    def __str__(self) -> str:
        return "\n".join(map(str, self)) if self else "nothing found"

    __repr__ = __str__


class TrainingRecord:
    """Moments of a training run, and what was logged in each step.

    Attributes:
        every: how many steps lie between two moments.  steps: how many were taken.
        moments: steps that were looked at.  requests: calls under `no_grad` that were.
        logged: name to pairs of a step and a number.
        kinds: path to the op that made a value, or "parameter".  shapes: by path.
        words: path to what of it may saturate: "units dead", "entries saturated", "rows saturated".
        in_theory: parameters whose gradient is zero in theory.
        baseline: another record whose requests these are held against.
    """

    def __init__(self, every: int = 1) -> None:
        self.every, self.steps = every, 0
        self.moments: list[Moment] = []
        self.requests: list[Moment] = []
        self.logged: dict[str, list[tuple[int, float]]] = {}
        self.kinds: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.words: dict[str, str] = {}
        self.in_theory: list[str] = []
        self.baseline: TrainingRecord | None = None

    def series(self, path: str, figure: str) -> list[tuple[int, float]]:
        """A figure of a path over the moments: "value", "gradient", "share" or "update".

        Of a head, as `attention/A[0]`, its "entropy" or "sparsity", over the requests if any.
        """
        rows: list[tuple[int, Head | Reading | None]]
        if figure in Head._fields:
            rows = [(m.step, m.heads.get(path)) for m in self.requests or self.moments]
        else:
            rows = [(m.step, m.readings.get(path)) for m in self.moments]
        pairs = [(step, getattr(row, figure, None)) for step, row in rows]
        return [(step, x) for step, x in pairs if x is not None]

    @property
    def losses(self) -> list[tuple[int, float]]:
        """The loss by step: what was logged as one, or else what backward began from."""
        for name, losses in self.logged.items():
            if "loss" in name and NOT_TRAINED.isdisjoint(name.split("_")):
                return losses
        return [(m.step, m.loss) for m in self.moments if m.loss is not None]

    @property
    def parameters(self) -> list[str]:
        return [path for path, kind in self.kinds.items() if kind == "parameter"]

    # ------------------------------------------------------------------ as data

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data; numbers that are not finite as text."""
        own = {name: x for name, x in vars(self).items() if name not in ("baseline", "observer")}
        return {"version": 2, **json_ready(own)}

    @classmethod
    def baseline_of(cls, path: str | Path) -> Self:
        """The requests of a file that `save` wrote. Raises: ArgumentError for another file."""
        baseline = cls()
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            for request in data["requests"]:
                heads = {path: Head(**head) for path, head in request["heads"].items()}
                baseline.requests.append(Moment(request["step"], heads=heads))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArgumentError(
                f"watch(baseline=...): {str(path)!r} is no file that flow.save wrote: {error}"
            ) from None
        return baseline
