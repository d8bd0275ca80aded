"""StepPlan: what of a training step is measured, learned from one step that was traced.

As long as the same ops run in the same order, no trace is needed to know which row a call belongs
to, and a sampled step costs little more than its figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ..engine.op import Op
from ..engine.tensor import Tensor
from ..engine.types import Array
from .flow import FlowRow, Sample
from .formulas import array_of
from .guess import constant_guess, targets_of
from .measures import heads, saturation, subsample, unmasked_rms
from .record import Entry
from .recorder import BackwardStep, OpCall
from .trace import TraceRecord

__all__ = ["Ids", "StepPlan"]

Ids: TypeAlias = list[tuple[int, Array]]  # looked up in the table of an entry
TARGETS = 64  # of each sample that are kept


@dataclass(slots=True)
class _Value:
    """A call that has a row. Args: count: of the last of many, how many there were."""

    call: int
    entry: int
    row: FlowRow
    is_weights: bool
    count: int = 0


class StepPlan:
    """The calls of a step that are measured, by their number.

    A value has a row if it is computed from a parameter of the model, and has a name, may saturate,
    holds weights of attention, takes all steps of a sequence, or is the last of its scope; outside
    of any scope, if it takes a parameter.

    Args: calls: of a step.  trace: its record.  parameters: their entries.
    Attributes: computed: the entries that parameters lead to.
    """

    def __init__(self, calls: Sequence[OpCall], trace: TraceRecord, parameters: set[int]) -> None:
        self.ops = [call.op for call in calls]
        steps = [trace.entries[i] for i in trace.forward_steps]
        number = {entry.id: k for k, entry in enumerate(steps)}
        self.computed = set(parameters)
        self.last: int | None = None  # the last that takes a parameter and has a gradient
        shown: list[tuple[int, Entry, bool]] = []
        scopes = [*(entry.scope for entry in steps[1:]), ""]
        for k, (entry, beyond) in enumerate(zip(steps, scopes, strict=False)):
            sources = {edge.source for edge in trace.into(entry)}
            if sources.isdisjoint(self.computed):
                continue
            self.computed.add(entry.id)
            takes = not sources.isdisjoint(parameters)
            if takes and entry.gradient is not None:
                self.last = k
            is_weights = _gives_weights(calls[k])
            if entry.needs and (is_weights or _is_shown(self.ops[k], entry, beyond, takes)):
                shown.append((k, entry, is_weights))
        self.values = [*self._values(shown)]
        roots = [trace.entries[i] for i in trace.roots if i in self.computed]
        self.roots = [number[entry.id] for entry in roots if entry.id in number]
        self.targets = _best(trace, self.computed, float(sum(np.sum(e.value) for e in roots)))
        self.tables = [
            (number[edge.target], leaf)
            for leaf in parameters
            if len(trace.entries[leaf].shape) > 1
            for edge in trace.uses(trace.entries[leaf])
            if edge.target in number
        ]

    def _values(self, shown: list[tuple[int, Entry, bool]]) -> Iterator[_Value]:
        """Of calls with one path the first eight, the 16th, the 32nd … and the last."""
        total, seen = Counter(entry.path for _, entry, _ in shown), Counter[str]()
        for k, entry, is_weights in shown:
            path, index = entry.path, seen[entry.path]
            seen[path] += 1
            count = 0
            if index >= 8 and index & (index + 1):
                if index < total[path] - 1:
                    continue
                path, count = f"{path}[last]", total[path]
            elif index:
                path = f"{path}[{index}]"
            op, words = self.ops[k], ""
            if op.saturates is not None and ("axis" not in op.settings or is_weights):
                words = op.saturates[0]
            row = FlowRow(path, "value", op.name, words, entry.shape)
            yield _Value(k, entry.id, row, is_weights, count)

    def fits(self, calls: Sequence[OpCall]) -> bool:
        """Whether the same ops ran in the same order."""
        return [call.op for call in calls] == self.ops

    def measure(
        self,
        step: int,
        calls: Sequence[OpCall],
        backward: Sequence[BackwardStep],
        scale: float,
        *,
        guess: bool,
        trace: TraceRecord | None = None,
    ) -> tuple[Sample, Ids]:
        """The figures of a step that fits, and the ids that it looked up.

        Args: scale: what the loss was multiplied by alone.  guess: measure a constant guess too.
            trace: of the step, if there is one; it has the weights from before the update.
        """
        if trace is not None:
            calls = [_recorded(call, trace, k) for k, call in enumerate(calls)]
        gradients = {one.node: array_of(one.gradient) for one in backward}
        found = Sample(step)
        for value in self.values:
            call = calls[value.call]
            gradient = gradients.get(call.output.node)
            found.rows[value.row.path] = _figures(value, call, gradient, scale)
            few = None if gradient is None else subsample(gradient) / np.float32(scale)
            found.entries[value.row.path] = [subsample(call.output._data), few]
        ends = (calls[i].output._data for i in self.roots)
        found.loss = float(sum(np.sum(end, dtype=np.float64) for end in ends)) / scale
        last = None if self.last is None else gradients.get(calls[self.last].output.node)
        found.unit = 0.0 if last is None else float(np.abs(last).sum(dtype=np.float64)) / scale
        if self.targets is not None:
            self._measure_targets(found, calls, self.targets, guess)
        return found, [*self._looked_up(calls)]

    def _measure_targets(
        self, found: Sample, calls: Sequence[OpCall], places: tuple[int, int, int], guess: bool
    ) -> None:
        index, *sides = places
        given = (*calls[index].inputs, *calls[index].settings)
        out, targets = (np.asarray(array_of(given[side])) for side in sides)
        few = targets.ravel()[:: max(1, targets.size // TARGETS)][:TARGETS]
        found.targets = few.astype(float).tolist()
        if guess:
            assert found.loss is not None
            found.guess = constant_guess(out, targets, found.loss)

    def _looked_up(self, calls: Sequence[OpCall]) -> Iterator[tuple[int, Array]]:
        """Arrays of whole numbers by which rows of a table were taken."""
        for index, leaf in self.tables:
            for setting in calls[index].settings:
                ids = array_of(setting[0] if isinstance(setting, tuple) and setting else setting)
                if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu" and ids.ndim:
                    yield leaf, ids


def _recorded(call: OpCall, trace: TraceRecord, number: int) -> OpCall:
    """A call with the arrays that its trace kept: what was written since, they do not have."""
    entry = trace.entries[trace.forward_steps[number]]
    kept = {edge.input: trace.entries[edge.source].value for edge in trace.into(entry)}
    names = call.op.input_names(len(call.inputs))
    inputs = tuple(kept.get(name, x) for name, x in zip(names, call.inputs, strict=True))
    return replace(call, inputs=inputs, output=Tensor(entry.value, call.output.node))


def _gives_weights(call: OpCall) -> bool:
    """Whether it is a softmax, say, whose result is weights of attention."""
    same = "axis" in call.op.settings and np.shape(array_of(call.inputs[0])) == call.output.shape
    return same and heads(call.output._data) is not None


def _is_shown(op: Op, entry: Entry, beyond: str, takes: bool) -> bool:
    """Whether a value has a row. beyond: the next one's scope. takes: it takes a parameter."""
    if "axis" not in op.settings and op.saturates:
        return True
    own = entry.scope
    ends_scope = bool(own) and beyond != own and not beyond.startswith(f"{own}/")
    return entry.name is not None or ends_scope or (takes and not own)


def _best(trace: TraceRecord, computed: set[int], loss: float) -> tuple[int, int, int] | None:
    """Where the targets are, preferring those of which the loss is a known function."""
    found = [*targets_of(trace, computed)]
    for index, out, targets in found:
        call = trace.call_of(trace.entries[trace.forward_steps[index]])
        assert call is not None
        given = (*trace.inputs_of(call), *map(array_of, call.settings))
        if constant_guess(np.asarray(given[out]), np.asarray(given[targets]), loss) is not None:
            return index, out, targets
    return found[0] if found else None


def _figures(value: _Value, call: OpCall, gradient: Array | None, scale: float) -> dict[str, float]:
    op, array = call.op, call.output._data
    figures = {"value": unmasked_rms(array)}
    if value.is_weights:
        figures |= heads(array) or {}
    if gradient is not None:
        figures["gradient"] = unmasked_rms(gradient) / scale
    if value.row.saturates:
        share = saturation(op, array, call.settings)
        figures |= {} if share is None else {"saturated": share}
    if value.count:
        figures["count"] = float(value.count)
    return figures
