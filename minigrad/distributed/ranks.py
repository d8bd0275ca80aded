"""Ranks: who takes part in a collective, and what one call says of itself.

Arrays travel in two ways: over MPI (over_mpi.py), and between threads of one program (threads.py),
which is for tests and for looking.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache
from types import CodeType
from typing import Any

from ..engine.context import current
from ..engine.errors import ArgumentError
from ..engine.writes import SourceLocation, caller

__all__ = ["WORLD", "Ranks", "Ticket"]


class Ranks:
    """A group of p ranks, seen by one of them.

        agree(text, place)     returns once every rank said the same text; RankError if one does not
        all_reduce(x)          the sum over ranks
        all_gather(x)          (p, *x.shape)
        reduce_scatter(x)      of x (p, ...) the sum over ranks of part r, on rank r
        broadcast(x, root)     the root's x
        shift(x, by)           the x of the rank that stands `by` before this one, in a ring
        collect(value)         what all ranks gave, small things of any kind
        split(color)           the group of the ranks that give this color, in the same order

    Attributes: rank: which of them this is.  size: how many there are.
    """

    rank: int
    size: int
    agree: Any
    all_reduce: Any
    all_gather: Any
    reduce_scatter: Any
    broadcast: Any
    shift: Any
    collect: Any
    split: Any

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    def __deepcopy__(self, memo: Any) -> Ranks:
        return self  # whoever copies a model stays in the same group


WORLD: ContextVar[Ranks | None] = ContextVar("minigrad.ranks", default=None)


class Ticket:
    """What one call of a collective says of itself: its ranks, its tensor's name, its line.

    A rule calls its collective with the ticket of the forward call, turned `back`.
    """

    __slots__ = ("label", "place", "ranks")

    def __init__(self, ranks: Ranks, label: str, place: str) -> None:
        self.ranks, self.label, self.place = ranks, label, place

    size = property(lambda self: self.ranks.size)

    def __repr__(self) -> str:
        return repr(self.ranks)

    @classmethod
    def of(cls, ranks: Any, x: Any) -> Ticket:
        """The ticket of a call with x; what is a ticket already stays."""
        if isinstance(ranks, cls):
            return ranks
        from . import world

        ranks = world() if ranks is None else ranks
        if not isinstance(ranks, Ranks):
            raise ArgumentError(f"ranks must be a group of ranks or None, got {ranks!r}")
        place = caller()
        label = getattr(x, "path", "") or current().scope
        return cls(ranks, label, _shown(place.code, place.offset))

    def back(self, op: str) -> Ticket:
        """The ticket of what the rule of `op` sends."""
        return Ticket(self.ranks, f"gradient of {self.label}", f"{self.place}, backward of {op}")

    def agree(self, op: str, x: Any, settings: dict[str, Any]) -> None:
        """Compare with the other ranks: op, name, shape, dtype and settings."""
        if self.size > 1:
            more = "".join(f", {name}={value}" for name, value in settings.items())
            self.ranks.agree(f"{op}({self.label}{more}) of {x.shape} {x.dtype}", self.place)


@lru_cache(maxsize=4096)
def _shown(code: CodeType, offset: int) -> str:
    return str(SourceLocation(code, offset))
