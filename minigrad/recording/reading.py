"""What one watched step was, read off its trace: figures of its values, and the first NaN."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..anomaly import NonFiniteWatch
from ..engine.errors import NonFiniteError
from .flow import FlowRecord, Row, Sample
from .measures import heads, saturation, size, subsample
from .record import Entry
from .trace import Trace

__all__ = ["Reading", "cancels", "first_not_finite"]


class Reading:
    """The values of a step that get a row, in the order of the forward pass.

    They are computed from a parameter of the model, and have a name, may saturate, are weights of
    attention, or are the last of their scope; outside of any scope, they take a parameter.

    Args: scale: what the loss was multiplied by for the backward alone; gradients are told without.
    """

    def __init__(self, trace: Trace, parameters: set[int], scale: float = 1.0) -> None:
        self.trace = trace
        self.parameters = parameters
        self.scale = scale
        self._weights: dict[int, dict[str, float]] = {}  # of attention, by entry
        steps = [trace.entries[i] for i in trace.forward_steps]
        self.computed = computed = set(parameters)
        self.values: list[Entry] = []
        for entry, after in zip_longest(steps, steps[1:]):
            if any(edge.source in computed for edge in trace.into(entry)):
                computed.add(entry.id)
                if entry.needs and self._has_row(entry, "" if after is None else after.scope):
                    self.values.append(entry)

    def _has_row(self, entry: Entry, after: str) -> bool:
        call, own = self.trace.call_of(entry), entry.scope
        if call is not None and "axis" in call.op.settings:
            same = getattr(call.inputs[0], "shape", ()) == entry.shape
            if same and (found := heads(entry.value)) is not None:
                self._weights[entry.id] = found
                return True
        elif call is not None and (call.op.saturates or call.op.over_time):
            return True
        ends_scope = bool(own) and after != own and not after.startswith(f"{own}/")
        takes = not own and any(e.source in self.parameters for e in self.trace.into(entry))
        return entry.name is not None or ends_scope or takes

    def add_to(self, record: FlowRecord, sample: Sample, place: Callable[[Entry], None]) -> None:
        """Add figures of each value to the sample, and its row to the record.

        Of a path that comes many times the first eight have a row, the 16th, the 32nd … and the
        last. `place` is called with each parameter before the values that are made with it.
        """
        total, seen = Counter(entry.path for entry in self.values), Counter[str]()
        leaves = [self.trace.entries[i] for i in self.parameters]
        for entry in sorted([*leaves, *self.values], key=lambda entry: entry.id):
            if entry.op is None:
                place(entry)
                continue
            path, index = entry.path, seen[entry.path]
            seen[path] += 1
            if index < 8 or index & (index + 1) == 0:
                self._add(record, sample, entry, f"{path}[{index}]" if index else path)
            elif index == total[path] - 1:
                self._add(record, sample, entry, f"{path}[last]")
                sample.rows[f"{path}[last]"]["count"] = total[path]

    def _add(self, record: FlowRecord, sample: Sample, entry: Entry, path: str) -> None:
        call = self.trace.call_of(entry)
        value = entry.value
        gradient = entry.gradient
        figures = sample.rows[path] = {"value": size(value)} | self._weights.get(entry.id, {})
        if gradient is not None:
            figures["gradient"] = size(gradient) / self.scale
        saturates = ""
        if call is not None and call.op.saturates is not None:
            if "axis" not in call.op.settings or entry.id in self._weights:
                saturates = call.op.saturates[0]
                share = saturation(call.op, value, call.settings)
                figures |= {} if share is None else {"saturated": share}
        if call is not None and call.op.over_time is not None and gradient is not None:
            figures |= _over_time(self.trace, call, entry)
        if path not in record.rows:
            row = Row(path, "value", op=entry.op or "", saturates=saturates, shape=entry.shape)
            record.add("rows", row)
        few = None if gradient is None else subsample(gradient) / np.float32(self.scale)
        sample.entries[path] = [subsample(value), few]

    @property
    def loss(self) -> float:
        """What backward began from: the sum of what the parameters of the model led to."""
        ends = (self.trace.entries[i] for i in self.trace.roots if i in self.computed)
        return float(sum(np.sum(end.value, dtype=np.float64) for end in ends)) / self.scale

    @property
    def unit(self) -> float:
        """Σ |∂L/∂out| of the last value that takes a parameter: the scale of the loss.

        At most 2 for a mean cross-entropy, n times that for the sum of n.
        """
        for i in reversed(self.trace.forward_steps):
            entry = self.trace.entries[i]
            takes = any(edge.source in self.parameters for edge in self.trace.into(entry))
            if takes and entry.gradient is not None:
                return float(np.abs(entry.gradient).sum(dtype=np.float64)) / self.scale
        return 0.0


def _over_time(trace: Trace, call: Any, entry: Entry) -> dict[str, float]:
    """Sizes of the gradient at the first and the last time that have one, and how many times."""
    op = call.op
    inputs = dict(zip(op.inputs, trace.inputs_of(call), strict=True))
    inputs |= dict(zip(op.settings, call.settings, strict=True))
    with np.errstate(all="ignore"):
        sizes = op.ask(op.over_time, g=entry.gradient, out=entry.value, **inputs)
    known = np.flatnonzero(sizes)
    if len(known) < 2:
        return {}
    first, last = (float(sizes[i]) for i in (known[0], known[-1]))
    return {"first": first, "last": last, "count": float(known[-1] - known[0] + 1)}


def cancels(trace: Trace, leaf: Entry) -> bool:
    """Whether a vector's gradient, a key's bias say, is 0 in theory: only rounding is left."""
    if len(leaf.shape) > 1 or not leaf.size:
        return False
    for edge in trace.uses(leaf):
        part, gradient = edge.contribution, trace.entries[edge.target].gradient
        if part is not None and gradient is not None:
            terms = gradient.size / part.size
            rounding = 64 * np.finfo(part.dtype).eps * size(gradient) * terms
            if terms > 1 and size(part) < rounding:
                return True
    return False


# ------------------------------------------------------------------ what is not finite


@dataclass(eq=False)
class _Ran:
    """An op of the record, as `anomaly` looks at one that has just run."""

    op: Any
    path: str
    place: Any
    plan: Any


def first_not_finite(trace: Trace) -> tuple[str, str] | None:
    """The first NaN or infinity of a step as `anomaly` would tell it, and the path of its op."""
    watch, ran = NonFiniteWatch(), dict[int, _Ran]()
    for entry in (trace.entries[i] for i in trace.forward_steps):
        call = trace.call_of(entry)
        if call is None:
            continue
        every = SimpleNamespace(needed=range(len(call.inputs)))
        node = ran[entry.id] = _Ran(call.op, entry.path, entry.made_at, every)
        facts = {"shape": entry.shape, "dtype": entry.value.dtype, "path": entry.path}
        output: Any = SimpleNamespace(_data=entry.value, node=node, **facts)
        try:
            watch.forward(call.op, trace.inputs_of(call), call.settings, output, 0.0)
        except NonFiniteError as error:
            return str(error), entry.path
    for entry in (trace.entries[i] for i in trace.backward_steps):
        if entry.id not in ran:
            continue
        sent = {edge.input: edge.contribution for edge in trace.into(entry)}
        again: Any = ran[entry.id]
        parts = [sent.get(name) for name in again.op.input_names(len(again.plan.needed))]
        try:
            watch.backward(again, entry.gradient, parts, 0.0)
        except NonFiniteError as error:
            return str(error), entry.path
    return None
