"""Folding: a chain of alike modules is drawn once, with ×N, and unfolding it gives the run's graph.

A scope holds items, in the order they ran: ops of its own, and calls of the scopes within it. A
block is a run of items that begins with a scope; a chain is blocks that follow one another with
nothing between them, and

- hold the same ops, with the same shapes and settings, wired in the same way, and not one op alone
  in each scope: the layers of a plain MLP are drawn in full;
- each have parameters of the same shapes, or all use the same ones;
- use what the block before them made, or the block of the same number in an earlier chain.

Every edge between entries that are drawn once belongs to a `Link`: one line of the picture. What
the line says (within each block, to the next one, from each, from the last) stands for exactly the
edges of the run. Where it would stand for others, the blocks are not folded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby
from math import prod
from typing import NamedTuple, TypeAlias

from .data import Edge, Entry, RecordData, show

__all__ = ["Fold", "Link", "folded", "is_within", "numbered_scopes", "parts", "prefixes"]

FEWEST_SCOPES = 2  # scopes that differ in a number and make a chain
FEWEST_CALLS = 3  # calls of one scope that make one
PERIODS = 8  # lengths of a block that are tried from each item

Names: TypeAlias = dict[int, list[str]]  # of each op, the scopes around it
Role: TypeAlias = tuple[Hashable, ...]  # where an op's input is from, and which one it is there


class Item(NamedTuple):
    """A call of a scope, or an op of its own, whose name is empty. alike: what must be equal."""

    name: str
    ops: list[Entry]
    alike: Hashable


Block: TypeAlias = list[Item]


@dataclass
class Link:
    """The edges that one line stands for, and what it says of the blocks at its ends."""

    edges: list[Edge]
    step: int = 0  # how many blocks further the target is; 0: in the same one, or in none
    shared: list[str] = field(default_factory=list)  # blocks that both ends stand in
    leaves: list[str] = field(default_factory=list)  # blocks that it leaves, from each of them
    enters: list[str] = field(default_factory=list)  # blocks that it enters, each of them
    whole: bool = True  # whether unfolding gives these edges and no others


class Fold:
    """Where each entry is drawn, and which entries are copies of which.

    Attributes:
        place: the scope in which each entry is drawn; of copies, that of the first one.
        times: block to how many.  copies: block to what each of them is called.
    """

    def __init__(self, record: RecordData) -> None:
        self.record = record
        self.place: dict[int, str] = {}
        self.times: dict[str, int] = {}
        self.copies: dict[str, list[str]] = {}
        self.first: dict[str, int] = {}  # block to its first op
        # entry to, for each block around it from the outermost in: number, and twin in the first
        self.members: dict[int, list[tuple[str, int, int]]] = {}

    @cached_property
    def _resolved(self) -> dict[int, tuple[int, dict[str, int]]]:
        return {entry.id: self._resolve(entry.id) for entry in self.record.entries}

    def _resolve(self, entry: int) -> tuple[int, dict[str, int]]:
        numbers: dict[str, int] = {}
        depth = 0
        while depth < len(self.members.get(entry, ())):
            block, number, entry = self.members[entry][depth]
            numbers[block] = number
            depth += 1
        return entry, numbers

    @cached_property
    def _twins(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for entry in self.record.entries:
            found.setdefault(self.leader(entry.id), []).append(entry.id)
        return found

    def leader(self, entry: int) -> int:
        """The entry that is drawn for this one: its twin in the first of each block around it."""
        return self._resolved[entry][0]

    def twins(self, entry: int) -> list[int]:
        """All entries that are drawn as this one is, in order."""
        return self._twins[self.leader(entry)]

    def numbers(self, entry: int) -> dict[str, int]:
        """For each block around an entry, from the outermost in, which copy it is in."""
        return self._resolved[entry][1]

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
        for edge in self.record.edges:
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
        if leaves and len({edge.target for edge in edges}) < len(edges):  # in the blocks' order
            takes: dict[int, list[int]] = {}
            for edge in edges:
                takes.setdefault(edge.target, []).append(self.numbers(edge.source)[leaves[0]])
            link.whole &= not enters and all(order == sorted(order) for order in takes.values())
        return link


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


def folded(record: RecordData, fold: bool = True) -> Fold:
    """Where everything is drawn. Args: fold: draw alike modules that follow one another once."""
    names, refused = numbered_scopes(record), set[int]()
    while True:
        made = _folded(record, names, refused if fold else None)
        wrong = [link for link in made.links if not link.whole]
        if not wrong:
            return made
        ends = [i for link in wrong for edge in link.edges for i in (edge.source, edge.target)]
        refused |= {made.first[block] for i in ends for block in made.numbers(i)}


def _folded(record: RecordData, names: Names, refused: set[int] | None) -> Fold:
    """Args: refused: ops that begin no chain; None for all."""
    made = Fold(record)
    pending = [("", 0, [record.entries[i] for i in record.forward])]
    for path, depth, ops in pending:  # the loop appends to it
        for chain in _chains(made, _items(ops, depth, names), refused):
            pending += _draw(made, path, depth, chain, names)
    _place_leaves(made)
    made.place = {e.id: made.place[made.leader(e.id)] for e in record.entries}
    return made


def _items(ops: list[Entry], depth: int, names: Names) -> list[Item]:
    """The items of a scope in order: a call of a scope within it, or an op of its own."""

    def call(op: Entry) -> tuple[Hashable, ...]:
        scopes = names[op.id]
        return (scopes[depth], op.calls[: depth + 1]) if len(scopes) > depth else ("", op.id)

    found = []
    for (name, _), group in groupby(ops, key=call):
        inside = list(group)
        alike = (
            without_digits(str(name)),
            *(_alike(op, names[op.id][depth + 1 :]) for op in inside),
        )
        found.append(Item(str(name), inside, alike))
    return found


def _alike(op: Entry, within: list[str]) -> Hashable:
    """What two ops must share to be drawn as one, apart from their inputs."""
    settings = tuple(
        (k, show(x)) for k, x in op.settings.items() if k != "index"
    )  # a step's number
    scopes = tuple(map(without_digits, within))
    return scopes, op.op, without_digits(op.name), op.shape, op.dtype, settings


def _chains(fold: Fold, items: list[Item], refused: set[int] | None) -> Iterator[list[Block]]:
    """Items in order, as chains of blocks that are alike."""
    at = 0
    while at < len(items):
        best = [items[at : at + 1]]
        begins = items[at].name and refused is not None and items[at].ops[0].id not in refused
        if begins:
            for period in range(1, PERIODS + 1):
                found = _chain(fold, items, at, period)
                if len(found) > 1 and len(found) * period > len(best) * len(best[0]):
                    best = found
        yield best
        at += len(best) * len(best[0])


def _chain(fold: Fold, items: list[Item], at: int, period: int) -> list[Block]:
    first, kinds = at, [item.alike for item in items[at : at + period]]
    blocks: list[Block] = []
    roles: list[list[Role]] = []
    while len(kinds) == period and [item.alike for item in items[at : at + period]] == kinds:
        block = items[at : at + period]
        role = _roles(fold, block, blocks[-1] if blocks else [], len(blocks))
        if (len(blocks) > 1 and role != roles[-1]) or (
            len(blocks) == 1 and not _continues(roles[0], role)
        ):
            break
        blocks.append(block)
        roles.append(role)
        at += period
    if not any(len(item.ops) > 1 for item in items[first : first + period] if item.name):
        return []
    firsts = {block[0].name for block in blocks}
    return blocks if len(blocks) >= (FEWEST_SCOPES if len(firsts) > 1 else FEWEST_CALLS) else []


def _continues(first: list[Role], second: list[Role]) -> bool:
    """Whether a second block is wired as the first, and takes from it what that takes from
    outside."""
    pairs = zip(first, second, strict=False)
    alike = all(a == b or (b[0] == "before" and a[0] != "own") for a, b in pairs)
    return len(first) == len(second) and alike and any(b[0] in ("before", "beside") for b in second)


def _roles(fold: Fold, block: Block, before: Block, number: int) -> list[Role]:
    """Of each input of each op of a block: where it is from."""
    record = fold.record
    ops = [op for item in block for op in item.ops]
    here = {op.id: i for i, op in enumerate(ops)}
    last = {op.id: i for i, op in enumerate(op for item in before for op in item.ops)}

    def role(source: Entry) -> Role:
        if source.id in here:
            return "own", here[source.id]
        if source.id in last:
            return "before", last[source.id]
        if source.id in fold.members:  # the block of the same number in another chain
            _, other, lead = fold.members[source.id][-1]
            return "beside", lead, other - number
        if not source.op and all(edge.target in here for edge in record.uses(source)):
            return ("leaf", source.shape, source.dtype, without_digits(source.name), source.kind)
        return "outside", source.id

    return [(*role(record.entries[e.source]), e.input) for op in ops for e in record.into(op)]


def _draw(
    fold: Fold, path: str, depth: int, chain: list[Block], names: Names
) -> list[tuple[str, int, list[Entry]]]:
    """Draw a chain's first block; returns the scopes within it, each with its ops."""
    if len(chain) > 1:
        path = _fold_chain(fold, path, depth, chain, names)
    within = []
    several = len([item for item in chain[0] if item.name]) > 1 or len(chain) == 1
    for item in chain[0]:
        if not item.name:
            fold.place[item.ops[0].id] = path
        else:
            inner = path
            if several:
                inner = _free(fold, f"{path}/{names[item.ops[0].id][depth]}".lstrip("/"))
            within.append((inner, depth + 1, item.ops))
    return within


