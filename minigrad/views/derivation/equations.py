"""Formulas of a run: those of its ops with symbols, numbers and other formulas in their slots."""

from __future__ import annotations

from typing import NamedTuple

from ...recording.record import Edge, Entry
from ..formula import Formula, definitions, fill, latex, number, parse, slots
from ..formula.products import ONE, gradient, indexed, summed
from ..formula.tree import COMMA, items_of
from ..repeats import repeats, stack, stack_letters
from .plan import DerivationPlan
from .symbols import letters, symbols

__all__ = ["Equations", "FilledFormula"]


class FilledFormula(NamedTuple):
    """A formula, and the signs that it defines for itself."""

    body: Formula
    signs: list[tuple[Formula, Formula]]


class Equations:
    def __init__(self, plan: DerivationPlan) -> None:
        self.plan, self.trace = plan, plan.trace
        self.symbols = symbols(plan.trace, plan.with_symbols(), plan.loss)

    def value(self, entry: int) -> Formula:
        """An entry's symbol; a transposed factor's formula, and a constant's number."""
        if entry in self.plan.inlined:
            return self.forward(self.trace[entry]).body
        if (origin := self.plan.detached_from(entry)) is not None:
            inside = Formula("group", "(", (self.value(origin),))
            return Formula("call", "", (Formula("function", "detach"), inside))
        constant = self.plan.number(entry)
        return self.symbols[entry] if constant is None else number(constant)

    def name(self, entry: int) -> str:
        return latex(self.value(entry))

    def slope(self, entry: int) -> str:
        """The gradient of an entry, as ∂L/∂X; that of the loss is ∂L/∂L."""
        return latex(gradient(self.symbols[entry]))

    def forward(self, entry: Entry) -> FilledFormula:
        return _filled(entry.tex, self._values(entry))

    def rule(self, edge: Edge) -> FilledFormula:
        """The gradient that a use sends back."""
        user, inlined = self.trace[edge.target], self.plan.inlined
        values = self._values(user)
        if user.id in inlined:
            values["g"] = self.rule(inlined[user.id]).body
        else:
            values["g"] = ONE if user.id == self.plan.loss else gradient(self.symbols[user.id])
            values["out"] = self.value(user.id)
        template = user.vjp_tex.get(edge.input, r"\text{no rule}")
        axes = repeats(self.trace, edge)
        if axes is None:
            return _filled(template, values)
        if axes.in_stack:
            self._index(values, user, axes.letters)
        found = _filled(template, values)
        return found._replace(body=summed(found.body, letters(axes.letters)))

    def _values(self, entry: Entry) -> dict[str, Formula]:
        """What the slots of an op's formulas are filled with: its inputs and settings."""
        values = {name: number(text) for name, text in entry.settings.items() if text != "None"}
        for edge in self.trace.into(entry):
            values[edge.input] = part = self.value(edge.source)
            whole = edge.input.rstrip("0123456789")
            if whole != edge.input:  # one of many: all of them, in a list
                before = (*items_of(values[whole]), COMMA) if whole in values else ()
                values[whole] = Formula("row", "", (*before, *items_of(part)))
        return values

    def _index(self, values: dict[str, Formula], user: Entry, over: list[str]) -> None:
        """Index the matrices of a stack, which are multiplied one by one and then added."""
        names = stack_letters(len(stack(self.trace, user)))
        for edge in self.trace.into(user):
            shape = self.trace[edge.source].shape[:-2]
            own = dict(zip(reversed(names), reversed(shape), strict=False))
            index = letters(c for c in over if own.get(c, 1) != 1)
            values[edge.input] = indexed(values[edge.input], index)
        values["g"] = indexed(values["g"], letters(over))


def _filled(template: str, values: dict[str, Formula]) -> FilledFormula:
    """The template with values in its slots; a slot without a value is its name."""
    tree = parse(template)
    values = {name: Formula("word", name) for name in slots(tree)} | values
    body, signs = definitions(tree)
    found = [(sign, fill(what, values)) for sign, what in signs]
    return FilledFormula(fill(body, values), [pair for pair in found if pair[0] != pair[1]])
