"""How large a gradient is beside what left the loss, along the path that most of it took.

Sizes are norms. From a use back to what it used, a gradient grows by a gain, the norm of what the
use sent over the norm of what reached it, and where several uses send parts, by their sum over the
largest; the product of all these along a path is its `reach`. Three edges have no gain: where a
scalar's gradient fans out (a mean over n entries makes each 1/n, but that shrinks nothing), where
one of several values that were stacked gets its slice, and where it reaches a parameter (its shape
says how many terms it sums).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import sqrt

from .record import Edge, Entry
from .recorder import Recorder

__all__ = ["SUMS", "Path", "measure_reach", "worst_path"]

SUMS = "sums of gradients at Σ"
FIRST = 0.75  # of the longest way: what is that far from the loss belongs to the first layers


@dataclass(frozen=True, repr=False)
class Path:
    """The way by which most of an entry's gradient came, and how it changed in size on it."""

    entry: Entry  # where it ends
    edges: list[Edge]  # from the entry to the loss
    gains: list[float]  # of each
    op: str  # which shrinks or grows it most, all its steps together; or SUMS
    times: int  # how many steps of this op are on the way

    def __repr__(self) -> str:
        return (
            f"Path from the loss to {self.entry.path}: {len(self.edges)} steps, gradient × "
            f"{self.whole:.3g}, most by {self.times} × {self.op}"
        )

    @property
    def whole(self) -> float:
        """From the loss to the entry."""
        return self.entry.reach or 0.0

    @property
    def each(self) -> float:
        """By how much for each step of the op."""
        return self.whole ** (1 / self.times) if self.times else 1.0


def norm(entry: Entry) -> float:
    return (entry.gradient_rms or 0.0) * sqrt(entry.size)


def measure_reach(trace: Recorder) -> None:
    """Set `reach` and `via` of every entry that has a gradient; what was used comes last."""
    for entry in reversed(trace.entries):
        if entry.gradient_rms is None:
            continue
        ways = [(_reached(trace, edge), i) for i, edge in enumerate(trace.uses(entry))]
        known = [(reach, -i) for reach, i in ways if reach is not None]
        if not known:
            entry.reach = 1.0
            continue
        reach, i = max(known)
        entry.via = edge = trace.uses(entry)[-i]
        sent = (edge.contribution_rms or 0.0) * entry.size**0.5
        entry.reach = reach * (norm(entry) / sent if sent else 0.0)


def gain(trace: Recorder, edge: Edge) -> float:
    """By how much a use changed the gradient that reached it."""
    source, target = trace.entries[edge.source], trace.entries[edge.target]
    if target.size == 1 < source.size or (source.op is None and source.shape != target.shape):
        return 1.0
    if target.size > source.size and target.vjp_tex.get(edge.input, "").startswith("<g>["):
        return 1.0
    came = norm(target)
    return (edge.contribution_rms or 0.0) * source.size**0.5 / came if came else 0.0


def _reached(trace: Recorder, edge: Edge) -> float | None:
    before = trace.entries[edge.target].reach
    if edge.contribution is None or before is None:
        return None
    found = before * gain(trace, edge)
    return found if found == found else None  # NaN is no size


def worst_path(trace: Recorder) -> Path | None:
    """The path on which the gradient shrinks most, or grows most if that is more.

    It leads to an input or a parameter that the first layers use: one that the loss is reached from
    by at least three quarters as many steps as from any other, on the longest ways, and of numbered
    scopes in the first. None where the gradient of all these is zero in theory.
    """
    reached = [e for e in trace.entries if e.reach and e.via is not None]
    steps: dict[int, int] = {}
    for entry in reversed(trace.entries):
        behind = [steps[edge.target] for edge in trace.uses(entry) if edge.contribution is not None]
        steps[entry.id] = 1 + max(behind, default=0)
    leaves = [e for e in reached if e.op is None] or reached
    leaves = [e for e in leaves if e.state != "cancels"]
    if not leaves:
        return None
    farthest = max(steps[e.id] for e in leaves)
    leaves = [e for e in leaves if steps[e.id] >= FIRST * farthest]
    first = _first_numbers(leaves)
    leaves = [e for e in leaves if _stands_in(e, first)]
    ends = [f(leaves, key=lambda entry: entry.reach or 0.0) for f in (min, max)]
    entry = max(ends, key=lambda e: max(e.reach or 0.0, 1 / (e.reach or 1.0)))
    return _path_to(trace, entry)


def _numbered(entry: Entry) -> tuple[str, int] | None:
    """The outermost numbered scope around an entry: what it is called, and its number."""
    found = re.match(r"(?:[^/]*/)*?[^/]*?(\d+)(?=/|$)", entry.scope)
    return None if found is None else (entry.scope[: found.start(1)], int(found[1]))


def _first_numbers(entries: list[Entry]) -> dict[str, int]:
    """Of scopes that are alike but for a number, the least."""
    first: dict[str, int] = {}
    for name, number in filter(None, map(_numbered, entries)):
        first[name] = min(number, first.get(name, number))
    return first


def _stands_in(entry: Entry, first: dict[str, int]) -> bool:
    numbered = _numbered(entry)
    return numbered is None or first[numbered[0]] == numbered[1]


def _path_to(trace: Recorder, entry: Entry) -> Path:
    edges, one = [], entry
    by_op: dict[str, float] = {}
    times: dict[str, int] = {}

    def count(op: str, factor: float) -> None:
        by_op[op] = by_op.get(op, 1.0) * factor
        times[op] = times.get(op, 0) + 1

    while one.via is not None:
        edges.append(one.via)
        sent = (one.via.contribution_rms or 0.0) * one.size**0.5
        if len(trace.uses(one)) > 1 and sent:
            count(SUMS, norm(one) / sent)
        one = trace.entries[one.via.target]
    gains = [gain(trace, edge) for edge in edges]
    for edge, factor in zip(edges, gains, strict=True):
        count(trace.entries[edge.target].op or "", factor)
    culprit = (min if (entry.reach or 0.0) < 1 else max)(by_op, key=by_op.__getitem__)
    return Path(entry, edges, gains, culprit, times[culprit])
