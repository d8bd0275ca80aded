"""What a derivation tells, and in which order: which entries have a step, and what is told within.

A value without a name that is used once is told within what uses it, if that reads better: a
product to which a bias is added, a transposed matrix in a product. Its gradient needs no symbol
then either.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...recording.record import Edge, Entry
from ...recording.trace import Trace
from ..formula import Node, parse, slots
from ..formula.tree import QUAD, SUM, TOP, base_of, items_of, script
from ..model import Model

__all__ = ["Step", "Story"]

GRADIENT = Node("slot", "g")
DEEPEST = 4  # how many formulas may stand within one another
SHORT = 6  # signs of a formula that may stand inside another one
TOGETHER = 4  # trivial steps told as one, at most


class Step(NamedTuple):
    """One step: the entries whose gradient it starts from, and the uses that it sends back to."""

    number: int
    through: list[int]
    edges: list[Edge]
    scope: str


class Story:
    """A trace as it is told; if backward did not run, its rules are told all the same."""

    def __init__(self, trace: Trace, checked: frozenset[int] = frozenset()) -> None:
        self.trace, self.ran = trace, bool(trace.backward_steps)
        self.model = Model(trace)
        self.order = list(dict.fromkeys(trace.backward_steps)) if self.ran else self._reached()
        ordered = self._ordered = frozenset(self.order)
        self.roots = [i for i in trace.roots if i in ordered] if self.ran else self.order[:1]
        is_loss = len(self.roots) == 1 and self.begins_at_one(self.roots[0])
        self.loss = self.roots[0] if is_loss else None  # the entry that is L
        self.hosts = self._hosts(checked)
        self.within: dict[int, list[int]] = {}  # a step's entry: it and what is told within it
        for i in self.order:
            self.within.setdefault(self.teller(i), []).append(i)

    def _reached(self) -> list[int]:
        """The ops in the order backward would go through them."""
        needed = [i for i in reversed(self.trace.forward_steps) if self.trace[i].needs]
        reached = set(needed[:1])
        for i in needed:
            if i in reached:
                reached |= {e.source for e in self.trace.into(self.trace[i])}
        return [i for i in needed if i in reached]

    def begins_at_one(self, root: int) -> bool:
        """Whether backward began here as at a loss: at one number, with 1."""
        seed = self.trace[root].gradient
        return self.trace[root].size == 1 and (seed is None or float(np.ravel(seed)[0]) == 1)

    def is_live(self, edge: Edge) -> bool:
        """Whether this use sends a gradient back."""
        if self.ran:
            return edge.contribution is not None
        source, target = self.trace[edge.source], self.trace[edge.target]
        return source.needs and target.id in self._ordered and edge.input in target.vjp_tex

    def live_uses(self, entry: int) -> list[Edge]:
        return [edge for edge in self.trace.uses(self.trace[entry]) if self.is_live(edge)]

    # ------------------------------------------------------------------ repeated blocks

    def hidden(self, entry: int) -> bool:
        """Whether an entry is in a copy of a block: backward goes first through the last, told."""
        fold = self.model.fold
        copies = fold.numbers(entry).items()
        return any(number < fold.times[block] - 1 for block, number in copies)

    def block(self, entry: int) -> tuple[str, str]:
        """Which blocks an entry's is one of, and the scope of the one that is told."""
        block = next(iter(self.model.fold.numbers(entry)))
        above, slash, _ = block.rpartition("/")
        names = self.model.fold.name(block)
        return names, above + slash + names.rpartition(" … ")[2]

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
        return edge if self.is_live(edge) and passed and _is_short(entry) else None

    def _moves(self, entry: Entry) -> str:
        """Whether an op only moves or repeats what it gets: "turned", "moved", or ""."""
        rules, tex = [*map(parse, entry.vjp_tex.values())], parse(entry.tex)
        if len(rules) != 1 or len(self.trace.into(entry)) != 1 or SUM in tex:
            return ""
        if rules[0] == script(GRADIENT, above=TOP):
            return "turned"
        repeats = rules[0] == GRADIENT and _is_function_of_slot(tex)
        return "moved" if repeats or _rearranges(rules[0]) else ""

    def teller(self, entry: int) -> int:
        """The entry within whose step an entry is told: itself unless it has a host."""
        while entry in self.hosts:
            entry = self.hosts[entry].target
        return entry

    def used(self, teller: int) -> list[Edge]:
        """The uses in a step that send gradients to what has a symbol, as the formula has them."""
        found = []
        for edge in self.trace.into(self.trace[teller]):
            if edge.source in self.hosts:
                found += self.used(edge.source)
            elif self.is_live(edge):
                found.append(edge)
        return found

    # ------------------------------------------------------------------ what has a symbol

    def spoken_of(self) -> set[int]:
        told = {i for i in self.trace.forward_steps if not self.hidden(i)}
        told |= {e.source for i in told for e in self.trace.into(self.trace[i])}
        told |= {self.teller(e.target) for i in told for e in self.live_uses(i)}
        leaves = (e.id for e in self.trace if e.op is None and e.gradient is not None)
        told |= {i for i in leaves if not self.hidden(i)}
        origins = {i: self.detached_from(i) for i in told}
        told |= {origin for origin in origins.values() if origin is not None}
        bare = (i for i in told if i not in self.hosts and self.number(i) is None)
        return {i for i in bare if self.detached_from(i) is None}

    def number(self, entry: int) -> str | None:
        one = self.trace[entry]
        bare = one.kind == "constant" and not one.name and one.shape == ()
        return repr(np.asarray(one.value).item()) if bare and one.value is not None else None

    def detached_from(self, entry: int) -> int | None:
        """What an entry is the same as, but for the gradient that stops there."""
        edges = self.trace.into(self.trace[entry]) if self.trace[entry].op is None else []
        return edges[0].source if edges and edges[0].input == "detach" else None

    # ------------------------------------------------------------------ steps

    def steps(self) -> list[Step]:
        """All steps. Trivial ones that follow one another in a scope are one step."""
        made: list[Step] = []
        for i in self.order:
            if self.teller(i) != i or self.hidden(i):
                continue
            scope, last = self.trace[i].scope, made[-1] if made else None
            joins = last is not None and last.scope == scope and len(last.through) < TOGETHER
            if last and joins and self.is_trivial(i) and self.is_trivial(last.through[-1]):
                last.through.append(i)
                last.edges.extend(self.used(i))
            else:
                made.append(Step(len(made) + 1, [i], self.used(i), scope))
        return made

    def is_trivial(self, i: int) -> bool:
        """Whether a step only passes on what it got, rearranged or scaled."""
        entry = self.trace[i]
        named = {name for rule in entry.vjp_tex.values() for name in slots(parse(rule))}
        live = [edge for edge in self.trace.into(entry) if self.is_live(edge)]
        same = len(live) == 1 and self.trace[live[0].source].size == entry.size
        return same and named <= {"g", *entry.settings} and i not in self.roots


def _is_short(entry: Entry) -> bool:
    """Whether a formula may stand inside another one: few signs, and none that needs room."""
    tree = parse(entry.tex)
    signs = [part for part in tree if not part.parts and part.kind not in ("space", "empty")]
    heavy = any(
        part == QUAD
        or part.kind in ("frac", "tfrac")
        or (part.kind == "function" and part.text[:1] != "\\")
        for part in tree
    )
    needs_result = any("out" in slots(parse(rule)) for rule in entry.vjp_tex.values())
    return len(signs) <= SHORT and not heavy and not needs_result


def _rearranges(rule: Node) -> bool:
    """A function of <g> alone, or a sum of its entries."""
    first, *rest = items_of(rule)
    return _is_function_of_slot(rule) or (base_of(first) == SUM and rest == [GRADIENT])


def _is_function_of_slot(tree: Node) -> bool:
    match tree:
        case Node("call", _, (head, Node(_, _, (Node("slot"),)))):
            return base_of(head).kind == "function"
    return False
