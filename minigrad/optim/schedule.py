"""Schedules of the learning rate: each sets `optimizer.lr`, and nothing else.

    schedule.cosine(optimizer, steps=1000, warmup=100)    then, after each optimizer.step(), .step()

The highest learning rate of a schedule is the one that the optimizer has when the schedule is made.
During a warm-up of W steps the rate rises evenly: in step t it is (t + 1) / W of the highest. Then
the schedule begins. Only `plateau` depends on the loss, which its `step` takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import cos, inf, isfinite, pi

from ..engine.errors import ArgumentError, DTypeError
from ..engine.refusals import explained
from ..engine.tensor import Tensor
from ..engine.types import StateDict
from .optimizer import Optimizer
from .updates import ObservedSetting, check_state, update

__all__ = [
    "Plateau",
    "Schedule",
    "constant",
    "cosine",
    "exponential",
    "linear",
    "one_cycle",
    "plateau",
    "step",
]


PLATEAU_STATE = ("best", "waited", "resting", "lowest")


class Schedule:
    """A learning rate for each step: `lr_at(t)`, of which `step()` sets the next.

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

    lr = ObservedSetting()
    steps = ObservedSetting()

    def __init__(
        self, optimizer: Optimizer, factor: Callable[[int], float], warmup: int = 0
    ) -> None:
        _check_optimizer(optimizer)
        if warmup < 0:
            raise ArgumentError(f"schedule: warmup must be at least 0, got {warmup}")
        self.optimizer = optimizer
        self.factor = factor
        self.warmup = warmup
        self.lr, self.steps = optimizer.lr, 0
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

    def state_dict(self) -> StateDict:
        """The highest learning rate, and how many steps were taken."""
        return {"lr": self.lr, "steps": self.steps}

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from what `state_dict` gave.  Raises: ArgumentError for what is no such state."""
        check_state("Schedule", state, ("lr", "steps"))
        self.lr, self.steps = state["lr"], state["steps"]
        self.optimizer.lr = self.lr_at(self.steps)


@explained
def constant(optimizer: Optimizer, warmup: int = 0) -> Schedule:
    """The same learning rate throughout, after the warm-up."""
    return Schedule(optimizer, lambda t: 1.0, warmup)


@explained
def linear(optimizer: Optimizer, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Falls evenly from the highest learning rate to `end` times that, `steps` with the warm-up."""
    after = _after("linear", steps, warmup)
    return Schedule(optimizer, lambda t: 1.0 + (end - 1.0) * min(t / after, 1.0), warmup)


