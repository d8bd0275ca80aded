"""In the peer's own process: builds, times and weighs its steps as it is asked."""

from __future__ import annotations

import gc
from typing import Any

from .answers import Answer, answer
from .cases import Case
from .clock import least, wait_until_idle
from .peers import Peer, Step, Unsupported
from .processes import PeerError

__all__ = ["answer_to"]


WARM = 8  # calls before any is timed: a compiled step is recorded, compared and written


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
        found = answer(step, self.peer)
        if excuse := self.peer.excuse():
            raise PeerError(excuse)
        for _ in range(WARM):
            step()
        return found

    def sample(self, seconds: float, patience: float) -> tuple[float, bool]:
        assert self.step is not None, "sample before build"
        idle = wait_until_idle(patience)
        self.step()  # caches and thread pools wake up
        return least(self.step, seconds).wall, idle


_worker = _Worker()


def answer_to(name: str, *args: Any) -> Any:
    """Do what is asked; errors in a form that every process can read."""
    try:
        return getattr(_worker, name)(*args)
    except (ImportError, Unsupported) as reason:
        raise type(reason)(str(reason)) from None
    except Exception as reason:
        raise PeerError(f"{type(reason).__name__}: {reason}"[:300]) from None
