"""Ranks: who takes part in a collective, and what identifies one call.

Arrays travel in two ways: over MPI (over_mpi.py), and between threads of one program (threads.py),
which is for tests and for looking.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import TypeVar

import numpy as np

from ..engine.context import current
from ..engine.errors import ArgumentError
from ..engine.types import Array
from ..engine.writes import SourceLocation, caller

__all__ = ["WORLD", "CollectiveCall", "Ranks"]

T = TypeVar("T")


class Ranks:
    """A group of p ranks, seen by one of them: collectives on whole arrays in C order.

    Each kind of group says how ranks agree, collect and split; MPI does the rest faster.

    Attributes: rank: which of them this is.  size: how many there are.
    """

    rank: int
    size: int

    def agree(self, text: str, place: str) -> None:
        """Return once every rank has said the same text. Raises: RankError where one does not."""
        raise NotImplementedError

    def collect(self, value: T) -> list[T]:
        """What each rank gave: small things of any kind."""
        raise NotImplementedError

    def split(self, color: int) -> Ranks:
        """The group of those ranks that give this color, in the same order."""
        raise NotImplementedError

    def all_reduce(self, x: Array) -> Array:
        return _sum(self.collect(x))

    def all_gather(self, x: Array) -> Array:
        """(p, *x.shape)"""
        return np.stack(self.collect(x))

    def reduce_scatter(self, x: Array) -> Array:
        """Of x (p, ...) the sum over ranks of part r, on rank r."""
        return _sum([parts[self.rank] for parts in self.collect(x)])

    def broadcast(self, x: Array, root: int) -> Array:
        return self.collect(x)[root].copy()

    def shift(self, x: Array, by: int) -> Array:
        """The x of the rank that stands `by` before this one, in a ring."""
        return self.collect(x)[(self.rank - by) % self.size].copy()

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    def __deepcopy__(self, memo: dict[int, object]) -> Ranks:
        return self  # whoever copies a model stays in the same group


def _sum(parts: list[Array]) -> Array:
    """In the order of ranks, so that each gets the same bits; of float16 in float32."""
    first = parts[0].astype(np.float32 if parts[0].dtype == np.float16 else parts[0].dtype)
    return sum(parts[1:], first).astype(parts[0].dtype)


WORLD: ContextVar[Ranks | None] = ContextVar("minigrad.ranks", default=None)


@dataclass(eq=False, repr=False, slots=True)
class CollectiveCall:
    """Of one call of a collective: its ranks, its tensor's name, its line.

    A rule calls its collective with the CollectiveCall of the forward call, turned `back`.
    """

    ranks: Ranks
    label: str
    place: str

    size = property(lambda self: self.ranks.size)

    def __repr__(self) -> str:
        return repr(self.ranks)

    @classmethod
    def of(cls, ranks: Ranks | CollectiveCall | None, x: object) -> CollectiveCall:
        """That of a call with x; what is a CollectiveCall already stays."""
        if isinstance(ranks, cls):
            return ranks
        from . import world

        ranks = world() if ranks is None else ranks
        if not isinstance(ranks, Ranks):
            raise ArgumentError(f"ranks must be a group of ranks or None, got {ranks!r}")
        place = caller()
        label = getattr(x, "path", "") or current().scope
        return cls(ranks, label, _shown(place.code, place.offset))

    def back(self, op: str) -> CollectiveCall:
        """That of what the rule of `op` sends."""
        return CollectiveCall(
            self.ranks, f"gradient of {self.label}", f"{self.place}, backward of {op}"
        )

    def agree(self, op: str, x: Array, settings: dict[str, int]) -> None:
        """Compare with the other ranks: op, name, shape, dtype and settings."""
        if self.size > 1:
            more = "".join(f", {name}={value}" for name, value in settings.items())
            repeated = any(listener.repeats_step for listener in current().listeners)
            again = ", again, to compare" if repeated else ""
            text = f"{op}({self.label}{more}) of {x.shape} {x.dtype}{again}"
            self.ranks.agree(text, self.place)


@lru_cache(maxsize=4096)
def _shown(code: CodeType, offset: int) -> str:
    return str(SourceLocation(code, offset))
