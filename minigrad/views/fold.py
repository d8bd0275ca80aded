"""Folding: a chain of alike blocks is drawn once, with ×N, and unfolding it gives the run's graph.

Every edge between entries that are drawn once belongs to a `Link`: one line of the picture. What
the line says (within each block, to the next one, from each, from the last) stands for exactly the
edges of the run. Where it would stand for others, the blocks are not folded.

Chains of alike blocks: where a program did the same again, each time to what it made last.

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
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from ..recording.record import Edge, Entry
from ..recording.trace import TraceRecord

__all__ = ["Fold", "Link", "folded", "is_within", "parts", "prefixes"]

FEWEST_LINES = 3  # times that a line of a program, or one module, must run to be a loop
FEWEST_SCOPES = 2  # scopes that differ in a number and make a chain
PERIODS = 8  # lengths of a block that are tried from each item
# where an op's input is from
OWN_OP = "an op of the block"
OWN_LEAF = "a leaf that the block alone uses"
PREVIOUS = "an op of the block before"
PARALLEL_BLOCK = "the block of the same number in another chain"
OTHER_INPUT = "anything else"
DETACHED = "detached"  # stands second: a leaf that is a constant copy of something
# of an entry, for each block around it: the block, its number, and the twin in the first block
Members: TypeAlias = dict[int, list[tuple[str, int, int]]]
Beginnings: TypeAlias = frozenset[tuple[int, int]]  # of chains: the first op, and items in a block
Role: TypeAlias = tuple[Hashable, ...]  # where an op's input is from, and which one it is there


@dataclass
class Link:
    """The edges that one line stands for, and what it says of the blocks at its ends."""

    edges: list[Edge]
    step: int = 0  # how many blocks further the target is; 0: in the same one, or in none
    shared: list[str] = field(default_factory=list)  # blocks that both ends stand in
    leaves: list[str] = field(default_factory=list)  # blocks that it leaves, from each of them
    enters: list[str] = field(default_factory=list)  # blocks that it enters, each of them
    backwards: bool = False  # the target takes what the blocks made from the last to the first
    whole: bool = True  # whether unfolding gives these edges and no others

    @property
    def each(self) -> bool:
        """Whether every block uses the value or is used; otherwise the first or the last one."""
        return bool(self.leaves or self.enters)


class Fold:
    """Where each entry is drawn, and which entries are copies of which."""

    def __init__(self, trace: TraceRecord) -> None:
        self.trace = trace
        self.place: dict[int, str] = {}  # the scope in which each entry is drawn
        self.times: dict[str, int] = {}  # block -> how many
        self.copies: dict[str, list[str]] = {}  # block -> what each of them is called
        # entry -> for each block around it, from the outermost in: number, and twin in the first
        self.members: Members = {}
        self.keys: dict[str, Beginnings] = {}  # block -> those of its chain

    @cached_property
    def _resolved(self) -> dict[int, tuple[int, dict[str, int]]]:
        return {entry.id: self._resolve(entry.id) for entry in self.trace.entries}

    def _resolve(self, entry: int) -> tuple[int, dict[str, int]]:
        numbers: dict[str, int] = {}
        depth = 0
        while depth < len(self.members.get(entry, ())):
            block, number, entry = self.members[entry][depth]
            numbers[block] = number
            depth += 1
        return entry, numbers

    def leader(self, entry: int) -> int:
        """The entry that is drawn for this one: its twin in the first of each block around it."""
        return self._resolved[entry][0]

    def numbers(self, entry: int) -> dict[str, int]:
        """For each block around an entry, from the outermost in, which copy it is in."""
        return self._resolved[entry][1]

    def apart(self, source: int, target: int) -> int:
        """How many copies of one block lie from an entry to another; 0 within the same one."""
        mine, theirs = self.numbers(source), self.numbers(target)
        steps = (theirs[block] - copy for block, copy in mine.items() if block in theirs)
        return next(filter(None, steps), 0)

    def name(self, scope: str) -> str:
        """What a scope is called; the copies of a block together: blocks.0 … blocks.11."""
        names = self.copies.get(scope, parts(scope)[-1:])
        return " … ".join(dict.fromkeys((names[0], names[-1])))

    def path_of(self, entry: int) -> str:
        """The scope of an entry with the names of the copies that it is in."""
        names = parts(self.place[self.leader(entry)])
        for block, number in self.numbers(entry).items():
            names[len(parts(block)) - 1] = self.copies[block][number]
        return "/".join(names)

    # ------------------------------------------------------------------ lines

    @cached_property
    def links(self) -> list[Link]:
        """All edges of the run, those together that one line stands for."""
        found: dict[Hashable, list[Edge]] = {}
        again: Counter[Hashable] = Counter()
        for edge in self.trace.edges:
            name = edge.input.rstrip("0123456789")
            use = edge.source, edge.target, name
            again[use] += 1
            leads = self.leader(edge.source), self.leader(edge.target)
            found.setdefault((*leads, name, again[use], *self._parted(edge)), []).append(edge)
        return [self._link(edges) for edges in found.values()]

    def _parted(self, edge: Edge) -> tuple[int, int]:
        """In how many blocks both ends are in the same copy, and the step between copies."""
        mine, theirs = (list(self.numbers(i).items()) for i in (edge.source, edge.target))
        same = 0
        while mine[same : same + 1] == theirs[same : same + 1] != []:
            same += 1
        rest = mine[same : same + 1] + theirs[same : same + 1]
        step = rest[1][1] - rest[0][1] if len(rest) == 2 and rest[0][0] == rest[1][0] else 0
        return same, step

    def _link(self, edges: list[Edge]) -> Link:
        same, step = self._parted(edges[0])
        ends = [(self.numbers(e.source), self.numbers(e.target)) for e in edges]
        mine, theirs = (list(numbers) for numbers in ends[0])
        begin = same + bool(step)
        leaves = [b for b in mine[begin:] if any(s[b] != self.times[b] - 1 for s, _ in ends)]
        enters = [b for b in theirs[begin:] if any(t[b] for _, t in ends)]
        pairs = list(zip(leaves, enters, strict=False))  # each to the one of the same number
        link = Link(edges, step, mine[:begin], leaves, enters)
        counts = [self.times[block] for block in (*mine[:same], *leaves, *enters[len(leaves) :])]
        counts += [self.times[mine[same]] - abs(step)] if step else []
        link.whole = len(edges) == prod(counts) and all(
            s[a] == t[b] and self.times[a] == self.times[b] for s, t in ends for a, b in pairs
        )
        if leaves and len({edge.target for edge in edges}) < len(edges):
            link.whole, link.backwards = self._in_order(link)
        return link

    def _in_order(self, link: Link) -> tuple[bool, bool]:
        """Whether one op takes what the blocks made in their order, and whether it is reversed."""
        by_target: dict[int, list[int]] = {}
        for edge in link.edges:
            by_target.setdefault(edge.target, []).append(self.numbers(edge.source)[link.leaves[0]])
        orders = [*by_target.values()]
        backwards = orders[0][0] > orders[0][-1]
        sorts = all(order == sorted(order, reverse=backwards) for order in orders)
        return link.whole and sorts and not link.enters, backwards


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


# ---------------------------------------------------------------- finding what is folded


def folded(trace: TraceRecord, fold: bool) -> Fold:
    """Where everything is drawn. Args: fold: find chains of alike blocks, and draw each once."""
    without: Beginnings = frozenset()
    while True:
        made = _Folding(trace, fold, without).fold
        blocks = [_misdrawn(link) for link in made.links if not link.whole]
        if not blocks:
            return made
        without = without.union(*(made.keys[block] for block in blocks))


def _misdrawn(link: Link) -> str:
    """The block to leave unfolded: a line that enters or leaves it would stand for other edges."""
    return [*link.shared, *link.leaves, *link.enters][-1]


class _Folding:
    def __init__(self, trace: TraceRecord, chained: bool, without: Beginnings) -> None:
        self.trace = trace
        self.fold = Fold(trace)
        self.outer: set[str] = set()  # scopes as the program has them
        ops = [entry for entry in trace.entries if entry.op is not None]
        names = numbered_scopes(trace, ops)
        pending: list[tuple[str, int, list[Entry], bool]] = [("", 0, ops, chained)]
        for path, depth, inside, seeks in pending:
            items = items_of(trace, inside, depth)
            found = chains(trace, items, self.fold.members, without) if seeks else items
            for one in found:
                if isinstance(one, Chain):
                    pending += ((*rest, chained) for rest in self._fold(path, depth, one))
                elif one.name:
                    name = names[one.ops[0].id][depth]
                    pending.append((self._scope(path, name), depth + 1, one.ops, chained))
                else:
                    self.fold.place[one.ops[0].id] = path
        self._place_leaves()
        fold = self.fold
        fold.place = {e.id: fold.place[fold.leader(e.id)] for e in trace.entries}

    def _scope(self, path: str, name: str) -> str:
        """The path of a scope, another one than that of a block of the same name."""
        scope = f"{path}/{name}" if path else name
        while scope in self.fold.times:
            scope += " again"
        self.outer.add(scope)
        return scope

    def _fold(self, path: str, depth: int, chain: Chain) -> Iterator[tuple[str, int, list[Entry]]]:
        """Draw all blocks as the first one. Yields what is inside it, to look for chains there."""
        names, opened = self._names(path, chain)
        block = f"{path}/{names[0]}" if path else names[0]
        self.fold.times[block] = len(names)
        self.fold.copies[block] = names
        self.fold.keys[block] = chain.keys
        first = chain.blocks[0]
        outer = [member[0] for member in self.fold.members.get(first.ops[0].id, ())]
        for twins in chain.twins():
            for number, entry in enumerate(twins):
                around = self.fold.members.setdefault(entry, [])
                if [member[0] for member in around] == outer:
                    around.append((block, number, twins[0]))
        if not opened:
            yield block, depth, first.ops
            return
        for item in first.items:
            if item.name:
                yield block, depth + 1, item.ops
            else:
                self.fold.place[item.ops[0].id] = block

    def _names(self, path: str, chain: Chain) -> tuple[list[str], bool]:
        """What the blocks are called, and whether they are the scopes that they hold.

        A block that holds one numbered scope has its name, whatever else is called in between.
        """
        scopes = [block.scopes for block in chain.blocks]
        taken = self.fold.times.keys() | self.outer
        above = f"{path}/" if path else ""
        single = len(scopes[0]) == 1
        names = [one[0] for one in scopes] if single else []
        if single and len({*names}) == len(names) and above + names[0] not in taken:
            return names, True
        called = single and len({*names}) == 1 and len(chain.blocks[0].items) == 1
        twins = ([self.trace.entries[i] for i in one] for one in chain.twins())
        own = any(one[0].learns and one[0].leaf != one[1].leaf for one in twins)
        word = names[0] if called else "layer" if own else "step"
        base, tries = word, 1
        while f"{above}{base}[0]" in taken:
            base = f"{word}{tries}"
            tries += 1
        return [f"{base}[{number}]" for number in range(len(scopes))], called

    def _place_leaves(self) -> None:
        """A leaf stands in the innermost scope around its uses, in no block unless each has one."""
        fold = self.fold
        for entry in reversed(self.trace.entries):  # a constant copy of a leaf before the leaf
            if entry.op is not None or fold.leader(entry.id) != entry.id:
                continue
            found = {fold.place[fold.leader(edge.target)] for edge in self.trace.uses(entry)}
            found = found or {entry.scope}
            around = ["", *prefixes(min(found))]
            home = [s for s in around if all(is_within(one, s) for one in found)][-1]
            own = {block for block, *_ in fold.members.get(entry.id, ())}
            foreign = [s for s in prefixes(home) if s in fold.times and s not in own]
            fold.place[entry.id] = foreign[0].rpartition("/")[0] if foreign else home


def numbered_scopes(trace: TraceRecord, ops: Sequence[Entry]) -> dict[int, list[str]]:
    """The names of the scopes around each op, from the outermost in, namesakes with a number.

    Layers that are attributes of no other go by their class, and several have one name. Two calls
    are of one layer if they share a parameter, or if either has none.
    """
    names = {op.id: parts(op.scope) for op in ops}
    for depth in range(max(map(len, names.values()), default=0)):
        calls: dict[tuple[tuple[str, ...], tuple[int, ...]], list[Entry]] = {}
        for op in ops:
            path = tuple(names[op.id][: depth + 1])
            if len(path) > depth:
                calls.setdefault((path, op.calls[: depth + 1]), []).append(op)
        layers: dict[tuple[str, ...], list[set[int]]] = {}  # scope -> the parameters of each
        for (path, _), inside in calls.items():
            used = {trace.entries[edge.source] for op in inside for edge in trace.into(op)}
            own = {entry.leaf for entry in used if entry.is_parameter}
            known = layers.setdefault(path, [])
            same = (n for n, other in enumerate(known) if not own or not other or own & other)
            number = next(same, len(known))
            if number == len(known):
                known.append(set())
            known[number] |= own
            if number:
                for op in inside:
                    names[op.id][depth] += f" ({number + 1})"
    return names


class Item(NamedTuple):
    """An op that stands directly in a scope, or one call of a scope within it."""

    name: str  # of the inner scope; "" for an op
    ops: list[Entry]
    facts: Hashable  # equal for items that differ in nothing but their numbers and wiring


@dataclass
class ChainBlock:
    """One link of a chain."""

    items: list[Item]
    ops: list[Entry]
    sources: list[int]  # of each input of each op: what it is
    roles: list[Role]  # and where it is from

    @property
    def scopes(self) -> list[str]:
        return [item.name for item in self.items if item.name]


class Chain(NamedTuple):
    """Blocks that are alike, in the order they ran."""

    blocks: list[ChainBlock]

    @property
    def keys(self) -> Beginnings:
        """Where chains of blocks of this length could begin within it, and the length."""
        items = [item for block in self.blocks for item in block.items]
        return frozenset((item.ops[0].id, len(self.blocks[0].items)) for item in items)

    @property
    def roles(self) -> list[Role]:
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


def items_of(trace: TraceRecord, ops: Sequence[Entry], depth: int) -> list[Item]:
    """The items of a scope, in the order they ran. Args: depth: of the scope."""

    def call(op: Entry) -> tuple[str, Hashable]:
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


def _facts(op: Entry, depth: int) -> tuple[Hashable, ...]:
    """What two ops must share to be drawn as one, apart from their inputs."""
    below = tuple(map(without_digits, op.scope.split("/")[depth:])) if op.scope else ()
    settings = tuple((k, v) for k, v in op.settings.items() if k != "index")  # a step's number
    return below, op.op, without_digits(op.name), op.shape, op.dtype, op.needs, settings


def _line(op: Entry) -> Hashable:
    """The same of an op outside inner scopes, with the line of the program that ran it."""
    made = op.made_at
    return _facts(op, 0)[1:], getattr(made, "code", None), getattr(made, "offset", None)


# ---------------------------------------------------------------- which items are a chain


def chains(
    trace: TraceRecord, items: list[Item], members: Members, without: Beginnings
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
    def __init__(self, trace: TraceRecord, items: list[Item], members: Members) -> None:
        self.trace = trace
        self.items = items
        self.members = members
        numbers: dict[Hashable, int] = {}
        self.kinds = [numbers.setdefault(item.facts, len(numbers)) for item in items]
        self.places: dict[int, list[int]] = {}
        for i, kind in enumerate(self.kinds):
            self.places.setdefault(kind, []).append(i)
        self.rank = {i: n for places in self.places.values() for n, i in enumerate(places)}

    def best(self, at: int, without: Beginnings) -> tuple[Chain | None, int]:
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
        """The chain of blocks of `period` items each from an item on, each like the one before."""
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
        """Whether a block continues a chain."""
        if len(blocks) > 1:
            return blocks[-1].roles == block.roles
        if len(block.roles) != len(blocks[0].roles):  # an optional input, such as a bias
            return False
        pairs = zip(blocks[0].roles, block.roles, strict=True)
        alike = (a == b or (b[0] == PREVIOUS and a[0] != OWN_OP) for a, b in pairs)
        return any(role[0] in (PREVIOUS, PARALLEL_BLOCK) for role in block.roles) and all(alike)

    # ------------------------------------------------------------------ wiring

    def block(self, items: list[Item], before: list[ChainBlock]) -> ChainBlock:
        ops = [op for item in items for op in item.ops]
        here = {op.id: i for i, op in enumerate(ops)}
        previous = {op.id: i for i, op in enumerate(before[-1].ops)} if before else {}
        edges = [edge for op in ops for edge in self.trace.into(op)]
        met: dict[int, int] = {}  # a leaf: the first of the edges from it
        for place, edge in enumerate(edges):
            met.setdefault(edge.source, place)

        def role(source: Entry) -> Role:
            if source.id in here:
                return OWN_OP, here[source.id]
            if source.id in previous:
                return PREVIOUS, previous[source.id]
            if source.id in self.members:
                _, number, lead = self.members[source.id][-1]
                return PARALLEL_BLOCK, lead, number - len(before)
            if source.op is not None or any(e.target not in here for e in self.trace.uses(source)):
                return OTHER_INPUT, source.id
            if origin := self.trace.into(source):
                kind, *rest = role(self.trace.entries[origin[0].source])
                return kind, DETACHED, met[source.id], *rest
            return OWN_LEAF, met[source.id], _leaf_facts(source)

        roles = [(*role(self.trace.entries[edge.source]), edge.input) for edge in edges]
        return ChainBlock(items, ops, [edge.source for edge in edges], roles)


def _leaf_facts(leaf: Entry) -> Hashable:
    """What two leaves must share; a parameter that is frozen in some blocks stays one."""
    kind = "parameter" if leaf.why == "frozen" or leaf.learns else leaf.kind
    bare = leaf.kind == "constant" and leaf.shape == () and leaf.value is not None
    number = repr(np.asarray(leaf.value).item()) if bare else ""
    return kind, leaf.shape, leaf.dtype, without_digits(leaf.name), number
