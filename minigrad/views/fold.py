"""Folding: sibling scopes that differ in a number alone, and hold the same, are drawn once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .scopes import parts

if TYPE_CHECKING:
    from ..recording.record import Entry
    from ..recording.trace import Trace

__all__ = ["Fold", "folded"]


@dataclass
class Fold:
    """Which entries are copies of which."""

    leaders: dict[int, int] = field(default_factory=dict)  # entry of a copy -> entry of the first
    copy_of: dict[int, dict[str, int]] = field(
        default_factory=dict
    )  # entry -> {folded scope: number of copy}
    times: dict[str, int] = field(default_factory=dict)  # first scope -> how many
    names: dict[str, str] = field(default_factory=dict)  # first scope -> "block0 … block23"
    firsts: dict[str, str] = field(default_factory=dict)  # scope of a copy -> scope of the first

    def leader(self, entry: int) -> int:
        while entry in self.leaders:
            entry = self.leaders[entry]
        return entry

    def lift(self, scope: str) -> str:
        """The scope where an entry of this scope is drawn."""
        names: list[str] = []
        for name in parts(scope):
            names.append(name)
            path = "/".join(names)
            while path in self.firsts:
                path = self.firsts[path]
            names = parts(path)
        return "/".join(names)

    def between(self, one: int, other: int) -> bool:
        """Whether two entries lie in different copies of one folded scope."""
        mine, theirs = self.copy_of.get(one, {}), self.copy_of.get(other, {})
        return any(scope in theirs and theirs[scope] != copy for scope, copy in mine.items())


def folded(trace: Trace, home: dict[int, str]) -> Fold:
    """Find repeated sibling scopes, outermost first.

    Scopes repeat if their names differ in digits alone and the same ops, with the same shapes and
    settings, use one another in the same way. `home` is changed for leaves that not all of the
    copies have: they stand outside.
    """
    fold = Fold()
    inside = _ops_by_scope(trace)
    children: dict[str, dict[str, None]] = {}
    for path in inside:
        above, _, _ = path.rpartition("/")
        if path:
            children.setdefault(above, {})[path] = None
    for above in sorted(children, key=lambda scope: (len(parts(scope)), scope)):
        for _, run in groupby(
            children[above], key=lambda path: re.sub(r"\d+", "#", path.rpartition("/")[2])
        ):
            alike = [(path, _signature(trace, path, inside[path])) for path in run]
            for _, group in groupby(alike, key=lambda pair: pair[1]):
                scopes = [path for path, _ in group]
                if len(scopes) > 1 and re.search(r"\d", scopes[0].rpartition("/")[2]):
                    _fold_run(trace, home, fold, scopes, inside)
    return fold


def _ops_by_scope(trace: Trace) -> dict[str, list[Entry]]:
    """The ops within each scope, deeper ones included, in the order they ran."""
    inside: dict[str, list[Entry]] = {}
    for entry in trace.entries:
        if entry.op is not None:
            names = parts(entry.scope)
            for depth in range(len(names) + 1):
                inside.setdefault("/".join(names[:depth]), []).append(entry)
    return inside


def _signature(trace: Trace, path: str, ops: list[Entry]) -> tuple[Any, ...]:
    """What must be the same for two scopes to be drawn as one."""
    at = {entry.id: i for i, entry in enumerate(ops)}
    return tuple(
        (
            entry.scope[len(path) :],
            entry.op,
            entry.name,
            entry.shape,
            entry.needs,
            tuple(entry.settings.items()),
            tuple((edge.input, at.get(edge.source)) for edge in trace.into(entry)),
        )
        for entry in ops
    )


def _fold_run(
    trace: Trace,
    home: dict[int, str],
    fold: Fold,
    scopes: list[str],
    inside: dict[str, list[Entry]],
) -> None:
    """Fold scopes onto the first of them."""
    first = scopes[0]
    for leaf in _lone_leaves(trace, home, scopes, inside):
        home[leaf] = first.rpartition("/")[0]
    own, other = first.rpartition("/")[2], scopes[-1].rpartition("/")[2]
    fold.times[first], fold.names[first] = len(scopes), f"{own} … {other}"
    for number, scope in enumerate(scopes):
        if number:
            fold.firsts[scope] = first
        for lead, copy in zip(inside[first], inside[scope], strict=True):
            pairs = [(lead.id, copy.id), *_leaf_pairs(trace, home, lead, copy, first, scope)]
            for one, twin in pairs:
                fold.copy_of.setdefault(twin, {})[first] = number
                if number:
                    fold.leaders.setdefault(twin, one)


def _leaf_pairs(
    trace: Trace, home: dict[int, str], lead: Entry, copy: Entry, first: str, scope: str
) -> Iterable[tuple[int, int]]:
    """The leaves that an op of the first scope and its twin use, if they are at home there."""
    for one, twin in zip(trace.into(lead), trace.into(copy), strict=True):
        mine, theirs = trace[one.source], trace[twin.source]
        if mine.op is None and theirs.op is None:
            if _within(home[mine.id], first) and _within(home[theirs.id], scope):
                yield mine.id, theirs.id


def _within(scope: str, outer: str) -> bool:
    return scope == outer or scope.startswith(outer + "/")


def _lone_leaves(
    trace: Trace, home: dict[int, str], scopes: list[str], inside: dict[str, list[Entry]]
) -> list[int]:
    """Leaves whose place something else takes in another scope: the first block's input, say."""
    lone: dict[int, None] = {}
    for column in zip(*(inside[scope] for scope in scopes), strict=True):
        for edges in zip(*(trace.into(op) for op in column), strict=True):
            leaves = [trace[edge.source] for edge in edges]
            homely = [
                leaf.op is None and _within(home[leaf.id], scope)
                for leaf, scope in zip(leaves, scopes, strict=True)
            ]
            alike = all(homely) and len({(leaf.kind, leaf.shape) for leaf in leaves}) == 1
            if not alike:
                lone.update(
                    (leaf.id, None) for leaf, here in zip(leaves, homely, strict=True) if here
                )
    return list(lone)
