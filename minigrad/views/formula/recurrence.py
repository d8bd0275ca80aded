r"""Definitions by a step of time, as h_t = tanh(x_t W + h_{t-1} V), h_0 = h: each worked out once.

Steps count from 1, as an array's entries do in a formula: X_t is its t-th row. T is the last step:
how many rows an array has that is indexed by t alone. A sign without its t is all steps, stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...engine.errors import UnreadableFormulaError
from .tree import CIRCLE, COMMA, EMPTY, MINUS, PLUS, TRANSPOSE, Formula, items_of, letter, split
from .write import text

__all__ = ["Steps"]

Sign: TypeAlias = tuple[Formula, Formula]  # what stands above the t, as in a^n_t, tells signs apart
T = letter("t")


class Steps:
    """What is defined by steps; false where nothing is.

    Args: of: evaluates a part of the formula.
    """

    def __init__(
        self,
        formula: Formula,
        definitions: Sequence[tuple[Formula, Formula]],
        slots: Mapping[str, Any],
        of: Callable[[Formula], Any],
    ) -> None:
        self.of = of
        self.slots = slots
        self.now = 0
        self.known: dict[tuple[Sign, int], Any] = {}
        self.rules: dict[
            Sign, list[tuple[Formula, int, int, Formula]]
        ] = {}  # index, place, of, what
        for left, what in definitions:
            group = left.kind in ("group", "tall")
            signs = split(left.parts[0], COMMA) if group else [left]
            for at, sign in enumerate(signs):
                if sign.kind == "script" and sign.parts[1] != EMPTY:
                    base, below, above = sign.parts
                    self.rules.setdefault((base, above), []).append((below, at, len(signs), what))
        self.rules = {s: r for s, r in self.rules.items() if any(T in below for below, *_ in r)}
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
        """What an index such as t - 1 or T is now, or at a step; None for one of another kind."""
        now = self.now if now is None else now
        total, sign = 0, 1
        for item in items_of(index):
            if item in (PLUS, MINUS):
                sign = 1 if item == PLUS else -1
            elif item == T or item == letter("T"):
                total += sign * (now if item == T else self.last)
            elif item.kind == "number":
                total += sign * int(item.text)
            else:
                return None
        return total

    def script(self, base: Formula, below: Formula, above: Formula) -> tuple[Any, Formula] | None:
        """The value of a sign at a step, and what stands above it that was not its name."""
        if below == EMPTY or (at := self.number(below)) is None:
            return None
        if base.kind == "slot":
            row = self.slots[base.text][at - 1]
            return (row[:, None] if row.dtype == bool else row), above  # a mask's entry, each row's
        raised = above == TRANSPOSE or items_of(above)[0] == CIRCLE
        sign = (base, EMPTY if raised else above)
        return (self.at(sign, at), above if raised else EMPTY) if sign in self.rules else None

    def all(self, base: Formula) -> Any:
        """A sign at all steps."""
        return np.stack([self.at((base, EMPTY), t) for t in range(1, self.last + 1)])

    def sum(self, what: Sequence[Formula], of: Callable[[Sequence[Formula]], Any]) -> Any:
        """A sum over all steps."""
        return sum(self._during(step, of, what) for step in range(1, self.last + 1))

    def _during(self, step: int, of: Callable[[Any], Any], what: Any) -> Any:
        """A part of the formula at a step."""
        outer, self.now = self.now, step
        array = of(what).array
        self.now = outer
        return array

    def sequence(self, parts: Sequence[Formula]) -> Any:
        """(h_1, …, h_T, c_T): all from what stands before the dots to what stands behind."""
        dots = parts.index(next(part for part in parts if part.text == r"\ldots"))
        base, below, _ = parts[dots - 1].parts
        first, end = self.number(below), self.number(parts[dots + 1].parts[1])
        assert first is not None
        assert end is not None
        steps = [self.at((base, EMPTY), t) for t in range(first, end + 1)]
        return np.stack([*steps, *(self.of(part).array for part in parts[dots + 2 :])])

    def at(self, sign: Sign, step: int) -> Any:
        """A sign at a step; where one step is defined by itself, as h_0, by that."""
        if (sign, step) in self.known:
            if self.known[sign, step] is None:
                raise UnreadableFormulaError(f"{text(sign[0])} at step {step} is defined by itself")
            return self.known[sign, step]
        self.known[sign, step] = None
        found = sorted(self.rules.get(sign, ()), key=lambda rule: T in rule[0])
        for below, place, count, what in found:
            now = step - (self.number(below, 0) or 0) if T in below else 0
            if self.number(below, now) == step:
                value = self._during(now, self.of, what)
                if count > 1:
                    value = np.split(value, count, axis=-1)[place]
                self.known[sign, step] = value
                return value
        raise UnreadableFormulaError(f"{text(sign[0])} at step {step} is not defined")
