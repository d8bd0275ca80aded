"""How large the gradients of a run are, and what was measured against hand-derived steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..formula import latex, parse
from ..model import STATES
from ..plain import sized
from .notation import code, inline

if TYPE_CHECKING:
    from ...recording.record import Check, Edge, Entry
    from .equations import Equations
    from .story import Story

__all__ = ["Sizes", "measured"]


class Sizes:
    def __init__(
        self, story: Story, equations: Equations, checks: Mapping[int, Sequence[Check]]
    ) -> None:
        self.story, self.trace, self.checks = story, story.trace, checks
        self.equations = equations

    def of(self, sources: Sequence[int]) -> list[str]:
        """The rms of gradients, and the difference from hand-derived ones where it was measured."""
        if not self.story.ran:
            return []
        ids = list(dict.fromkeys(sources))
        lines = []
        for i in ids:
            entry = self.trace[i]
            glyph, _, meaning = STATES[entry.state]
            state = "" if entry.state == "ok" else f" ({glyph} {meaning})"
            said = [f"rms of {inline(self.equations.slope(i))}: {sized(entry.gradient_rms)}{state}"]
            said += [self.held_against(c) for c in self.checks.get(i, []) if c.difference]
            lines.append("; ".join(said))
        if any(self.checks.get(i) for i in ids):
            return ["\n".join(f"- {line}" for line in lines)]
        return [f"{'; '.join(lines)}."] if lines else []

    def held_against(self, check: Check) -> str:
        found = check.difference
        assert found is not None
        step = f"hand-derived step {check.number}, {code(check.title)}"
        uses = self.story.live_uses(self.trace[check.symbols[check.symbol]])
        inside = [e for e in uses if _within(self.trace[e.target].scope, check.scope)]
        part = f"the part from within {code(check.scope)}: " if len(inside) < len(uses) else ""
        if found.ok:
            how = f"within {found.relative:.1e} of" if found.relative else "equal to"
            return f"✓ {part}{how} {step}"
        formula = inline(latex(parse(check.formula)))
        return (
            f"**✗** {part}{step} gives {formula}, which differs: relative difference "
            f"{found.relative:.1e}, allowed {found.tolerance:.1e}; at {list(found.index)} "
            f"here {found.engine:.6g}, by the formula {found.formula:.6g}"
        )

    def of_terms(self, source: Entry, uses: list[Edge]) -> list[str]:
        """How large each term is, and how much of them is left once they are added."""
        if not self.story.ran or source.gradient is None:
            return []
        each = ", ".join(
            f"through {inline(self.equations.name(teller))} {sized(edge.contribution_rms)}"
            for teller, edge in ((self.story.teller(edge.target), edge) for edge in uses)
        )
        norms = sum(float(np.linalg.norm(np.asarray(e.contribution, np.float64))) for e in uses)
        left = (
            float(np.linalg.norm(np.asarray(source.gradient, np.float64))) / norms if norms else 0.0
        )
        return [
            f"Sizes (rms) of the terms: {each}; the norm of their sum is {left:.0%} of the sum "
            "of their norms."
        ]


def measured(checks: Sequence[Check]) -> str:
    """The worst of some differences that were measured, marked."""
    found = [c.difference for c in checks if c.difference]
    if not found:
        return ""
    wrong = [d for d in found if not d.ok]
    worst = max(d.relative for d in (wrong or found))
    return f"{'✗' if wrong else '✓'} {worst:.1e}" if worst else "✓ equal"


def _within(scope: str, outer: str) -> bool:
    return not outer or scope == outer or scope.startswith(outer + "/")
