"""How the gradient changes through time: along the axis that a recurrent op declares, and over the
calls of one module in a chain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..engine.op import registry
from .finish import folded
from .record import Array, Entry, Record, rms

__all__ = ["ThroughTime", "over_steps", "through_time"]


class ThroughTime(NamedTuple):
    """The size of a gradient at the first step in time and at the last, which is next to the loss.

    path: of what has it.  first, last: rms.  steps: how many there are.
    entries: of calls of one module, those of the first and of the last; of an op, itself.
    """

    path: str
    first: float
    last: float
    steps: int
    entries: tuple[int, ...]

    @property
    def change(self) -> float:
        """How many times larger the gradient of the first step is."""
        return self.first / self.last


def over_steps(gradient: Array, axis: int) -> tuple[float, float, int]:
    """The rms of a gradient at the first and at the last step, and how many there are."""
    first, last = (rms(gradient.take(step, axis)) for step in (0, -1))
    return first, last, gradient.shape[axis]


def through_time(record: Record) -> list[ThroughTime]:
    """What changes through time in a finished record, the largest change first."""
    changes = [*_of_ops(record), *_of_calls(record)]
    changes = [one for one in changes if 0 < one.last < np.inf and 0 < one.first < np.inf]
    return sorted(changes, key=lambda one: -abs(np.log(one.change)))


def _of_ops(record: Record) -> list[ThroughTime]:
    changes = []
    for entry in (record.entries[i] for i in record.backward):
        axis = registry[entry.op].time_axis
        sequence = record.into(entry)[0]
        if axis is not None and sequence.contribution is not None:
            sizes = over_steps(sequence.contribution, axis)
            changes.append(ThroughTime(record.entries[sequence.source].path, *sizes, (entry.id,)))
    return changes


def _of_calls(record: Record) -> list[ThroughTime]:
    """Of each chain whose copies take the same parameters, what the next copy takes of the last.

    Of several such values the one that keeps most of its gradient is on the way of all.
    """
    fold = folded(record)
    shared: dict[str, set[int]] = {}
    for entry in record.entries:
        if entry.learns:
            for block, count in fold.times.items():
                copies = [fold.numbers(edge.target).get(block) for edge in record.uses(entry)]
                if {*range(count)} <= {*copies}:
                    shared.setdefault(block, set()).add(entry.id)
    changes: dict[str, ThroughTime] = {}
    for link in fold.links:
        twins = [record.entries[i] for i in link.source.twins]
        block = link.source.block
        if block in shared and link.inside and link.step == 1 and twins[0].op:
            change = _change(twins)
            if block not in changes or change.first > changes[block].first:
                changes[block] = change
    return [*changes.values()]


def _change(twins: list[Entry]) -> ThroughTime:
    first, last = twins[0], twins[-1]
    sizes = first.gradient_rms or 0.0, last.gradient_rms or 0.0
    return ThroughTime(first.path, *sizes, len(twins), (first.id, last.id))
