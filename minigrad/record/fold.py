"""Folding: a chain of alike modules is drawn once, with ×N, and unfolding it gives the run's graph.

A block is a call of a module, and what follows it up to the next one that is alike. A chain is
blocks that follow one another, are numbered siblings or calls of one module, hold the same ops with
the same shapes and settings, and of which each takes what the one before it made. Layers of one op
are drawn in full, and so is what lies within a block.

Every edge between entries that are drawn once belongs to a `Link`: one line of the picture. What
the line says (within each block, to the next one, from each, from the last) stands for exactly the
edges of the run. Where it would stand for others, the blocks are not folded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, takewhile
from typing import NamedTuple

from .record import Edge, Entry, Record, show

__all__ = ["LEAST_COPIES", "Fold", "Link", "folded", "is_within", "make_fold"]

LEAST_COPIES = 3  # that are drawn once
MOST_BEFORE = 8  # items from the beginning of a block to its first call


class Item(NamedTuple):
    """A call of a scope, or an op of its own, whose name is empty. alike: what must be equal."""

    name: str
    ops: list[Entry]
    alike: Hashable


class Copy(NamedTuple):
    """Where an entry stands: in which copy of which block, and what stands there in all of them.

    Of an entry that is in no block, that is the entry alone.
    """

    block: str
    number: int
    twins: Sequence[int]


@dataclass
class Link:
    """The edges that one line stands for.

    Attributes: source, target: of its first edge.  step: how many copies of one block further the
        target is.  numbers: of each edge, the copies that it is from and to.
    """

    source: Copy
    target: Copy
    step: int
    edges: list[Edge] = field(default_factory=list)
    numbers: list[tuple[int, int]] = field(default_factory=list)

    @property
    def inside(self) -> bool:
        """Whether both ends are in one block."""
        return bool(self.source.block) and self.source.block == self.target.block

    @property
    def leaves(self) -> bool:
        """Whether it goes from each copy of another block, not from the last alone."""
        return not self.inside and self.numbers[0][0] + 1 < len(self.source.twins)

    @property
    def enters(self) -> bool:
        """Whether it goes to each copy of another block, not to the first alone."""
        return not self.inside and self.numbers[-1][1] > 0

    @property
    def is_whole(self) -> bool:
        """Whether what it says stands for its edges, in their order, and for no others."""
        sources, targets = (range(len(end.twins)) for end in (self.source, self.target))
        if self.inside or (self.leaves and self.enters):
            pairs = [(k, k + self.step) for k in sources if k + self.step in targets]
            return pairs == self.numbers and len(sources) == len(targets)
        if not self.leaves:
            sources = sources[-1:]
        if not self.enters:
            targets = targets[:1]
        return self.numbers == [(k, n) for n in targets for k in sources]


class Fold:
    """Where each entry is drawn, and which entries are copies of which.

    Attributes:
        place: the scope in which each entry is drawn; of copies, that of the first one.
        copies: block to what each copy is called.  members: of the entries in blocks, where.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.place: dict[int, str] = {}
        self.copies: dict[str, list[str]] = {}
        self.members: dict[int, Copy] = {}

    def copy_of(self, entry: int) -> Copy:
        return self.members.get(entry) or Copy("", 0, [entry])

    def leader(self, entry: int) -> int:
        """The entry that is drawn for this one: its twin in the first copy of its block."""
        return self.copy_of(entry).twins[0]

    def twins(self, entry: int) -> Sequence[int]:
        """All entries that are drawn as this one is, in order."""
        return self.copy_of(entry).twins

    def name(self, scope: str) -> str:
        """What a scope is called; the copies of a block together: blocks.0 … blocks.11."""
        names = self.copies.get(scope, _parts(scope)[-1:])
        return " … ".join(dict.fromkeys((names[0], names[-1])))

    @cached_property
    def links(self) -> list[Link]:
        """All edges of the run, those together that one line stands for."""
        links: dict[Hashable, Link] = {}
        again: Counter[Hashable] = Counter()
        for edge in self.record.edges:
            name = edge.input.rstrip("0123456789")
            use = edge.source, edge.target, name
            again[use] += 1
            source, target = self.copy_of(edge.source), self.copy_of(edge.target)
            step = target.number - source.number if source.block == target.block else 0
            key = source.twins[0], target.twins[0], name, again[use], step
            link = links.setdefault(key, Link(source, target, step))
            link.edges.append(edge)
            link.numbers.append((source.number, target.number))
        return [*links.values()]


