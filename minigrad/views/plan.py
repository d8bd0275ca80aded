"""Which boxes and lines a picture has: alike modules once, scopes closed, one in focus.

A parameter is a line inside the op that takes it; what a box looks like is said in `picture`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

from ..engine.errors import ArgumentError
from ..record.fold import Fold
from ..record.record import Edge, Entry, Record
from . import words

__all__ = ["Box", "Connection", "PicturePlan", "Told", "alarms", "notes", "plan", "title_of"]

READABLE = (
    26  # boxes of a picture that is read where it opens; where there are more, scopes are closed
)
MOST_BOXES = 1500  # that are laid out in a bearable time
MOST_USES = 4  # lines from one leaf; with more, it stands in each op that takes it
NOTE = 24  # characters in a line of a box
ALARMS = (
    "wrong",
    "not finite",
    "vanishing",
    "exploding",
    "zero",
)  # states that one of many gives to all


@dataclass(eq=False)
class Told:
    """What is said of the gradients of several entries: in words, the worst state, the largest."""

    text: str
    state: str
    size: float  # 0 where there is none
    note: str = ""  # which of them differs


@dataclass(eq=False)
class Box:
    """One shape of the picture: an entry, its copies in folded blocks, or a whole scope."""

    id: str
    kind: str  # as an entry's, or "loss", "scope", "outside"
    label: str
    scope: str  # the cluster around it; of a closed scope, the one around that
    entries: list[Entry]
    path: str = ""  # of a closed scope
    times: int = 1  # how many alike scopes it stands for
    inside: list[tuple[str, Box]] = field(default_factory=list)  # what it alone takes, by input

    @property
    def one(self) -> Entry:
        return self.entries[0]

    @property
    def idle(self) -> bool:
        """Whether none of its entries takes part in backward."""
        return not any(entry.needs or entry.gradient is not None for entry in self.entries)

    @property
    def made(self) -> str:
        """The op that made it, or what kind of leaf it is."""
        return "outside the focus" if self.kind == "outside" else self.one.op or self.one.kind

    @cached_property
    def told(self) -> Told:
        """Its gradients in words."""
        told = [e for e in self.entries if e.state != "zero in theory"]
        sizes = [e.gradient_facts.rms for e in told if e.gradient_facts is not None]
        states = {entry.state for entry in self.entries}
        state = next((s for s in (*ALARMS, "ok", "zero in theory", "none") if s in states), "none")
        odd = [entry for entry in self.entries if entry.state == state]
        note = ""
        if self.kind != "scope" and states - {"ok"} and len(states) > 1:
            odd = odd if state != "ok" else [e for e in self.entries if e.state != "ok"]
            note = (
                f"{len(odd)} of {len(self.entries)} {words.STATES[odd[0].state][1].split(':')[0]}"
            )
        finite = [size for size in sizes if isfinite(size)]
        if len({words.gradient(entry) for entry in self.entries}) == 1:
            text = words.gradient(self.one)
        elif finite:
            text = words.ranged(finite)
        else:
            text = words.gradient(odd[0])
        return Told(text, state, max(finite, default=0.0), note)


@dataclass(eq=False)
class Connection:
    """What one box gives another: one use of a value, or several."""

    source: Box
    target: Box
    edges: list[Edge]
    said: str  # which copies of a block it connects, where that is to be said
    step: int  # to which other copy of a block it goes

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
    record: Record,
    *,
    depth: int | None = None,
    focus: str | None = None,
    fold: bool = True,
    root: str = "",
    most: int = READABLE,
) -> PicturePlan:
    """Choose the boxes and lines to draw.

    Args: root: the path of the one scope that is shown.  most: boxes; of more, scopes are closed.
    Raises: ArgumentError if depth is negative, focus names no scope, or there is too much to draw.
    """
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ArgumentError(f"draw: depth must be a whole number, 0 or more, got {depth!r}")
    folded, base = record.folded if fold else record.unfolded, len(_parts(root))
    shown = _shown(record, folded, focus, root)
    made = _Planned(record, folded, shown, depth)
    every, note = len(made.boxes), ""
    if depth is None and every > most:
        deepest = max((len(_parts(scope)) for scope in folded.place.values()), default=0)
        for level in range(deepest - 1, base - 1 + (base == 0), -1):
            made = _Planned(record, folded, shown, level)
            if len(made.boxes) <= most:
                break
        if len(made.boxes) < every:
            note = f"{len(made.boxes)} of {every:,} boxes; depth= and focus= open more"
        else:
            made = _Planned(record, folded, shown, None)
    if len(made.boxes) > MOST_BOXES:
        raise ArgumentError(
            f"draw: {len(made.boxes):,} boxes are more than the {MOST_BOXES:,} of a picture: "
            "draw less with depth= or focus=, or trace a shorter part of the run"
        )
    return PicturePlan(record, folded, made.boxes, made.lines, note)


def _parts(scope: str) -> list[str]:
    return scope.split("/") if scope else []


def _shown(record: Record, fold: Fold, focus: str | None, root: str) -> set[str]:
    """The scopes of which all is shown."""
    scopes = {*fold.place.values()}
    if focus is None:
        return {s for s in scopes if not root or f"{s}/".startswith(f"{root}/")}
    found = {
        s
        for s in scopes
        if f"/{focus}/" in re.sub(r"\[\d+\]", "", f"/{s}/") or f"/{focus}/" in f"/{s}/"
    }
    if not focus or not found:
        known = ", ".join(sorted(words.one_line(s) for s in scopes if s)) or "none"
        raise ArgumentError(f"draw: focus={focus!r} names no scope of this trace; scopes: {known}")
    return found


class _Planned:
    """Boxes in the order of the record, and the lines between them."""

    def __init__(self, record: Record, fold: Fold, shown: set[str], depth: int | None) -> None:
        self.record, self.fold = record, fold
        self.depth = depth
        inside = {entry.id for entry in record.entries if fold.place[entry.id] in shown}
        near = set[int]()
        for edge in record.edges:
            if (edge.source in inside) != (edge.target in inside):
                near |= {edge.source, edge.target}
        made: dict[str, Box] = {}
        self.of: dict[int, Box] = {}  # entry -> box
        for entry in record.entries:
            if entry.id in inside or entry.id in near:
                key, box = self._box(record.entries[fold.leader(entry.id)], entry.id in inside)
                self.of[entry.id] = made.setdefault(key, box)
                self.of[entry.id].entries.append(entry)
        self.lines = self._lines()
        held = self._hold(self.lines)
        self.boxes = [box for box in made.values() if box not in held]
        self.lines = [line for line in self.lines if line.source not in held]

    def _box(self, lead: Entry, inside: bool) -> tuple[str, Box]:
        scope = self.fold.place[lead.id]
        names = _parts(scope)
        if inside and self.depth is not None and len(names) > self.depth:
            path, around = ("/".join(names[: self.depth + k]) for k in (1, 0))
            name, times = self.fold.name(path), self.fold.times.get(path, 1)
            return path, Box(f"s{lead.id}", "scope", name, around, [], path, times)
        kind = "loss" if lead.id == self.record.loss else lead.kind
        kind, scope = (kind, scope) if inside else ("outside", "")
        return f"/{lead.id}", Box(f"n{lead.id}", kind, words.label(lead), scope, [])

    def _lines(self) -> list[Connection]:
        """Uses of values; those that folding makes one, or a closed scope takes, are one line."""
        found: dict[Hashable, Connection] = {}
        for link in self.fold.links:
            first = link.edges[0]
            source, target = self.of.get(first.source), self.of.get(first.target)
            if source is None or target is None or source.kind == target.kind == "outside":
                continue
            if source is target and not link.step:
                continue
            said = f"to {_further(link.step)}" if link.step else ""
            if link.leaves:
                said = "from each to its own" if link.enters else "from each"
            elif link.enters:
                said = "to each"
            closed = source.kind == "scope" or target.kind == "scope"
            key = (source, target, said) if closed else len(found)
            line = found.setdefault(key, Connection(source, target, [], said, link.step))
            line.edges.extend(link.edges)
        return [*found.values()]

    def _hold(self, lines: Iterable[Connection]) -> set[Box]:
        """Put what one op alone takes inside that op's box, but for what the model is given."""
        uses: dict[Box, list[Connection]] = {}
        takes: dict[Box, list[Connection]] = {}
        for line in lines:
            uses.setdefault(line.source, []).append(line)
            takes.setdefault(line.target, []).append(line)

        def fits(line: Connection) -> bool:
            inner = ("parameter", "buffer", "constant", "leaf")
            return (
                line.source.kind in inner and line.target.kind in ("op", "loss") and not line.said
            )

        shared = {b for b, own in uses.items() if len(own) > MOST_USES and all(map(fits, own))}
        held = set[Box]()
        for target, given in takes.items():
            lines = [line for line in given if fits(line)]
            data = [line for line in lines if _is_data(line.source)]
            lines = [line for line in lines if len(given) > len(lines) or line not in data[:1]]
            for line in (line for line in given if line in lines or line.source in shared):
                box = line.source
                alone = len(uses[box]) == 1 and len(line.edges) == len(box.entries)
                if alone or box in shared:
                    target.inside.append((line.edges[0].input, box))
                    held.add(box)
        return held


