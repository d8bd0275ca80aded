"""Rounds, with the peers in turn, and what comes out of them: medians, ratios, differences.

Ratios are taken within a round, between samples a moment apart, so that a machine that grows
slower or faster changes them little.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .answers import Answer, WrongAnswer, check, reference
from .cases import Case
from .clock import is_quiet
from .peers import Unsupported
from .processes import PeerError

__all__ = ["BASE", "Contestant", "Figure", "Result", "Settings", "measure"]

BASE = "hand-best"  # what ratios are to
SLOW = 1.0  # seconds of a step from which three rounds must do


class Contestant(Protocol):
    """A peer that can be asked; `remote.Remote` is one."""

    name: str
    title: str

    def build(self, case: Case, dtype: str) -> Answer: ...

    def sample(self, seconds: float, patience: float) -> tuple[float, bool]: ...


@dataclass(frozen=True)
class Settings:
    """How to measure."""

    dtype: str = "float32"
    rounds: int = 9
    target: float = 0.04  # seconds that a sample is to take at least
    patience: float = 10.0  # seconds to wait for an idle machine, before each sample


@dataclass(frozen=True)
class Figure:
    """A number, and whether most of what it was made of was undisturbed."""

    value: float
    quiet: bool = True


@dataclass
class Result:
    """What was measured of one case: seconds by peer, round by round, and who has none and why."""

    case: Case
    samples: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def seconds(self, name: str) -> Figure | None:
        """The median time of a step."""
        return self._figure(lambda mine, _: mine, name, name)

    def ratio(self, name: str, to: str = BASE) -> Figure | None:
        """The median over rounds of the peer's time to another's in the same round."""
        return self._figure(lambda mine, theirs: mine / theirs, name, to)

    def least_ratio(self, name: str, to: str = BASE) -> float:
        """The peer's least time to another's."""
        return min(self.samples[name]) / min(self.samples[to])

    def spread(self, name: str = BASE) -> float:
        """The longest of a peer's rounds to the shortest: 1 on a machine without other load."""
        seconds = self.samples.get(name)
        return max(seconds) / min(seconds) if seconds else 1.0

    def _figure(
        self, combine: Callable[[float, float], float], name: str, other: str
    ) -> Figure | None:
        mine, theirs = self.samples.get(name), self.samples.get(other)
        if not mine or not theirs:
            return None
        rounds = [combine(m, t) for m, t in zip(mine, theirs, strict=False)]
        return Figure(statistics.median(rounds), is_quiet(mine) and is_quiet(theirs))


def measure(case: Case, contestants: Sequence[Contestant], settings: Settings) -> Result:
    """Check every contestant's answer, then time those that are right, in turn, round by round."""
    expected = reference(case, settings.dtype)
    result = Result(case)
    for contestant in contestants:
        try:
            answer = contestant.build(case, settings.dtype)
            result.errors[contestant.name] = check(answer, expected, settings.dtype)
            result.samples[contestant.name] = []
        except Unsupported:
            continue
        except (PeerError, WrongAnswer) as error:
            result.failures[contestant.name] = str(error)
    del expected
    right = [contestant for contestant in contestants if contestant.name in result.samples]
    patience = settings.patience
    for i in range(settings.rounds):
        first = i % max(1, len(right))
        for contestant in right[first:] + right[:first]:
            taken = result.samples.get(contestant.name)
            if taken is None or (i >= 3 and min(taken) > SLOW):
                continue
            try:
                seconds, idle = contestant.sample(settings.target, patience)
                taken.append(seconds)
                # where it is never idle, waiting for it must end some day
                patience = settings.patience if idle else patience / 2
            except PeerError as error:
                result.failures[contestant.name] = str(error)
                del result.samples[contestant.name], result.errors[contestant.name]
    return result
