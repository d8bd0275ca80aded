"""The chapters of a derivation: forward, backward step by step, and a table of what came out."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ..formula import latex
from ..model import STATES
from .equations import Equations
from .notation import code, inline
from .sizes import measured
from .step_text import StepText
from .steps import Step, steps
from .story import Story

if TYPE_CHECKING:
    from ...recording.record import Check, Entry
    from ...recording.trace import Trace

__all__ = ["Chapters"]

ALIKE = "*{} are alike, each with its own tensors: the others repeat {}"


class Chapters:
    def __init__(self, trace: Trace, checks: list[Check]) -> None:
        self.trace = trace
        self.checks: dict[int, list[Check]] = {}
        for check in checks:
            if check.symbol in check.symbols:
                self.checks.setdefault(check.symbols[check.symbol], []).append(check)
        self.story = Story(trace, frozenset(self.checks))
        self.equations = Equations(self.story)
        self.steps = steps(self.story)
        self.step_text = StepText(self.story, self.equations, self.checks)

    # ------------------------------------------------------------------ forward and backward

    def forward(self) -> list[str]:
        shown = [self.trace[i] for i in self.trace.forward_steps if i not in self.story.hosts]
        parts = ["## Forward"]
        for hidden, group in groupby(shown, key=lambda e: self.story.hidden(e.id)):
            entries = list(group)
            if hidden:
                names = dict.fromkeys(self.story.block(e.id) for e in entries)
                parts += [
                    ALIKE.format(code(all_), code(one)) + ", which follows.*" for all_, one in names
                ]
                continue
            for scope, run in groupby(entries, key=lambda e: e.scope):
                parts += [f"In {code(scope)}:"] if scope else []
                parts.append(self.step_text.forward(list(run)))
        return parts

    def backward(self) -> list[str]:
        if not self.story.order:
            return []
        parts, passed = ["## Backward"], set[tuple[str, str]]()
        if self.story.loss is not None:
            seed = self.equations.slope(self.story.loss)
            parts.append(f"It begins at the loss, with {inline(seed + ' = 1')}.")
        first = {step.through[0]: step for step in self.steps}
        told: list[Step] = []
        for i in self.story.order:
            if i in first:
                told.append(first[i])
                parts += self.step_text.step(first[i])
            elif self.story.hidden(i) and self.story.block(i) not in passed:
                passed.add(self.story.block(i))
                parts.append(_alike(*self.story.block(i), told))
        return parts

    # ------------------------------------------------------------------ what came out

    def results(self) -> list[str]:
        rows = [self._row(e) for e in self._reported()]
        if not rows:
            return []
        title = "| symbol | name | shape | rms of gradient | from hand-derived |"
        left = [
            e
            for e in self.trace
            if e.op is None and e.gradient is None and e.id in self.equations.symbols
        ]
        why = ", ".join(
            f"{inline(latex(self.equations.symbols[e.id]))} ({self.trace.explain_missing(e)})"
            for e in left
        )
        return [
            "## What came out",
            "\n".join([title, "|---|---|---|---|---|", *rows]),
            *([f"Without a gradient: {why}."] if why and self.story.ran else []),
        ]

    def _reported(self) -> list[Entry]:
        """Leaves in the order they came in, then what was computed, in backward order."""
        if not self.story.ran:
            return []
        leaves = [e for e in self.trace if e.op is None and e.gradient is not None]
        ops = [self.trace[i] for i in self.story.order if i not in self.story.hosts]
        return [
            e
            for e in [*leaves, *ops]
            if not self.story.hidden(e.id) and e.id in self.equations.symbols
        ]

    def _row(self, entry: Entry) -> str:
        copies = self.story.model.copies(entry.id)
        spread = self.story.model.spread(copies)
        glyph, _, meaning = STATES[spread.state]
        state = spread.note or ("" if spread.state == "ok" else f"{glyph} {meaning}")
        checks = [c for e in copies for c in self.checks.get(e.id, []) if c.difference]
        times = f" ×{len(copies)}" if len(copies) > 1 else ""
        name = code(entry.path).replace("|", "\\|") if entry.name else entry.op or entry.kind
        cells = [
            inline(latex(self.equations.symbols[entry.id])),
            f"{name}{times}",
            " × ".join(map(str, entry.shape)) or "scalar",
        ]
        size = f"{spread.text} {state.replace('|', '/')}".rstrip()
        return f"| {' | '.join([*cells, size, measured(checks) or '–'])} |"


def _alike(names: str, one: str, told: list[Step]) -> str:
    """Which steps told stand for those of the other blocks too."""
    numbers = [step.number for step in told if _in(step.scope, one)]
    where = f" (steps {numbers[0]} to {numbers[-1]})" if numbers else ""
    return ALIKE.format(code(names), code(one)) + f"{where}, each in turn.*"


def _in(scope: str, outer: str) -> bool:
    return scope == outer or scope.startswith(outer + "/")
