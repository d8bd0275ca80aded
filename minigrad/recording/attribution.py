"""Attribution: what the parts of a run contributed to one number of it, to first order.

A part's share is gradient · value, the sum over its entries: the slope of the number in the part's
size. Were the part 1 % larger, the number would grow by 1 % of the share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.types import Array, Index
from .gradients import Which, find_entry, find_scalar, gradients_of
from .record import Entry
from .trace import TraceRecord

__all__ = ["Branch", "Explained", "Heads", "explain"]


@dataclass(frozen=True)
class Heads:
    """Of one matrix of attention weights: ∂y/∂A ⊙ A, (..., h, n, m), and its sum for each head."""

    path: str
    matrix: Array

    @property
    def totals(self) -> Array:
        """(h,), summed over the batch; one head where A has no axis of heads."""
        matrix = self.matrix
        several = matrix if matrix.ndim > 3 else matrix.reshape(-1, 1, *matrix.shape[-2:])
        totals: Array = several.sum(axis=(*range(several.ndim - 3), -2, -1))
        return totals


@dataclass(frozen=True)
class Branch:
    """What a layer added to the residual stream, or where the stream starts.

    Attributes:
        share: gradient · value where it was added: all its ways to the output.
        direct: the same with the gradient at the end of the stream, past all later layers; None
            where the sum went through something else on its way there, such as a norm.
        starts: whether it was there before any layer added to it; after a post-norm a stream
            starts anew, from what the norm gave.
    """

    path: str
    share: float
    direct: float | None
    starts: bool = False


@dataclass(frozen=True)
class Explained:
    """Shares of one number of a run.

    Attributes:
        output, value: what was explained.
        of: the path whose gradient × value, summed over features, is `positions`, (..., n).
        at: the number of that value in the record, as a path may have several.
        heads: one for each matrix of attention weights A.
        branches: of the residual stream, in order; first where it starts.
        hidden: why attention in this run has no A, if it has none.
        left: what is left of the value beyond the sum of the shares of "positions", and of the
            direct ones of "branches"; 0 only where all in between is linear, without a constant.
    """

    output: str
    value: float
    of: str
    at: int
    positions: Array
    heads: list[Heads]
    branches: list[Branch]
    hidden: str = ""

    @property
    def left(self) -> dict[str, float]:
        sums = {"positions": float(self.positions.sum())}
        if self.branches:
            sums["branches"] = sum(branch.direct or 0.0 for branch in self.branches)
        return {name: self.value - total for name, total in sums.items()}

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data: numbers, lists and names."""
        heads = [
            {"path": h.path, "totals": h.totals.tolist(), "matrix": h.matrix.tolist()}
            for h in self.heads
        ]
        own = {name: getattr(self, name) for name in ("output", "value", "of", "left", "hidden")}
        branches = [vars(branch) for branch in self.branches]
        positions = self.positions.tolist()
        return own | {"positions": positions, "heads": heads, "branches": branches}


def explain(
    trace: TraceRecord, output: Which | tuple[Which, Index], of: Which | None = None
) -> Explained:
    """What contributed to one number of a run. Args: of: a value; the tokens' rows unless given."""
    entry, name, value, seed = find_scalar(trace, output, "attribute(output)")
    start = find_entry(trace, of, "attribute(of=...)") if of is not None else _rows(trace, entry)
    summed = {edge.source for edge in trace.edges if trace.entries[edge.target].op == "add"}
    found = gradients_of(trace, entry, seed, leaves={start.id, *summed})

    def times_value(one: Entry) -> Array:
        gradient = found.get(one.id)
        return np.zeros(one.shape) if gradient is None else gradient * one.value

    calls = [trace.call_of(trace.entries[i]) for i in found]
    shares = times_value(start)
    weights = [e for e in trace.entries if e.name == "A" and e.id in found and len(e.shape) > 1]
    hidden = (call.op.opaque_reason for call in calls if call and call.op.opaque_reason)
    return Explained(
        output=name,
        value=value,
        of=start.path,
        at=start.id,
        positions=shares.sum(axis=-1) if shares.ndim > 1 else shares,
        heads=[Heads(e.path, times_value(e)) for e in weights],
        branches=_branches(trace, found),
        hidden=next(hidden, ""),
    )


def _rows(trace: TraceRecord, output: Entry) -> Entry:
    """Where tokens become vectors: the first op that takes rows by whole numbers."""
    for i in trace.forward_steps[: trace.forward_steps.index(output.id) + 1]:
        entry = trace.entries[i]
        sources = [trace.entries[edge.source] for edge in trace.into(entry)]
        kinds = {np.dtype(source.dtype).kind for source in sources if source.op is None}
        if len(entry.shape) > 1 and "f" in kinds and kinds & set("iu") and "f" == entry.dtype[0]:
            return entry
    raise ArgumentError(
        "attribute(output): no token becomes a vector in this run; say of which value: "
        "attribute(output, of=path)"
    )


# ---------------------------------------------------------------- the residual stream


def _branches(trace: TraceRecord, found: dict[int, Array]) -> list[Branch]:
    """What was added to the residual stream, and where it starts."""
    stream = _stream(trace, found)  # for each sum what it was of: the stream so far, a branch
    if not stream:
        return []
    end = max(stream)
    unbroken = {end}  # sums that reached the end by nothing but further sums
    while (before := stream[min(unbroken)][0].id) in stream:
        unbroken.add(before)
    starts = {stream[min(sums)][0].id: min(sums) for sums in (stream, unbroken)}

    def branch(entry: Entry, at: int, reaches: bool, starts: bool) -> Branch:
        share, direct = (
            float(np.vdot(found[i], entry.value)) for i in (at, end if reaches else at)
        )
        return Branch(entry.path, share, direct if reaches else None, starts)

    rows = [
        branch(trace.entries[i], i, at in unbroken, True) for i, at in starts.items() if i in found
    ]
    return rows + [branch(added, at, at in unbroken, False) for at, (_, added) in stream.items()]


def _stream(trace: TraceRecord, found: dict[int, Array]) -> dict[int, tuple[Entry, Entry]]:
    """The sums, reached by a gradient, of a value and of what was computed from that value."""
    stream = {}
    for i in trace.forward_steps:
        entry = trace.entries[i]
        parts = [trace.entries[edge.source] for edge in trace.into(entry)]
        alike = [part for part in parts if part.shape == entry.shape]
        if i in found and entry.op == "add" and len(alike) == 2 and alike[0] is not alike[1]:
            before, added = sorted(alike, key=lambda part: part.id)
            if _depends(trace, added.id, before.id):
                stream[i] = before, added
    return stream


def _depends(trace: TraceRecord, later: int, earlier: int) -> bool:
    """Whether an entry was computed from another."""
    pending, seen = [later], set()
    while pending:
        i = pending.pop()
        if i == earlier:
            return True
        if i > earlier and i not in seen:
            seen.add(i)
            pending += [edge.source for edge in trace.into(trace.entries[i])]
    return False
