"""Which boxes and lines a picture has: alike modules once, scopes closed, one in focus.

A parameter is a line inside the op that takes it; what a box looks like is said in `picture`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

from ..engine.errors import ArgumentError
from ..record.finish import folded
from ..record.fold import Fold, is_within, make_fold
from ..record.record import Edge, Entry, Record
from . import words

__all__ = ["Box", "Connection", "PicturePlan", "plan"]

READABLE = 26  # boxes of a picture that is read where it opens; of more, scopes are closed
MOST_BOXES = 1500  # that are laid out in a bearable time
CALL_NUMBER = r"\[\d+\]| ·\d+"  # of a call
MOST_USES = 4  # lines from one leaf; with more, it stands in each op that takes it


@dataclass(eq=False)
class Box:
    """One shape of the picture: an entry, its copies in folded blocks, or a whole scope."""

    id: str
    kind: str  # as an entry's, or "loss", "scope", "outside"
    label: str
    scope: str  # the cluster around it; of a closed scope, the one around that
    entries: list[Entry] = field(default_factory=list)
    path: str = ""  # of a closed scope
    inside: list[tuple[str, Box]] = field(default_factory=list)  # what it alone takes, by input

    @property
    def one(self) -> Entry:
        return self.entries[0]

    @property
    def ops(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.op]

    @property
    def idle(self) -> bool:
        """Whether none of its entries takes part in backward."""
        return not any(entry.needs or entry.gradient is not None for entry in self.entries)

    @property
    def made(self) -> str:
        """The op that made it, or what kind of leaf it is."""
        return "outside the focus" if self.kind == "outside" else self.one.op or self.one.kind

    @cached_property
    def state(self) -> str:
        """The worst state of a gradient among its entries."""
        return max((entry.state for entry in self.entries), key=[*words.STATES].index)

    @cached_property
    def sizes(self) -> list[float]:
        """The sizes of its gradients that have one to tell."""
        told = [entry.gradient_rms for entry in self.entries if entry.state != "zero in theory"]
        return [size for size in told if size is not None and isfinite(size)]

    @property
    def size(self) -> float:
        return max(self.sizes, default=0.0)

    @cached_property
    def told(self) -> str:
        """Its gradients in words."""
        said = {words.gradient(entry): None for entry in self.entries}
        if len(said) > 1 and self.sizes:
            return words.ranged(self.sizes)
        return next(words.gradient(entry) for entry in self.entries if entry.state == self.state)

    @property
    def notes(self) -> list[str]:
        """What is particular to it: some of many that differ, units that are dead or saturated."""
        found, states = list[str](), [entry.state for entry in self.entries]
        if self.kind != "scope":
            if len({*states}) > 1:
                odd = self.state if self.state != "ok" else next(s for s in states if s != "ok")
                what = words.STATES[odd][1].split(":")[0]
                found.append(f"{states.count(odd)} of {len(states)} {what}")
            found += dict.fromkeys(entry.note for entry in self.entries if entry.note)
        return found[:2]

    @property
    def alarms(self) -> list[str]:
        """What is wrong with it: a rule, or a value that is not finite."""
        wrong = [words.marks(entry) for entry in self.entries if entry.ok is False]
        facts = [entry.value_facts for entry in self.ops]
        broken = any(one is not None and not one.finite for one in facts)
        return [*wrong[:1], *["value NaN or ∞"] * broken]


@dataclass(eq=False)
class Connection:
    """What one box gives another: one use of a value, or several."""

    source: Box
    target: Box
    said: str  # which copies of a block it connects, where that is to be said
    step: int  # to which other copy of a block it goes
    edges: list[Edge] = field(default_factory=list)

    @property
    def sent(self) -> list[float]:
        """The sizes of the gradients that were sent back along it."""
        return [edge.facts.rms for edge in self.edges if edge.facts is not None]


@dataclass(eq=False)
class PicturePlan:
    """What is drawn of a record."""

    record: Record
    fold: Fold
    boxes: list[Box]
    lines: list[Connection]
    note: str = ""  # if scopes were closed to keep it readable


def plan(
    record: Record, *, depth: int | None = None, focus: str | None = None, fold: bool = True
) -> PicturePlan:
    """Choose the boxes and lines to draw.

    Args: focus: the name or the path of the scopes that are shown; from the top if it begins with
        a stroke.
    Raises: ArgumentError if depth is negative, focus names no scope, or there is too much to draw.
    """
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ArgumentError(f"draw: depth must be a whole number, 0 or more, got {depth!r}")
    folds = folded(record) if fold else make_fold(record, chains=False)
    shown = _shown(folds, focus)
    made = every = _plan(record, folds, {*shown}, depth)
    if depth is None:  # what is in focus stays open
        deepest, least = max(map(_depth, shown)), max(1, min(shown.values()))
        for level in range(deepest - 1, least - 1, -1):
            if len(made.boxes) > READABLE:
                made = _plan(record, folds, {*shown}, level)
        made = made if len(made.boxes) < len(every.boxes) else every
    if len(made.boxes) > MOST_BOXES:
        raise ArgumentError(
            f"draw: {len(made.boxes):,} boxes are more than the {MOST_BOXES:,} of a picture: "
            "draw less with depth= or focus=, or trace a shorter part of the run"
        )
    if made is not every:
        made.note = f"{len(made.boxes)} of {len(every.boxes):,} boxes; depth= and focus= open more"
    return made


def _depth(scope: str) -> int:
    return len(_parts(scope))


def _parts(scope: str) -> list[str]:
    return scope.split("/") if scope else []


def _shown(fold: Fold, focus: str | None) -> dict[str, int]:
    """The scopes of which all is shown, and how deep in each the focus is."""
    scopes = dict.fromkeys(fold.place.values(), 0)
    if focus is None:
        return scopes or {"": 0}
    found, wanted = dict[str, int](), re.sub(CALL_NUMBER, "", focus)
    for scope in scopes:
        around, there, _ = re.sub(CALL_NUMBER, "", f"//{scope}/").partition(f"/{wanted}/")
        if wanted and there:
            found[scope] = _depth(f"{around}/{wanted}".strip("/"))
    if not found:
        known = ", ".join(sorted(words.one_line(s) for s in scopes if s)) or "none"
        raise ArgumentError(f"draw: focus={focus!r} names no scope of this trace; scopes: {known}")
    return found


def _plan(record: Record, fold: Fold, shown: set[str], depth: int | None) -> PicturePlan:
    """Boxes in the order of the record, and the lines between them."""
    inside = {entry.id for entry in record.entries if fold.place[entry.id] in shown}
    near = set[int]()
    for edge in record.edges:
        if (edge.source in inside) != (edge.target in inside):
            near |= {edge.source, edge.target}
    made: dict[str, Box] = {}
    of: dict[int, Box] = {}  # entry -> box
    for entry in record.entries:
        if entry.id in inside or entry.id in near:
            box = _box(record, fold, fold.leader(entry.id), depth, entry.id in inside)
            of[entry.id] = made.setdefault(box.path or box.id, box)
            of[entry.id].entries.append(entry)
    lines = _lines(fold, of)
    held = _hold(lines)
    boxes = [box for box in made.values() if box not in held]
    return PicturePlan(record, fold, boxes, [line for line in lines if line.source not in held])


def _box(record: Record, fold: Fold, lead: int, depth: int | None, inside: bool) -> Box:
    """The box of an entry, or of the closed scope that it is in."""
    scope, entry = fold.place[lead], record.entries[lead]
    if not inside:
        return Box(f"n{lead}", "outside", words.label(entry), "")
    if depth is not None and _depth(scope) > depth:
        path, around = ("/".join(_parts(scope)[: depth + k]) for k in (1, 0))
        return Box(f"s{lead}", "scope", fold.name(path), around, path=path)
    kind = "loss" if lead == record.loss else entry.kind
    return Box(f"n{lead}", kind, words.label(entry), scope)


def _lines(fold: Fold, of: dict[int, Box]) -> list[Connection]:
    """Uses of values; those that folding makes one, or a closed scope takes, are one line."""
    found: dict[Hashable, Connection] = {}
    for link in fold.links:
        first = link.edges[0]
        source, target = of.get(first.source), of.get(first.target)
        if source is None or target is None or source.kind == target.kind == "outside":
            continue
        if source is target and not link.step:
            continue
        said = ""
        if link.leaves:
            said = "from each to its own" if link.enters else "from each"
        elif link.enters:
            said = "to each"
        elif link.step:
            said = f"to {FURTHER.get(link.step, f'{link.step:+d}')}"
        closed = source.kind == "scope" or target.kind == "scope"
        key = (source, target, said) if closed else len(found)
        line = found.setdefault(key, Connection(source, target, said, link.step))
        line.edges.extend(link.edges)
    return [*found.values()]


FURTHER = {1: "the next", -1: "the one before"}  # copy of a folded block


def _hold(lines: Iterable[Connection]) -> set[Box]:
    """Put what one op alone takes inside that op's box, but for what the model is given."""
    uses: dict[Box, list[Connection]] = {}
    takes: dict[Box, list[Connection]] = {}
    for line in lines:
        uses.setdefault(line.source, []).append(line)
        takes.setdefault(line.target, []).append(line)

    def fits(line: Connection) -> bool:
        small = line.source.kind in ("parameter", "constant", "leaf")
        into = ("op", "loss") if line.source.kind != "parameter" else ("op", "loss", "scope")
        said = line.said and (line.source.kind != "parameter" or line.said != "to each")
        return small and line.target.kind in into and not said

    def is_own(box: Box, target: Box) -> bool:
        """Whether a closed scope is a call of the module that holds this parameter."""
        return target.kind == "scope" and is_within(
            box.one.scope, re.sub(CALL_NUMBER, "", target.path)
        )

    def many(box: Box) -> bool:
        return box.kind == "parameter" or len(uses[box]) > MOST_USES

    shared = {b for b, own in uses.items() if many(b) and all(map(fits, own))}
    held = {*shared}
    for target, given in takes.items():
        small = [line for line in given if fits(line)]
        if len(small) == len(given):  # of an op of leaves alone, what it is given stays a box
            data = (line for line in small if _is_data(line.source) and line.source not in shared)
            first = next(data, None)
            small = [line for line in small if line is not first]
        for line in small:
            box = line.source
            if box in shared or (len(uses[box]) == 1 and len(line.edges) == len(box.entries)):
                if not is_own(box, target):
                    target.inside.append((line.edges[0].input, box))
                held.add(box)
    return held


def _is_data(box: Box) -> bool:
    """Whether a leaf is what the model is given, where its op takes nothing else that is."""
    one = box.one
    return box.kind == "leaf" or (box.kind == "constant" and one.size > 1 and "float" in one.dtype)
