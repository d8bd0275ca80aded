"""A peer in a process of its own: its own BLAS, thread pools and memory, idle until it is asked."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from . import worker
from .answers import Answer
from .cases import Case
from .clock import Sample
from .peers import Peer

__all__ = ["Remote", "start"]

ROOT = Path(__file__).parents[1]


class Remote:
    """A peer's process, from outside."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.name, self.title = peer, peer.name, peer.title
        self._process: ProcessPoolExecutor | None = None

    def load(self) -> str:
        """Import what the peer needs; its version.  Raises: ImportError: it is not installed."""
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, spawn, worker.quiet)
        version: str = self._ask("load", self.peer)
        return version

    def build(self, case: Case, dtype: str) -> tuple[Answer, float]:
        """Make the case's step: its answer, and about how many seconds it takes.

        A process that ended over another case begins anew.

        Raises: Unsupported if the peer has no such step.
        """
        if self._process is None:
            self.load()
        reply: tuple[Answer, float] = self._ask("build", case, dtype)
        return reply

    def sample(self, steps: int, patience: float) -> Sample:
        """Time the step built last."""
        reply: Sample = self._ask("sample", steps, patience)
        return reply

    def long_chain(self, nodes: int) -> dict[str, float]:
        """Seconds of one very long chain: forward, backward, and freeing it."""
        reply: dict[str, float] = self._ask("long_chain", nodes)
        return reply

    def close(self) -> None:
        if self._process is not None:
            self._process.shutdown()
            self._process = None

    def _ask(self, name: str, *args: Any) -> Any:
        assert self._process is not None, "load first"
        try:
            return self._process.submit(worker.answer_to, name, *args).result()
        except BrokenProcessPool:
            self.close()
            raise worker.PeerError("its process ended") from None


def start(peers: Iterable[Peer]) -> tuple[list[Remote], dict[str, str], dict[str, str]]:
    """Start all that are installed: the processes, their versions, who is missing and why."""
    remotes, versions, missing = [], {}, {}
    for remote in [Remote(peer) for peer in peers]:
        try:
            versions[remote.name] = remote.load()
            remotes.append(remote)
        except (ImportError, worker.PeerError) as error:
            missing[remote.name] = str(error)
            remote.close()
    return remotes, versions, missing
