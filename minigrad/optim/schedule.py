"""Schedules of the learning rate: each sets `optimizer.lr`, and nothing else.

    schedule.cosine(optimizer, steps=1000, warmup=100)    then, after each optimizer.step(), .step()

The highest learning rate of a schedule is the one that the optimizer has when the schedule is made.
During a warm-up of W steps the rate rises evenly: in step t it is (t + 1) / W of the highest. Then
the schedule begins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import cos, pi
from typing import Any

from ..engine.errors import ArgumentError
from .optimizer import Optimizer, update

__all__ = ["Schedule", "cosine", "linear", "step"]


class Schedule:
    """A learning rate for each step: `lr_at(t)`, of which `step()` sets the next.

    Args: factor: of a step after the warm-up, what the highest learning rate is multiplied by.

    >>> import minigrad as mg
    >>> from minigrad.optim import SGD, schedule
    >>> optimizer = SGD([mg.tensor(1.0, requires_grad=True)], lr=0.1)
    >>> decay = schedule.linear(optimizer, steps=4)
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     decay.step()
    >>> round(optimizer.lr, 6)
    0.025
    """

    def __init__(
        self, optimizer: Optimizer, factor: Callable[[int], float], warmup: int = 0
    ) -> None:
        if warmup < 0:
            raise ArgumentError(f"schedule: warmup must be at least 0, got {warmup}")
        self.optimizer = optimizer
        self.factor = factor
        self.warmup = warmup
        self.lr = optimizer.lr
        self.steps = 0
        optimizer.lr = self.lr_at(0)

    def lr_at(self, t: int) -> float:
        """The learning rate of step t, which counts from 0."""
        if t < self.warmup:
            return float(self.lr * (t + 1) / self.warmup)
        return float(self.lr * self.factor(t - self.warmup))

    def step(self) -> None:
        """Set the learning rate of the next step; call it after `optimizer.step()`."""
        with update(self, partial(Schedule.step, self)):
            self.steps += 1
            self.optimizer.lr = self.lr_at(self.steps)

    def state_dict(self) -> dict[str, Any]:
        """The highest learning rate, and how many steps were taken."""
        return {"lr": self.lr, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.lr, self.steps = state["lr"], state["steps"]
        self.optimizer.lr = self.lr_at(self.steps)


def linear(optimizer: Optimizer, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Falls evenly from the highest learning rate to `end` times that, `steps` with the warm-up."""
    after = _after("linear", steps, warmup)
    return Schedule(optimizer, lambda t: 1.0 + (end - 1.0) * min(t / after, 1.0), warmup)


def cosine(optimizer: Optimizer, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Falls along half a cosine to `end` times the highest; `steps` counts the warm-up.

    Source: Loshchilov & Hutter 2017, arXiv:1608.03983.
    """
    after = _after("cosine", steps, warmup)
    return Schedule(
        optimizer, lambda t: end + (1.0 - end) * (1.0 + cos(pi * min(t / after, 1.0))) / 2, warmup
    )


def step(optimizer: Optimizer, every: int, factor: float = 0.1, warmup: int = 0) -> Schedule:
    """`factor` times as high after each `every` steps that follow the warm-up."""
    if every < 1:
        raise ArgumentError(f"schedule.step: every must be at least 1, got {every}")
    return Schedule(optimizer, lambda t: factor ** (t // every), warmup)


def _after(name: str, steps: int, warmup: int) -> int:
    if steps <= warmup:
        raise ArgumentError(f"schedule.{name}: steps must exceed warmup, got {steps} and {warmup}")
    return steps - warmup
