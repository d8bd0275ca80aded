"""Folding: sibling scopes that differ in a number alone, and hold the same, are drawn once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

from ..recording.record import Entry
from ..recording.trace import Trace

__all__ = ["Fold", "folded", "is_within", "parts", "prefixes"]


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
        for name in parts(scope):
            path = f"{path}/{name}" if path else name
            while path in self.firsts:
                path = self.firsts[path]
        return path

    def apart(self, source: int, target: int) -> int:
        """How many copies of one block lie from an entry to another; 0 within the same one."""
        mine, theirs = self.copy_of.get(source, {}), self.copy_of.get(target, {})
        steps = (theirs[block] - copy for block, copy in mine.items() if block in theirs)
        return next(filter(None, steps), 0)


def parts(scope: str) -> list[str]:
    """The names of a scope, from the outermost in."""
    return scope.split("/") if scope else []


def prefixes(scope: str) -> list[str]:
    """A scope and those around it, from the outermost in.

    >>> prefixes("a/b/c")
    ['a', 'a/b', 'a/b/c']
    """
    return [*accumulate(parts(scope), "{}/{}".format)]


def is_within(scope: str, outer: str) -> bool:
    return not outer or scope == outer or scope.startswith(f"{outer}/")


def folded(trace: Trace, home: dict[int, str]) -> Fold:
    """Find repeated sibling scopes, outermost first.

    Scopes repeat if their names differ in digits alone and the same ops, with the same shapes and
    settings, use one another in the same way. `home` is changed for leaves that not all of the
    copies have: they stand outside.
    """
    return _Folding(trace, home).fold


class _Folding:
    def __init__(self, trace: Trace, home: dict[int, str]) -> None:
        self.trace, self.home, self.fold = trace, home, Fold()
        self.inside: dict[str, list[Entry]] = {}  # the ops within a scope, deeper ones included
        for entry in trace.entries:
            if entry.op is not None:
                for scope in ("", *prefixes(home[entry.id])):
                    self.inside.setdefault(scope, []).append(entry)
        children: dict[str, list[str]] = {}
        for path in filter(None, self.inside):
            children.setdefault(path.rpartition("/")[0], []).append(path)
        if any(edge.crosses for edge in trace.edges):
            children[""] = []  # ranks stand side by side, however alike
        for above in sorted(children, key=lambda scope: (len(parts(scope)), scope)):
            for _, run in groupby(children[above], key=_without_digits):
                scopes = list(run)
                if len(scopes) > 1 and re.search(r"\d", _name(scopes[0])):
                    for _, group in groupby(scopes, key=self.signature):
                        self.fold_run(list(group))

    def signature(self, path: str) -> tuple[Any, ...]:
        """What must be the same for two scopes to be drawn as one."""
        ops = self.inside[path]
        at = {entry.id: i for i, entry in enumerate(ops)}
        return tuple(
            (
                self.home[entry.id][len(path) :],
                entry.op,
                entry.name,
                entry.shape,
                entry.needs,
                tuple((k, v) for k, v in entry.settings.items() if k != "index"),  # a step's number
                tuple((edge.input, at.get(edge.source)) for edge in self.trace.into(entry)),
            )
            for entry in ops
        )

    def fold_run(self, scopes: list[str]) -> None:
        """Fold scopes onto the first of them, if there are more."""
        if len(scopes) < 2:
            return
        first, fold, inside = scopes[0], self.fold, self.inside
        for leaf in self.lone_leaves(scopes):
            self.home[leaf] = first.rpartition("/")[0]
        fold.times[first] = len(scopes)
        fold.names[first] = f"{_name(first)} … {_name(scopes[-1])}"
        for number, scope in enumerate(scopes):
            if number:
                fold.firsts[scope] = first
            for lead, copy in zip(inside[first], inside[scope], strict=True):
                for one, twin in ((lead, copy), *self.leaf_pairs(lead, copy, first, scope)):
                    fold.copy_of.setdefault(twin.id, {})[first] = number
                    if number:
                        fold.leaders.setdefault(twin.id, one.id)

    def is_leaf_of(self, entry: Entry, scope: str) -> bool:
        return entry.op is None and is_within(self.home[entry.id], scope)

    def leaf_pairs(
        self, lead: Entry, copy: Entry, first: str, scope: str
    ) -> Iterator[tuple[Entry, Entry]]:
        """The leaves that an op of the first scope and its twin use, if they are at home there."""
        for one, twin in zip(self.trace.into(lead), self.trace.into(copy), strict=True):
            mine, theirs = self.trace[one.source], self.trace[twin.source]
            if self.is_leaf_of(mine, first) and self.is_leaf_of(theirs, scope):
                yield mine, theirs

    def lone_leaves(self, scopes: list[str]) -> list[int]:
        """Leaves whose place something else takes in another scope: the first block's input."""
        lone: dict[int, None] = {}
        for ops in zip(*(self.inside[scope] for scope in scopes), strict=True):
            for edges in zip(*map(self.trace.into, ops), strict=True):
                leaves = [self.trace[edge.source] for edge in edges]
                pairs = zip(leaves, scopes, strict=True)
                here = [leaf.id for leaf, scope in pairs if self.is_leaf_of(leaf, scope)]
                if len(here) < len(scopes) or len({(_kind(x), x.shape) for x in leaves}) > 1:
                    lone |= dict.fromkeys(here)
        return list(lone)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _without_digits(path: str) -> str:
    return re.sub(r"\d+", "#", _name(path))


def _kind(leaf: Entry) -> str:
    """What a leaf is; a parameter that is frozen in some copies stays one."""
    return "parameter" if leaf.why == "frozen" else leaf.kind
