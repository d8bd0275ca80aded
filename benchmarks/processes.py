"""A process of its own: its own BLAS, thread pools and memory, idle until it is asked."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

__all__ = ["PeerError", "Process", "ProcessEnded"]


class PeerError(Exception):
    """A peer failed."""


class ProcessEnded(PeerError):
    """Its process ended."""


class Process:
    """Runs functions one by one; what they keep in their modules stays there."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, _print_to_stderr)

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """Raises: what the function raises; ProcessEnded."""
        try:
            return self._pool.submit(function, *args).result()
        except BrokenProcessPool:
            raise ProcessEnded("its process ended") from None

    def close(self) -> None:
        self._pool.shutdown()


def _print_to_stderr() -> None:
    """Whatever libraries print goes to standard error."""
    os.dup2(2, 1)