def is_within(scope: str, outer: str) -> bool:
    return not outer or scope == outer or scope.startswith(f"{outer}/")


def _parts(scope: str) -> list[str]:
    """The names of a scope, from the outermost in."""
    return scope.split("/") if scope else []


# ---------------------------------------------------------------- finding what is folded


def folded(record: Record) -> Fold:
    """Where each entry of a finished record is drawn, alike modules of a chain once."""
    if not isinstance(record.fold, Fold):
        record.fold = make_fold(record)
    return record.fold


def make_fold(record: Record, chains: bool = True) -> Fold:
    """Where everything is drawn. Args: chains: draw alike modules that follow one another once.

    A chain whose lines would stand for other edges than the run's is tried once more without its
    first block, and then drawn in full.
    """
    refused = set[int]() if chains else {*record.forward}
    while True:
        fold = _drawn(record, refused)
        broken = [link for link in fold.links if not link.is_whole]
        ends = {end.block for link in broken for end in (link.source, link.target)}
        chained = {
            link.target.block
            for link in fold.links
            if link.step == 1 or (link.leaves and link.enters)  # of the one before, or its own
        }
        wrong = [block for block in fold.copies if block in ends or block not in chained]
        for block in wrong:
            inside = (i for i in record.forward if block == fold.copy_of(i).block)
            first, _, *rest = fold.twins(next(inside))
            refused |= {first, *rest}
        if not wrong:
            return fold


def _drawn(record: Record, refused: set[int]) -> Fold:
    """Args: refused: ops that begin no chain."""
    fold = Fold(record)
    pending = [("", 0, record.ops)]
    for path, depth, ops in pending:  # the loop appends to it
        items, at = _items(ops, depth), 0
        periods = _periods(items)
        while at < len(items):
            first = items[at].ops[0].id
            chain = [items[at : at + 1]]
            block = ""
            if first not in refused and first not in fold.members:
                blocks = _chain(items, at, periods)
                if len(blocks) >= LEAST_COPIES:
                    chain = blocks
                    block = _fold(fold, path, chain)
            alone = block and not _several(chain[0])
            for name, inside, _ in chain[0]:
                if name:
                    inner = block if alone else _free(fold, block or path, name)
                    pending.append((inner, depth + 1, inside))
                else:
                    fold.place[inside[0].id] = block or path
            at += sum(map(len, chain))
    _place_leaves(fold)
    drawn = (e.id for e in record.entries if e.id not in record.aside)
    fold.place = {i: fold.place[fold.leader(i)] for i in drawn}
    return fold


def _items(ops: list[Entry], depth: int) -> list[Item]:
    """The items of a scope in order: a call within it, or an op of its own."""

    def call(op: Entry) -> tuple[str, Hashable]:
        scopes = _parts(op.scope)
        return (scopes[depth], op.calls[: depth + 1]) if len(scopes) > depth else ("", op.id)

    def alike(op: Entry) -> Hashable:
        """What two ops must share to be drawn as one, apart from where their inputs are from."""
        every = (op.settings | op.numbers).items()
        settings = [(k, show(x)) for k, x in every if k != "index"]  # a step's number
        within = map(_stem, _parts(op.scope)[depth + 1 :])
        return *within, op.op, _stem(op.name), op.shape, op.dtype, *settings, *op.inputs

    groups = [(name, [*group]) for (name, _), group in groupby(ops, key=call)]
    return [Item(name, ops, (_stem(name), *map(alike, ops))) for name, ops in groups]


