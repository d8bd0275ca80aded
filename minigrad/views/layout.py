"""Which boxes and lines a picture has: alike modules once, scopes closed, one in focus.

A parameter is a line inside the op that takes it; `dot` says what a box looks like.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import isfinite

from ..engine.errors import ArgumentError
from ..record.fold import Fold, folded, is_within, make_fold
from ..record.record import Edge, Entry, Record, unmarked
from . import words

__all__ = ["Box", "Connection", "Layout", "layout", "with_outer"]

READABLE = 26  # boxes of a picture that is read where it opens; of more, scopes are closed
MOST_BOXES = 1500  # that are laid out in a bearable time
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
    inside: list[Connection] = field(default_factory=list)  # what stands in it

    @property
    def entry(self) -> Entry:
        """The first of its entries, which is drawn for all of them."""
        return self.entries[0]

    @property
    def ops(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.op]

    @property
    def value(self) -> str:
        """The value of the one number that it shows."""
        return words.value(self.entry) if len(self.entries) == 1 else ""

    @property
    def milliseconds(self) -> float:
        """What its ops took, forward and backward."""
        return 1000 * sum(entry.seconds + entry.backward_seconds for entry in self.entries)

    @property
    def idle(self) -> bool:
        """Whether none of its entries takes part in backward."""
        return not any(entry.needs or entry.gradient is not None for entry in self.entries)

    @property
    def origin(self) -> str:
        """The op that made it, or what kind of leaf it is."""
        return "outside the focus" if self.kind == "outside" else self.entry.op or self.entry.kind

    @cached_property
    def state(self) -> str:
        """The worst state of a gradient among its entries."""
        return max((entry.state for entry in self.entries), key=[*words.STATES].index)

    @cached_property
    def sizes(self) -> list[float]:
        """The sizes of its gradients that have one to tell."""
        sizes = map(words.gradient_size, self.entries)
        return [size for size in sizes if size is not None and isfinite(size)]

    @property
    def size(self) -> float:
        return max(self.sizes, default=0.0)

    @cached_property
    def gradient(self) -> str:
        """Its gradients in words."""
        texts = {words.gradient(entry) for entry in self.entries}
        if len(texts) > 1 and self.sizes:
            return words.ranged(self.sizes)
        return next(words.gradient(entry) for entry in self.entries if entry.state == self.state)

    @property
    def notes(self) -> list[str]:
        """What is particular to it: some of many that differ, units that are dead or saturated."""
        if self.kind == "scope":
            return []
        notes = [*dict.fromkeys(entry.note for entry in self.entries if entry.note)]
        states = Counter(entry.state for entry in self.entries)
        if len(states) > 1:
            odd = next(state for state in (self.state, *states) if state != "ok")
            meaning = words.STATES[odd][1].split(":")[0]
            notes.insert(0, f"{states[odd]} of {len(self.entries)} {meaning}")
        return notes[:2]

    @property
    def alarms(self) -> list[str]:
        """What is wrong with it: a rule, or a value that is not finite."""
        alarms = [words.marks(entry) for entry in self.entries if entry.ok is False][:1]
        if any(map(words.is_broken, self.entries)):
            alarms.append("value NaN or ∞")
        return alarms


@dataclass(eq=False)
class Connection:
    """What one box gives another, by one use of a value or several: a line, or within the target.

    shared: whether it stands there though the source has other uses too, which also send gradients.
    """

    source: Box
    target: Box
    copies: str  # which copies of a block it connects, where that is to be told
    step: int  # to which other copy of a block it goes
    edges: list[Edge] = field(default_factory=list)
    shared: bool = False

    @property
    def sent(self) -> list[float]:
        """The sizes of the gradients that were sent back along it."""
        return words.sizes_sent(self.edges)

    @property
    def sizes(self) -> list[float]:
        """The sizes of the source's gradients; of the parts by these uses, if it is shared."""
        return self.sent if self.shared else self.source.sizes

    @property
    def gradient(self) -> str:
        """In words, as `sizes`."""
        return words.sent_by(self.edges) if self.shared and self.sent else self.source.gradient


