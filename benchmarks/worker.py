"""The child's side of `remote`: builds, times and weighs one peer's steps as it is asked.

Requests come by standard input, replies go by standard output, both pickled; whatever libraries
print goes to standard error.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from time import perf_counter
from typing import Any

from . import clock, memory, spent
from .answers import Answer, answer
from .cases import Case
from .peers import Peer, Step, Unsupported
from .remote import PeerError


class _Worker:
    """What the child does when asked."""

    peer: Peer
    step: Step | None = None
    fastest = 0.0  # seconds of that step so far

    def load(self, peer: Peer) -> str:
        self.peer = peer
        return peer.load()

    def build(self, case: Case, dtype: str) -> tuple[Answer, float]:
        self.step = None  # the last case's arrays go first
        gc.collect()
        step = self.step = self.peer.step(case, case.inputs(dtype))
        given = answer(case, step, self.peer)
        if excuse := self.peer.excuse():
            raise PeerError(excuse)
        self.fastest = _about(step)
        return given, self.fastest

    def sample(self, steps: int, patience: float) -> clock.Sample:
        assert self.step is not None, "sample before build"
        sample = clock.sample(self.step, steps, patience, self.fastest)
        self.fastest = min(self.fastest, sample.seconds)
        return sample

    def memory(self, case: Case, dtype: str) -> float:
        return memory.peak(self.peer, case, dtype)

    def spent(self, case: Case, dtype: str, seconds: float) -> spent.Spent:
        return spent.spend(self.peer, case, dtype, seconds)

    def long_chain(self, nodes: int) -> dict[str, float]:
        return spent.long_chain(self.peer, nodes)


def _about(step: Step) -> float:
    """Seconds of a step, roughly."""
    step()
    start, count = perf_counter(), 0
    while count == 0 or (perf_counter() - start < 0.01 and count < 100):
        step()
        count += 1
    return (perf_counter() - start) / count


def main() -> None:
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    worker = _Worker()
    while True:
        try:
            name, args = pickle.load(requests)
        except EOFError:
            return
        value: Any = None
        error: Exception | None = None
        try:
            value = getattr(worker, name)(*args)
        except (ImportError, Unsupported) as reason:
            error = type(reason)(str(reason))
        except Exception as reason:
            error = PeerError(f"{type(reason).__name__}: {reason}"[:300])
        pickle.dump((value, error), replies)
        replies.flush()


if __name__ == "__main__":
    main()
