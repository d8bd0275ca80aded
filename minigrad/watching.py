"""`mg.watch(model)`: a record of a training run, with a method for each view of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .engine.context import current, use_context
from .engine.errors import ArgumentError
from .engine.tensor import Tensor
from .lazy_imports import in_a_notebook
from .recording.diagnose import diagnose
from .recording.findings import Findings
from .recording.flow import FlowRecord
from .recording.sampler import Sampler
from .tracing import Trace

__all__ = ["watch"]


class HasParameters(Protocol):
    """A model, as a Module is."""

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]: ...


Watched: TypeAlias = "HasParameters | Tensor | Sequence[Tensor] | Mapping[str, Tensor]"


class Flow(FlowRecord):
    """A training run: rows, samples, what was logged, whole traces, each method a view of them.

    `mg.watch` makes one; `Flow.read(path)` makes one of the lines that `watch(path=...)` wrote.

    Attributes: rows, samples, logged, traces (by step), steps.
    """

    sampler: Sampler | None = None

    def __repr__(self) -> str:
        names = f", logged: {', '.join(self.log_names)}" if self.logged else ""
        return (
            f"Flow: {self.steps} step{'s' * (self.steps != 1)}, {len(self.samples)} looked at, "
            f"{len(self.rows)} row{'s' * (len(self.rows) != 1)}{names}\n"
            'flow.table() and flow.draw("f.svg") show them, flow.diagnose() says what is odd'
        )

    def log(self, **numbers: SupportsFloat) -> None:
        """Note numbers of the step that has just ended: a loss, a validation loss, an accuracy.

        Raises: ArgumentError for what is not one number.
        """
        step = max(self.steps - 1, 0)
        if self.sampler is not None:
            self.sampler.logged()
        self.add("logged", {"step": step} | {name: _one(name, x) for name, x in numbers.items()})

    def diagnose(self) -> Findings:
        """What went wrong, in words: each finding with its figures, its step and what to try.

        Empty for a healthy run. Findings have `kind`, `step`, `path`, `text` and `remedy`.
        """
        return diagnose(self)

    def table(self, width: int | None = None) -> str:
        """The run as text: sizes of values, gradients and updates of each row, and what is odd."""
        from .views.flow.table import flow_table
        from .views.plain import Text

        return Text(flow_table(self, width))

    def draw(self, path: str | Path, *, theme: str = "auto", scale: str = "run") -> Path:
        """Draw the heat map of the gradient, layers × steps, with the loss above, as an SVG.

        Args:
            theme: "auto" (it follows its reader's light or dark), "light", "dark" or "print".
            scale: "run", just what this run needs, or "fixed", 1e-8 to 1e4 in every picture.
        Returns: the path.  Raises: ArgumentError for other values or a missing folder.
        """
        from .views.flow.heatmap import draw_flow

        return draw_flow(self, path, theme=theme, scale=scale)

    _repr_mimebundle_ = in_a_notebook("flow_bundle")


class watch:
    """Watch a model while it trains: `with mg.watch(model, every=10) as flow:` around the loop.

    Each tenth step, the first included, is looked at op by op; in the others nobody listens, and
    compiled steps run at full speed. A step ends when the optimizer that moves the model has moved
    it; without an optimizer of `minigrad.optim`, when `flow.log(...)` is called after the update.

    Args:
        model: a Module, or Tensors in a list or a dict.
        every: look at every so many steps.
        path: a file that takes a line of JSON for each part of the record as it comes;
            `Flow.read(path)` reads it, also after a kill.
        traces: whole traces to keep, the first and the latest: `flow.traces[step]`.
        reference: a model or state dict that drift is measured from; the weights at the start.
        baseline: a Flow, or the file that `flow.save` wrote: attention under `no_grad` is compared
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
    [(0, 0.3162), (2, 0.2024)]
    """

    def __init__(
        self,
        model: Watched,
        every: int = 10,
        *,
        path: str | Path | None = None,
        traces: int = 3,
        reference: Watched | Mapping[str, ArrayLike] | None = None,
        baseline: str | Path | FlowRecord | None = None,
    ) -> None:
        for name, number, least in (("every", every, 1), ("traces", traces, 0)):
            if not isinstance(number, int | np.integer) or number < least:
                said = f"{name} must be a whole number from {least}, got {number!r}"
                raise ArgumentError(f"watch({name}=...): {said}")
        self.flow = Flow(int(every))
        self._path = path
        if baseline is not None:
            given = baseline if isinstance(baseline, FlowRecord) else Flow.read(baseline)
            if not given.requests:
                raise ArgumentError(
                    "watch(baseline=...): it holds no requests; watch calls of the model under "
                    "mg.no_grad() and save that flow"
                )
            self.flow.baseline = given
        self._sampler = Sampler(
            self.flow, model, traces=traces, reference=reference, new_trace=Trace
        )

    def __enter__(self) -> Flow:
        if self._path is not None:
            self.flow.begin_file(self._path)
        self._surroundings = use_context(current())  # a copy, in which listeners may change
        self._surroundings.__enter__()
        self.flow.sampler = self._sampler
        self._sampler.start(current())
        return self.flow

    def __exit__(self, *exception: object) -> None:
        self._sampler.stop()
        self._surroundings.__exit__(*exception)
        self.flow.end_file()


def _one(name: str, value: object) -> float:
    array = np.asarray(value._data if isinstance(value, Tensor) else value)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise ArgumentError(f"log({name}=...): must be one number, got {value!r:.60}")
    return float(array.reshape(()))


Findings._repr_mimebundle_ = in_a_notebook("findings_bundle")  # type: ignore[attr-defined]
