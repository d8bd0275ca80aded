"""Which boxes and lines a picture has: scopes collapsed, one in focus, repeated blocks folded.

Works on the model alone; what a box looks like is the business of `dot`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..engine.errors import ArgumentError
from ..recording.record import Edge, Entry
from .fold import Link, is_within, parts
from .model import AnnotatedTrace, Spread
from .plain import one_line

__all__ = ["Box", "Line", "Outline", "outline", "with_parameters_inside"]

LARGEST_PICTURE = 20_000  # values of a record that a picture takes


@dataclass(eq=False)
class Box:
    """One shape of the picture: an entry, its copies in folded blocks, or a whole scope."""

    id: str
    kind: str  # as an entry's, or "loss", "scope", "outside"
    label: str
    scope: str  # the cluster around it
    entries: list[Entry]
    times: int = 1  # how often the scope that it replaces repeats
    parameters: list[Box] = field(default_factory=list)  # drawn inside it

    @property
    def one(self) -> Entry:
        return self.entries[0]

    @property
    def dimmed(self) -> bool:
        """Whether none of its entries takes part in backward."""
        return not any(entry.needs or entry.gradient is not None for entry in self.entries)


@dataclass(eq=False)
class Line:
    """One use of a value; several edges if blocks that are drawn once repeat it."""

    source: Box
    target: Box
    link: Link
    sent: list[float]  # the sizes of the gradients that its edges sent back

    @property
    def edges(self) -> list[Edge]:
        return self.link.edges


@dataclass
class Outline:
    """What is drawn of a model."""

    model: AnnotatedTrace
    boxes: list[Box]
    lines: list[Line]
    # saved tensors: whose value, which box saved it, and a by-product's name
    saved: list[tuple[Box, Box, str]]
    spreads: dict[Box, Spread]
    left_out: str = ""  # a sentence, if scopes were closed to keep the limit

    @property
    def sums(self) -> list[Box]:
        """Boxes whose gradient is a sum, or is one in some of the copies."""
        drawn = {line.source for line in self.lines if line.sent}
        candidates = [b for b in self.boxes if b in drawn and b.kind not in ("scope", "outside")]
        return [b for b in candidates if any(len(self.model.terms(e)) > 1 for e in b.entries)]


def outline(
    model: AnnotatedTrace,
    *,
    depth: int | None = None,
    focus: str | None = None,
    limit: int | None = None,
    root: str | None = None,
) -> Outline:
    """Choose the boxes and lines to show.

    Args: limit: most boxes there are; scopes are closed, the innermost first, to keep it.
        root: the path of the one scope that is shown; `limit` leaves its own boxes open.
    Raises: ArgumentError if depth is negative, no scope is called `focus`, or nothing can be done
        to show so much.
    """
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ArgumentError(f"draw: depth must be a whole number, 0 or more, got {depth!r}")
    if len(model.trace.entries) > LARGEST_PICTURE:
        raise ArgumentError(
            f"draw: the record has {len(model.trace.entries):,} values, a picture takes "
            f"{LARGEST_PICTURE:,}: trace a shorter part of the run, or fewer steps of its loop"
        )
    shown, said = _shown(model, focus, root or ""), ""
    boxes = _Boxes(model, shown, depth)
    if limit is not None and depth is None and len(boxes.all) > limit:
        count = len(boxes.all)
        deepest = max(len(parts(scope)) for scope in model.place.values())
        for depth in range(deepest - 1, len(parts(root or "")) - 1, -1):
            boxes = _Boxes(model, shown, depth)
            if len(boxes.all) <= limit:
                break
        else:
            depth = _sections(model, limit) if root is None else len(parts(root))
            boxes = _Boxes(model, shown, depth)
        said = (
            f"{len(boxes.all)} of {count:,} boxes: depth={depth} is chosen so that it can be read; "
            "depth= and focus= open more, style='full' all"
        )
    spreads = {b: model.spread(b.entries, constants=b.kind != "scope") for b in boxes.all}
    saved = list(dict.fromkeys(boxes.saved()))
    return Outline(model, boxes.all, boxes.lines(), saved, spreads, said)


def with_parameters_inside(plan: Outline) -> Outline:
    """Draw a parameter that one op alone takes within that op's box; the others stay as they are.

    Of a folded block each copy must have its own, so that no line is needed to say which takes it.
    """
    fold, uses = plan.model.fold, dict[Box, list[Line]]()
    for line in plan.lines:
        uses.setdefault(line.source, []).append(line)
    inner: set[Box] = set()
    for box, lines in uses.items():
        target = lines[0].target
        around = [list(fold.numbers(one.one.id)) for one in (box, target)]
        if box.kind in ("parameter", "leaf") and target.kind == "op" and len(lines) == 1:
            if around[0] == around[1] and len(lines[0].edges) == len(box.entries):
                target.parameters.append(box)
                inner.add(box)
    plan.boxes = [box for box in plan.boxes if box not in inner]
    plan.lines = [line for line in plan.lines if line.source not in inner]
    plan.saved = [one for one in plan.saved if one[0] not in inner]
    return plan


def _sections(model: AnnotatedTrace, limit: int) -> int:
    """Divide what is in no scope into sections, in the order it ran; the depth that shows them."""
    loose = [i for i, scope in model.place.items() if not scope]
    size = -(-len(loose) * 4 // limit)
    for at, i in enumerate(loose):
        first = at // size * size
        model.place[i] = f"values {first + 1} to {min(first + size, len(loose))}"
    return 0


def _shown(model: AnnotatedTrace, focus: str | None, root: str) -> Callable[[str], bool]:
    if focus is None:
        return lambda scope: is_within(scope, root)
    scopes = set(filter(None, model.place.values()))
    wanted = f"/{focus}/"

    def within(scope: str) -> bool:
        return wanted in f"/{scope}/" or wanted in re.sub(r"\[\d+\]", "", f"/{scope}/")

    if not focus or not any(map(within, scopes)):
        known = ", ".join(sorted(map(one_line, scopes))) or "none"
        raise ArgumentError(f"draw: focus={focus!r} names no scope of this trace; scopes: {known}")
    return within


class _Boxes:
    """Boxes made as they are first needed, in the order of the record."""

    def __init__(
        self, model: AnnotatedTrace, shown: Callable[[str], bool], depth: int | None
    ) -> None:
        self.model = model
        self.trace = model.trace
        self.depth = depth
        self.by_key: dict[str, Box] = {}
        self.of: dict[int, Box] = {}  # entry -> box
        within = {scope: shown(scope) for scope in {*model.place.values()}}
        inside = {e.id: within[model.place[e.id]] for e in self.trace.entries}
        ends = [(edge.source, edge.target) for edge in self.trace.edges]
        near = {i for pair in ends if inside[pair[0]] != inside[pair[1]] for i in pair}
        for entry in self.trace.entries:
            if inside[entry.id] or entry.id in near:
                self._place(entry, inside[entry.id])

    @property
    def all(self) -> list[Box]:
        return list(self.by_key.values())

    def _place(self, entry: Entry, inside: bool) -> None:
        """Put an entry into its box; that of the first copy if it is folded."""
        lead = self.trace.entries[self.model.fold.leader(entry.id)]
        scope = self.model.place[lead.id]
        names = parts(scope)
        if inside and self.depth is not None and len(names) > self.depth:
            path, around = ("/".join(names[: self.depth + k]) for k in (1, 0))
            fold = self.model.fold
            label, times = fold.name(path), fold.times.get(path, 1)
            key, box = path, Box(f"s{lead.id}", "scope", label, around, [], times)
        else:
            kind = "loss" if lead.id in self.trace.roots else lead.role
            kind, scope = (kind, scope) if inside else ("outside", "")
            key = f"/{lead.id}"
            box = Box(f"n{lead.id}", kind, self.model.label(lead), scope, [])
        self.of[entry.id] = self.by_key.setdefault(key, box)
        self.of[entry.id].entries.append(entry)

    def lines(self) -> list[Line]:
        """Uses of values; those that folding makes one are one line."""
        made = []
        for link in self.model.fold.links:
            source, target = self.of.get(link.edges[0].source), self.of.get(link.edges[0].target)
            if source is None or target is None or (source.kind == target.kind == "outside"):
                continue
            if source is not target or link.step:
                sizes = [size for edge in link.edges if (size := self.model.sent(edge)) is not None]
                made.append(Line(source, target, link, sizes))
        return made

    def saved(self) -> Iterator[tuple[Box, Box, str]]:
        """Saved tensors as pairs of boxes; a by-product has a name of its own."""
        for entry in self.trace.entries:
            target = self.of.get(entry.id)
            if target is None or target.kind == "outside":
                continue
            for name, origin in entry.saved:
                source = target if origin is None else self.of.get(origin)
                if source is None or (target.kind == "scope" and source is target):
                    continue
                if origin is None or not self.model.fold.apart(origin, entry.id):
                    yield source, target, name if origin is None else ""
