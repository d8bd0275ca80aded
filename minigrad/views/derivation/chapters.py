"""The chapters of a derivation: what is given, forward, backward step by step, what came out."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from ...recording.record import Check, Checks, Entry
from ...recording.trace import Trace
from ..fold import is_within
from ..formula import latex
from ..model import STATES, Model
from ..plain import counted, sized
from ..repeats import in_product
from ..verdict import by_derivative, by_hand
from .equations import Equations
from .markdown import code, inline
from .step_text import StepText
from .story import Step, Story
from .symbols import space

__all__ = ["Chapters"]

TITLE = "# The backward pass, written out"
READ = (
    "Each gradient has the shape of what it belongs to. Each step of the backward pass starts from "
    "the gradient of what an op made, and gives those of what the op used."
)
NOTHING = "**No gradient goes back through this trace: it is a forward pass alone.**"
AFTER = (
    "**Backward has not run in this trace: these are the rules it would apply. There are no sizes, "
    "and nothing is measured.**"
)
PASSES = (
    "- Loss: {}. {} backward passes ran in this record, each from one of these. Their gradients "
    "add up to those of the sum."
)
ELSEWHERE = "- Loss: {}, a loss that is not in this record; backward began from its gradient {}"
ALIKE = "*{} are alike, each with its own tensors: the others repeat {}{}*"
STACKS = (
    r"A product of stacks of matrices is taken matrix by matrix; $\top$ swaps the last two axes, "
    "and $X_b$ is the matrix of $X$ at $b$."
)
ONE_AXIS = (
    "In a product, an array of one axis is a row on the left and a column on the right; what a row "
    "makes is a row, and a gradient is what it belongs to."
)
GIVEN = {"Parameters": "parameter", "Inputs": "input detached", "Constants": "constant"}
MANY = 8  # leaves that are listed in one line, at most, if they are of several scopes
HEAD = "| symbol | name | shape | rms of gradient | from hand-derived |\n|---|---|---|---|---|"


class Chapters:
    def __init__(self, trace: Trace, checks: Checks) -> None:
        self.trace, self.all_checks = trace, checks
        self.checks: dict[int, list[Check]] = {}
        for check in checks:
            if check.symbol in check.symbols:
                self.checks.setdefault(check.symbols[check.symbol], []).append(check)
        self.story = Story(trace, frozenset(self.checks))
        self.equations = Equations(self.story)
        self.steps = self.story.steps()
        self.step_text = StepText(self.story, self.equations, self.checks)

    # ------------------------------------------------------------------ what is given

    def opening(self) -> list[str]:
        forward, back = len(self.trace.forward_steps), len(self.trace.backward_steps)
        ran = f"{back} backward steps, told in {len(self.steps)}" if back else "no backward step"
        parts = [TITLE, f"Written from the record of one run: {forward} forward steps and {ran}."]
        parts += [] if back else [AFTER if self.story.order else NOTHING]
        parts.append("\n".join([*self._given(), *self._loss()]))
        parts += [READ] if self.story.order else []
        return [*parts, *self._verdicts()] if self.story.ran else parts

    def _given(self) -> list[str]:
        lines, homes = [], Model(self.trace, fold=False).place
        total = sum(e.size for e in self.trace if e.kind == "parameter")
        folded = ", every copy of a block counted" if self.story.model.fold.times else ""
        for title, kinds in GIVEN.items():
            note = f" ({counted(total)} numbers in all{folded})" if title == "Parameters" else ""
            found = [e for e in self._leaves() if e.kind in kinds.split()]
            by_scope: dict[str, list[Entry]] = {}
            for e in found:
                by_scope.setdefault(homes[e.id], []).append(e)
            if len(found) > MANY and len(by_scope) > 1:
                lines.append(f"- {title}{note}:")
                for scope, some in by_scope.items():
                    where = f"in {code(scope)}: " if scope else ""
                    lines.append(f"  - {where}{self._listed(some)}")
            elif found:
                lines.append(f"- {title}: {self._listed(found)}{note}")
        return lines

    def _leaves(self) -> list[Entry]:
        return [e for e in self.trace if e.op is None and e.id in self.equations.symbols]

    def _listed(self, entries: list[Entry]) -> str:
        return ", ".join(
            inline(rf"{self.equations.name(e.id)} \in {self._home(e)}") for e in entries
        )

    def _home(self, entry: Entry) -> str:
        """Where a leaf lives; a boolean mask that is added stands for what is added."""
        home = space(entry.shape, entry.dtype)
        added = any(e.input == "mask" for e in self.trace.uses(entry))
        return home.replace(r"\{0, 1\}", r"\{0, -\infty\}") if added else home

    def _loss(self) -> list[str]:
        story, roots = self.story, self.story.roots
        if story.loss is not None:
            entry = self.trace[story.loss]
            name = f", called {code(entry.name)}" if entry.name and entry.name != "L" else ""
            value = "" if entry.value is None else f", here {float(np.ravel(entry.value)[0]):.6g}"
            return [f"- Loss: {inline('L')}{name}{value}"]
        if len(roots) > 1 and all(map(story.begins_at_one, roots)):
            total = "L = " + " + ".join(map(self.equations.name, roots))
            return [PASSES.format(inline(total), len(roots))]
        given = ", ".join(
            f"{inline(self.equations.slope(i))} (rms {self._rms(i)})"
            for i in roots
            if i in self.equations.symbols
        )
        return [ELSEWHERE.format(inline("L"), given)] if given else []

    def _rms(self, entry: int) -> str:
        return sized(self.trace[entry].gradient_rms) or "unknown"

    def _verdicts(self) -> list[str]:
        """The gradients held against hand-derived steps, then the steps against derivatives."""
        marks = {True: "✓ {}.", False: "**✗ {}.**", None: "{}."}
        found = by_hand(self.all_checks, code), by_derivative(self.all_checks)
        return [marks[one.ok].format(one.said) for one in found if one.said]

    def conventions(self) -> list[str]:
        """How products are to be read, if any here need saying."""
        uses = [e for i in self.trace.forward_steps for e in self.trace.into(self.trace[i])]
        axes = {len(self.trace[e.source].shape) for e in uses if in_product(self.trace, e)}
        return [STACKS] * (max(axes, default=0) > 2) + [ONE_AXIS] * (1 in axes)

    # ------------------------------------------------------------------ forward and backward

    def forward(self) -> list[str]:
        shown = [self.trace[i] for i in self.trace.forward_steps if i not in self.story.hosts]
        parts = ["## Forward"]
        for hidden, group in groupby(shown, key=lambda e: self.story.hidden(e.id)):
            entries = list(group)
            if hidden:
                blocks = dict.fromkeys(self.story.block(e.id) for e in entries)
                parts += [ALIKE.format(*map(code, pair), ", which follows.") for pair in blocks]
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
            elif self.story.hidden(i) and (block := self.story.block(i)) not in passed:
                passed.add(block)
                numbers = [step.number for step in told if is_within(step.scope, block[1])]
                where = f" (steps {numbers[0]} to {numbers[-1]})" if numbers else ""
                parts.append(ALIKE.format(*map(code, block), f"{where}, each in turn."))
        return parts

    # ------------------------------------------------------------------ what came out

    def results(self) -> list[str]:
        """Leaves in the order they came in, then what was computed, in backward order."""
        if not self.story.ran:
            return []
        leaves = [e for e in self.trace if e.op is None and e.gradient is not None]
        ops = [self.trace[i] for i in self.story.order if i not in self.story.hosts]
        shown = [e for e in (*leaves, *ops) if e.id in self.equations.symbols]
        rows = [self._row(e) for e in shown if not self.story.hidden(e.id)]
        if not rows:
            return []
        left = [e for e in self._leaves() if e.gradient is None]
        why = (f"{self._symbol(e)} ({self.trace.explain_missing(e)})" for e in left)
        without = [f"Without a gradient: {', '.join(why)}."] if left else []
        return ["## What came out", "\n".join([HEAD, *rows]), *without]

    def _symbol(self, entry: Entry) -> str:
        return inline(latex(self.equations.symbols[entry.id]))

    def _row(self, entry: Entry) -> str:
        copies = self.story.model.copies(entry.id)
        spread = self.story.model.spread(copies)
        glyph, meaning = STATES[spread.state]
        state = spread.note or ("" if spread.state == "ok" else f"{glyph} {meaning}")
        name = code(entry.path).replace("|", "\\|") if entry.name else entry.op or entry.kind
        cells = [
            self._symbol(entry),
            f"{name} ×{len(copies)}" if len(copies) > 1 else name,
            " × ".join(map(str, entry.shape)) or "scalar",
            f"{spread.text} {state.replace('|', '/')}".rstrip(),
            _worst([c for e in copies for c in self.checks.get(e.id, ())]),
        ]
        return f"| {' | '.join(cells)} |"


def _worst(checks: list[Check]) -> str:
    found = [c.difference for c in checks if c.difference]
    wrong = [d for d in found if not d.ok]
    worst = max((d.relative for d in wrong or found), default=None)
    if worst is None:
        return "–"
    return f"{'✗' if wrong else '✓'} {worst:.1e}" if worst else "✓ equal"