@dataclass(eq=False)
class Layout:
    """What is drawn of a record."""

    fold: Fold
    boxes: list[Box]
    lines: list[Connection]
    note: str = ""  # if scopes were closed to keep it readable


def layout(
    record: Record, *, depth: int | None = None, focus: str | None = None, fold: bool = True
) -> Layout:
    """Choose the boxes and lines to draw.

    What stands only in a copy of a folded block is shown unfolded.
    Args: focus: name or path of the scopes that are shown; one from the top begins with a stroke.
    Raises: ArgumentError if depth is negative, focus names no scope, or there is too much to draw.
    """
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ArgumentError(f"draw: depth must be a whole number, 0 or more, got {depth!r}")
    folds = folded(record)
    if not fold or not _shown(folds, focus):
        folds = make_fold(record, chains=False)
    shown = _shown(folds, focus)
    if not shown:
        names = sorted({words.one_line(scope) for scope in folded(record).place.values() if scope})
        raise ArgumentError(
            f"draw: focus={focus!r} names no scope of this trace; scopes: "
            f"{', '.join(names) or 'none'}"
        )
    chosen = every = _laid_out(folds, shown, depth)
    if depth is None:
        level = max(map(_depth, shown))
        least = max(1, min(shown.values()))  # what is in focus stays open
        while len(chosen.boxes) > READABLE and level > least:
            level -= 1
            chosen = _laid_out(folds, shown, level)
        if len(chosen.boxes) >= len(every.boxes):
            chosen = every
    if len(chosen.boxes) > MOST_BOXES:
        raise ArgumentError(
            f"draw: {len(chosen.boxes):,} boxes are more than the {MOST_BOXES:,} of a picture: "
            "draw less with depth= or focus=, or trace a shorter part of the run"
        )
    if chosen is not every:
        count = f"{len(chosen.boxes)} of {len(every.boxes):,} boxes"
        chosen.note = f"{count}; depth= and focus= open more"
    return chosen


def _depth(scope: str) -> int:
    return len(scope.split("/")) if scope else 0


def with_outer(scope: str) -> Iterator[str]:
    """The scopes around a scope, the outermost first, and itself."""
    return accumulate(scope.split("/"), "{}/{}".format)


def _shown(fold: Fold, focus: str | None) -> dict[str, int]:
    """The scopes of which all is shown, and how deep in each the focus is."""
    scopes = dict.fromkeys(fold.place.values(), 0)
    if focus is None:
        return scopes or {"": 0}
    depths = dict[str, int]()
    is_marked = unmarked(focus) != focus
    for scope in scopes:
        path = scope if is_marked else unmarked(scope)
        around, match, _ = f"//{path}/".partition(f"/{focus}/")
        if focus and match:
            depths[scope] = _depth(f"{around}/{focus}".strip("/"))
    return depths


def _laid_out(fold: Fold, shown: Iterable[str], depth: int | None) -> Layout:
    """Boxes in the order of the record, and the lines between them."""
    record = fold.record
    inside = {number for number, scope in fold.place.items() if scope in shown}
    ends = [{edge.source, edge.target} for edge in record.edges]
    near = set[int]().union(*(pair for pair in ends if pair & inside))
    within = Counter[str]()  # how many ops are drawn in each scope
    for number in record.forward:
        if fold.leader(number) == number:
            within.update(with_outer(fold.place[number]))
    boxes: dict[str, Box] = {}
    box_of: dict[int, Box] = {}
    for number in sorted(inside | near):
        lead = record.entries[fold.leader(number)]
        box = Box(f"n{lead.id}", "outside", words.label(lead), "")
        if number in inside:
            box = _box(fold, lead, depth, within)
        box_of[number] = boxes.setdefault(box.path or box.id, box)
        box_of[number].entries.append(record.entries[number])
    lines = _lines(fold, box_of)
    held = _hold(lines)
    lines = [line for line in lines if line.source not in held]
    return Layout(fold, [box for box in boxes.values() if box not in held], lines)


