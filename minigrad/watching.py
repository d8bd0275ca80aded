"""`mg.watch(model)`: a record of a training run, with a method for each view of it.

Steps are observed in record/step_observer.py, kept as Moments (record/training.py), and judged by
the rules of record/diagnose.py; views/training.py shows them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

from .engine.errors import ArgumentError
from .engine.op import array_of
from .engine.tensor import Tensor
from .record.diagnose import diagnose
from .record.step_observer import StepObserver, Watched
from .record.training import Findings, TrainingRecord
from .saving import write

__all__ = ["watch"]


class Flow(TrainingRecord):
    """A training run: summaries of some of its steps, what was logged, and a method for each view.

    Attributes: moments, requests, logged, steps: see `TrainingRecord`.
    """

    observer: StepObserver | None = None

    def __repr__(self) -> str:
        looked_at = f"steps: {self.steps} ({len(self.moments)} looked at)"
        return (
            f"Flow: {looked_at}, requests: {len(self.requests)}, "
            f"logged: {', '.join(self.logged) or 'nothing'}\n"
            'flow.table() lists them, flow.draw("f.svg") shows them, flow.diagnose() finds faults'
        )

    def log(self, **numbers: SupportsFloat | Tensor) -> None:
        """Note numbers of the step that has just ended: a loss, a validation loss, an accuracy.

        Raises: ArgumentError for what is not one number.
        """
        values = dict[str, float]()
        for name, number in numbers.items():
            array = np.asarray(array_of(number))
            if array.size != 1 or array.dtype.kind not in "fiub":
                raise ArgumentError(f"log({name}=...): must be one number, got {number!r:.60}")
            values[name] = float(array.item())
        if self.observer is not None:
            self.observer.logged()
        for name, value in values.items():
            self.logged.setdefault(name, []).append((max(self.steps - 1, 0), value))

    def diagnose(self) -> Findings:
        """What went wrong, in words: each finding with its figures, its step and what to try.

        Empty for a healthy run. Findings have `kind`, `path`, `first`, `text`, `remedy`.
        """
        return diagnose(self)

    def save(self, path: str | Path) -> Path:
        """Write all of it as JSON; `mg.watch(baseline=path)` reads it."""
        return write(path, json.dumps(self.to_dict(), allow_nan=False) + "\n", "save")

    def table(self, width: int | None = None) -> str:
        """The run as text: sizes of values, gradients and updates of each row, and what is odd."""
        from .views.training import table

        return table(self, width)

    def draw(self, path: str | Path, *, theme: str = "auto") -> Path:
        """Draw the heat map of the gradient, layers × steps, with the loss above, as an SVG.

        Args: theme: "auto" (it follows its reader's light or dark), "light" or "dark".
        Returns: the path.  Raises: ArgumentError for other values or a missing folder.
        """
        from .views.training import svg

        return write(path, svg(self, theme=theme), "draw")

    def csv(self, path: str | Path) -> Path:
        """Write a line for each row and step: step, path, kind, value, gradient, update, share."""
        from .views.training import csv

        return write(path, csv(self), "csv")

    def _repr_mimebundle_(self, **wanted: Any) -> dict[str, str]:
        """What a notebook shows: the table and the heat map."""
        from .views.training import svg

        return {"text/plain": self.table(100), "image/svg+xml": svg(self, theme="light")}


class watch:
    """Watch a model while it trains: `with mg.watch(model, every=10) as flow:` around the loop.

    Each tenth step, the first included, is looked at op by op; in the others nothing observes, and
    compiled steps run at full speed. A step ends when the optimizer that moves the model has moved
    it; without an optimizer of `minigrad.optim`, when `flow.log(...)` is called after the update.

    Under `no_grad` each call of the model is a request, of which attention is looked at.

    Args:
        model: a Module, or Tensors in a list.
        every: look at every so many steps, or requests.
        baseline: a Flow, or the file that `flow.save` wrote. Attention under `no_grad` is compared
            with its, and `flow.diagnose()` says which head moved, by how much, since when.
    Raises: DTypeError for what is no model; ArgumentError for other arguments that do not fit.

    >>> import minigrad as mg
    >>> from minigrad.optim import SGD
    >>> w = mg.tensor([1.0, 2.0], requires_grad=True, name="w")
    >>> optimizer = SGD([w], lr=0.1)
    >>> with mg.watch([w], every=2) as flow:
    ...     for step in range(4):
    ...         optimizer.zero_grad()
    ...         loss = mg.sum(w * w)
    ...         loss.backward()
    ...         optimizer.step()
    ...         flow.log(loss=loss)
    >>> [(step, round(x, 4)) for step, x in flow.series("w", "update")]
    [(0, 0.2), (2, 0.2)]
    """

    def __init__(
        self,
        model: Watched,
        every: int = 10,
        *,
        baseline: str | Path | TrainingRecord | None = None,
    ) -> None:
        if not isinstance(every, int) or every < 1:
            raise ArgumentError(f"watch(every=...): must be a whole number from 1, got {every!r}")
        if isinstance(baseline, str | Path):
            baseline = TrainingRecord.baseline_of(baseline)
        if baseline is not None and not baseline.requests:
            raise ArgumentError(
                "watch(baseline=...): it holds no requests; watch calls of the model under "
                "mg.no_grad() and save that flow"
            )
        self.flow = Flow(every)
        self.flow.baseline = baseline
        self._observer = StepObserver(self.flow, model)

    def __enter__(self) -> Flow:
        self.flow.observer = self._observer
        self._observer.start()
        return self.flow

    def __exit__(self, *exception: object) -> None:
        self._observer.stop()
        self.flow.observer = None
