"""Which boxes and lines a picture has: scopes collapsed, one in focus, repeated blocks folded.

Works on the record alone; how a box looks is the business of `dot`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.errors import ArgumentError
from .fold import Fold, folded
from .plain import one_line
from .scopes import homes, parts

if TYPE_CHECKING:
    from ..recording.record import Edge, Entry
    from ..recording.trace import Trace

__all__ = ["Box", "Line", "Outline", "outline"]


@dataclass(eq=False)
class Box:
    """One shape of the picture: an entry, its copies in folded blocks, or a whole scope."""

    id: str
    kind: str  # as an entry's, or "loss", "scope", "outside"
    label: str
    scope: str  # the cluster it stands in
    entries: list[Entry]
    stands_for: str = ""  # the scope it replaces, if it is one

    @property
    def one(self) -> Entry:
        return self.entries[0]


@dataclass(eq=False)
class Line:
    """One use of a value; several edges if folded blocks repeat it."""

    source: Box
    target: Box
    edges: list[Edge]

    @property
    def sent(self) -> list[float]:
        """The sizes of the gradients that came back along it."""
        return [size for edge in self.edges if (size := edge.contribution_rms) is not None]


@dataclass
class Outline:
    boxes: list[Box]
    lines: list[Line]
    saved: list[tuple[Box, Box, str]]  # what a box saved: from where, by which box, its name
    times: dict[str, int]  # how often a scope repeats, where it is folded
    names: dict[str, str]  # what a folded scope is called, where that is not its own name

    def called(self, scope: str) -> str:
        """What the cluster of a scope is labelled."""
        return self.names.get(scope, parts(scope)[-1])

    def uses(self) -> dict[Box, list[Line]]:
        """For each box of one entry whose gradient is a sum: the lines that carry its terms."""
        found: dict[Box, list[Line]] = {}
        for line in self.lines:
            if line.source.kind not in ("scope", "outside") and line.sent:
                found.setdefault(line.source, []).append(line)
        return {box: lines for box, lines in found.items() if len(lines) > 1}


def outline(
    trace: Trace, *, depth: int | None = None, focus: str | None = None, fold: bool = True
) -> Outline:
    """Choose what to show.

    Raises: ArgumentError if depth is negative or no scope is called `focus`.
    """
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ArgumentError(f"draw: depth must be a whole number, 0 or more, got {depth!r}")
    home = homes(trace)
    fold_of = folded(trace, home) if fold else Fold()
    home = {i: fold_of.lift(scope) for i, scope in home.items()} if fold_of.leaders else home
    boxes = _Boxes(trace, home, fold_of, _shown(home, focus), depth)
    lines = boxes.lines()
    return Outline(
        list(boxes.by_id.values()), lines, boxes.saved(), dict(fold_of.times), dict(fold_of.names)
    )


def _shown(home: dict[int, str], focus: str | None) -> Callable[[str], bool]:
    """Whether a scope belongs to the picture."""
    if focus is None:
        return lambda scope: True
    wanted = parts(focus)
    size = len(wanted)

    def inside(scope: str) -> bool:
        names = parts(scope)
        return any(names[i : i + size] == wanted for i in range(len(names) - size + 1))

    if not wanted or not any(inside(scope) for scope in home.values()):
        known = ", ".join(sorted({one_line(scope) for scope in home.values() if scope})) or "none"
        raise ArgumentError(f"draw: focus={focus!r} names no scope of this trace; scopes: {known}")
    return inside


@dataclass
class _Boxes:
    """Boxes made as they are first needed, in the order of the record."""

    trace: Trace
    home: dict[int, str]
    fold: Fold
    shown: Callable[[str], bool]
    depth: int | None
    by_id: dict[str, Box] = field(default_factory=dict)
    of: dict[int, Box] = field(default_factory=dict)  # entry -> box

    def __post_init__(self) -> None:
        near = self._neighbours()
        for entry in self.trace.entries:
            inside = self.shown(self.home[entry.id])
            if inside or entry.id in near:
                self._place(entry, inside)

    def _neighbours(self) -> set[int]:
        """Entries out of focus that touch one within."""
        near: set[int] = set()
        for edge in self.trace.edges:
            source, target = (self.shown(self.home[i]) for i in (edge.source, edge.target))
            if source != target:
                near.add(edge.target if source else edge.source)
        return near

    def _place(self, entry: Entry, inside: bool) -> None:
        """Put an entry into the box that stands for it, its first copy's if it is folded."""
        lead = self.trace.entries[self.fold.leader(entry.id)]
        scope = parts(self.home[lead.id])
        if inside and self.depth is not None and len(scope) > self.depth:
            path, where = "/".join(scope[: self.depth + 1]), "/".join(scope[: self.depth])
            key, kind, label = f"s{path}", "scope", self.fold.names.get(path, scope[self.depth])
        else:
            kind = "loss" if lead.id in self.trace.roots else lead.kind
            key, path, label, where = f"n{lead.id}", "", self._called(lead), self.home[lead.id]
            if not inside:
                kind, where = "outside", ""
        if key not in self.by_id:
            box_id = key if key[0] == "n" else f"s{lead.id}"
            self.by_id[key] = Box(box_id, kind, label, where, [], path)
        box = self.by_id[key]
        box.entries.append(entry)
        self.of[entry.id] = box

    def _called(self, entry: Entry) -> str:
        """An unnamed leaf goes by the input it is used as."""
        uses = self.trace.uses(entry)
        if entry.op is not None or entry.name is not None:
            return entry.label
        return (
            uses[0].input if uses and len(uses[0].input) > 2 else entry.kind
        )  # mask, but not a or x0

    def lines(self) -> list[Line]:
        made: dict[tuple[int, int, str, int], Line] = {}
        again: dict[tuple[int, int, str], int] = {}
        for edge in self.trace.edges:
            source, target = self.of.get(edge.source), self.of.get(edge.target)
            if source is None or target is None or source is target:
                continue
            if source.kind == target.kind == "outside":
                continue
            if self.fold.between(edge.source, edge.target):
                continue
            leads = self.fold.leader(edge.source), self.fold.leader(edge.target)
            key = (edge.source, edge.target, edge.input)
            use = again[key] = again.get(key, -1) + 1
            line = made.setdefault((*leads, edge.input, use), Line(source, target, []))
            line.edges.append(edge)
        return list(made.values())

    def saved(self) -> list[tuple[Box, Box, str]]:
        """Saved tensors as pairs of boxes, each once."""
        found: dict[tuple[Box, Box, str], None] = {}
        for entry in self.trace.entries:
            target = self.of.get(entry.id)
            if target is None or target.kind == "outside":
                continue
            for name, origin in entry.saved:
                source = target if origin is None else self.of.get(origin)
                if source is None or (target.kind == "scope" and source is target):
                    continue
                if origin is not None and self.fold.between(origin, entry.id):
                    continue
                found[source, target, name if origin is None else ""] = None
        return list(found)