def _box(fold: Fold, lead: Entry, depth: int | None, within: Counter[str]) -> Box:
    """The box of an entry, or of the closed scope that it is in; one op stands for its scope."""
    scope = fold.place[lead.id]
    label = words.label(lead)
    if depth is not None and _depth(scope) > depth:
        path = "/".join(scope.split("/")[: depth + 1])
        scope = path.rpartition("/")[0]
        if within[path] > 1:
            return Box(f"s{lead.id}", "scope", fold.name(path), scope, path=path)
        if lead.op:
            label = f"{fold.name(path)}/{label}"
    is_loss = lead.id in fold.record.roots and lead.size == 1
    return Box(f"n{lead.id}", "loss" if is_loss else lead.kind, label, scope)


def _lines(fold: Fold, box_of: dict[int, Box]) -> list[Connection]:
    """Uses of values; those that folding makes one, or a closed scope takes, are one line."""
    lines: dict[Hashable, Connection] = {}
    for link in fold.links:
        first = link.edges[0]
        source, target = box_of.get(first.source), box_of.get(first.target)
        if source is None or target is None or source.kind == target.kind == "outside":
            continue
        if source is target and not link.step:
            continue
        copies = f"to {FURTHER.get(link.step, f'{link.step:+d}')}" if link.step else ""
        if link.leaves:
            copies = "from each to its own" if link.enters else "from each"
        elif link.enters:
            copies = "to each"
        closed = "scope" in (source.kind, target.kind)
        key = (source, target, copies) if closed else len(lines)
        line = lines.setdefault(key, Connection(source, target, copies, link.step))
        line.edges.extend(link.edges)
    return [*lines.values()]


FURTHER = {1: "the next", -1: "the one before"}  # copy of a folded block


def _hold(lines: Iterable[Connection]) -> set[Box]:
    """Put what one op alone takes inside that op's box, but for what the model is given.

    A parameter is a line in each op that takes it.
    """
    uses = defaultdict[Box, list[Connection]](list)
    takes = defaultdict[Box, list[Connection]](list)
    for line in lines:
        uses[line.source].append(line)
        takes[line.target].append(line)
    everywhere = {
        box
        for box, own in uses.items()
        if (box.kind == "parameter" or len(own) > MOST_USES) and all(map(_fits_inside, own))
    }
    held = {*everywhere}
    for target, taken in takes.items():
        small = [line for line in taken if _fits_inside(line)]
        if len(small) == len(taken):  # of an op of leaves alone, what it is given stays a box
            data = [line for line in small if _is_data(line.source, everywhere)]
            small = [line for line in small if line not in data[:1]]
        for line in small:
            box = line.source
            line.shared = len(uses[box]) > 1 or len(line.edges) != len(box.entries)
            if box in everywhere or not line.shared:
                held.add(box)
                if not _is_own(box, target):
                    target.inside.append(line)
    return held


def _fits_inside(line: Connection) -> bool:
    """Whether what a line brings can stand in the box that takes it."""
    source, target = line.source.kind, line.target.kind
    if source == "parameter":
        return target in ("op", "loss", "scope") and line.copies in ("", "to each")
    return source in ("constant", "leaf") and target in ("op", "loss") and not line.copies


def _is_own(box: Box, target: Box) -> bool:
    """Whether a closed scope is a call of the module that holds this parameter."""
    return target.kind == "scope" and is_within(box.entry.scope, unmarked(target.path))


def _is_data(box: Box, everywhere: set[Box]) -> bool:
    """Whether a leaf is what the model is given, where its op takes nothing else that is."""
    leaf = box.entry
    floats = box.kind == "constant" and leaf.size > 1 and "float" in leaf.dtype
    return box not in everywhere and (box.kind == "leaf" or floats)
