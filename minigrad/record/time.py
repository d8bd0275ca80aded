"""How the gradient changes through time: along the axis that a recurrent op declares, and over the
calls of one module in a chain."""

from __future__ import annotations

from math import inf

import numpy as np

from ..engine.op import registry
from .fold import LEAST_COPIES, Fold, folded
from .record import Record, ThroughTime, rms

__all__ = ["through_time"]


def through_time(record: Record) -> list[ThroughTime]:
    """What changes through time in a finished record, the largest change first."""
    changes = _of_ops(record)
    if any(e.learns and len(e.uses) >= LEAST_COPIES for e in record.entries):
        changes += _of_calls(record, folded(record))
    changes = [each for each in changes if 0 < each.change < inf]
    return sorted(changes, key=lambda each: -abs(np.log(each.change)))


def _of_ops(record: Record) -> list[ThroughTime]:
    changes = []
    for entry in (record.entries[i] for i in record.backward):
        axis, sequence = registry[entry.op].time_axis, entry.takes[0]
        g, path = sequence.contribution, record.entries[sequence.source].path
        if axis is not None and g is not None:
            first, last = rms(g.take(0, axis)), rms(g.take(-1, axis))
            changes.append(ThroughTime(path, first, last, g.shape[axis]))
    return changes


def _of_calls(record: Record, fold: Fold) -> list[ThroughTime]:
    """Of each chain whose copies take one parameter, what the next copy takes of the last.

    Of several such values the one that keeps most of its gradient is on the way of all.
    """
    shared = {
        link.target.block
        for link in fold.links
        if record.entries[link.edges[0].source].learns
        and not link.source.block
        and len(link.numbers) == len(link.target.twins)
    }
    changes: dict[str, ThroughTime] = {}
    for link in fold.links:
        block, twins = link.source.block, [record.entries[i] for i in link.source.twins]
        if block in shared and link.inside and link.step == 1 and twins[0].op:
            ends = twins[0].gradient, twins[-1].gradient
            first, last = (0.0 if g is None else rms(g) for g in ends)
            if block not in changes or first > changes[block].first:
                changes[block] = ThroughTime(twins[0].path, first, last, len(twins))
    return [*changes.values()]
