"""Ranks as threads of one program: the same collectives and the same checks, without MPI.

Arrays are handed over in memory. It is for tests and for looking, not for speed.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any, TypeVar, TypeVarTuple

import numpy as np

from ..engine.errors import ArgumentError, RankError
from .board import PAGE, Board
from .ranks import WORLD, Ranks

__all__ = ["ThreadGroup", "ThreadRanks", "run"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class ThreadGroup:
    """What threads share: the pages of their board, and two rows of what they send, in turn."""

    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks
        self.pages = np.zeros(len(ranks), PAGE)
        self.rows: list[list[Any]] = [[None] * len(ranks) for _ in range(2)]


class ThreadRanks(Ranks):
    """One thread's view of its group."""

    def __init__(self, group: ThreadGroup, rank: int, world: Board | None = None) -> None:
        self.group = group
        self.rank = rank
        self.size = len(group.ranks)
        self.board = Board(group.pages, rank, group.ranks, world)

    def agree(self, text: str, place: str) -> None:
        self.board.agree(text, place)

    def collect(self, value: T) -> list[T]:
        """What each rank gave; an array is copied, for its rank may overwrite it meanwhile."""
        row = self.group.rows[self.board.number % 2]
        row[self.rank] = value.copy() if isinstance(value, np.ndarray) else value
        self.board.agree("", "")
        return list(row)

    def split(self, color: int) -> Ranks:
        self.agree("split", "")
        alike = [r for r, other in enumerate(self.collect(color)) if other == color]
        made = self.collect(ThreadGroup([self.group.ranks[r] for r in alike]))
        return ThreadRanks(made[alike[0]], alike.index(self.rank), self.board.world)


def run(size: int, function: Callable[[*Arguments], T], *args: *Arguments) -> list[T]:
    """Call `function(*args)` on that many ranks, each a thread; what each returned.

    Raises: what the first rank raised, all others having ended too.

    >>> from minigrad import distributed as dist
    >>> run(2, lambda: dist.all_reduce(np.ones(3) * dist.world().rank))
    [array([1., 1., 1.]), array([1., 1., 1.])]
    """
    if size < 1:
        raise ArgumentError(f"run: size must be at least 1, got {size}")
    group = ThreadGroup([*range(size)])
    results: dict[int, T] = {}
    errors: dict[BaseException, int] = {}

    def work(rank: int) -> None:
        ranks = ThreadRanks(group, rank)
        WORLD.set(ranks)
        try:
            results[rank] = function(*args)
            ranks.board.end()
        except BaseException as error:
            errors[error] = rank
            ranks.board.end(f"{type(error).__name__}: {error}")

    threads = [Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda error: isinstance(error, RankError)):
        error.add_note(f"on rank {errors[error]} of {size}")
        raise error
    return [results[rank] for rank in range(size)]
