"""What a derivation tells, and in which order: which entries have a step, and what is told within.

A value without a name that is used once is told within what uses it, if that reads better: a
product to which a bias is added, a transposed matrix in a product. Its gradient needs no symbol
then either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..formula import Node, parse, slots
from ..formula.tree import QUAD, SUM, TOP, Call, Fraction, Row, Script, Sign, Slot, walk
from ..model import Model

if TYPE_CHECKING:
    from ...recording.record import Edge, Entry
    from ...recording.trace import Trace

__all__ = ["Story"]

GRADIENT = Slot("g")
DEEPEST = 4  # how many formulas may stand within one another
SHORT = 6  # signs of a formula that may stand inside another one


class Story:
    """A trace as it is told; if backward did not run, its rules are told all the same."""

    def __init__(self, trace: Trace, checked: frozenset[int] = frozenset()) -> None:
        self.trace, self.ran = trace, bool(trace.backward_steps)
        self.model = Model(trace)
        self.order = self._order()
        self._ordered = frozenset(self.order)
        self.roots = [i for i in trace.roots if i in self._ordered] if self.ran else self.order[:1]
        self.loss = self._loss()
        self.hosts = self._hosts(checked)
        self._within: dict[int, list[int]] = {}
        for k in self.order:
            self._within.setdefault(self.teller(k), []).append(k)

    def _order(self) -> list[int]:
        """The ops in the order backward goes through them."""
        if self.ran:
            return list(dict.fromkeys(self.trace.backward_steps))
        needed = [i for i in self.trace.forward_steps if self.trace[i].needs]
        reached = set(needed[-1:])
        for i in reversed(needed):
            if i in reached:
                reached |= {e.source for e in self.trace.into(self.trace[i])}
        return [i for i in reversed(needed) if i in reached]

    def _loss(self) -> int | None:
        """The entry that is L: the one root, if it is one number and its gradient is 1."""
        return self.roots[0] if len(self.roots) == 1 and self.begins_at_one(self.roots[0]) else None

    def begins_at_one(self, root: int) -> bool:
        """Whether backward began here as at a loss: at one number, with 1."""
        seed = self.trace[root].gradient
        return self.trace[root].size == 1 and (seed is None or float(np.ravel(seed)[0]) == 1)

    def live(self, edge: Edge) -> bool:
        """Whether this use sends a gradient back."""
        if self.ran:
            return edge.contribution is not None
        source, target = self.trace[edge.source], self.trace[edge.target]
        return source.needs and target.id in self._ordered and edge.input in target.vjp_tex

    def live_uses(self, entry: Entry) -> list[Edge]:
        return [edge for edge in self.trace.uses(entry) if self.live(edge)]

    # ------------------------------------------------------------------ repeated blocks

    def hidden(self, entry: int) -> bool:
        """Whether an entry is in a copy of a block: backward goes first through the last, told."""
        fold = self.model.fold
        copies = fold.copy_of.get(entry, {})
        return any(number < fold.times[block] - 1 for block, number in copies.items())

    def block(self, entry: int) -> tuple[str, str]:
        """Which blocks an entry's is one of, and the scope of the one that is told."""
        block = next(iter(self.model.fold.copy_of[entry]))
        above, _, _ = block.rpartition("/")
        names = self.model.fold.names[block]
        last = names.rpartition(" … ")[2]
        return names, f"{above}/{last}" if above else last

    # ------------------------------------------------------------------ told within another

    def _hosts(self, checked: frozenset[int]) -> dict[int, Edge]:
        """For each entry told within another, the use within which it is; none too deep."""
        hosts: dict[int, Edge] = {}
        depth: dict[int, int] = {}
        for entry in self.trace.entries:
            inner = (depth[e.source] for e in self.trace.into(entry) if e.source in hosts)
            depth[entry.id] = 1 + max(inner, default=0)
            edge = self._host(entry, checked)
            if edge is not None and depth[entry.id] <= DEEPEST:
                hosts[entry.id] = edge
        return hosts

    def _host(self, entry: Entry, checked: frozenset[int]) -> Edge | None:
        """The one use within which an entry is told."""
        uses = self.trace.uses(entry)
        if entry.op is None or entry.name or len(uses) != 1 or entry.id in (*self.roots, *checked):
            return None
        edge, user = uses[0], self.trace[uses[0].target]
        if user.scope != entry.scope or self.hidden(entry.id) != self.hidden(user.id):
            return None
        own, users = self._moves(entry), self._moves(user)
        inlined = users == "moved" or (users == "turned" and user.name is not None)
        if own == "turned" or (own and inlined):
            return edge
        passed = user.vjp_tex.get(edge.input) == "<g>" and user.shape == entry.shape
        return edge if self.live(edge) and passed and _is_short(entry) else None

    def _moves(self, entry: Entry) -> str:
        """Whether an op only moves or repeats what it gets: "turned", "moved", or ""."""
        rules = [parse(rule) for rule in entry.vjp_tex.values()]
        tex = parse(entry.tex)
        if len(rules) != 1 or len(self.trace.into(entry)) != 1 or SUM in walk(tex):
            return ""
        if rules[0] == Script(GRADIENT, above=TOP):
            return "turned"
        repeats = rules[0] == GRADIENT and _is_function_of_slot(tex)
        return "moved" if repeats or _rearranges(rules[0]) else ""

    def teller(self, entry: int) -> int:
        """The entry within whose step an entry is told: itself unless it has a host."""
        while entry in self.hosts:
            entry = self.hosts[entry].target
        return entry

    def within(self, teller: int) -> list[int]:
        """What is told in an entry's step: the entry, then what it hosts, in backward order."""
        return self._within.get(teller, [teller])

    def used(self, teller: int) -> list[Edge]:
        """The uses in a step that send gradients to what has a symbol, as the formula has them."""
        found = []
        for edge in self.trace.into(self.trace[teller]):
            if edge.source in self.hosts:
                found += self.used(edge.source)
            elif self.live(edge):
                found.append(edge)
        return found

    # ------------------------------------------------------------------ what has a symbol

    def spoken_of(self) -> set[int]:
        """Every entry that needs a symbol."""
        told = {i for i in self.trace.forward_steps if not self.hidden(i)}
        beside = {e.source for i in told for e in self.trace.into(self.trace[i])}
        users = {e.target for i in told | beside for e in self.live_uses(self.trace[i])}
        users = {self.teller(i) for i in users}
        spoken = told | beside | users
        spoken |= {origin for i in spoken if (origin := self.detached_from(i)) is not None}
        plain = (i for i in spoken if i not in self.hosts and self.number(i) is None)
        return {i for i in plain if self.detached_from(i) is None}

    def number(self, entry: int) -> str | None:
        """A constant that is one number, as text."""
        one = self.trace[entry]
        bare = one.kind == "constant" and not one.name and one.shape == ()
        return repr(np.asarray(one.value).item()) if bare and one.value is not None else None

    def detached_from(self, entry: int) -> int | None:
        """What an entry is the same as, but for the gradient that stops there."""
        edges = self.trace.into(self.trace[entry]) if self.trace[entry].op is None else []
        return edges[0].source if edges and edges[0].input == "detach" else None

    # ------------------------------------------------------------------ steps

    def is_trivial(self, i: int) -> bool:
        """Whether a step only passes on what it got, rearranged or scaled."""
        entry = self.trace[i]
        named = {name for rule in entry.vjp_tex.values() for name in slots(parse(rule))}
        live = [edge for edge in self.trace.into(entry) if self.live(edge)]
        same = len(live) == 1 and self.trace[live[0].source].size == entry.size
        return same and named <= {"g", *entry.settings} and i not in self.roots


