"""Chains of alike blocks: where a program did the same again, each time to what it made last.

A scope holds items, in the order they ran: ops of its own, and calls of the scopes within it. A
block is a run of items; a chain is blocks that follow one another with nothing between them, and

- hold the same ops, with the same shapes and settings, wired in the same way;
- each have parameters of the same shapes, or all use the same one;
- use what the block before them made, or the block of the same number in an earlier chain, as an
  output layer does that is called at each step of a loop.

An activation called between two layers of a list is an item between them: it belongs to the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..recording.record import Entry
from ..recording.trace import Trace

__all__ = ["Chain", "ChainBlock", "Item", "Members", "chains", "items_of"]

FEWEST_LINES = 3  # times that a line of a program, or one module, must run to be a loop
FEWEST_SCOPES = 2  # scopes that differ in a number and make a chain
Members: TypeAlias = dict[int, list[tuple[str, int, int]]]
PERIODS = 8  # lengths of a block that are tried from each item
# where an op's input is from
OWN_OP = "an op of the block"
OWN_LEAF = "a leaf that the block alone uses"
PREVIOUS = "an op of the block before"
BESIDE = "the block of the same number in another chain"
SHARED = "anything else"
DETACHED = "detached"  # stands second: a leaf that is a constant copy of something


class Item(NamedTuple):
    """An op that stands directly in a scope, or one call of a scope within it."""

    name: str  # of the inner scope; "" for an op
    ops: list[Entry]
    facts: Any  # equal for items that differ in nothing but their numbers and wiring


@dataclass
class ChainBlock:
    """One link of a chain."""

    items: list[Item]
    ops: list[Entry]
    sources: list[int]  # of each input of each op: what it is
    roles: list[Any]  # and where it is from

    @property
    def scopes(self) -> list[str]:
        return [item.name for item in self.items if item.name]


class Chain(NamedTuple):
    """Blocks that are alike, in the order they ran."""

    blocks: list[ChainBlock]

    @property
    def keys(self) -> frozenset[tuple[int, int]]:
        """Where chains of blocks of this length could begin within it, and the length."""
        items = [item for block in self.blocks for item in block.items]
        return frozenset((item.ops[0].id, len(self.blocks[0].items)) for item in items)

    @property
    def roles(self) -> list[Any]:
        """Where inputs are from, in each block but the first, which has none before it."""
        return self.blocks[1].roles

    def twins(self) -> Iterator[list[int]]:
        """What stands for one another in the blocks: their ops, and the leaves of their own."""
        yield from (
            [op.id for op in ops] for ops in zip(*(b.ops for b in self.blocks), strict=True)
        )
        for place, role in enumerate(self.roles):
            if role == self.blocks[0].roles[place] and (OWN_LEAF == role[0] or DETACHED == role[1]):
                yield [block.sources[place] for block in self.blocks]


def items_of(trace: Trace, ops: Sequence[Entry], depth: int) -> list[Item]:
    """What stands directly in a scope, which is so deep, in the order it ran."""

    def call(op: Entry) -> Any:
        names = op.scope.split("/") if op.scope else []
        return (names[depth], op.calls[depth : depth + 1]) if len(names) > depth else ("", op.id)

    items = []
    for (name, _), group in groupby(ops, key=call):
        inside = list(group)
        facts = tuple(_facts(op, depth + 1) for op in inside) if name else _line(inside[0])
        items.append(Item(name, inside, (without_digits(name), facts)))
    return items


def without_digits(name: str | None) -> str | None:
    return name if name is None else re.sub(r"\d+", "#", name)


def _facts(op: Entry, depth: int) -> Any:
    """What two ops must share to be drawn as one, but for where their inputs are from."""
    below = tuple(map(without_digits, op.scope.split("/")[depth:])) if op.scope else ()
    settings = tuple((k, v) for k, v in op.settings.items() if k != "index")  # a step's number
    return below, op.op, without_digits(op.name), op.shape, op.dtype, op.needs, settings


def _line(op: Entry) -> Any:
    """The same of an op by itself, and the line of the program that ran it."""
    made = op.made_at
    return _facts(op, 0)[1:], getattr(made, "code", None), getattr(made, "offset", None)


# ---------------------------------------------------------------- which items are a chain


def chains(
    trace: Trace, items: list[Item], members: Members, without: frozenset[Any]
) -> Iterator[Item | Chain]:
    """The items of a scope in order, those that make a chain together.

    Args:
        members: of an entry in blocks found before, each block, its number there, and its twin in
            the first; what is yielded may be added before the next is asked for.
        without: where no chain may begin, by the keys of those that are not wanted.
    """
    found = _Finder(trace, items, members)
    at = 0
    while at < len(items):
        chain, start = found.best(at, without)
        yield from items[at:start]
        if chain is None:
            at = start
        else:
            yield chain
            at = start + sum(len(block.items) for block in chain.blocks)


class _Finder:
    def __init__(self, trace: Trace, items: list[Item], members: Members) -> None:
        self.trace = trace
        self.items = items
        self.members = members
        numbers: dict[Any, int] = {}
        self.kinds = [numbers.setdefault(item.facts, len(numbers)) for item in items]
        self.places: dict[int, list[int]] = {}
        for i, kind in enumerate(self.kinds):
            self.places.setdefault(kind, []).append(i)
        self.rank = {i: n for places in self.places.values() for n, i in enumerate(places)}

    def best(self, at: int, without: frozenset[Any]) -> tuple[Chain | None, int]:
        """The longest chain that begins at an item, and where; the shortest block of equal ones."""
        after = self.places[self.kinds[at]][self.rank[at] + 1 :][:PERIODS]
        first = self.items[at].ops[0].id
        known: dict[int, Chain | None] = {}
        for period in (other - at for other in after):
            if all(period % shorter for shorter in known):
                chain = None if (first, period) in without else self.chain(at, period)
                if chain is not None or (first, period) in without:
                    known[period] = chain
        found = {period: chain for period, chain in known.items() if chain is not None}
        if not found:
            return None, at + 1
        period, chain = max(found.items(), key=lambda pair: pair[0] * len(pair[1].blocks))
        for start in range(at + 1, at + period):  # a block begins with a scope if it can
            if self.items[at].name or not self.items[start].name:
                continue
            if (self.items[start].ops[0].id, period) in without:
                continue
            later = self.chain(start, period)
            if later is not None and len(later.blocks) == len(chain.blocks):
                return later, start
        return chain, at

    def chain(self, at: int, period: int) -> Chain | None:
        """The blocks of so many items from one on, as long as each is like the one before."""
        kinds = self.kinds[at : at + period]
        blocks: list[ChainBlock] = []
        while self.kinds[at : at + period] == kinds:
            block = self.block(self.items[at : at + period], blocks)
            if blocks and not self.follows(blocks, block):
                break
            blocks.append(block)
            at += period
        numbered = len(blocks) > 1 and blocks[0].scopes != blocks[1].scopes
        chain = Chain(blocks)
        fewest = FEWEST_SCOPES if numbered else FEWEST_LINES
        return chain if len(blocks) >= fewest else None

    def follows(self, blocks: list[ChainBlock], block: ChainBlock) -> bool:
        """Whether a block goes on with a chain."""
        if len(blocks) > 1:
            return blocks[-1].roles == block.roles
        pairs = zip(blocks[0].roles, block.roles, strict=True)
        alike = (a == b or (b[0] == PREVIOUS and a[0] != OWN_OP) for a, b in pairs)
        return any(role[0] in (PREVIOUS, BESIDE) for role in block.roles) and all(alike)

    # ------------------------------------------------------------------ wiring

    def block(self, items: list[Item], before: list[ChainBlock]) -> ChainBlock:
        ops = [op for item in items for op in item.ops]
        here = {op.id: i for i, op in enumerate(ops)}
        previous = {op.id: i for i, op in enumerate(before[-1].ops)} if before else {}
        edges = [edge for op in ops for edge in self.trace.into(op)]
        met: dict[int, int] = {}  # a leaf: the first of the edges from it
        for place, edge in enumerate(edges):
            met.setdefault(edge.source, place)

        def role(source: Entry) -> Any:
            if source.id in here:
                return OWN_OP, here[source.id]
            if source.id in previous:
                return PREVIOUS, previous[source.id]
            if source.id in self.members:
                _, number, lead = self.members[source.id][-1]
                return BESIDE, lead, number - len(before)
            if source.op is not None or any(e.target not in here for e in self.trace.uses(source)):
                return SHARED, source.id
            if origin := self.trace.into(source):
                kind, *rest = role(self.trace.entries[origin[0].source])
                return kind, DETACHED, met[source.id], *rest
            return OWN_LEAF, met[source.id], _leaf_facts(source)

        roles = [(*role(self.trace.entries[edge.source]), edge.input) for edge in edges]
        return ChainBlock(items, ops, [edge.source for edge in edges], roles)


def _leaf_facts(leaf: Entry) -> Any:
    """What two leaves must share; a parameter that is frozen in some blocks stays one."""
    kind = "parameter" if leaf.why == "frozen" or leaf.learns else leaf.kind
    bare = leaf.kind == "constant" and leaf.shape == () and leaf.value is not None
    number = repr(np.asarray(leaf.value).item()) if bare else ""
    return kind, leaf.shape, leaf.dtype, without_digits(leaf.name), number
