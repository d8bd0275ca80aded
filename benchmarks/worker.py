"""In the peer's own process: builds, times and weighs its steps as it is asked."""

from __future__ import annotations

import gc
from itertools import pairwise
from time import perf_counter
from typing import Any

from .answers import Answer, answer
from .cases import Case
from .clock import least, wait_until_idle
from .peers import Minigrad, Peer, Step, Unsupported
from .processes import PeerError

__all__ = ["answer_to", "long_chain"]


class _Worker:
    """What the process does when asked."""

    peer: Peer
    step: Step | None = None

    def load(self, peer: Peer) -> str:
        self.peer = peer
        return peer.load()

    def build(self, case: Case, dtype: str) -> Answer:
        self.step = None  # the last case's arrays go first
        gc.collect()
        step = self.step = self.peer.step(case, case.inputs(dtype))
        found = answer(case, step, self.peer)
        if excuse := self.peer.excuse():
            raise PeerError(excuse)
        return found

    def sample(self, seconds: float, patience: float) -> tuple[float, bool]:
        assert self.step is not None, "sample before build"
        idle = wait_until_idle(patience)
        self.step()  # caches and thread pools wake up
        return least(self.step, seconds).wall, idle

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
