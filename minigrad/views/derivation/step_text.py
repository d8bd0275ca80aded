"""A step as text: its equations, why terms add, and the sizes of gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from ..formula import Node, is_negative, latex
from ..formula.tree import Sign
from ..plain import one_line
from ..repeats import repeats
from .equations import Equations
from .notation import code, inline
from .sizes import Sizes
from .symbols import space

if TYPE_CHECKING:
    from ...recording.record import Check, Edge, Entry
    from .steps import Step
    from .story import Story

__all__ = ["StepText"]

WIDEST = 220  # characters of a sum whose terms are written out


class StepText:
    def __init__(
        self, story: Story, equations: Equations, checks: Mapping[int, Sequence[Check]]
    ) -> None:
        self.story, self.trace, self.equations = story, story.trace, equations
        self.sizes = Sizes(story, equations, checks)
        self.at = {i: k for k, i in enumerate(story.order)}

    # ------------------------------------------------------------------ equations

    def forward(self, entries: list[Entry]) -> str:
        """Forward equations, one below the other, each after what it defines for itself."""
        rows = []
        for e in entries:
            formula = self.equations.forward(e)
            rows += [(latex(sign), latex(what), "") for sign, what in reversed(formula.signs)]
            rows.append((self.equations.name(e.id), latex(formula.body), space(e.shape, e.dtype)))
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
        slope = self.equations.slope(edge.source)
        return rf"\left.{slope}\right\rvert_{{{self.equations.name(user)}{which}}}"

    # ------------------------------------------------------------------ a step

    def step(self, step: Step) -> list[str]:
        """A step: the forward equation it goes back through, then the gradients it gives."""
        within = [i for teller in step.through for i in reversed(self.story.within(teller))]
        ops = ", ".join(dict.fromkeys(self.made(self.trace[i]) for i in within))
        names = ", ".join(inline(self.equations.name(i)) for i in step.through)
        where = f" in {code(step.scope)}" if step.scope else ""
        parts = [f"### {step.number}. Through {names}", f"*{ops}{where}*"]
        parts.append(self.forward([self.trace[i] for i in step.through]))
        signs = self.defined(step)
        rows = [(latex(s), latex(what), "") for s, what in signs if not _in_words(what)]
        parts.append(aligned([*rows, *map(self.gradient, step.edges)]))
        reasons = [r for e in step.edges if (r := self.reason(e))]
        here = [inline(f"{latex(s)} = {latex(what)}") for s, what in signs if _in_words(what)]
        reasons += [f"Here {_listed(here)}."] if here else []
        parts += [" ".join(reasons)] if reasons else []
        sources = dict.fromkeys(e.source for e in step.edges)
        single = [i for i in sources if len(self.story.live_uses(self.trace[i])) == 1]
        parts += self.sizes.of(single)
        for i in sources:
            parts += self.total(self.trace[i], step.through)
        return parts

    def gradient(self, edge: Edge) -> tuple[str, str, str]:
        """What a use sends back, beside what it is the gradient of, or a part of."""
        source = self.trace[edge.source]
        alone = len(self.story.live_uses(source)) == 1
        left = self.equations.slope(edge.source) if alone else self.part(edge)
        return left, latex(self.equations.rule(edge).body), space(source.shape)

    def defined(self, step: Step) -> list[tuple[Node, Node]]:
        """The signs that the rules define for themselves, each once, before what it is used in."""
        formulas = [self.equations.forward(self.trace[i]) for i in step.through]
        known = [pair for formula in formulas for pair in formula.signs]
        signs = [pair for e in step.edges for pair in self.equations.rule(e).signs]
        return [pair for pair in reversed(dict.fromkeys(signs)) if pair not in known]

    def made(self, entry: Entry) -> str:
        """An op with those of its settings that its formula leaves unsaid."""
        unsaid = [f"{name} = {one_line(entry.settings[name], 40)}" for name in entry.unsaid]
        return f"{entry.op} with {code(', '.join(unsaid))}" if unsaid else entry.op or ""

    def reason(self, edge: Edge) -> str:
        """Why a gradient is a sum over axes."""
        axes = repeats(self.trace, edge)
        if axes is None:
            return ""
        name = inline(self.equations.name(edge.source))
        along, count = ", ".join(map(inline, axes.letters)), prod(axes.sizes)
        if axes.in_stack:
            return (
                f"The {count} matrices along {along} share {name}, so their {count} products add."
            )
        return (
            f"{name} is repeated along {along}: each of its entries is used {count} times, "
            f"so {count} terms add."
        )

    def total(self, source: Entry, through: list[int]) -> list[str]:
        """Why the parts of a gradient add, once the last of them is known."""
        uses = sorted(
            self.story.live_uses(source), key=lambda e: self.at.get(self.story.teller(e.target), -1)
        )
        if len(uses) < 2 or self.story.teller(uses[-1].target) not in through:
            return []
        name, whole = self.equations.name(source.id), self.equations.slope(source.id)
        rows = [(whole, " + ".join(map(self.part, uses)), space(source.shape))]
        rules = [self.equations.rule(e) for e in uses]
        spelled = " + ".join(_term(rule.body) for rule in rules)
        if len(spelled) <= WIDEST and not any(rule.signs for rule in rules):
            rows.append(("", spelled, ""))
        users = Counter(inline(self.equations.name(self.story.teller(e.target))) for e in uses)
        some = len(users) > 1
        listed = [f"{user} ({n} times)" if n > 1 and some else user for user, n in users.items()]
        said = (
            f"**The terms add.** {inline(name)} is used {len(uses)} times{',' if some else ''} in "
            f"{_listed(listed)}. A change of {inline(name)} reaches {inline('L')} on each of these "
            "ways, so by the chain rule the parts that come back along them add:"
        )
        sizes = [*self.sizes.of_terms(source, uses), *self.sizes.of([source.id])]
        return [said, aligned(rows), *sizes]


def aligned(rows: Sequence[tuple[str, str, str]]) -> str:
    """Equations below one another, and where each left side lives."""
    lines = [rf"{a} &= {b}" + (rf" && \in {c}" if c else "") for a, b, c in rows]
    inner = lines[0].replace("&= ", "= ").replace(" && ", r" \quad ") if len(lines) == 1 else ""
    between = " \\\\[4pt]\n"
    text = inner or f"\\begin{{aligned}}\n{between.join(lines)}\n\\end{{aligned}}"
    return f"```math\n{text}\n```"


def _in_words(what: Node) -> bool:
    """Whether a sign stands for a number or for words, which is said beside the equations."""
    return isinstance(what, Sign) and what.kind in ("number", "text")


def _term(term: Node) -> str:
    return rf"\left({latex(term)}\right)" if is_negative(term) else latex(term)


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
