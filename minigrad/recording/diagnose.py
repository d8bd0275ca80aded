"""What went wrong in a training run, in words: the figures, the step where it began, what to try.

A limit is relative to the run itself wherever theory gives one. Gradients that theory says are 0 (a
key's bias) are told apart while they are measured. Each rule yields findings; `causes` sorts them.
"""

from __future__ import annotations

from .findings import Findings, causes, merged
from .flow import FlowRecord
from .requests import attention_moved
from .rules_gradients import dead, exploding, not_finite, saturated, vanishing
from .rules_loss import (
    clipped,
    diverging,
    guessing,
    oscillating,
    overfitting,
    plateau,
    slow,
    too_fast,
    weight_decay,
    wrong_sign,
)
from .rules_setup import GIVEN, not_learning, one_class, structure, unused_rows
from .watched_run import WatchedRun

__all__ = ["diagnose"]

RULES = (
    attention_moved, structure, *map(not_learning, GIVEN), one_class, wrong_sign, unused_rows,
    not_finite, exploding, saturated, dead, not_learning("zero"), vanishing,
    weight_decay, clipped, slow, oscillating, diverging, too_fast, overfitting,
)  # fmt: skip
"""Of one rank, in which order one follows from another."""


def diagnose(flow: FlowRecord) -> Findings:
    """The causes that the record shows; that a loss stands still, where nothing explains it."""
    run = WatchedRun(flow)
    found = [one for rule in RULES if (one := merged([*rule(run)]))]
    if not found or all(one.kind == "random in evaluation" for one in found):
        found += [*guessing(run)] or [*plateau(run)]
    return Findings(causes(found, run.samples[0].step if run.samples else 0))
