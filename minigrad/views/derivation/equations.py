"""Formulas of a run: those of its ops with symbols, numbers and other formulas in their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..formula import (
    ONE,
    Node,
    definitions,
    fill,
    gradient,
    indexed,
    latex,
    number,
    parse,
    slots,
    summed,
)
from ..formula.tree import COMMA, Call, Group, Row, Sign, items_of
from ..repeats import Repeats, repeats, stack, stack_letters
from .symbols import letters, symbols

if TYPE_CHECKING:
    from ...recording.record import Edge, Entry
    from .story import Story

__all__ = ["Equations", "Formula"]


class Formula(NamedTuple):
    """A formula, and the signs that it defines for itself."""

    body: Node
    signs: list[tuple[Node, Node]]


class Equations:
    def __init__(self, story: Story) -> None:
        self.story, self.trace = story, story.trace
        self.symbols = symbols(story.trace, story.spoken_of(), story.loss)

    def value(self, entry: int) -> Node:
        """An entry's symbol, or its formula if it is told within another."""
        if entry in self.story.hosts:
            return self.forward(self.trace[entry]).body
        if (origin := self.story.detached_from(entry)) is not None:
            return Call(Sign("function", "detach"), Group("(", self.value(origin), ")"))
        constant = self.story.number(entry)
        return self.symbols[entry] if constant is None else number(constant)

    def gradient(self, entry: int) -> Node:
        if entry in self.story.hosts:
            return self.rule(self.story.hosts[entry]).body
        return ONE if entry == self.story.loss else gradient(self.symbols[entry])

    def name(self, entry: int) -> str:
        return latex(self.value(entry))

    def slope(self, entry: int) -> str:
        """∂L/∂ an entry, even of the loss itself."""
        return latex(gradient(self.symbols[entry]))

    def forward(self, entry: Entry) -> Formula:
        return _filled(entry.tex, self._values(entry))

    def rule(self, edge: Edge) -> Formula:
        """What a use sends back."""
        user = self.trace[edge.target]
        values = self._values(user) | {"g": self.gradient(user.id)}
        template = user.vjp_tex.get(edge.input, r"\text{no rule}")
        if user.id not in self.story.hosts or "<out>" in template:
            values["out"] = self.value(user.id)
        axes = repeats(self.trace, edge)
        if axes is None:
            return _filled(template, values)
        if axes.in_stack:
            self._index(values, user, axes)
        found = _filled(template, values)
        return found._replace(body=summed(found.body, letters(axes.letters)))

    def _values(self, entry: Entry) -> dict[str, Node]:
        """What a formula of an op may name: its inputs and settings."""
        values = {name: number(text) for name, text in entry.settings.items() if text != "None"}
        for edge in self.trace.into(entry):
            values[edge.input] = part = self.value(edge.source)
            whole = edge.input.rstrip("0123456789")
            if whole != edge.input:  # one of many: they are listed
                listed = [*items_of(values[whole]), COMMA] if whole in values else []
                values[whole] = Row((*listed, *items_of(part)))
        return values

    def _index(self, values: dict[str, Node], user: Entry, axes: Repeats) -> None:
        """The matrices of a stack that are multiplied before they are added."""
        names = stack_letters(len(stack(self.trace, user)))
        for edge in self.trace.into(user):
            shape = self.trace[edge.source].shape[:-2]
            own = dict(zip(reversed(names), reversed(shape), strict=False))
            index = letters(c for c in axes.letters if own.get(c, 1) != 1)
            values[edge.input] = indexed(values[edge.input], index)
        values["g"] = indexed(values["g"], letters(axes.letters))


def _filled(template: str, values: dict[str, Node]) -> Formula:
    body, signs = definitions(parse(template))
    found = [(sign, _whole(what, values)) for sign, what in signs]
    return Formula(_whole(body, values), [pair for pair in found if pair[0] != pair[1]])


def _whole(template: Node, values: dict[str, Node]) -> Node:
    """The template filled in; what is unknown or was left out is its name."""
    unknown = {name: Sign("word", name) for name in slots(template) if name not in values}
    return fill(template, {**values, **unknown})
