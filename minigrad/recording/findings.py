"""What a diagnosis gives: causes, each with what was measured, what to try and what follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Finding", "Findings", "causes", "merged"]


@dataclass(frozen=True)
class Finding:
    """One problem: its kind in a word or two, the step where it began, and its row.

    Attributes: symptoms: other problems of the run that follow from it.
    """

    kind: str
    step: int
    path: str
    text: str
    remedy: str
    symptoms: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        where = f", {self.path}" if self.path else ""
        follows = f"\n  so also: {self.follows}" if self.symptoms else ""
        return f"step {self.step}: {self.kind}{where}: {self.text}{follows}\n  try: {self.remedy}"

    @property
    def follows(self) -> str:
        """The symptoms in a line."""
        return ", ".join(f"{one.kind} from step {one.step}" for one in self.symptoms)


class Findings(list[Finding]):
    """All findings; printed, a few lines each, or that there are none."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) if self else "nothing found"

    def __repr__(self) -> str:
        kinds = ", ".join(self.kinds)
        return f"Findings: {len(self)} ({kinds}), which print() tells" if self else str(self)

    @property
    def kinds(self) -> list[str]:
        """The causes; what follows from them stands in each one's `symptoms`."""
        return [*dict.fromkeys(finding.kind for finding in self)]


def merged(alike: list[Finding]) -> Finding | None:
    """What a rule found in several rows: the first of them, and where else."""
    if len(alike) < 2:
        return alike[0] if alike else None
    first = min(alike, key=lambda finding: finding.step)
    others = ", ".join(finding.path for finding in alike if finding is not first)
    return replace(first, text=f"{first.text}; and {len(alike) - 1} more: {_short(others)}")


def _short(names: str) -> str:
    return names if len(names) < 120 else f"{names[:119]}…"


# ------------------------------------------------------------------ causes and symptoms

HARMLESS = ("attention moved", "unused rows", "random in evaluation", "no gradient", "overfitting")
"""From these nothing else follows."""

PATHWAY = ("exploding", "vanishing", "saturated", "dead units", "zero gradient", "not finite")
UPDATE = ("weight decay", "clipped", "slow", "oscillating", "diverging", "update ratio")
OUTCOME = ("no better than guessing", "plateau")


def causes(found: Iterable[Finding], first: int) -> list[Finding]:
    """Causes in order, with their symptoms.

    The setup of the run comes first; then values and gradients before any update, in the sample at
    step `first`; then the updates, values and gradients after them, and at last the loss. What
    comes after the first cause follows from it, except problems of the setup and harmless ones.
    """
    ordered = sorted(found, key=lambda finding: _rank(finding, first))
    root = next((one for one in ordered if one.kind not in HARMLESS), None)
    if root is None:
        return ordered
    symptoms = tuple(
        one
        for one in ordered
        if one is not root and one.kind in (*PATHWAY, *UPDATE, *OUTCOME) and one.kind != root.kind
    )
    return [
        replace(one, symptoms=symptoms) if one is root else one
        for one in ordered
        if one not in symptoms
    ]


def _rank(finding: Finding, first: int) -> int:
    if finding.kind in PATHWAY:
        return 1 if finding.step <= first else 3
    return 2 if finding.kind in UPDATE else 4 if finding.kind in OUTCOME else 0
