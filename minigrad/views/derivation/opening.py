"""How a derivation begins: what is given, what is differentiated, and whether it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..model import Model
from ..plain import counted, sized
from ..repeats import in_product
from .equations import Equations
from .notation import code, inline
from .story import Story
from .symbols import space

if TYPE_CHECKING:
    from ...recording.record import Check, Entry

__all__ = ["Opening"]

READ = (
    "Each gradient has the shape of what it belongs to. Each step of the backward pass starts from "
    "the gradient of what an op made, and gives those of what the op used."
)
PASSES = (
    "{} backward passes ran in this record, each from one of these. Their gradients add up to "
    "those of the sum."
)
NOTHING = "No gradient goes back through this trace: it is a forward pass alone."
MANY = 8  # leaves that are listed in one line, at most, if they are of several scopes
AFTER = (
    "Backward has not run in this trace: these are the rules it would apply. There are no sizes, "
    "and nothing is measured."
)


class Opening:
    def __init__(self, story: Story, equations: Equations, checks: list[Check]) -> None:
        self.story, self.trace, self.checks = story, story.trace, checks
        self.equations = equations
        self.homes = Model(story.trace, fold=False).home

    def text(self, steps: int, unmeasured: str) -> list[str]:
        """What is told, in how many steps, and why nothing was measured if a check failed."""
        trace, story = self.trace, self.story
        ran = f"{len(trace.backward_steps)} backward steps" if story.ran else "no backward step"
        lines = ["# The backward pass, written out"]
        lines.append(
            "Written from the record of one run: "
            f"{len(trace.forward_steps)} forward steps and {ran}"
            + (f", told in {steps}." if story.ran else ".")
        )
        lines += [] if story.ran else [f"**{AFTER if story.order else NOTHING}**"]
        lines.append("\n".join(self._given()))
        lines += [READ] if story.order else []
        if unmeasured:
            lines.append(f"Hand-derived steps were declared but not measured: {code(unmeasured)}.")
        elif any(check.difference for check in self.checks):
            lines.append(self._verdict())
        return lines

    def _given(self) -> list[str]:
        shown = [e for e in self.trace if e.op is None and e.id in self.equations.symbols]
        groups = {"Parameters": "parameter", "Inputs": "input detached", "Constants": "constant"}
        lines = []
        for title, kinds in groups.items():
            found = [e for e in shown if e.kind in kinds.split()]
            folded = ", every copy of a block counted" if self.story.model.fold.times else ""
            total = sum(e.size for e in self.trace if e.kind == "parameter")
            note = f" ({counted(total)} numbers in all{folded})" if title == "Parameters" else ""
            by_scope: dict[str, list[Entry]] = {}
            for e in found:
                by_scope.setdefault(self.homes[e.id], []).append(e)
            if len(found) > MANY and len(by_scope) > 1:
                lines.append(f"- {title}{note}:")
                for scope, some in by_scope.items():
                    where = f"in {code(scope)}: " if scope else ""
                    lines.append(f"  - {where}{self._listed(some)}")
            else:
                lines += [f"- {title}: {self._listed(found)}{note}"] if found else []
        return [*lines, *self._loss()]

    def _listed(self, entries: list[Entry]) -> str:
        where = (rf"{self.equations.name(e.id)} \in {self._home(e)}" for e in entries)
        return ", ".join(map(inline, where))

    def _home(self, entry: Entry) -> str:
        """Where a leaf lives; a boolean mask that is added stands for what is added."""
        added = any(e.input == "mask" for e in self.trace.uses(entry))
        if added and entry.dtype == "bool":
            return space(entry.shape, entry.dtype).replace(r"\{0, 1\}", r"\{0, -\infty\}")
        return space(entry.shape, entry.dtype)

    def _loss(self) -> list[str]:
        """What is differentiated."""
        story, roots = self.story, self.story.roots
        if story.loss is not None:
            entry = self.trace[story.loss]
            name = f", called {code(entry.name)}" if entry.name and entry.name != "L" else ""
            value = "" if entry.value is None else f", here {float(np.ravel(entry.value)[0]):.6g}"
            return [f"- Loss: {inline('L')}{name}{value}"]
        if len(roots) > 1 and all(map(story.begins_at_one, roots)):
            names = " + ".join(self.equations.name(i) for i in roots)
            return [f"- Loss: {inline(f'L = {names}')}. {PASSES.format(len(roots))}"]
        given = ", ".join(
            f"{inline(self.equations.slope(i))} (rms {self._size(i)})"
            for i in roots
            if i in self.equations.symbols
        )
        what = "a loss that is not in this record; backward began from its gradient"
        return [f"- Loss: {inline('L')}, {what} {given}"] if given else []

    def _size(self, entry: int) -> str:
        return sized(self.trace[entry].gradient_rms) or "unknown"

    def _verdict(self) -> str:
        every = [d for check in self.checks if (d := check.difference) is not None]
        wrong = [c for c in self.checks if c.difference and not c.difference.ok]
        if wrong:
            first = f"step {wrong[0].number} of {code(wrong[0].scope or 'the layer')}"
            many = f"{len(wrong)} of {len(every)}"
            return (
                f"**✗ {many} gradients differ from the hand-derived formulas, first in {first}: "
                f"{code(wrong[0].title)}.**"
            )
        left_out = len(self.checks) - len(every)
        rest = f" {left_out} more had nothing to be measured against." if left_out else ""
        return (
            f"✓ All {len(every)} gradients that were held against a layer's hand-derived formulas "
            f"agree with them in this run; the largest relative difference is "
            f"{max(d.relative for d in every):.1e}.{rest}"
        )

    def conventions(self) -> list[str]:
        """How products are to be read, if any here need saying."""
        ops = [self.trace[i] for i in self.trace.forward_steps]
        factors = [e for op in ops for e in self.trace.into(op) if in_product(self.trace, e)]
        axes = {len(self.trace[e.source].shape) for e in factors}
        found = []
        if max(axes, default=0) > 2:
            found.append(
                "A product of stacks of matrices is taken matrix by matrix; $\\top$ swaps the last "
                "two axes, and $X_b$ is the matrix of $X$ at $b$."
            )
        if 1 in axes:
            found.append(
                "In a product, an array of one axis is a row on the left and a column on the "
                "right; what a row makes is a row, and a gradient is what it belongs to."
            )
        return found
