"""What a derivation shows, and in which order: a step for each op, copies of a block once.

Each op has an equation of its own. Only a transposed factor has none: the product that uses it
shows it, as in Q K^T.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...recording.record import Edge, Entry
from ...recording.trace import TraceRecord
from ..formula import parse, slots
from ..formula.tree import GRADIENT, TRANSPOSE, script
from ..model import AnnotatedTrace

__all__ = ["DerivationPlan", "DerivationStep"]

TOGETHER = 4  # trivial steps shown as one, at most


class DerivationStep(NamedTuple):
    """One step: the entries whose gradient it starts from, and the uses that it sends back to."""

    number: int
    through: list[int]
    edges: list[Edge]
    scope: str


class DerivationPlan:
    """The steps of a trace; if backward did not run, those that it would take."""

    def __init__(self, trace: TraceRecord, checked: frozenset[int] = frozenset()) -> None:
        self.trace, self.ran = trace, bool(trace.backward_steps)
        self.model = AnnotatedTrace(trace)
        self.order = list(dict.fromkeys(trace.backward_steps)) if self.ran else self._reached()
        ordered = frozenset(self.order)
        self._ordered = ordered
        self.roots = [i for i in trace.roots if i in ordered] if self.ran else self.order[:1]
        is_loss = len(self.roots) == 1 and self.begins_at_one(self.roots[0])
        self.loss = self.roots[0] if is_loss else None  # the entry that is L
        self.inlined = self._inlined(checked)
        self.within: dict[int, list[int]] = {}  # a step's entry: it, and its transposed factors
        for i in self.order:
            self.within.setdefault(self.shown_in(i), []).append(i)

    def _reached(self) -> list[int]:
        """The ops in the order backward would go through them."""
        needed = [i for i in reversed(self.trace.forward_steps) if self.trace[i].needs]
        reached = set(needed[:1])
        for i in needed:
            if i in reached:
                reached |= {e.source for e in self.trace.into(self.trace[i])}
        return [i for i in needed if i in reached]

    def begins_at_one(self, root: int) -> bool:
        """Whether backward began here as at a loss: at a single number, with the gradient 1."""
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

    def hidden(self, entry: int) -> str:
        """The outermost repeated block whose shown copy, the last, is not the entry's; or none."""
        times = self.model.fold.times
        numbers = self.model.fold.numbers(entry).items()
        return next((block for block, number in numbers if number < times[block] - 1), "")

    def shown(self, entry: int) -> int:
        """An entry's twin in the copies that are shown."""
        return next(e.id for e in self.model.copies(entry) if not self.hidden(e.id))

    def twin(self, edge: Edge) -> Edge:
        """The same use in the copies that are shown."""
        number = self.trace.into(self.trace[edge.target]).index(edge)
        return self.trace.into(self.trace[self.shown(edge.target)])[number]

    def replaced(self, block: str) -> list[tuple[Edge, int]]:
        """Uses by a block's first copy of values from outside, and what the last copy uses there.

        For a block within a block, those in the shown copy of the outer one.
        """
        fold, found = self.model.fold, []
        for link in fold.links:
            edge = link.edges[0]
            around = list(fold.numbers(edge.target))
            if block not in around or block in (*link.shared, *link.enters):
                continue
            outer = around[: around.index(block)]
            for edge in link.edges:
                numbers = fold.numbers(edge.target)
                if all(numbers[b] == fold.times[b] - 1 for b in outer):
                    found.append((edge, self.twin(edge).source))
        return found

    def leading_into(self, block: str, symbols: Set[int]) -> list[tuple[Edge, Edge]]:
        """Uses, by hidden copies of a block, of values that have symbols; each with its twin.

        Each sends a gradient to a value that its twin, the same use by the shown copy, does not.
        """
        found = []
        for source in sorted(symbols):
            for edge, _ in self.terms(source):
                user = self.shown_in(edge.target)
                if user in symbols and self.hidden(user) == block:
                    twin = self.twin(edge)
                    if twin.source in symbols and self.is_live(twin):
                        found.append((edge, twin))
        return found

    def terms(self, entry: int) -> list[tuple[Edge, int]]:
        """The uses that send parts of a gradient, and of how many copies of a block each is."""
        found = []
        for edge in self.live_uses(entry):
            alike = self.alike(edge)
            if len(alike) == 1 or not self.hidden(edge.target):
                found.append((edge, len(alike)))
        return found

    def alike(self, edge: Edge) -> list[Edge]:
        """The same use of the same value by each copy of a block, or this use alone."""
        return [e for e in self._linked.get(id(edge), ()) if e.source == edge.source] or [edge]

    def sorted_terms(self, entry: int) -> list[tuple[Edge, int]]:
        """The same in the order of the backward pass."""
        when, shown_in = self._position, self.shown_in
        return sorted(self.terms(entry), key=lambda term: when.get(shown_in(term[0].target), -1))

    @cached_property
    def _position(self) -> dict[int, int]:
        """The place of each entry in the order of the backward pass."""
        return {entry: number for number, entry in enumerate(self.order)}

    @cached_property
    def _linked(self) -> dict[int, list[Edge]]:
        """For a use by each copy of a block, the uses by all of them."""
        links = (link for link in self.model.fold.links if link.enters and not link.leaves)
        return {id(edge): link.edges for link in links for edge in link.edges}

    # ------------------------------------------------------------------ transposed factors

    def _inlined(self, checked: frozenset[int]) -> dict[int, Edge]:
        """Transposed values without a name that one product uses, which shows them as K^T."""
        found = {}
        for entry in self.trace.entries:
            uses = self.trace.uses(entry)
            if entry.name or len(uses) != 1:
                continue
            user = self.trace[uses[0].target]
            together = user.scope == entry.scope and self.hidden(entry.id) == self.hidden(user.id)
            free = entry.id not in self.roots and entry.id not in checked
            if free and together and self._is_transposed(entry) and not self._is_transposed(user):
                found[entry.id] = uses[0]
        return found

    def _is_transposed(self, entry: Entry) -> bool:
        rules = [*map(parse, entry.vjp_tex.values())]
        return rules == [script(GRADIENT, above=TRANSPOSE)] and len(self.trace.into(entry)) == 1

    def shown_in(self, entry: int) -> int:
        """The entry whose equation shows an entry: itself, or a transposed factor's product."""
        return self.inlined[entry].target if entry in self.inlined else entry

    def used(self, entry: int) -> list[Edge]:
        """The uses in a step that send gradients to what has a symbol, as the formula has them."""
        found = []
        for edge in self.trace.into(self.trace[entry]):
            if edge.source in self.inlined:
                found += self.used(edge.source)
            elif self.is_live(edge):
                found.append(edge)
        return found

    # ------------------------------------------------------------------ what has a symbol

    def with_symbols(self) -> set[int]:
        """The entries that an equation names."""
        shown = {i for i in self.trace.forward_steps if not self.hidden(i)}
        leaves = (e.id for e in self.trace if e.op is None and e.gradient is not None)
        shown |= {i for i in leaves if not self.hidden(i)}
        shown |= {e.source for block in self.model.fold.times for e, _ in self.replaced(block)}
        named = shown | {e.source for i in shown for e in self.trace.into(self.trace[i])}
        for i in list(named):
            users = [self.shown_in(edge.target) for edge, _ in self.sorted_terms(i)]
            if i in shown or (users and not self.hidden(users[-1])):
                named |= {*users}
        origins = {i: self.detached_from(i) for i in named}
        named |= {origin for origin in origins.values() if origin is not None}
        named.update(self.roots)  # of which L is the sum, if there are several
        bare = (i for i in named if i not in self.inlined and self.number(i) is None)
        return {i for i in bare if self.detached_from(i) is None}

    def number(self, entry: int) -> str | None:
        """The number that an equation shows in the place of an unnamed scalar constant."""
        one = self.trace[entry]
        bare = one.kind == "constant" and not one.name and one.shape == ()
        return repr(np.asarray(one.value).item()) if bare and one.value is not None else None

    def detached_from(self, entry: int) -> int | None:
        """The entry that this one was detached from."""
        edges = self.trace.into(self.trace[entry])
        return edges[0].source if edges and edges[0].input == "detach" else None

    # ------------------------------------------------------------------ steps

    def steps(self) -> list[DerivationStep]:
        """All steps. Trivial ones that follow one another in a scope are one step."""
        made: list[DerivationStep] = []
        for i in self.order:
            if self.shown_in(i) != i or self.hidden(i):
                continue
            scope, last = self.model.scope_of(self.trace[i]), made[-1] if made else None
            joins = last is not None and last.scope == scope and len(last.through) < TOGETHER
            if last and joins and self.is_trivial(i) and self.is_trivial(last.through[-1]):
                last.through.append(i)
                last.edges.extend(self.used(i))
            else:
                made.append(DerivationStep(len(made) + 1, [i], self.used(i), scope))
        return made

    def is_trivial(self, i: int) -> bool:
        """Whether a step only rearranges or scales the gradient that it received."""
        entry = self.trace[i]
        named = {name for rule in entry.vjp_tex.values() for name in slots(parse(rule))}
        live = [edge for edge in self.trace.into(entry) if self.is_live(edge)]
        same = len(live) == 1 and self.trace[live[0].source].size == entry.size
        return same and named <= {"g", *entry.settings} and i not in self.roots
