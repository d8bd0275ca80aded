"""How the gradient changes through time: along the axis that a recurrent op declares, and over the
calls of one module in a chain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..engine.op import registry
from .fold import LEAST_COPIES, Fold, folded
from .record import Array, Entry, Record, rms

__all__ = ["ThroughTime", "over_steps", "through_time"]


class ThroughTime(NamedTuple):
    """The size of a gradient at the first step in time and at the last, which is next to the loss.

    path: of what has it.  first, last: rms.  steps: how many there are.
    change: how many times larger that of the first step is.
    entries: of calls of one module, those of the first and of the last; of an op, itself.
    """

    path: str
    first: float
    last: float
    steps: int
    change: float
    entries: tuple[int, ...]


def over_steps(gradient: Array, axis: int) -> tuple[float, float, int]:
    """The rms of a gradient at the first and at the last step, and how many there are."""
    first, last = (rms(gradient.take(step, axis)) for step in (0, -1))
    return first, last, gradient.shape[axis]


def through_time(record: Record) -> list[ThroughTime]:
    """What changes through time in a finished record, the largest change first."""
    changes = _of_ops(record)
    if any(e.learns and len(record.uses(e)) >= LEAST_COPIES for e in record.entries):
        changes += _of_calls(record, folded(record))
    changes = [each for each in changes if 0 < each.change < np.inf]
    return sorted(changes, key=lambda each: -abs(np.log(each.change)))


def _of_ops(record: Record) -> list[ThroughTime]:
    changes = []
    for entry in (record.entries[i] for i in record.backward):
        axis = registry[entry.op].time_axis
        sequence = record.into(entry)[0]
        if axis is not None and sequence.contribution is not None:
            first, last, steps = over_steps(sequence.contribution, axis)
            path = record.entries[sequence.source].path
            changes.append(
                ThroughTime(path, first, last, steps, _quotient(first, last), (entry.id,))
            )
    return changes


def _of_calls(record: Record, fold: Fold) -> list[ThroughTime]:
    """Of each chain whose copies take the same parameters, what the next copy takes of the last.

    Of several such values the one that keeps most of its gradient is on the way of all.
    """
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
    first, last = (entry.gradient_rms or 0.0 for entry in (twins[0], twins[-1]))
    ends = twins[0].id, twins[-1].id
    return ThroughTime(twins[0].path, first, last, len(twins), _quotient(first, last), ends)


def _quotient(first: float, last: float) -> float:
    return first / last if last else 0.0
