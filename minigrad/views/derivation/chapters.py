"""The chapters of a derivation: forward, backward step by step, and a table of what came out."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ..model import STATES, ranged
from .notation import code, inline
from .said import templates
from .sizes import measured
from .story import Story
from .told import Told

if TYPE_CHECKING:
    from ...recording.record import Check, Entry
    from ...recording.trace import Trace

__all__ = ["Chapters"]

TOGETHER = 4  # trivial steps told as one, at most
ALIKE = "*{} are alike, each with its own tensors: the others repeat {}"


class Chapters:
    def __init__(self, trace: Trace, checks: list[Check]) -> None:
        self.trace = trace
        self.checks: dict[int, list[Check]] = {}
        for check in checks:
            if check.symbol in check.symbols:
                self.checks.setdefault(check.symbols[check.symbol], []).append(check)
        self.story = Story(trace, frozenset(self.checks))
        self.told = Told(self.story, self.checks)
        self.steps = self._steps()

    def _steps(self) -> list[list[int]]:
        """What each step goes through. Trivial ones that follow one another are one step."""
        steps: list[list[int]] = []
        for i in self.story.order:
            if self.story.teller(i) != i or self.story.blocks.hidden(i):
                continue
            joined = (
                steps
                and len(steps[-1]) < TOGETHER
                and self._trivial(i)
                and self._trivial(steps[-1][-1])
            )
            if joined and self.trace[i].scope == self.trace[steps[-1][-1]].scope:
                steps[-1].append(i)
            else:
                steps.append([i])
        return steps

    def _trivial(self, i: int) -> bool:
        """Whether a step only passes on what it got, rearranged or scaled."""
        entry = self.trace[i]
        rules = templates(self.trace, entry)[1].values()
        sizes = {self.trace[e.source].size for e in self.trace.into(entry) if self.story.live(e)}
        bare = all(rule.count("<") == rule.count("<g>") + rule.count("<factor>") for rule in rules)
        once = sum(map(self.story.live, self.trace.into(entry))) == 1
        return bare and once and sizes == {entry.size} and i not in self.story.roots

    # ------------------------------------------------------------------ forward and backward

    def forward(self) -> list[str]:
        shown = [self.trace[i] for i in self.trace.forward_steps if i not in self.story.hosts]
        parts = ["## Forward"]
        for hidden, group in groupby(shown, key=lambda e: self.story.blocks.hidden(e.id)):
            entries = list(group)
            if hidden:
                names = dict.fromkeys(self.story.blocks.block(e.id) for e in entries)
                parts += [
                    ALIKE.format(code(all_), code(one)) + ", which follows.*" for all_, one in names
                ]
                continue
            for scope, run in groupby(entries, key=lambda e: e.scope):
                parts += [f"In {code(scope)}:"] if scope else []
                parts.append(self.told.forward(list(run)))
        return parts

    def backward(self) -> list[str]:
        parts, number, passed = ["## Backward"], 0, set[tuple[str, str]]()
        if not self.story.order:
            return []
        parts += [self.told.seed()] if self.story.loss is not None else []
        blocks = self.story.blocks
        first = {step[0]: step for step in self.steps}
        told: dict[int, str] = {}  # number of a step: its scope
        for i in self.story.order:
            if i in first:
                number += 1
                told[number] = self.trace[i].scope
                parts += self.told.step(number, first[i])
            elif blocks.hidden(i) and (block := blocks.block(i)) not in passed:
                passed.add(block)
                steps = [n for n, scope in told.items() if _in(scope, block[1])]
                where = f" (steps {min(steps)} to {max(steps)})" if steps else ""
                parts.append(
                    ALIKE.format(code(block[0]), code(block[1])) + f"{where}, each in turn.*"
                )
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
            if e.op is None and e.gradient is None and e.id in self.story.symbols
        ]
        why = ", ".join(
            f"{inline(self.story.symbols[e.id].tex())} ({self.trace.explain_missing(e)})"
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
            if not self.story.blocks.hidden(e.id) and e.id in self.story.symbols
        ]

    def _row(self, entry: Entry) -> str:
        copies = self.story.blocks.copies(entry.id)
        sizes = [size for e in copies if (size := e.gradient_rms) is not None]
        glyph = "" if entry.state == "ok" else f" {STATES[entry.state][0]} {STATES[entry.state][2]}"
        checks = [c for e in copies for c in self.checks.get(e.id, []) if c.difference]
        times = f" ×{len(copies)}" if len(copies) > 1 else ""
        name = code(entry.path).replace("|", "\\|") if entry.name else entry.op or entry.kind
        cells = [
            inline(self.story.symbols[entry.id].tex()),
            f"{name}{times}",
            " × ".join(map(str, entry.shape)) or "scalar",
        ]
        return f"| {' | '.join([*cells, ranged(sizes) + glyph, measured(checks) or '–'])} |"


def _in(scope: str, outer: str) -> bool:
    return scope == outer or scope.startswith(outer + "/")
