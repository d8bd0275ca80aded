"""Rounds, with the peers in turn, and what comes out of them: medians, ratios, differences.

Ratios are taken within a round, between samples a moment apart, so that a machine that grows
slower or faster changes them little.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from .answers import Answer, WrongAnswer, check, reference
from .cases import Case
from .clock import Sample
from .peers import Unsupported
from .worker import PeerError

__all__ = ["BASE", "Contestant", "Figure", "Result", "Settings", "measure"]

BASE = "hand-best"  # what ratios are to
SLOW = 1.0  # seconds of a step from which three rounds must do


class Contestant(Protocol):
    """A peer that can be asked; `remote.Remote` is one."""

    name: str
    title: str

    def build(self, case: Case, dtype: str) -> tuple[Answer, float]: ...

    def sample(self, steps: int, patience: float) -> Sample: ...


@dataclass(frozen=True)
class Settings:
    """How to measure."""

    dtype: str = "float32"
    rounds: int = 9
    target: float = 0.04  # seconds that a sample is to take at least
    patience: float = 10.0  # seconds to wait for quiet, each sample


@dataclass(frozen=True)
class Figure:
    """A number, and whether most of what it was made of was undisturbed."""

    value: float
    quiet: bool = True


@dataclass
class Result:
    """What was measured of one case: samples by peer, round by round, and who has none and why."""

    case: Case
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def seconds(self, name: str) -> Figure | None:
        """The median time of a step."""
        if not self.samples.get(name):
            return None
        quiet = [sample.seconds for sample in self.samples[name] if sample.quiet]
        return _figure(quiet, [sample.seconds for sample in self.samples[name]])

    def ratio(self, name: str, to: str = BASE) -> Figure | None:
        """The median over rounds of the peer's time to another's in the same round."""
        return self._paired(name, to, lambda mine, theirs: mine / theirs)

    def least_ratio(self, name: str, to: str = BASE) -> float:
        """The peer's least time to another's."""
        mine, theirs = (min(one.seconds for one in self.samples[who]) for who in (name, to))
        return mine / theirs

    def spread(self, name: str = BASE) -> float:
        """The longest of a peer's rounds to the shortest: 1 on a machine without other load."""
        seconds = [one.seconds for one in self.samples.get(name, ())]
        return max(seconds) / min(seconds) if seconds else 1.0

    def beyond(self, name: str, base: str = BASE) -> Figure | None:
        """The median over rounds of the seconds it takes more than another in the same round."""
        return self._paired(name, base, lambda mine, theirs: mine - theirs)

    def growth(self, name: str, shorter: Result) -> Figure | None:
        """The median time to that of another case."""
        mine, theirs = self.seconds(name), shorter.seconds(name)
        if mine is None or theirs is None:
            return None
        return Figure(mine.value / theirs.value, mine.quiet and theirs.quiet)

    def _paired(
        self, name: str, base: str, combine: Callable[[float, float], float]
    ) -> Figure | None:
        if not self.samples.get(name) or not self.samples.get(base):
            return None
        rounds = list(zip(self.samples[name], self.samples[base], strict=False))
        quiet = [combine(m.seconds, b.seconds) for m, b in rounds if m.quiet and b.quiet]
        return _figure(quiet, [combine(m.seconds, b.seconds) for m, b in rounds])

    def data(self) -> dict[str, Any]:
        """All of it, and the figures, for JSON."""
        peers = {
            name: {
                "seconds": _plain(self.seconds(name)),
                f"ratio to {BASE}": _plain(self.ratio(name)),
                "error": self.errors[name],
                "samples": [asdict(sample) for sample in samples],
            }
            for name, samples in self.samples.items()
        }
        return {"case": self.case.name, "title": self.case.title, "peers": peers} | {
            "failures": self.failures
        }


def _figure(quiet: Sequence[float], every: Sequence[float]) -> Figure:
    """The median of what is quiet, or of all where that is less than half."""
    enough = 2 * len(quiet) >= len(every)
    return Figure(statistics.median(quiet if enough else every), enough)


def _plain(figure: Figure | None) -> dict[str, Any] | None:
    return None if figure is None else asdict(figure)


def measure(case: Case, contestants: Sequence[Contestant], settings: Settings) -> Result:
    """Check every contestant's answer, then time those that are right, in turn, round by round."""
    expected = reference(case, settings.dtype)
    result, steps = Result(case), {}
    for one in contestants:
        try:
            given, seconds = one.build(case, settings.dtype)
            result.errors[one.name] = check(given, expected, settings.dtype)
        except Unsupported:
            continue
        except (PeerError, WrongAnswer) as error:
            result.failures[one.name] = str(error)
            continue
        steps[one.name] = max(1, round(settings.target / seconds)), seconds
        result.samples[one.name] = []
    del expected
    right = [one for one in contestants if one.name in steps]
    patience = settings.patience
    for i in range(settings.rounds):
        first = i % max(1, len(right))
        for one in right[first:] + right[:first]:
            count, seconds = steps[one.name]
            if one.name in result.failures or (seconds > SLOW and i >= 3):
                continue
            try:
                sample = one.sample(count, patience)
                result.samples[one.name].append(sample)
                # where it is never quiet, waiting for it must end some day
                patience = settings.patience if sample.quiet else patience / 2
            except PeerError as error:
                result.failures[one.name] = str(error)
                del result.samples[one.name], result.errors[one.name]
    return result
