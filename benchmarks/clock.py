"""The time of a step: the least of many, on a machine that is as idle as it will be.

Other load can only add to a step's time, so the least of interleaved rounds is what counts, and a
median far above the least says that there was some. Without /proc, which is Linux's, nobody waits
for an idle machine.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, process_time, sleep
from typing import NamedTuple, TypeVar

__all__ = ["Times", "is_quiet", "least", "turns", "wait_until_idle"]

FAR = 1.25  # times the least: where half of the rounds are above it, there was other load
LOAD = "/proc/loadavg"
T = TypeVar("T")


class Times(NamedTuple):
    """Seconds of a step: that passed, and of all cores."""

    wall: float
    cpu: float


def least(step: Callable[[], object], seconds: float) -> Times:
    """The least times of a step that is taken for about so many seconds, once at least."""
    found, began = Times(float("inf"), float("inf")), perf_counter()
    while perf_counter() - began < seconds or found.wall == float("inf"):
        cpu = process_time()
        start = perf_counter()
        step()
        wall = perf_counter() - start
        found = Times(min(found.wall, wall), min(found.cpu, process_time() - cpu))
    return found


def turns(rounds: int, contestants: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """What each gives, by name, when they take turns."""
    found: dict[str, list[T]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, take in contestants.items():
            found[name].append(take())
    return found


def is_quiet(seconds: Sequence[float]) -> bool:
    """Whether other load disturbed less than half of these rounds."""
    return statistics.median(seconds) < FAR * min(seconds)


def wait_until_idle(patience: float) -> bool:
    """Wait until no thread runs, ours included: some pools spin for a while after work."""
    deadline = perf_counter() + patience
    while not all(_is_alone() for _ in range(3)):
        if perf_counter() > deadline:
            return False
        sleep(0.01)
    return True


def _is_alone() -> bool:
    sleep(0.002)
    if not os.path.exists(LOAD):
        return True
    with open(LOAD) as file:
        return int(file.read().split()[3].partition("/")[0]) <= 1
