"""In the peer's own process: builds, times and weighs its steps as it is asked."""

from __future__ import annotations

import gc
import os
from itertools import pairwise
from time import perf_counter
from typing import Any

from . import clock
from .answers import Answer, answer
from .cases import Case
from .peers import Minigrad, Peer, Step, Unsupported

__all__ = ["PeerError", "answer_to", "long_chain", "quiet"]


class PeerError(Exception):
    """A peer failed, or its process ended."""


class _Worker:
    """What the process does when asked."""

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

    def long_chain(self, nodes: int) -> dict[str, float]:
        return long_chain(self.peer, nodes)


_worker = _Worker()


def answer_to(name: str, *args: Any) -> Any:
    """Do what is asked; errors in a form that every process can read."""
    try:
        return getattr(_worker, name)(*args)
    except (ImportError, Unsupported) as reason:
        raise type(reason)(str(reason)) from None
    except Exception as reason:
        raise PeerError(f"{type(reason).__name__}: {reason}"[:300]) from None


def quiet() -> None:
    """Whatever libraries print goes to standard error."""
    os.dup2(2, 1)


def _about(step: Step) -> float:
    """Seconds of a step, roughly."""
    step()
    start, count = perf_counter(), 0
    while count == 0 or (perf_counter() - start < 0.01 and count < 100):
        step()
        count += 1
    return (perf_counter() - start) / count


def long_chain(peer: Peer, nodes: int) -> dict[str, float]:
    """Seconds of so many additions of a number to a number, forward, backward, and to free them.

    Raises: ArithmeticError if the gradient is not 1.
    """
    if not isinstance(peer, Minigrad):
        raise Unsupported("only minigrad makes nodes")
    x = peer.mg.tensor(1.0, requires_grad=True)
    gc.collect()
    times = [perf_counter()]
    y = x
    for _ in range(nodes):
        y = y + 1e-9
    times.append(perf_counter())
    y.backward()
    times.append(perf_counter())
    del y
    times.append(perf_counter())
    if float(x.grad) != 1.0:
        raise ArithmeticError(f"a chain of {nodes} additions: the gradient is {x.grad}, not 1")
    taken = [later - earlier for earlier, later in pairwise(times)]
    return dict(zip(("forward", "backward", "to be freed"), taken, strict=True))
