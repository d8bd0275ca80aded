"""The steps of a derivation: what each goes back through, in the order backward went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...recording.record import Edge
    from .story import Story

__all__ = ["Step", "steps"]

TOGETHER = 4  # trivial steps told as one, at most


@dataclass
class Step:
    """One step: the entries whose gradient it starts from, and the uses that it sends back to."""

    number: int
    through: list[int]
    edges: list[Edge]
    scope: str


def steps(story: Story) -> list[Step]:
    """All steps. Trivial ones that follow one another in a scope are one step."""
    made: list[Step] = []
    for i in story.order:
        if story.teller(i) != i or story.hidden(i):
            continue
        scope = story.trace[i].scope
        if made and made[-1].scope == scope and _joins(story, made[-1], i):
            made[-1].through.append(i)
            made[-1].edges += story.used(i)
        else:
            made.append(Step(len(made) + 1, [i], story.used(i), scope))
    return made


def _joins(story: Story, step: Step, i: int) -> bool:
    few = len(step.through) < TOGETHER
    return few and story.is_trivial(i) and story.is_trivial(step.through[-1])
