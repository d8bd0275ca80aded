"""The time of a step, taken while nothing else wants the machine.

Three signs tell that something else did: threads of this process queued for a core, the machine's
cores were busy with more than this process, or the sample is far slower than the fastest (a virtual
machine does not see its neighbours). A sample with such a sign is taken again, until it is quiet or
patience ends. Threads that queue although the machine was idle may queue behind their own kind, for
some engines start more than there are cores, and a slow sample may be as it should: both are
believed when three in a row agree. Without /proc, which is Linux's, only slowness is seen.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time, sleep

__all__ = ["Load", "Sample", "load_since", "mark", "sample", "wait_until_idle", "watched"]

QUEUED = 0.03  # of the time, from which a sample counts as disturbed
OTHERS = 0.1  # of a core
TICK = 0.01  # seconds: what /proc/stat counts in
FAR = 1.25  # times the fastest sample, from which one is doubted
AGREE = 1.1  # samples within this factor agree


@dataclass(frozen=True)
class Sample:
    """Seconds of one step, and whether they can be trusted."""

    seconds: float
    quiet: bool


@dataclass(frozen=True)
class Load:
    """What else went on, as parts of the time that passed."""

    queued: float  # our threads waited for a core
    others: float  # cores at work for someone else

    @property
    def disturbed(self) -> bool:
        return self.queued > QUEUED or self.others > OTHERS


@dataclass(frozen=True)
class Mark:
    """Counters at one moment, in seconds."""

    wall: float
    own: float
    queued: float
    busy: float


def watched() -> bool:
    """Whether this system says how busy it is."""
    return os.path.exists("/proc/self/task") and os.path.exists("/proc/stat")


def mark() -> Mark:
    """The counters now."""
    queued = busy = 0.0
    if watched():
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/schedstat") as file:
                    queued += int(file.read().split()[1]) / 1e9
            except OSError:  # the thread has ended
                continue
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) * TICK
    return Mark(perf_counter(), process_time(), queued, busy)


def load_since(before: Mark) -> Load:
    """What else went on since; a tick or two of /proc/stat may be our own."""
    now = mark()
    wall = now.wall - before.wall
    others = (now.busy - before.busy) - (now.own - before.own) - 2 * TICK
    return Load(max(0.0, now.queued - before.queued) / wall, max(0.0, others) / wall)


def sample(
    step: Callable[[], object], steps: int, patience: float, fastest: float = float("inf")
) -> Sample:
    """Time so many steps, waiting up to `patience` seconds for quiet; the mean of one.

    fastest: seconds of the fastest sample so far.
    """
    deadline = perf_counter() + patience
    taken: list[float] = []  # seconds of what no one else is known to have disturbed
    least = (float("inf"), 0.0)
    while True:
        idle = wait_until_idle(deadline)
        step()  # caches and thread pools wake up
        before = mark()
        start = perf_counter()
        for _ in range(steps):
            step()
        seconds = (perf_counter() - start) / steps
        load = load_since(before)
        if idle and not load.disturbed and seconds < FAR * fastest:
            return Sample(seconds, True)
        least = min(least, (load.queued + load.others, seconds))
        if idle and load.others <= OTHERS:
            taken.append(seconds)
            last = taken[-3:]
            if len(last) == 3 and max(last) < AGREE * min(last):
                return Sample(statistics.median(last), True)
        if perf_counter() > deadline:
            return Sample(least[1], False)


def wait_until_idle(deadline: float) -> bool:
    """Wait until no other thread runs, ours included: some pools spin for a while after work."""
    while True:
        if all(_alone() for _ in range(3)):
            return True
        if perf_counter() > deadline:
            return False
        sleep(0.01)


def _alone() -> bool:
    sleep(0.002)
    if not watched():
        return True
    with open("/proc/loadavg") as file:
        return int(file.read().split()[3].partition("/")[0]) <= 1
