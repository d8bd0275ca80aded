"""How large a gradient is relative to that of the loss, and whether it is zero in theory.

Sizes are norms. An op changes the gradient that reaches it by a gain: the norm of what it sends to
an input over the norm of what reached it. Where several uses send parts, the gain is that of their
sum over the largest. The product of the gains along a path is its `reach`. Three edges have gain 1:
where the gradient of a scalar is spread (a mean over n entries gives each 1/n, which shrinks
nothing), where one of several stacked values gets its slice, and where it reaches a parameter
(whose shape says how many terms are summed).

A gradient that is zero in theory consists of rounding, and does not vanish. To find such gradients
a value is moved in a random direction, and the ops that it reaches are run again, each with its own
kernel. If every path ends at an op whose result does not move, the gradient is zero because of
those ops. A value that is used only for such values has a gradient of zero for the same reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ..engine.errors import MinigradError
from ..engine.refusals import EXPLAINED
from ..engine.types import Array
from .record import Edge, Entry, rms
from .recorder import Recorder

__all__ = ["SUMS", "Path", "explain_zeros", "measure_reach", "why_zero", "worst_path"]

SUMS = "sums of gradients at Σ"
FIRST_LAYERS_FROM = 0.75  # of the longest way to the loss: from there on are the first layers
STILL = 1e3  # rounding units of float64: a result that moves by no more does not move
ROUNDED = 32  # the same of its own dtype, to which what the record kept is rounded
MOST_RERUNS = 64  # ops that are run again for one value, at most


@dataclass(frozen=True, repr=False)
class Path:
    """The path by which most of an entry's gradient came, and how its size changed on it."""

    entry: Entry  # where it ends
    edges: list[Edge]  # from the entry to the loss
    gains: list[float]  # of each
    op: str  # which shrinks or grows it most, all its steps together; or SUMS
    times: int  # how many steps of this op are on the path

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
        uses = ((edge, _reached(trace, edge)) for edge in trace.uses(entry))
        ways = [(edge, reach) for edge, reach in uses if reach is not None]
        if not ways:
            entry.reach = 1.0
            continue
        entry.via, reach = max(ways, key=lambda way: way[0].contribution_rms or 0.0)
        sent = (entry.via.contribution_rms or 0.0) * entry.size**0.5
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
    leaves = [e for e in leaves if steps[e.id] >= FIRST_LAYERS_FROM * farthest]
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


# ---------------------------------------------------------------- zero in theory


def explain_zeros(trace: Recorder) -> None:
    """Find values whose gradient is zero in theory, and note why: leaves, and what seems to vanish.

    What was used comes last, so that the reasons of its uses are known.
    """
    for entry in reversed(trace.entries):
        if entry.gradient_rms is None:
            continue
        uses = [trace.entries[edge.target] for edge in trace.uses(entry)]
        reached = [use for use in uses if use.gradient_rms is not None]
        if reached and entry.id not in trace.roots and all(e.state == "cancels" for e in reached):
            entry.why = reached[0].why
        elif entry.op is None or entry.state == "vanishing":
            entry.why = why_zero(trace, entry) or entry.why


def why_zero(trace: Recorder, entry: Entry) -> str:
    """Why a gradient that is no larger than rounding is zero in theory; empty if it is not."""
    return _why_unseen(trace, entry) if _is_rounding(trace, entry) else ""


def _is_rounding(trace: Recorder, leaf: Entry) -> bool:
    """Whether a gradient is no larger than the rounding of what it was summed from."""
    if not isinstance(leaf.gradient, np.ndarray) or leaf.gradient.dtype.kind != "f":
        return False
    came = [trace.entries[edge.target].gradient_rms or 0.0 for edge in trace.uses(leaf)]
    eps = float(np.finfo(leaf.gradient.dtype).eps)
    return leaf.gradient_rms is not None and leaf.gradient_rms <= 1e4 * eps * max(came, default=0)


def _why_unseen(trace: Recorder, leaf: Entry) -> str:
    """The ops that are invariant to it, in words; empty if some are not, or it is unknown."""
    rng = np.random.default_rng(leaf.id)
    moves: dict[int, Array] = {leaf.id: rng.uniform(0.5, 1.5, leaf.shape)}
    reasons: list[Entry] = []
    waiting, seen = [leaf.id], {leaf.id}
    while waiting:
        one = min(waiting)  # all that it was computed from has a smaller number
        waiting.remove(one)
        if one != leaf.id:
            other = {i: rng.uniform(0.5, 1.5, m.shape) * rms(m) for i, m in moves.items()}
            move, usual = (_move(trace, trace.entries[one], way) for way in (moves, other))
            if move is None or usual is None or not rms(usual) or len(moves) > MOST_RERUNS:
                return ""
            own = ROUNDED * float(np.finfo(trace.entries[one].dtype).eps)
            if rms(move) <= max(STILL * np.finfo(float).eps, own) * rms(usual):
                reasons.append(trace.entries[one])
                continue
            moves[one] = move
        ahead = {edge.target for edge in trace.uses(trace.entries[one])} - seen
        ahead = {i for i in ahead if trace.entries[i].gradient_rms is not None}
        if not ahead and one in trace.roots:
            return ""
        waiting, seen = [*waiting, *ahead], seen | ahead
    ops = dict.fromkeys(call.op for one in reasons if (call := trace.call_of(one)) is not None)
    unseen = [f"{op.name} does not see it" for op in ops]
    return ", ".join(unseen)


def _move(trace: Recorder, entry: Entry, moves: dict[int, Array]) -> Array | None:
    """How an op's result moves with its inputs, by the complex step; None if that cannot be had."""
    call = trace.call_of(entry)
    if call is None or not call.op.analytic:
        return None
    inputs = trace.inputs_of(call)
    toward = {i: moves[k] for i, k in enumerate(call.sources) if k in moves}
    try:
        with np.errstate(all="ignore"):
            return call.slope(inputs, toward)
    except (*EXPLAINED, MinigradError):  # a user's op may refuse complex numbers
        return None
