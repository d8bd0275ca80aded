"""A peer in a process of its own: its own BLAS, thread pools and memory, idle until it is asked.

Requests go to the child's standard input, replies come from its standard output, both pickled; the
child's side is `worker`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from .answers import Answer
from .cases import Case
from .clock import Sample
from .peers import Peer
from .spent import Spent

__all__ = ["PeerError", "Remote", "start"]

ROOT = Path(__file__).parents[1]


class PeerError(Exception):
    """A peer failed, or its process ended."""


class Remote:
    """A peer's process, from outside."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.name, self.title = peer, peer.name, peer.title
        self._log = TemporaryFile()  # whatever it and its libraries print
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker"],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def load(self) -> str:
        """Import what the peer needs; its version.  Raises: ImportError: it is not installed."""
        reply: str = self._ask("load", self.peer)
        return reply

    def build(self, case: Case, dtype: str) -> tuple[Answer, float]:
        """Make the case's step: its answer, and about how many seconds it takes.

        A process that ended over another case begins anew.

        Raises: Unsupported if the peer has no such step.
        """
        if self._process.poll() is not None:
            self._process = self._begin()
            self.load()
        reply: tuple[Answer, float] = self._ask("build", case, dtype)
        return reply

    def sample(self, steps: int, patience: float) -> Sample:
        """Time the step built last."""
        reply: Sample = self._ask("sample", steps, patience)
        return reply

    def memory(self, case: Case, dtype: str) -> float:
        """Bytes one step needs at most, beyond its inputs; best in a fresh process."""
        reply: float = self._ask("memory", case, dtype)
        return reply

    def spent(self, case: Case, dtype: str, seconds: float) -> Spent:
        """What the step's time goes to."""
        reply: Spent = self._ask("spent", case, dtype, seconds)
        return reply

    def long_chain(self, nodes: int) -> dict[str, float]:
        """Seconds of one very long chain: forward, backward, and freeing it."""
        reply: dict[str, float] = self._ask("long_chain", nodes)
        return reply

    def close(self) -> None:
        self._hang_up()
        self._log.close()

    def _hang_up(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # it ended with a request unread
                pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((f": {line[:200]}" for line in reversed(lines) if line.strip()), "")

    def _ask(self, name: str, *args: Any) -> Any:
        requests, replies = self._process.stdin, self._process.stdout
        assert requests is not None
        assert replies is not None
        try:
            pickle.dump((name, args), requests)
            requests.flush()
            value, error = pickle.load(replies)
        except (OSError, EOFError, ValueError):  # ValueError: asked again after its end
            self._hang_up()
            raise PeerError(f"its process ended{self._last_words()}") from None
        if error is not None:
            raise error
        return value


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