@explained
def cosine(optimizer: Optimizer, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Falls along half a cosine to `end` times the highest; `steps` counts the warm-up.

    Source: Loshchilov & Hutter 2017, arXiv:1608.03983.
    """
    after = _after("cosine", steps, warmup)
    return Schedule(optimizer, lambda t: _along_cosine(1.0, end, t / after), warmup)


@explained
def step(optimizer: Optimizer, every: int, factor: float = 0.1, warmup: int = 0) -> Schedule:
    """`factor` times as high after each `every` steps that follow the warm-up."""
    if every < 1:
        raise ArgumentError(f"schedule.step: every must be at least 1, got {every}")
    if not factor >= 0:
        raise ArgumentError(f"schedule: factor must be at least 0, got {factor}")
    return Schedule(optimizer, lambda t: factor ** (t // every), warmup)


@explained
def exponential(optimizer: Optimizer, factor: float, warmup: int = 0) -> Schedule:
    """`factor` times as high after each step that follows the warm-up."""
    return step(optimizer, 1, factor, warmup)


@explained
def one_cycle(
    optimizer: Optimizer,
    steps: int,
    warmup: int | None = None,
    start: float = 0.04,
    end: float = 4e-6,
) -> Schedule:
    """Rises along half a cosine from `start` times the highest, falls along another to `end` times.

    Args: warmup: steps that it rises, 30 % of all unless given.
    Source: Smith & Topin 2018, arXiv:1708.07120.
    """
    rising = round(0.3 * steps) if warmup is None else warmup
    peak, last = max(rising - 1, 0), steps - 1
    if not 0 <= peak < last:
        raise ArgumentError(
            f"schedule.one_cycle: steps must exceed warmup, got {steps} and {rising}"
        )

    def factor(t: int) -> float:
        if t < peak:
            return _along_cosine(start, 1.0, t / peak)
        return _along_cosine(1.0, end, (t - peak) / (last - peak))

    return Schedule(optimizer, factor)


@dataclass(eq=False, repr=False)
class Plateau:
    """What `plateau` gives: `step(loss)` lowers `optimizer.lr` once the loss stops falling.

    Attributes: best: the best loss so far.  waited: steps since then.
    """

    optimizer: Optimizer
    factor: float
    patience: int
    mode: str
    threshold: float
    cooldown: int
    end: float

    def __post_init__(self) -> None:
        _check_optimizer(self.optimizer)
        if self.mode not in ("min", "max"):
            raise ArgumentError(f'schedule.plateau: mode must be "min" or "max", got {self.mode!r}')
        numbers = {name: getattr(self, name) for name in ("factor", "patience", "cooldown")}
        text = any(isinstance(value, str) for value in numbers.values())
        if text or not 0 <= self.factor < 1 or self.patience < 0 or self.cooldown < 0:
            said = ", ".join(f"{name}={value!r}" for name, value in numbers.items())
            raise ArgumentError(
                "schedule.plateau: 0 <= factor < 1, patience >= 0 and cooldown >= 0 must hold, got "
                + said
            )
        self.lowest = self.end * self.optimizer.lr
        self.best = inf if self.mode == "min" else -inf
        self.waited = 0
        self.resting = 0  # steps of the cooldown that are left

    def step(self, loss: float | Tensor) -> None:
        """Compare the loss of an epoch, a number or a Tensor of one entry, with the best so far."""
        try:
            value = float(loss.item() if hasattr(loss, "item") else loss)
        except (TypeError, ValueError):
            raise DTypeError(f"Plateau.step(loss): one number, got {loss!r:.60}") from None
        with update(self, partial(Plateau.step, self, value)):
            if self._is_better(value):
                self.best = value
                self.waited = 0
            else:
                self.waited += 1
            if self.resting:
                self.resting -= 1
                self.waited = 0
            if self.waited > self.patience:
                self.optimizer.lr = max(self.optimizer.lr * self.factor, self.lowest)
                self.resting = self.cooldown
                self.waited = 0

    def _is_better(self, value: float) -> bool:
        margin = self.threshold * abs(self.best) if isfinite(self.best) else 0.0
        return value < self.best - margin if self.mode == "min" else value > self.best + margin

    def state_dict(self) -> StateDict:
        """The learning rate, the best loss, and how long ago it was."""
        return {"lr": self.optimizer.lr} | {name: getattr(self, name) for name in PLATEAU_STATE}

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from what `state_dict` gave.  Raises: ArgumentError for what is no such state."""
        check_state("Plateau", state, ("lr", *PLATEAU_STATE))
        self.optimizer.lr = state["lr"]
        for name in PLATEAU_STATE:
            setattr(self, name, state[name])


@explained
def plateau(
    optimizer: Optimizer,
    factor: float = 0.1,
    patience: int = 10,
    mode: str = "min",
    threshold: float = 1e-4,
    cooldown: int = 0,
    end: float = 0.0,
) -> Plateau:
    """`factor` times as high whenever the loss has not fallen for more than `patience` steps.

    Args:
        mode: "max" for what is to rise, such as an accuracy.
        threshold: by how much of the best a loss has to be better than it.
        cooldown: so many steps after each change are not counted.
        end: it never falls below so many times the learning rate at first.
    Raises: ArgumentError for a setting out of range.

    >>> import minigrad as mg
    >>> from minigrad.optim import SGD, schedule
    >>> optimizer = SGD([mg.tensor(1.0, requires_grad=True)], lr=0.5)
    >>> waiting = schedule.plateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     waiting.step(loss)
    >>> optimizer.lr
    0.25
    """
    return Plateau(optimizer, factor, patience, mode, threshold, cooldown, end)


def _check_optimizer(optimizer: object) -> None:
    if not (hasattr(optimizer, "lr") and hasattr(optimizer, "zero_grad")):
        kind = type(optimizer).__name__
        raise DTypeError(f"schedule: the first argument is an optimizer, got a {kind}")


def _along_cosine(first: float, last: float, progress: float) -> float:
    return last + (first - last) * (1 + cos(pi * min(progress, 1.0))) / 2


def _after(call: str, steps: int, warmup: int) -> int:
    """How many steps follow the warm-up."""
    if steps <= warmup:
        raise ArgumentError(f"schedule.{call}: steps must exceed warmup, got {steps} and {warmup}")
    return steps - warmup
