"""StepPlan: which calls of a training step are measured, learned from one step that was traced.

Steps are alike: as long as the same ops run in the same order, no trace is needed to know which
call belongs to which row, and a step that is looked at costs little more than its figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..engine.context import Context
from ..engine.op import Op
from ..engine.tensor import Node, Tensor
from .flow import Row
from .formulas import array_of
from .guess import constant_guess, targets_of
from .measures import heads, saturation, size, subsample
from .reading import Reading

__all__ = ["Backward", "Call", "StepPlan", "StepValues"]

Call: TypeAlias = tuple[Op, tuple[Any, ...], tuple[Any, ...], Tensor, Context]
Backward: TypeAlias = tuple[Node, Any, list[Any]]
TARGETS = 64  # of each sample that are kept


@dataclass(slots=True)
class _Value:
    """One call that has a row. Args: count: of the last of many, how many there were."""

    index: int
    path: str
    is_weights: bool
    saturates: bool
    count: int


@dataclass
class StepValues:
    """What was measured of the values of a step: figures and some entries by path."""

    rows: dict[str, dict[str, float]]
    entries: dict[str, list[Any]]
    loss: float
    unit: float
    guess: float | None
    targets: list[float]
    ids: list[tuple[int, Any]]  # looked up in the table of an entry

    @property
    def finite(self) -> bool:
        """Whether values, gradients and loss are."""
        sizes = [row.get(name, 0.0) for row in self.rows.values() for name in ("value", "gradient")]
        return bool(np.isfinite([*sizes, self.loss]).all())


class StepPlan:
    """The calls of a step that are measured, by their number.

    Args: reading: of the step that was traced.
    """

    def __init__(self, reading: Reading) -> None:
        trace = reading.trace
        number = {entry: k for k, entry in enumerate(trace.forward_steps)}
        calls = [trace.call_of(trace.entries[i]) for i in trace.forward_steps]
        self.ops = [None if call is None else call.op for call in calls]
        self.values: list[_Value] = []
        self.rows: list[tuple[int, Row]] = []  # and the entries that they are of
        for path, entry, count in reading.rows():
            op, is_weights = self.ops[number[entry.id]], entry.id in reading.weights
            declared = None if op is None else op.saturates
            known = declared is not None and (op is None or "axis" not in op.settings or is_weights)
            words = declared[0] if declared is not None and known else ""
            value = _Value(number[entry.id], path, is_weights, known, count)
            self.values.append(value)
            self.rows.append((entry.id, Row(path, "value", entry.op or "", words, entry.shape)))
        self.roots = [number[entry.id] for entry in reading.roots if entry.id in number]
        self.last = None if reading.last is None else number[reading.last.id]
        self.targets = _best(reading)
        self.tables = [
            (number[edge.target], leaf)
            for leaf in reading.parameters
            if len(trace.entries[leaf].shape) > 1
            for edge in trace.uses(trace.entries[leaf])
            if edge.target in number
        ]

    def fits(self, calls: Sequence[Call]) -> bool:
        """Whether the same ops ran in the same order."""
        return len(calls) == len(self.ops) and all(
            call[0] is op for call, op in zip(calls, self.ops, strict=True)
        )

    def measure(
        self,
        calls: Sequence[Call],
        backward: Sequence[Backward],
        scale: float,
        *,
        guess: bool,
    ) -> StepValues:
        """Figures of a step that fits. Args: scale: what the loss was multiplied by alone."""
        gradients: dict[Any, Any] = {node: array_of(gradient) for node, gradient, _ in backward}
        found = StepValues({}, {}, 0.0, 0.0, None, [], [])
        for value in self.values:
            call = calls[value.index]
            gradient = gradients.get(call[3]._node)
            figures = found.rows[value.path] = _figures(value, call, gradient, scale)
            few = None if gradient is None else subsample(gradient) / np.float32(scale)
            found.entries[value.path] = [subsample(call[3]._data), few]
            if value.count:
                figures["count"] = float(value.count)
        ends = (calls[i][3]._data for i in self.roots)
        found.loss = float(sum(np.sum(end, dtype=np.float64) for end in ends)) / scale
        last = None if self.last is None else gradients.get(calls[self.last][3]._node)
        if last is not None:
            found.unit = float(np.abs(last).sum(dtype=np.float64)) / scale
        if self.targets is not None:
            index, out, targets = self.targets
            given = (*calls[index][1], *calls[index][2])
            held = np.asarray(array_of(given[targets])).ravel()
            few = held[:: max(1, held.size // TARGETS)][:TARGETS]
            found.targets = few.astype(float).tolist()
            if guess:
                pair = array_of(given[out]), np.asarray(array_of(given[targets]))
                found.guess = constant_guess(*pair, found.loss)
        for index, leaf in self.tables:
            for setting in calls[index][2]:
                ids = array_of(setting[0] if isinstance(setting, tuple) and setting else setting)
                if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu" and ids.ndim:
                    found.ids.append((leaf, ids))
        return found


def _best(reading: Reading) -> tuple[int, int, int] | None:
    """Where the targets stand, at best those of which the loss is a known function."""
    trace, loss = reading.trace, float(sum(np.sum(entry.value) for entry in reading.roots))
    found = [*targets_of(reading)]
    for index, out, targets in found:
        call = trace.call_of(trace.entries[trace.forward_steps[index]])
        assert call is not None
        given = (*trace.inputs_of(call), *map(array_of, call.settings))
        if constant_guess(np.asarray(given[out]), np.asarray(given[targets]), loss) is not None:
            return index, out, targets
    return found[0] if found else None


def _figures(value: _Value, call: Call, gradient: Any, scale: float) -> dict[str, float]:
    op, inputs, settings, output, _ = call
    array = output._data
    figures = {"value": size(array)}
    if value.is_weights:
        figures |= heads(array) or {}
    if gradient is not None:
        figures["gradient"] = size(gradient) / scale
        if op.over_time is not None:
            figures |= _over_time(op, inputs, settings, array, gradient)
    if value.saturates:
        share = saturation(op, array, settings)
        figures |= {} if share is None else {"saturated": share}
    return figures


def _over_time(op: Op, inputs: Any, settings: Any, out: Any, gradient: Any) -> dict[str, float]:
    """Sizes of the gradient at the first and the last time that have one, and how many times."""
    known = dict(zip(op.inputs, map(array_of, inputs), strict=True))
    known |= dict(zip(op.settings, map(array_of, settings), strict=True))
    assert op.over_time is not None
    with np.errstate(all="ignore"):
        sizes = op.ask(op.over_time, g=gradient, out=out, **known)
    times = np.flatnonzero(sizes)
    if len(times) < 2:
        return {}
    first, last = (float(sizes[i]) for i in (times[0], times[-1]))
    return {"first": first, "last": last, "count": float(times[-1] - times[0] + 1)}
