"""The sections of a derivation: what is given, forward, backward step by step, what came out."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from ...recording.checks import CheckResult, Checks
from ...recording.record import Entry
from ...recording.trace import TraceRecord
from ..fold import prefixes
from ..formula import latex
from ..labels import by_hand, by_step, by_value
from ..model import STATES, AnnotatedTrace
from ..plain import counted, sized
from ..repeats import in_product
from .equations import Equations
from .markdown import code, inline, listed
from .plan import DerivationPlan, DerivationStep
from .step_text import StepText
from .symbols import space

__all__ = ["Sections"]

TITLE = "# The backward pass, written out"
HOW_TO_READ = (
    "Each gradient has the shape of what it belongs to. Each step of the backward pass starts from "
    "the gradient of what an op made, and gives those of what the op used."
)
NO_BACKWARD = "**No gradient goes back through this trace: it is a forward pass alone.**"
BACKWARD_NOT_RUN = (
    "**Backward has not run in this trace: these are the rules it would apply. There are no sizes, "
    "and nothing is measured.**"
)
SEVERAL_PASSES = (
    "- Loss: {}. {} backward passes ran in this record, each from one of these. Their gradients "
    "add up to those of the sum."
)
WRITTEN = "- Leaves that were written to between their uses: {}"
LOSS_ELSEWHERE = (
    "- Loss: {}, a loss that is not in this record; backward began from its gradient {}"
)
COPIES_ALIKE = "*{} are alike, each with its own tensors: the others repeat {}{}*"
STACKS = (
    r"A product of stacks of matrices is taken matrix by matrix; $\top$ swaps the last two axes, "
    "and $X_b$ is the matrix of $X$ at $b$."
)
ONE_AXIS = (
    "In a product, an array of one axis is a row on the left and a column on the right; what a row "
    "makes is a row, and a gradient is what it belongs to."
)
LEAF_TITLES = {
    "Parameters": "parameter",
    "Leaves with a gradient": "leaf",
    "Inputs": "input detached",
    "Constants": "constant",
}
MOST_LEAVES_IN_A_LINE = 8  # if they are of several scopes
RESULTS_HEADER = (
    "| symbol | name | shape | rms of gradient | from hand-derived |\n|---|---|---|---|---|"
)


class Sections:
    def __init__(self, trace: TraceRecord, checks: Checks) -> None:
        self.trace, self.all_checks = trace, checks
        self.checks: dict[int, list[CheckResult]] = {}
        for check in checks:
            if check.step is not None:
                self.checks.setdefault(check.step, []).append(check)
        self.plan = DerivationPlan(trace, frozenset(self.checks))
        self.equations = Equations(self.plan)
        self.steps = self.plan.steps()
        self.step_text = StepText(self.plan, self.equations, self.checks)

    # ------------------------------------------------------------------ what is given

    def opening(self) -> list[str]:
        forward, back = len(self.trace.forward_steps), len(self.trace.backward_steps)
        ran = f"{back} backward steps, told in {len(self.steps)}" if back else "no backward step"
        parts = [TITLE, f"Written from the record of one run: {forward} forward steps and {ran}."]
        parts += [] if back else [BACKWARD_NOT_RUN if self.plan.order else NO_BACKWARD]
        parts.append("\n".join([*self._given(), *self._loss()]))
        parts += [HOW_TO_READ] if self.plan.order else []
        return [*parts, *self._verdicts()] if self.plan.ran else parts

    def _given(self) -> list[str]:
        lines, homes = [], AnnotatedTrace(self.trace, fold=False).place
        parameters = [e for e in self.trace if e.kind == "parameter"]
        total = sum(e.size for e in parameters if e.value_number == 1)
        folded = ", every copy of a block counted" if self.plan.model.fold.times else ""
        for title, kinds in LEAF_TITLES.items():
            note = f" ({counted(total)} numbers in all{folded})" if title == "Parameters" else ""
            found = [e for e in self._leaves() if e.kind in kinds.split()]
            by_scope: dict[str, list[Entry]] = {}
            for e in found:
                by_scope.setdefault(homes[e.id], []).append(e)
            if len(found) > MOST_LEAVES_IN_A_LINE and len(by_scope) > 1:
                lines.append(f"- {title}{note}:")
                for scope, some in by_scope.items():
                    where = f"in {code(scope)}: " if scope else ""
                    lines.append(f"  - {where}{self._listed(some)}")
            elif found:
                lines.append(f"- {title}: {self._listed(found)}{note}")
        values: dict[int, list[str]] = {}
        for e in self._leaves():
            values.setdefault(e.leaf, []).append(self._symbol(e))
        written = "; ".join(", then ".join(each) for each in values.values() if len(each) > 1)
        return [*lines, *([WRITTEN.format(written)] if written else [])]

    def _leaves(self) -> list[Entry]:
        return [e for e in self.trace if e.op is None and e.id in self.equations.symbols]

    def _listed(self, entries: list[Entry]) -> str:
        return ", ".join(
            inline(rf"{self.equations.name(e.id)} \in {self._home(e)}") for e in entries
        )

    def _home(self, entry: Entry) -> str:
        """The space of a leaf; of a boolean mask, the space of what it adds to scores."""
        home = space(entry.shape, entry.dtype)
        added = any(e.input == "mask" for e in self.trace.uses(entry))
        return home.replace(r"\{0, 1\}", r"\{0, -\infty\}") if added else home

    def _loss(self) -> list[str]:
        plan, roots = self.plan, self.plan.roots
        if plan.loss is not None:
            entry = self.trace[plan.loss]
            name = f", called {code(entry.name)}" if entry.name and entry.name != "L" else ""
            value = "" if entry.value is None else f", here {float(np.ravel(entry.value)[0]):.6g}"
            return [f"- Loss: {inline('L')}{name}{value}"]
        if len(roots) > 1 and all(map(plan.begins_at_one, roots)):
            total = "L = " + " + ".join(map(self.equations.name, roots))
            return [SEVERAL_PASSES.format(inline(total), len(roots))]
        seeds = ", ".join(
            f"{inline(self.equations.slope(i))} (rms {sized(self.trace[i].gradient_rms)})"
            for i in roots
            if i in self.equations.symbols
        )
        return [LOSS_ELSEWHERE.format(inline("L"), seeds)] if seeds else []

    def _verdicts(self) -> list[str]:
        """Gradients compared with hand-derived steps, then steps with numeric derivatives."""
        marks = {True: "✓ {}.", False: "**✗ {}.**", None: "{}."}
        checks = self.all_checks
        found = [by_value(checks), by_hand(checks, code), *by_step(checks)]
        return [marks[one.ok].format(one.said) for one in found if one.said]

    def conventions(self) -> list[str]:
        """How the products of this run are to be read, where that may be unclear."""
        uses = [e for i in self.trace.forward_steps for e in self.trace.into(self.trace[i])]
        axes = {len(self.trace[e.source].shape) for e in uses if in_product(self.trace, e)}
        return [STACKS] * (max(axes, default=0) > 2) + [ONE_AXIS] * (1 in axes)

    # ------------------------------------------------------------------ forward and backward

    def forward(self) -> list[str]:
        shown = [self.trace[i] for i in self.trace.forward_steps if i not in self.plan.inlined]
        parts = ["## Forward"]
        for block, group in groupby(shown, key=lambda entry: self.plan.hidden(entry.id)):
            entries = list(group)
            if block:
                parts.append(self._alike(block, f", which follows.{self._others(block)}"))
                continue
            for scope, run in groupby(entries, key=self.plan.model.scope_of):
                parts += [f"In {code(scope)}:"] if scope else []
                parts.append(self.step_text.forward(list(run)))
        return parts

    def _alike(self, block: str, more: str) -> str:
        names = self.plan.model.fold.copies[block]
        return COPIES_ALIKE.format(code(self.plan.model.fold.name(block)), code(names[-1]), more)

    def _others(self, block: str) -> str:
        """What hidden copies use and make in the place of what the shown copy uses and makes."""
        fold, symbols = self.plan.model.fold, self.equations.symbols
        names, said = fold.copies[block], []
        replaced = {
            (self.equations.name(edge.source), self.equations.name(place)): None
            for edge, place in self.plan.replaced(block)
            if edge.source in symbols and place in symbols
        }
        for one, place in replaced:
            said.append(f"In {code(names[0])}, {inline(one)} has the place of {inline(place)}.")
        alike: dict[int, list[int]] = {}
        for i in symbols:
            if self.trace[i].op and self.plan.hidden(i) == block:
                alike.setdefault(self.plan.shown(i), []).append(i)
        for twin, others in alike.items():
            here = listed([inline(self.equations.name(i)) for i in others])
            copies = listed([code(names[fold.numbers(i)[block]]) for i in others])
            verb, there = "are" if len(others) > 1 else "is", inline(self.equations.name(twin))
            said.append(f"{here} {verb} to {copies} what {there} is to {code(names[-1])}.")
        return "".join(f" {one}" for one in said)

    def backward(self) -> list[str]:
        if not self.plan.order:
            return []
        parts, passed = ["## Backward"], set[str]()
        if self.plan.loss is not None:
            seed = self.equations.slope(self.plan.loss)
            parts.append(f"It begins at the loss, with {inline(seed + ' = 1')}.")
        first = {step.through[0]: step for step in self.steps}
        done: list[DerivationStep] = []
        for i in self.plan.order:
            if i in first:
                done.append(first[i])
                parts += self.step_text.step(first[i])
            elif (block := self.plan.hidden(i)) and block not in passed:
                passed.add(block)
                parts += self._repeated(block, done)
        return parts

    def _repeated(self, block: str, done: list[DerivationStep]) -> list[str]:
        """That the other copies of a block repeat its steps, and the gradients that differ."""
        fold, symbols = self.plan.model.fold, self.equations.symbols
        names = fold.copies[block]
        numbers = [step.number for step in done if block in fold.numbers(step.through[0])]
        said = f" (steps {numbers[0]} to {numbers[-1]})" if numbers else ""
        said += ", each in turn."
        edges = self.plan.leading_into(block, symbols.keys())
        for edge, twin in edges:
            name = code(names[fold.numbers(edge.target)[block]])
            here, there = (inline(self.step_text.contribution(one)) for one in (edge, twin))
            said += f" {name} gives {here} where {code(names[-1])} gives {there}."
        sources = dict.fromkeys(edge.source for edge, _ in edges)
        users = [self.plan.shown_in(edge.target) for edge, _ in edges]
        totals = [part for i in sources for part in self.step_text.total(i, users)]
        return [self._alike(block, said), *totals]

    # ------------------------------------------------------------------ what came out

    def results(self) -> list[str]:
        """Leaves in the order of the record, then what was computed, in backward order."""
        if not self.plan.ran:
            return []
        leaves = [e for e in self.trace if e.op is None and e.gradient is not None]
        ops = [self.trace[i] for i in self.plan.order]
        shown = [e for e in (*leaves, *ops) if e.id in self.equations.symbols]
        rows = [self._row(e) for e in shown if not self.plan.hidden(e.id)]
        left = [e for e in self._leaves() if e.gradient is None]
        why = (f"{self._symbol(e)} ({self.trace.explain_missing(e)})" for e in left)
        without = [f"Without a gradient: {', '.join(why)}."] if left else []
        return ["## What came out", "\n".join([RESULTS_HEADER, *rows]), *without]

    def _symbol(self, entry: Entry) -> str:
        return inline(latex(self.equations.symbols[entry.id]))

    def _row(self, entry: Entry) -> str:
        copies = self.plan.model.copies(entry.id)
        spread = self.plan.model.spread(copies)
        glyph, meaning = STATES[spread.state]
        state = spread.note or ("" if spread.state == "ok" else f"{glyph} {meaning}")
        fold = self.plan.model.fold
        scopes = [fold.name(scope) for scope in prefixes(fold.place[entry.id])]
        whole = "/".join([*scopes, self.plan.model.label(entry)])
        path = whole if len(copies) > 1 else self.plan.model.path_of(entry)
        name = code(path).replace("|", "\\|") if entry.name else entry.op or entry.kind
        cells = [
            self._symbol(entry),
            f"{name} ×{len(copies)}" if len(copies) > 1 else name,
            " × ".join(map(str, entry.shape)) or "scalar",
            f"{spread.text} {state.replace('|', '/')}".rstrip(),
            _worst([self.checks.get(e.id, []) for e in copies]),
        ]
        return f"| {' | '.join(cells)} |"


def _worst(copies: list[list[CheckResult]]) -> str:
    """The largest difference from hand-derived steps, and for how many copies it was measured."""
    measured = [[c for c in checks if c.difference is not None] for checks in copies]
    found = [c for checks in measured for c in checks]
    copies_measured = sum(map(bool, measured))
    some = copies_measured < len(copies)
    of = f" ({copies_measured} of {len(copies)})" if some else ""
    wrong = [c for c in found if not c.ok]
    worst = max((c.difference or 0.0 for c in wrong or found), default=None)
    if worst is None:
        return "–"
    return (f"{'✗' if wrong else '✓'} {worst:.1e}" if worst else "✓ equal") + of