def _stem(name: str) -> str:
    """A name without its number: that of siblings."""
    return re.sub(r" \(\d+\)| ·\d+|\d+", "", name)


def _periods(items: list[Item]) -> dict[int, int]:
    """For each call, how many items further the next one that is alike is; 0 if there is none."""
    periods: dict[int, int] = {}
    later = dict[Hashable, int]()
    for at in range(len(items) - 1, -1, -1):
        if items[at].name:
            periods[at] = later.get(items[at].alike, at) - at
            later[items[at].alike] = at
    return periods


def _chain(items: list[Item], at: int, periods: dict[int, int]) -> list[list[Item]]:
    """The block that begins at an item, and those after it that are alike.

    It begins at an op of its own, which the call after it takes, where more blocks are alike so.
    """
    call = next((i for i in range(at, at + MOST_BEFORE) if i in periods), None)
    if call is None:
        return []
    chain = _blocks(items, at, periods[call])
    least = len(_blocks(items, call, periods[call])) if call > at else 1
    return chain if len(chain) > least else []


def _blocks(items: list[Item], at: int, period: int) -> list[list[Item]]:
    block = items[at : at + period]
    if not any(len(item.ops) > 1 for item in block if item.name):
        return []
    kinds = [item.alike for item in block]
    blocks = (items[i : i + period] for i in range(at, len(items), period))
    return [*takewhile(lambda block: [item.alike for item in block] == kinds, blocks)]


def _fold(fold: Fold, path: str, chain: list[list[Item]]) -> str:
    """Note which entries are copies of which; returns the path of the block."""
    record = fold.record
    names = [next(item.name for item in block if item.name) for block in chain]
    if _several(chain[0]):
        names = [f"step[{n}]" for n in range(len(chain))]
    block = _free(fold, path, names[0])
    fold.copies[block] = names
    ops = [[op for item in each for op in item.ops] for each in chain]
    twins: list[tuple[Entry, ...]] = [*zip(*ops, strict=True)]
    own = [{op.id for op in each} for each in ops]
    for edges in zip(*([e for op in each for e in op.takes] for each in ops), strict=True):
        leaves = tuple(record.entries[edge.source] for edge in edges)
        kinds = {(e.op, e.kind, _stem(e.name), e.shape, e.dtype) for e in leaves}
        alone = (own[n] >= {use.target for use in e.uses} for n, e in enumerate(leaves))
        if len(kinds) == 1 and not leaves[0].op and all(alone):
            twins.append(leaves)
    for same in twins:
        ids = [entry.id for entry in same]
        fold.members |= {entry: Copy(block, number, ids) for number, entry in enumerate(ids)}
    return block


def _several(block: list[Item]) -> bool:
    return sum(bool(item.name) for item in block) > 1


def _free(fold: Fold, path: str, name: str) -> str:
    """The path of a scope, unless a block is called so."""
    scope = f"{path}/{name}".lstrip("/")
    while scope in fold.copies:
        scope += " again"
    return scope


def _place_leaves(fold: Fold) -> None:
    """A leaf stands in the innermost scope around its uses, in no block unless each has one; a
    parameter also in a block of which each takes it."""
    for entry in reversed(fold.record.entries):
        if entry.op or entry.id in fold.record.aside or fold.leader(entry.id) != entry.id:
            continue
        uses = [fold.place[fold.leader(edge.target)] for edge in entry.uses]
        closed = set[str]()
        if entry.kind != "parameter":
            closed = fold.copies.keys() - {fold.copy_of(entry.id).block}
        scope = uses[0] if uses else entry.scope
        while any(not is_within(use, scope) for use in uses) or any(
            is_within(scope, block) for block in closed
        ):
            scope = scope.rpartition("/")[0]
        fold.place[entry.id] = scope