def _is_short(entry: Entry) -> bool:
    """Whether a formula may stand inside another one."""
    tree = parse(entry.tex)
    needs_result = any("out" in slots(parse(rule)) for rule in entry.vjp_tex.values())
    few = sum(map(_is_seen, walk(tree))) <= SHORT
    return few and not any(map(_is_heavy, walk(tree))) and not needs_result


def _is_seen(node: Node) -> bool:
    return isinstance(node, Slot) or (isinstance(node, Sign) and node.kind != "space")


def _is_heavy(node: Node) -> bool:
    """A fraction, a function with a name of its own, or what begins a definition."""
    named = isinstance(node, Sign) and node.kind == "function" and node.tex[0] != "\\"
    return isinstance(node, Fraction) or named or node == QUAD


def _rearranges(rule: Node) -> bool:
    """A function of <g> alone, or a sum of its entries."""
    items = rule.items if isinstance(rule, Row) else ()
    sums = len(items) == 2 and isinstance(items[0], Script) and items[0].base == SUM
    return _is_function_of_slot(rule) or (sums and items[1] == GRADIENT)


def _is_function_of_slot(tree: Node) -> bool:
    if not isinstance(tree, Call) or not isinstance(tree.group.inside, Slot):
        return False
    head = tree.head.base if isinstance(tree.head, Script) else tree.head
    return isinstance(head, Sign) and head.kind == "function"
