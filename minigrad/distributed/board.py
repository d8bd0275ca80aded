"""The board: a page of shared memory for each rank, which says what the rank is about to do.

Before a collective runs, each rank writes on its page which one it is, then waits until every other
rank has written the same. A rank that does something else, or is gone, becomes an error that names
ranks, calls and lines, where MPI alone would wait for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ..engine.errors import ArgumentError, RankError
from ..engine.types import Array

__all__ = ["PAGE", "Board", "wait_limit", "waiting"]

PAGE = np.dtype([
    ("number", np.int64),  # of the rank's latest collective
    ("state", np.int64),
    ("waits_for", np.int64),  # 1 + a rank; 0 for none
    ("sends_since", np.int64),  # in nanoseconds; 0 while no array travels
    ("text", "S240", 2),  # what must agree, of two collectives in turn: none is overwritten unread
    ("place", "S112", 2),  # where each stands in the program
    ("reason", "S352"),  # why the rank failed
])  # fmt: skip
RUNS, ENDED, FAILED = range(3)  # states
RULE = "every rank must make the same collectives in the same order"
REMEDY = "a step is compiled on every rank or on none: calls 2, 4, 8, … run twice, to be compared"
WAIT = 60.0  # seconds that a rank waits for another, unless MINIGRAD_WAIT says otherwise
LOOK_AFTER, SURE_AFTER = 0.05, 1.0  # seconds of waiting: to look around, to call it a deadlock


def wait_limit() -> float:
    """How many seconds a rank waits for another. Raises: ArgumentError for what is no such number.

    >>> wait_limit()
    60.0
    """
    said = os.environ.get("MINIGRAD_WAIT", str(WAIT))
    try:
        limit = float(said)
    except ValueError:
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise ArgumentError(f"MINIGRAD_WAIT must be a number of seconds above 0, is {said!r}")
    return limit


def waiting(is_done: Callable[[], bool]) -> Iterator[float]:
    """Until something is done; gives, now and then, for how many seconds it was not."""
    began = time.monotonic()
    spins = 0
    while not is_done():
        spins += 1
        time.sleep(0 if spins < 500 else 5e-5)
        if spins % 500 == 0:
            yield time.monotonic() - began


class Board:
    """The pages of a group of ranks, seen by one of them.

    Args:
        pages: (p,) of dtype PAGE, which every rank of the group sees.
        ranks: the number of each rank in the whole program.
        world: the board of the whole program, which knows who ended; itself unless given.
        sync: makes what was written visible to others.
    """

    def __init__(
        self,
        pages: Array,
        rank: int,
        ranks: list[int],
        world: Board | None = None,
        sync: Callable[[], None] = lambda: None,
    ) -> None:
        self.pages = pages
        self.numbers, self.texts = pages["number"], pages["text"]
        self.rank = rank
        self.ranks = ranks
        self.world = world or self
        self.sync = sync
        self.number = 0

    def agree(self, text: str, place: str) -> None:
        """Write what is to be done, and return once every rank has written the same.

        Raises: RankError where one wrote something else, is gone, or waits for this one.
        """
        self.number += 1
        turn = self.number % 2
        own = text.encode()[-self.texts.itemsize :]
        self.texts[self.rank, turn] = own
        places = self.pages["place"]
        places[self.rank, turn] = place.encode()[-places.itemsize :]
        self.sync()
        self.numbers[self.rank] = self.number
        self.sync()
        for other in range(len(self.ranks)):
            if self.numbers[other] < self.number:
                self._wait(other, text, place)
        if (self.texts[:, turn] != own).any():
            raise RankError(self._disagreement())

    def end(self, reason: str = "") -> None:
        """This rank takes no further part: its program ended, or failed for that reason."""
        self.pages["reason"][self.rank] = reason.encode()
        self.pages["state"][self.rank] = FAILED if reason else ENDED
        self.sync()

    # ------------------------------------------------------------------ within

    def _call(self, rank: int, number: int) -> tuple[str, str]:
        """What a rank wrote before that collective: its text and its place."""
        page = self.pages[rank]
        return _text(page["text"][number % 2]), _text(page["place"][number % 2])

    def _wait(self, other: int, text: str, place: str) -> None:
        circle = False
        me, limit = self.ranks[self.rank], wait_limit()
        world = self.world
        try:
            for waited in waiting(lambda: self._has_come(other)):
                if waited < LOOK_AFTER:
                    continue
                world.pages["waits_for"][me] = self.ranks[other] + 1
                why = world.why_gone(self.ranks[other])
                late = waited > SURE_AFTER and world.waits_in_circle(me)
                if not why and late and circle:
                    why = "it waits for another collective, which needs a rank that waits for it"
                if not why and waited > limit:
                    where = world.last_words(self.ranks[other]) or "it has ended"
                    why = f"nothing of it for {limit:g} s (MINIGRAD_WAIT); {where}"
                if why and not self._has_come(other):
                    raise RankError(
                        f"rank {me} waits in {text}\n  at {place}\n"
                        f"  for rank {self.ranks[other]}, which will not come: {why}\n"
                        f"  {RULE}, backward too: a rank that does not use a result adds 0 times "
                        f"its sum to the loss\n  {REMEDY}"
                    )
                circle = late
        finally:
            world.pages["waits_for"][me] = 0

    def _has_come(self, other: int) -> bool:
        self.sync()
        return bool(self.numbers[other] >= self.number)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """While arrays travel, the page says since when: a rank cannot look around by itself."""
        since, me = self.world.pages["sends_since"], self.ranks[self.rank]
        since[me] = time.monotonic_ns()
        try:
            yield
        finally:
            since[me] = 0

    def stuck(self, limit: float) -> str:
        """Who has been sending for longer than that, and where all others are; empty if nobody."""
        now, since = time.monotonic_ns(), self.pages["sends_since"]
        waiting = [rank for rank in self.ranks if 0 < since[rank] < now - limit * 1e9]
        if not waiting:
            return ""
        lines = [
            f"rank {rank}: {'waits for the others, ' if rank in waiting else ''}"
            f"{self.last_words(rank) or 'has ended'}"
            for rank in self.ranks
        ]
        said = f"nothing travels between ranks for {limit:g} s (MINIGRAD_WAIT): one is stopped, or"
        return "\n  ".join([f"{said} does something else; all are ended", *lines]) + "\n"

    def why_gone(self, rank: int) -> str:
        """Why a rank takes no further part; empty while it runs."""
        page = self.pages[rank]
        if page["state"] == FAILED:
            return f"it failed: {_text(page['reason'])}"
        return "its program has ended" if page["state"] == ENDED else ""

    def last_words(self, rank: int) -> str | None:
        """Where a rank is that has not ended, else empty; None once any rank has failed."""
        if FAILED in self.pages["state"]:
            return None
        if self.pages["state"][rank] == ENDED:
            return ""
        text, place = self._call(rank, int(self.numbers[rank]))
        return f"last in {text}\n  at {place}" if place else "before its first collective"

    def waits_in_circle(self, rank: int) -> bool:
        """Whether a rank waits for one that waits for … an earlier rank of this chain."""
        seen: set[int] = set()
        while rank >= 0 and rank not in seen:
            seen.add(rank)
            rank = int(self.pages["waits_for"][rank]) - 1
        return rank >= 0

    def _disagreement(self) -> str:
        lines = [f"ranks disagree on collective {self.number}:"]
        for other, rank in enumerate(self.ranks):
            text, place = self._call(other, self.number)
            lines.append(f"rank {rank}: {text}\n    at {place}")
        return "\n  ".join([*lines, RULE, REMEDY])


def _text(written: bytes) -> str:
    return written.decode(errors="replace")