def _free(fold: Fold, scope: str) -> str:
    """The scope, unless a block is called so."""
    while scope in fold.times:
        scope += " again"
    return scope


def _fold_chain(fold: Fold, path: str, depth: int, chain: list[Block], names: Names) -> str:
    """Note which entries are copies of which; returns the path of the block."""
    record = fold.record
    scopes = [[names[item.ops[0].id][depth] for item in block if item.name] for block in chain]
    copies = [one[0] for one in scopes]
    if len(scopes[0]) > 1 or len({*copies}) < len(copies):
        base = scopes[0][0] if len(scopes[0]) == 1 else "step"
        copies = [f"{base}[{n}]" for n in range(len(chain))]
    block = _free(fold, f"{path}/{copies[0]}".lstrip("/"))
    ops = [[op for item in one for op in item.ops] for one in chain]
    fold.times[block], fold.copies[block] = len(copies), copies
    fold.first[block] = ops[0][0].id
    outer = [member[0] for member in fold.members.get(ops[0][0].id, ())]
    twins = [[op.id for op in same] for same in zip(*ops, strict=True)]
    inside = [{op.id for op in one} for one in ops]
    for same in zip(*([e for op in one for e in record.into(op)] for one in ops), strict=True):
        sources = [record.entries[edge.source] for edge in same]
        if all(
            not source.op and all(edge.target in own for edge in record.uses(source))
            for source, own in zip(sources, inside, strict=True)
        ):
            twins.append([source.id for source in sources])
    for same_ids in twins:
        for number, entry in enumerate(same_ids):
            around = fold.members.setdefault(entry, [])
            if [member[0] for member in around] == outer:
                around.append((block, number, same_ids[0]))
    return block


