"""One step of a derivation, told: its equations, why terms add, and the sizes of gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..plain import one_line
from ..variants import base_of
from .axes import in_product
from .notation import code, inline
from .said import unsaid
from .sizes import Sizes
from .story import Story
from .symbols import space

if TYPE_CHECKING:
    from ...recording.record import Check, Edge, Entry

__all__ = ["Told"]

WIDEST = 220  # characters of a sum whose terms are written out


class Told:
    def __init__(self, story: Story, checks: Mapping[int, Sequence[Check]]) -> None:
        self.story, self.trace = story, story.trace
        self.sizes = Sizes(story, checks)
        self.at = {i: k for k, i in enumerate(story.order)}

    # ------------------------------------------------------------------ equations

    def forward(self, entries: list[Entry]) -> str:
        """Forward equations, one below the other."""
        rows = []
        for e in entries:
            rows.append((self.story.name(e.id), self.story.forward(e).tex, space(e.shape, e.dtype)))
        return aligned(rows)

    def part(self, edge: Edge) -> str:
        """The part of a gradient that comes back through one use."""
        user = self.story.teller(edge.target)
        twins = [
            e
            for e in self.story.live_uses(self.trace[edge.source])
            if self.story.teller(e.target) == user
        ]
        which = rf",\,{twins.index(edge) + 1}" if len(twins) > 1 else ""
        return (
            rf"\left.{self.story.slope(edge.source)}\right\rvert_{{{self.story.name(user)}{which}}}"
        )

    def seed(self) -> str:
        assert self.story.loss is not None
        return f"It begins at the loss, with {inline(self.story.slope(self.story.loss) + ' = 1')}."

    # ------------------------------------------------------------------ a step

    def step(self, number: int, tellers: list[int]) -> list[str]:
        """A step: the forward equation it goes back through, then the gradients it gives."""
        entries = [self.trace[i] for i in tellers]
        within = [i for teller in tellers for i in reversed(self.story.within(teller))]
        edges = [e for i in tellers for e in self.story.used(i)]
        ops = ", ".join(dict.fromkeys(self.made(self.trace[i]) for i in within))
        names = ", ".join(inline(self.story.name(i)) for i in tellers)
        where = f" in {code(entries[0].scope)}" if entries[0].scope else ""
        parts = [f"### {number}. Through {names}", f"*{ops}{where}*", self.forward(entries)]
        parts.append(aligned([*self.defined(edges), *map(self.gradient, edges)]))
        reasons = [r for e in edges if (r := self.reason(e))]
        parts += [" ".join(reasons)] if reasons else []
        sources = dict.fromkeys(e.source for e in edges)
        single = [i for i in sources if len(self.story.live_uses(self.trace[i])) == 1]
        parts += self.sizes.of(single)
        for i in sources:
            parts += self.total(self.trace[i], tellers)
        return parts

    def gradient(self, edge: Edge) -> tuple[str, str, str]:
        """What a use sends back, beside what it is the gradient of, or a part of."""
        source = self.trace[edge.source]
        alone = len(self.story.live_uses(source)) == 1
        left = self.story.slope(edge.source) if alone else self.part(edge)
        return left, replace(self.story.rule(edge), where="").tex, space(source.shape)

    def defined(self, edges: list[Edge]) -> list[tuple[str, str, str]]:
        """The signs that the rules define for themselves, each once, before what it is used in."""
        found: dict[str, str] = {}
        for edge in edges:
            for one in filter(None, self.story.rule(edge).where.split(r"\quad ")):
                left, _, right = one.strip(", ").partition(" = ")
                found.setdefault(left, right)
        return [(left, right, "") for left, right in reversed(found.items())]

    def made(self, entry: Entry) -> str:
        """An op with those of its settings that its formula leaves unsaid."""
        shown = [
            f"{name} = {one_line(text, 40)}" for name, text in unsaid(self.trace, entry).items()
        ]
        return f"{entry.op} with {code(', '.join(shown))}" if shown else entry.op or ""

    def reason(self, edge: Edge) -> str:
        """Why a gradient is a sum over axes, and how many entries a mean is over."""
        over, letters = self.story.repeated(edge)
        user, source = self.trace[edge.target], self.trace[edge.source]
        if not over:
            return self.counted(edge)
        name, along = (
            inline(self.story.name(edge.source)),
            ", ".join(inline(letters[k]) for k in over),
        )
        if in_product(edge, user):
            stack = np.broadcast_shapes(
                *(self.trace[e.source].shape[:-2] for e in self.trace.into(user))
            )
            count = int(np.prod([stack[k] for k in over]))
            return (
                f"The {count} matrices along {along} share {name}, so their {count} products add."
            )
        count = user.size // max(source.size, 1)
        return (
            f"{name} is repeated along {along}: each of its entries is used {count} times, "
            f"so {count} terms add."
        )

    def counted(self, edge: Edge) -> str:
        """What n or N is in the rule of a mean."""
        source, user = self.trace[edge.source], self.trace[edge.target]
        rule = user.vjp_tex.get(base_of(edge, user), "")
        if r"\tfrac1n" in rule or r"\tfrac{2}{n}" in rule:
            return f"Here $`n = {source.size // max(user.size, 1)}`$."
        if r"\tfrac1N" in rule and source.shape:
            return f"Here $`N = {source.size // source.shape[-1]}`$."
        return ""

    def total(self, source: Entry, tellers: list[int]) -> list[str]:
        """Why the parts of a gradient add, once the last of them is known."""
        uses = sorted(
            self.story.live_uses(source), key=lambda e: self.at.get(self.story.teller(e.target), -1)
        )
        if len(uses) < 2 or self.story.teller(uses[-1].target) not in tellers:
            return []
        name, whole = self.story.name(source.id), self.story.slope(source.id)
        parts = [self.part(e) for e in uses]
        plus = " + ".join(parts)
        spelled = " + ".join(_term(self.story.rule(e).tex) for e in uses)
        rows = [(whole, plus, space(source.shape))]
        if len(spelled) <= WIDEST and not any(self.story.rule(e).where for e in uses):
            rows.append(("", spelled, ""))
        users = Counter(inline(self.story.name(self.story.teller(e.target))) for e in uses)
        some = len(users) > 1
        listed = [f"{user} ({n} times)" if n > 1 and some else user for user, n in users.items()]
        said = (
            f"**The terms add.** {inline(name)} is used {len(uses)} times{',' if some else ''} in "
            f"{_listed(listed)}. A change of {inline(name)} reaches {inline('L')} on each of these "
            "ways, so by the chain rule the parts that come back along them add:"
        )
        return [
            said,
            aligned(rows),
            *self.sizes.of_terms(source, uses),
            *self.sizes.of([source.id]),
        ]


def aligned(rows: Sequence[tuple[str, str, str]]) -> str:
    """Equations below one another, and where each left side lives."""
    lines = [rf"{a} &= {b}" + (rf" && \in {c}" if c else "") for a, b, c in rows]
    inner = lines[0].replace("&= ", "= ").replace(" && ", r" \quad ") if len(lines) == 1 else ""
    between = " \\\\[4pt]\n"
    text = inner or f"\\begin{{aligned}}\n{between.join(lines)}\n\\end{{aligned}}"
    return f"```math\n{text}\n```"


def _term(tex: str) -> str:
    return rf"\left({tex}\right)" if tex.startswith("-") else tex


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
