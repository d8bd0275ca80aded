"""What a derivation tells: which values have symbols of their own, and the rule of each use.

A value without a name that is used once is told within what uses it, if that reads better: a
product to which a bias is added, a transposed matrix in a product. Its gradient needs no symbol
then either.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ..variants import base_of
from .axes import broadcasts, in_product, index_of, missing, stack_letters
from .blocks import Blocks
from .formulas import ONE, Expression, fill, gradient, value
from .said import templates
from .symbols import Symbol, array_letters, number_tex, symbols

if TYPE_CHECKING:
    from ...recording.record import Edge, Entry
    from ...recording.trace import Trace

__all__ = ["Story"]

_REARRANGED = re.compile(r"\\operatorname\{\w+\}[^()]*\(<g>\)|\\sum_\{[^{}]*\} <g>")
TURNED = r"<g>^\top"
DEEPEST = 4  # how many formulas may stand within one another
SHORT = 20  # characters of a formula that may stand inside another one


class Story:
    """A trace as it is told; if backward did not run, its rules are told all the same."""

    def __init__(self, trace: Trace, checked: frozenset[int] = frozenset()) -> None:
        self.trace, self.ran = trace, bool(trace.backward_steps)
        self.blocks = Blocks(trace)
        self.order = self._order()
        self._ordered = frozenset(self.order)
        self.roots = [i for i in trace.roots if i in self._ordered] if self.ran else self.order[:1]
        self.loss = self._loss()
        self.hosts = self._hosts(checked)
        self._within: dict[int, list[int]] = {}
        for k in self.order:
            self._within.setdefault(self.teller(k), []).append(k)
        self.symbols = symbols(trace, self._spoken_of(), self.loss)

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
        return (
            source.needs and target.id in self._ordered and base_of(edge, target) in target.vjp_tex
        )

    def live_uses(self, entry: Entry) -> list[Edge]:
        return [edge for edge in self.trace.uses(entry) if self.live(edge)]

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
        if user.scope != entry.scope or self.blocks.hidden(entry.id) != self.blocks.hidden(user.id):
            return None
        own, users = self._moves(entry), self._moves(user)
        inlined = users == "moved" or (users == "turned" and user.name is not None)
        if own == "turned" or (own and inlined):
            return edge
        passed = user.vjp_tex.get(base_of(edge, user)) == "<g>" and user.shape == entry.shape
        simple = len(entry.tex) <= SHORT and not re.search(r"frac|operatorname", entry.tex)
        out_free = not any("<out>" in rule for rule in entry.vjp_tex.values())
        return edge if self.live(edge) and passed and simple and out_free else None

    def _moves(self, entry: Entry) -> str:
        """Whether an op only moves or repeats what it gets: "turned", "moved", or ""."""
        rules = list(templates(self.trace, entry)[1].values())
        if len(rules) != 1 or entry.op == "sum" or len(self.trace.into(entry)) != 1:
            return ""
        return (
            "turned" if rules[0] == TURNED else "moved" if _REARRANGED.fullmatch(rules[0]) else ""
        )

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

    def _spoken_of(self) -> set[int]:
        """Every entry that needs a symbol."""
        told = {i for i in self.trace.forward_steps if not self.blocks.hidden(i)}
        beside = {e.source for i in told for e in self.trace.into(self.trace[i])}
        users = {e.target for i in told | beside for e in self.live_uses(self.trace[i])}
        users = {self.teller(i) for i in users}
        spoken = told | beside | users
        spoken |= {origin for i in spoken if (origin := self.detached_from(i)) is not None}
        plain = (i for i in spoken if i not in self.hosts and not self.number(i))
        return {i for i in plain if self.detached_from(i) is None}

    # ------------------------------------------------------------------ formulas

    def number(self, entry: int) -> str | None:
        """A constant that is one number, as text."""
        one = self.trace[entry]
        plain = (
            one.kind == "constant" and not one.name and one.shape == () and one.value is not None
        )
        return number_tex(repr(np.asarray(one.value).item())) if plain else None

    def detached_from(self, entry: int) -> int | None:
        """What an entry is the same as, but for the gradient that stops there."""
        edges = self.trace.into(self.trace[entry]) if self.trace[entry].op is None else []
        return edges[0].source if edges and edges[0].input == "detach" else None

    def value(self, entry: int) -> Expression:
        """An entry's symbol, or its formula if it is told within another."""
        if entry in self.hosts:
            return self.forward(self.trace[entry])
        if (origin := self.detached_from(entry)) is not None:
            return Expression(text=rf"\mathrm{{detach}}({self.value(origin).tex})")
        number = self.number(entry)
        return Expression(text=number) if number else value(self.symbols[entry])

    def gradient(self, entry: int) -> Expression:
        if entry in self.hosts:
            return self.rule(self.hosts[entry])
        return ONE if entry == self.loss else gradient(self.symbols[entry])

    def name(self, entry: int) -> str:
        return self.value(entry).tex

    def slope(self, entry: int) -> str:
        """∂L/∂ an entry, even of the loss itself."""
        return gradient(self.symbols[entry]).tex

    def forward(self, entry: Entry) -> Expression:
        return fill(templates(self.trace, entry)[0], self._values(entry))

    def rule(self, edge: Edge) -> Expression:
        """What a use sends back, as a formula."""
        user = self.trace[edge.target]
        rules, base = templates(self.trace, user)[1], base_of(edge, user)
        template = rules.get(edge.input, rules.get(base, r"\text{no rule}"))
        values = self._values(user) | {"g": self.gradient(user.id)}
        if user.id not in self.hosts or "<out>" in template:
            values["out"] = self.value(user.id)
        if template == TURNED:
            return values["g"].transpose()
        over, letters = self.repeated(edge)
        if in_product(edge, user) and over:
            for e in self.trace.into(user):
                index = index_of(self.trace[e.source].shape[:-2], over, letters)
                values[e.input] = values[e.input].indexed(index)
            values["g"] = values["g"].indexed(",".join(letters[k] for k in over))
        return fill(template, values).summed(",".join(letters[k] for k in over))

    def repeated(self, edge: Edge) -> tuple[list[int], list[str]]:
        """The axes along which an input was repeated, and the letters of all axes they are among.

        They are axes of the result, or of the stack of matrices in a product of such stacks.
        """
        source, user = self.trace[edge.source], self.trace[edge.target]
        shapes = [self.trace[e.source].shape for e in self.trace.into(user)]
        if in_product(edge, user):
            stack = np.broadcast_shapes(*(s[:-2] for s in shapes))
            return missing(source.shape[:-2], stack), stack_letters(len(stack))
        if user.op == "linear":
            return missing(source.shape, user.shape), array_letters(len(user.shape))
        said = r"\sum" in user.vjp_tex.get(base_of(edge, user), "")
        if said or not broadcasts(shapes, user.shape):
            return [], []
        return missing(source.shape, user.shape), array_letters(len(user.shape))

    def _values(self, entry: Entry) -> dict[str, Expression]:
        """What a formula of an op may name: its inputs and settings."""
        values: dict[str, Expression] = {}
        for name, text in entry.settings.items():
            if text != "None":
                values[name] = Expression(text=number_tex(text))
        for edge in self.trace.into(entry):
            part = self.value(edge.source)
            values[edge.input] = part
            base = base_of(edge, entry)
            if base != edge.input:  # one of many: they are listed
                listed = f"{values[base].tex}, {part.tex}" if base in values else part.tex
                values[base] = Expression(text=listed)
        tex, rules = templates(self.trace, entry)
        for name in re.findall(r"<(\w+)>", " ".join([tex, *rules.values()])):
            values.setdefault(name, value(Symbol(rf"\mathrm{{{name}}}")))  # unknown or left out
        return values