def _place_leaves(fold: Fold) -> None:
    """A leaf stands in the innermost scope around its uses, in no block unless each has one."""
    for entry in reversed(fold.record.entries):
        if entry.op or fold.leader(entry.id) != entry.id:
            continue
        found = {fold.place[fold.leader(edge.target)] for edge in fold.record.uses(entry)}
        found = found or {entry.scope}
        around = ["", *prefixes(min(found))]
        home = [s for s in around if all(is_within(one, s) for one in found)][-1]
        own = {block for block, *_ in fold.members.get(entry.id, ())}
        foreign = [s for s in prefixes(home) if s in fold.times and s not in own]
        fold.place[entry.id] = foreign[0].rpartition("/")[0] if foreign else home


def numbered_scopes(record: RecordData) -> Names:
    """The names of the scopes around each op, from the outermost in, namesakes with a number.

    Layers that are attributes of no other go by their class, and several have one name. Two calls
    are of one layer if they share a parameter, or if either has none.
    """
    ops = [record.entries[i] for i in record.forward]
    names = {op.id: parts(op.scope) for op in ops}
    for depth in range(max(map(len, names.values()), default=0)):
        calls: dict[tuple[tuple[str, ...], tuple[int, ...]], list[Entry]] = {}
        for op in ops:
            path = tuple(names[op.id][: depth + 1])
            if len(path) > depth:
                calls.setdefault((path, op.calls[: depth + 1]), []).append(op)
        layers: dict[tuple[str, ...], list[set[int]]] = {}  # scope to the parameters of each
        for (path, _), inside in calls.items():
            used = {edge.source for op in inside for edge in record.into(op)}
            own = {i for i in used if record.entries[i].kind == "parameter"}
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


def without_digits(name: str) -> str:
    return re.sub(r"\d+", "#", name)
