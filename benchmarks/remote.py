"""A peer in a process of its own, idle until it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import worker
from .answers import Answer
from .cases import Case
from .peers import Peer
from .processes import PeerError, Process, ProcessEnded

__all__ = ["Remote", "start"]


class Remote:
    """A peer's process, from outside."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.name, self.title = peer, peer.name, peer.title
        self._process: Process | None = None

    def load(self) -> str:
        """Import what the peer needs; its version.  Raises: ImportError: it is not installed."""
        self._process = Process()
        version: str = self._ask("load", self.peer)
        return version

    def build(self, case: Case, dtype: str) -> Answer:
        """Make the case's step: its answer. A process that ended over another begins anew.

        Raises: Unsupported if the peer has no such step.
        """
        if self._process is None:
            self.load()
        reply: Answer = self._ask("build", case, dtype)
        return reply

    def sample(self, seconds: float, patience: float) -> tuple[float, bool]:
        """Seconds of the step built last, and whether the machine was idle before."""
        reply: tuple[float, bool] = self._ask("sample", seconds, patience)
        return reply

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _ask(self, name: str, *args: Any) -> Any:
        assert self._process is not None, "load first"
        try:
            return self._process.ask(worker.answer_to, name, *args)
        except ProcessEnded:
            self.close()
            raise


def start(peers: Iterable[Peer]) -> tuple[list[Remote], dict[str, str], dict[str, str]]:
    """Start all that are installed: the processes, their versions, who is missing and why."""
    remotes, versions, missing = [], {}, {}
    for remote in [Remote(peer) for peer in peers]:
        try:
            versions[remote.name] = remote.load()
            remotes.append(remote)
        except (ImportError, PeerError) as error:
            missing[remote.name] = str(error)
            remote.close()
    return remotes, versions, missing
