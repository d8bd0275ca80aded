"""Scopes as paths: where an entry is at home."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..recording.trace import Trace

__all__ = ["homes", "parts"]


def parts(scope: str) -> list[str]:
    return scope.split("/") if scope else []


def _common(one: list[str], other: list[str]) -> list[str]:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[:same]


def homes(trace: Trace) -> dict[int, str]:
    """The scope of each entry: an op's own; for a leaf the innermost that holds all its uses."""
    found = {entry.id: entry.scope for entry in trace.entries}
    for entry in trace.entries:
        uses = [parts(trace[edge.target].scope) for edge in trace.uses(entry)]
        if entry.op is None and uses:
            shared = uses[0]
            for scope in uses[1:]:
                shared = _common(shared, scope)
            found[entry.id] = "/".join(shared)
    return found
