r"""Definitions by steps of time, as h_t = tanh(x_t W + h_{t-1} V), h_0 = h: each computed once.

Steps count from 1, as an array's entries do in a formula: X_t is its t-th row. T is the last step,
the number of rows of an array that is indexed by t alone. A sign without its t is all steps,
stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from ...engine.errors import UnreadableFormulaError
from ...engine.types import Array
from .named import Slots
from .tree import CIRCLE, COMMA, EMPTY, MINUS, PLUS, TRANSPOSE, Formula, items_of, letter, split
from .write import text

__all__ = ["Steps"]

Sign: TypeAlias = tuple[Formula, Formula]  # its letter, and its superscript, as n in a^n_t
T = letter("t")


class StepRule(NamedTuple):
    """One definition of a sign, which may be one of several parts of what is computed."""

    step: Formula  # which step it defines, such as t or 0
    part: int
    parts: int
    body: Formula


class Steps:
    """What is defined by steps; false where nothing is.

    Args: array_of: evaluates a part of the formula.
    """

    def __init__(
        self,
        formula: Formula,
        definitions: Sequence[tuple[Formula, Formula]],
        slots: Slots,
        array_of: Callable[[Formula], Array],
    ) -> None:
        self.array_of = array_of
        self.slots = slots
        self.now = 0
        self.known: dict[tuple[Sign, int], Array | None] = {}  # None while it is computed
        rules: dict[Sign, list[StepRule]] = {}
        for left, body in definitions:
            group = left.kind in ("group", "tall")
            signs = split(left.parts[0], COMMA) if group else [left]
            for part, sign in enumerate(signs):
                if sign.kind == "script" and sign.parts[1] != EMPTY:
                    base, below, above = sign.parts
                    rule = StepRule(below, part, len(signs), body)
                    rules.setdefault((base, above), []).append(rule)
        self.rules = {s: found for s, found in rules.items() if any(T in r.step for r in found)}
        rows = (
            len(slots[node.parts[0].text])
            for node in formula
            if node.kind == "script" and node.parts[1] == T and node.parts[0].text in slots
            if node.parts[0].kind == "slot"
        )
        self.last = next(rows, 0)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def number(self, index: Formula, now: int | None = None) -> int | None:
        """The number of an index such as t - 1 or T at a step; None for an index of an axis."""
        now = self.now if now is None else now
        total, sign = 0, 1
        for item in items_of(index):
            if item in (PLUS, MINUS):
                sign = 1 if item == PLUS else -1
                continue
            if item == T or item == letter("T"):
                total += sign * (now if item == T else self.last)
            elif item.kind == "number" and item.text.isdecimal():
                total += sign * int(item.text)
            else:
                return None
            if sign == 0:  # a product, such as 2 t
                return None
            sign = 0
        return total

    def script(self, base: Formula, below: Formula, above: Formula) -> tuple[Array, Formula] | None:
        """The value of a sign at a step, and its superscript if that is no part of its name."""
        if below == EMPTY or (at := self.number(below)) is None:
            return None
        if base.kind == "slot":
            if not 1 <= at <= len(self.slots[base.text]):
                raise UnreadableFormulaError(f"{text(base)} has no step {at}")
            row = self.slots[base.text][at - 1]
            return (row[:, None] if row.dtype == bool else row), above  # a mask's entry, each row's
        raised = above == TRANSPOSE or items_of(above)[0] == CIRCLE
        sign = (base, EMPTY if raised else above)
        return (self.at(sign, at), above if raised else EMPTY) if sign in self.rules else None

    def all(self, base: Formula) -> Array:
        """A sign at all steps."""
        return np.stack([self.at((base, EMPTY), t) for t in range(1, self.last + 1)])

    def sum(self, term: Formula) -> Array:
        """A term, summed over all steps."""
        return np.sum([self._during(step, term) for step in range(1, self.last + 1)], axis=0)

    def _during(self, step: int, part: Formula) -> Array:
        """A part of the formula at a step."""
        outer, self.now = self.now, step
        array = self.array_of(part)
        self.now = outer
        return array

    def sequence(self, parts: Sequence[Formula]) -> Array:
        """(h_1, …, h_T, c_T): the dots are the steps between the signs on both sides of them."""
        dots = parts.index(next(part for part in parts if part.text == r"\ldots"))
        base, below, _ = parts[dots - 1].parts
        first, last = self.number(below), self.number(parts[dots + 1].parts[1])
        if first is None or last is None:
            ends = text(parts[dots - 1]), text(parts[dots + 1])
            raise UnreadableFormulaError(f"the dots between {ends[0]} and {ends[1]}")
        steps = [self.at((base, EMPTY), t) for t in range(first, last + 1)]
        return np.stack([*steps, *map(self.array_of, parts[dots + 2 :])])

    def at(self, sign: Sign, step: int) -> Array:
        """A sign at a step, by the definition of that step, as h_0, if it has one of its own."""
        if (sign, step) in self.known:
            known = self.known[sign, step]
            if known is None:
                raise UnreadableFormulaError(f"{text(sign[0])} at step {step} is defined by itself")
            return known
        self.known[sign, step] = None
        for rule in sorted(self.rules.get(sign, ()), key=lambda rule: T in rule.step):
            now = step - (self.number(rule.step, 0) or 0) if T in rule.step else 0
            if self.number(rule.step, now) == step:
                value = self._during(now, rule.body)
                if rule.parts > 1:
                    value = np.split(value, rule.parts, axis=-1)[rule.part]
                self.known[sign, step] = value
                return value
        raise UnreadableFormulaError(f"{text(sign[0])} at step {step} is not defined")