def _is_data(box: Box) -> bool:
    """Whether a leaf is what the model is given, where its op takes nothing else that is."""
    one = box.one
    return box.kind == "leaf" or (box.kind == "constant" and one.size > 1 and "float" in one.dtype)


def _further(step: int) -> str:
    """Which copy of a folded block a line leads to."""
    return {1: "the next", -1: "the one before"}.get(step, f"{step:+d}")


# ---------------------------------------------------------------- what boxes say


def alarms(box: Box) -> list[str]:
    """What is wrong with a box: a rule, or a value that is not finite."""
    wrong = [words.marks(entry) for entry in box.entries if entry.ok is False]
    facts = [entry.value_facts for entry in box.entries if entry.op]
    broken = any(one is not None and not one.finite for one in facts)
    return [*textwrap.wrap(wrong[0] if wrong else "", NOTE), *["value NaN or ∞"] * broken]


def notes(box: Box) -> list[str]:
    """What is particular to a box: one of many that differs, units that are dead or saturated."""
    found = [box.told.note, *dict.fromkeys(e.note for e in box.entries if box.kind != "scope")]
    return [line for said in found[:2] for line in textwrap.wrap(words.one_line(said), NOTE)]


def title_of(plan: PicturePlan, box: Box) -> str:
    """All that is known of a box, in one sentence."""
    entry, told = box.one, box.told
    size = f"gradient rms {told.text}" if told.size else f"gradient: {told.text}"
    if box.kind == "scope":
        ops = words.plural(sum(bool(one.op) for one in box.entries), "op")
        return f"{words.one_line(box.path)}: {ops}, {size}"
    path = "/".join(filter(None, [plan.fold.path_of(entry.id), entry.label]))
    said = [f"{words.one_line(path)}: {box.made}", f"{words.shaped(entry.shape)} {entry.dtype}"]
    said += [", ".join(f"{name}={x}" for name, x in words.settings(entry).items()), size]
    said += [words.STATES[told.state][1]] if told.state not in ("ok", "none") else []
    said += [entry.why if entry.state == "zero in theory" else "", told.note, entry.note]
    said += [words.sum_of(plan.record, entry), words.marks(entry)]
    for name, one in box.inside:
        said.append(
            f"{name}: {words.label(one.one)} {words.shaped(one.one.shape)}, {one.told.text}"
        )
    said += [f"one of {len(box.entries)} alike"] if len(box.entries) > 1 else []
    return "; ".join(words.one_line(text) for text in [*said, entry.says, entry.place] if text)
