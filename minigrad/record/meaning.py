"""What the numbers of a record mean: states of gradients, and the way of the loss.

A state goes by norms: of what an op sends to an input, over that of what came. Their product along
a path is its reach. Three quotients are 1: where the gradient of a scalar is spread (a mean over n
entries gives each 1/n, which shrinks nothing), where entries were picked, and where it reaches a
parameter (whose shape says how many terms are summed). What is shown goes by rms: a gain, and the
way of the loss, which is the quotient of two sizes that are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, log, prod
from textwrap import shorten

import numpy as np

from .attention import query_asked
from .record import Checks, Edge, Entry, Record, Way, measure
from .saturation import saturation
from .zeros import why_zero

__all__ = ["set_meaning"]

EXTREME = 1e4  # a gradient so much smaller than the loss's vanishes, a larger one explodes
FIRST_LAYERS = 0.75  # of the longest way to the loss: from there on are the first layers


def set_meaning(record: Record) -> None:
    """Set what the record says of its entries, and of the whole."""
    ends = [record.entries[i] for i in record.roots]
    record.loss = ends[0].id if len(ends) == 1 and ends[0].size == 1 else None
    via = _measure_reach(record)
    for entry in reversed(record.entries):  # what was used comes last
        entry.state, entry.why = _state(record, entry)
        entry.checks = ()
    record.way = _way(record, via)
    for entry in record.ops:
        if entry.value is not None:
            number, of, words = saturation(entry.op, entry.value, entry.settings) or (0, 0, "")
            entry.note = f"{number:,} of {of:,} {words}" if number else ""
    record.asked = query_asked(record)
    record.checks = Checks(steps=len(record.backward), first_broken=_first_broken(record))
    record.notes = [*_notes(record)]


def _state(record: Record, entry: Entry) -> tuple[str, str]:
    """What a gradient is, and why it is none or zero in theory.

    It is vanishing or exploding by its reach; near the ends of the dtype's range, by its size.
    """
    if entry.gradient is None:
        return "none", _why_none(record, entry)
    facts, reach = entry.gradient_facts, entry.reach or 0.0
    if facts is None or not facts.finite:
        return "not finite", ""
    ends = np.finfo(entry.dtype if entry.dtype.startswith("float") else float)
    state = "ok"
    if reach < 1 / EXTREME or facts.rms < EXTREME * float(ends.tiny):
        state = "vanishing" if facts.rms else "zero"
    elif reach > EXTREME or facts.rms > float(ends.max) / EXTREME:
        state = "exploding"
    why = why_zero(record, entry, state)
    return ("zero in theory", why) if why else (state, "")


def _why_none(record: Record, entry: Entry) -> str:
    if not entry.needs:
        return entry.why
    if entry.id in record.earlier:
        return "only in an earlier backward"
    if any(edge.contribution is not None for edge in entry.uses):
        return "backward ended here"
    return "backward did not reach it" if record.backwards else "no backward ran"


def _notes(record: Record) -> Iterator[str]:
    """What every view says first."""
    if record.backwards > 1:
        yield f"{record.backwards} backwards ran, and the gradients are those of the last"
    if record.more_in_grad:
        names = ", ".join(record.entries[i].path for i in record.more_in_grad)
        yield f".grad of {shorten(names, 80)} holds more: what stood there before"


def _first_broken(record: Record) -> str:
    """The op that first made NaN or infinity, forward or else backward."""
    for entry in record.ops:
        if entry.value_facts and not entry.value_facts.finite:
            return f"{entry.op} made it first, at {entry.path}"
    for entry in (record.entries[i] for i in record.backward):
        if any(edge.facts and not edge.facts.finite for edge in entry.takes):
            return f"the backward of {entry.op} made it first, at {entry.path}"
    return ""


# ---------------------------------------------------------------- reach, and the way of the loss


def _measure_reach(record: Record) -> dict[int, Edge]:
    """Set the facts of all arrays, the gain of each use and the reach of each entry.

    Returns: of each entry, the use that sent it most.
    """
    via: dict[int, Edge] = {}
    for entry in reversed(record.entries):
        entry.value_facts = measure(entry.value)
        entry.gradient_facts = measure(entry.gradient)
        entry.reach = None if entry.gradient is None else 1.0
        ways: list[tuple[float, Edge, float]] = []
        for edge in entry.uses:
            is_all = edge.contribution is entry.gradient
            edge.facts = entry.gradient_facts if is_all else measure(edge.contribution)
            edge.gain, edge.on_way = None, False
            if edge.facts is None:
                continue
            target = record.entries[edge.target]
            came = target.gradient_rms
            edge.gain = edge.facts.rms / came if came else 0.0
            if target.reach is not None:
                reach = target.reach * _of_norms(entry, edge, target)
                if isfinite(reach):
                    ways.append((edge.norm, edge, reach))
        if ways and entry.gradient is not None:
            norm, via[entry.id], reach = max(ways, key=lambda way: way[0])
            entry.reach = reach * (entry.norm / norm if norm else 0.0)
    return via


def _of_norms(source: Entry, edge: Edge, target: Entry) -> float:
    """The norm that a use sent over the norm that came; 1 where the shapes alone would tell."""
    spread = target.size == 1 < source.size
    picked = target.op in ("getitem", "take", "split") and source.op != ""
    if spread or picked or (not source.op and source.shape != target.shape):
        return 1.0
    return edge.norm / target.norm if target.norm else 0.0


def _way(record: Record, via: dict[int, Edge]) -> Way | None:
    """The way on which the gradient shrinks most, or grows most if that is more.

    It ends at an input or a parameter that the first layers use: one that the loss is reached from
    by at least three quarters as many steps as from any other.
    """
    entries = record.entries
    steps: dict[int, int] = {}
    for entry in reversed(entries):
        ahead = [steps[use.target] for use in entry.uses if use.contribution is not None]
        steps[entry.id] = 1 + max(ahead, default=0)
    reached = [entries[i] for i in sorted(via)]
    reached = [e for e in reached if e.reach and e.state != "zero in theory"]
    leaves = [entry for entry in reached if not entry.op] or reached
    farthest = max([steps[entry.id] for entry in leaves], default=0)
    leaves = [entry for entry in leaves if steps[entry.id] >= FIRST_LAYERS * farthest]
    if not leaves:
        return None
    end = max(leaves, key=lambda entry: abs(log(entry.reach or 1.0)))
    edges: list[Edge] = []
    passed = [end]
    while passed[0].id in via:
        edge = via[passed[0].id]
        edge.on_way = True
        edges.insert(0, edge)
        passed.insert(0, entries[edge.target])
    between = [entry for entry in passed if entry.size > 1] or passed
    if not between[-1].op and between[-1].shape != between[-2:][0].shape:
        between.pop()
    first, last = between[0], between[-1]
    factors: dict[str, list[float]] = {}
    for edge in edges:
        source = entries[edge.source]
        if first.id >= edge.target and source.id >= last.id:
            factors.setdefault(entries[edge.target].op, []).append(edge.gain or 0.0)
            if source.is_sum and edge.facts is not None and edge.facts.rms:
                added = (source.gradient_rms or 0.0) / edge.facts.rms
                factors.setdefault("sums", []).append(added)
    whole = (last.gradient_rms or 0.0) / (first.gradient_rms or 1.0)
    extreme = min if whole < 1 else max
    op = extreme(factors, key=lambda name: prod(factors[name]), default="")
    return Way(tuple(edges), first, last, whole, op, len(factors.get(op, ())))
