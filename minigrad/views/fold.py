"""Folding: sibling scopes that differ in a number alone, and hold the same, are drawn once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ..recording.record import Entry
from ..recording.trace import Trace

__all__ = ["Fold", "folded"]

Inside = dict[str, list["Entry"]]  # the ops within each scope, deeper ones included


@dataclass
class Fold:
    """Which entries are copies of which."""

    leaders: dict[int, int] = field(default_factory=dict)  # entry of a copy -> that of the first
    copy_of: dict[int, dict[str, int]] = field(default_factory=dict)  # entry -> {block: number}
    times: dict[str, int] = field(default_factory=dict)  # first scope -> how many
    names: dict[str, str] = field(default_factory=dict)  # first scope -> "block0 … block23"
    firsts: dict[str, str] = field(default_factory=dict)  # scope of a copy -> scope of the first

    def leader(self, entry: int) -> int:
        while entry in self.leaders:
            entry = self.leaders[entry]
        return entry

    def lift(self, scope: str) -> str:
        """The scope where an entry of this scope is drawn."""
        path = ""
        for name in scope.split("/"):
            path = f"{path}/{name}" if path else name
            while path in self.firsts:
                path = self.firsts[path]
        return path

    def apart(self, source: int, target: int) -> int:
        """How many copies of one block lie from an entry to another; 0 within the same one."""
        mine, theirs = self.copy_of.get(source, {}), self.copy_of.get(target, {})
        steps = (theirs[block] - copy for block, copy in mine.items() if block in theirs)
        return next(filter(None, steps), 0)


def folded(trace: Trace, home: dict[int, str]) -> Fold:
    """Find repeated sibling scopes, outermost first.

    Scopes repeat if their names differ in digits alone and the same ops, with the same shapes and
    settings, use one another in the same way. `home` is changed for leaves that not all of the
    copies have: they stand outside.
    """
    fold, inside = Fold(), _ops_by_scope(trace, home)
    children: dict[str, list[str]] = {}
    for path in filter(None, inside):
        children.setdefault(path.rpartition("/")[0], []).append(path)
    if any(edge.crosses for edge in trace.edges):
        children[""] = []  # ranks stand side by side, however alike
    for above in sorted(children, key=lambda scope: (scope.count("/") + bool(scope), scope)):
        for _, run in groupby(children[above], key=_without_digits):
            scopes = list(run)
            if len(scopes) < 2 or not re.search(r"\d", _name(scopes[0])):
                continue
            for _, group in groupby(
                scopes, key=lambda path: _signature(trace, home, path, inside[path])
            ):
                _fold_run(trace, home, fold, list(group), inside)
    return fold


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _without_digits(path: str) -> str:
    return re.sub(r"\d+", "#", _name(path))


def _ops_by_scope(trace: Trace, home: dict[int, str]) -> Inside:
    inside: Inside = {}
    for entry in trace.entries:
        if entry.op is not None:
            scope = home[entry.id]
            inside.setdefault("", []).append(entry)
            for end in [i for i, c in enumerate(scope) if c == "/"] + [len(scope)] * bool(scope):
                inside.setdefault(scope[:end], []).append(entry)
    return inside


def _signature(trace: Trace, home: dict[int, str], path: str, ops: list[Entry]) -> tuple[Any, ...]:
    """What must be the same for two scopes to be drawn as one."""
    at = {entry.id: i for i, entry in enumerate(ops)}
    return tuple(
        (
            home[entry.id][len(path) :],
            entry.op,
            entry.name,
            entry.shape,
            entry.needs,
            tuple((k, v) for k, v in entry.settings.items() if k != "index"),  # a step's number
            tuple((edge.input, at.get(edge.source)) for edge in trace.into(entry)),
        )
        for entry in ops
    )


def _fold_run(
    trace: Trace, home: dict[int, str], fold: Fold, scopes: list[str], inside: Inside
) -> None:
    if len(scopes) < 2:
        return
    first = scopes[0]
    for leaf in _lone_leaves(trace, home, scopes, inside):
        home[leaf] = first.rpartition("/")[0]
    fold.times[first] = len(scopes)
    fold.names[first] = f"{_name(first)} … {_name(scopes[-1])}"
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
    trace: Trace, home: dict[int, str], scopes: list[str], ops_in: Inside
) -> list[int]:
    """Leaves whose place something else takes in another scope: the first block's input, say."""
    lone: dict[int, None] = {}
    for ops in zip(*(ops_in[scope] for scope in scopes), strict=True):
        for edges in zip(*(trace.into(op) for op in ops), strict=True):
            leaves = [trace[edge.source] for edge in edges]
            within = [
                leaf.op is None and _within(home[leaf.id], scope)
                for leaf, scope in zip(leaves, scopes, strict=True)
            ]
            if not all(within) or len({(_kind(leaf), leaf.shape) for leaf in leaves}) > 1:
                lone.update(
                    (leaf.id, None) for leaf, here in zip(leaves, within, strict=True) if here
                )
    return list(lone)


def _kind(leaf: Entry) -> str:
    """What a leaf is; a parameter that is frozen in some copies stays one."""
    return "parameter" if leaf.why == "frozen" else leaf.kind
