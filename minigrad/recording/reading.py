"""What of a watched step gets a row, read off its trace; and the first NaN in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..anomaly import NonFiniteWatch
from ..engine.errors import NonFiniteError
from .measures import heads, size
from .record import Entry
from .trace import Trace

__all__ = ["Reading", "cancels", "first_not_finite"]


class Reading:
    """The values of a step that get a row, in the order of the forward pass.

    They are computed from a parameter of the model, and have a name, may saturate, are weights of
    attention, take all steps of a sequence, or are the last of their scope; outside of any scope,
    they take a parameter.
    """

    def __init__(self, trace: Trace, parameters: set[int]) -> None:
        self.trace, self.parameters = trace, parameters
        self.weights: set[int] = set()  # entries that are weights of attention
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
            if same and heads(entry.value) is not None:
                self.weights.add(entry.id)
                return True
        elif call is not None and (call.op.saturates or call.op.over_time):
            return True
        ends_scope = bool(own) and after != own and not after.startswith(f"{own}/")
        takes = not own and any(e.source in self.parameters for e in self.trace.into(entry))
        return entry.name is not None or ends_scope or takes

    def rows(self) -> Iterator[tuple[str, Entry, int]]:
        """Paths and entries that get a row, and of the last of many how many there were.

        Of a path that comes many times the first eight have a row, the 16th, the 32nd … and the
        last.
        """
        total, seen = Counter(entry.path for entry in self.values), Counter[str]()
        for entry in self.values:
            path, index = entry.path, seen[entry.path]
            seen[path] += 1
            if index < 8 or index & (index + 1) == 0:
                yield (f"{path}[{index}]" if index else path), entry, 0
            elif index == total[path] - 1:
                yield f"{path}[last]", entry, total[path]

    @property
    def roots(self) -> list[Entry]:
        """What backward began from: of what the parameters of the model led to."""
        return [self.trace.entries[i] for i in self.trace.roots if i in self.computed]

    @property
    def last(self) -> Entry | None:
        """The last value that takes a parameter, and has a gradient."""
        for i in reversed(self.trace.forward_steps):
            entry = self.trace.entries[i]
            takes = any(edge.source in self.parameters for edge in self.trace.into(entry))
            if takes and entry.gradient is not None:
                return entry
        return None


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
