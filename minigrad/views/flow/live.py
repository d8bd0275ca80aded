"""The page of a run that still trains, served on this machine alone.

A reader cannot slow the training: the server answers one request at a time and rests after each,
and writes news at most once a second. Nor can it stop it: what fails in an answer stays there, and
its threads end with the process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from ...recording.flow import FlowRecord
from ..serving import Served
from .page import flow_content, flow_html

__all__ = ["Live"]

SECONDS_OF_REST = 0.05  # after an answer
SECONDS_FRESH = 1.0  # in which news are not made anew
SECONDS_AFTER_END = 3.0  # in which readers, who ask each second, get the last state


class Live:
    """Serves a record until it is closed. Attributes: address: what to open in a browser."""

    def __init__(self, flow: FlowRecord) -> None:
        self.news = _Fresh(lambda: json.dumps(flow_content(flow, traces=False)).encode())
        self.page = _Fresh(lambda: flow_html(flow, live=f"{self.address}news").encode())
        routes = {
            "": ("GET", "text/html", lambda _: self.page()),
            "news": ("GET", "application/json", lambda _: self.news()),
        }
        self._served = Served(routes, rest=SECONDS_OF_REST)
        self.address = self._served.address
        print(f"mg.watch: the run is at {self.address}", flush=True)

    def close(self) -> None:
        """Serve the last state for a moment, then nothing; training does not wait for it."""
        self.news.outdate()
        self.page.outdate()
        self._served.close(after=SECONDS_AFTER_END)


class _Fresh:
    """A function's result, made again when older than a second and twenty times its own cost."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._made = b""
        self._until = 0.0
        self._outdated = 0  # how often `outdate` was called

    def outdate(self) -> None:
        """Make it again at the next call, also if it is being made now."""
        self._outdated += 1
        self._until = 0.0

    def __call__(self) -> bytes:
        start = time.monotonic()
        if start >= self._until:
            before = self._outdated
            self._made = self._make()
            end = time.monotonic()
            if self._outdated == before:
                self._until = end + max(SECONDS_FRESH, 20 * (end - start))
        return self._made
