"""What generated source calls: memory to compute in, and parts of the rows run on threads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ..memory import empty
from ..threads import Scratch, run

__all__ = ["THREADS", "Parts"]

THREADS = 2


def _fresh(_: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array to hand out; what lies in it is the receiver's from then on."""
    return empty(shape, dtype)


class Parts:
    """Runs a function on parts of so many rows, on threads over single-threaded BLAS, and adds up
    what it returns: always in the same order, whatever the threads do.

    Args: units: rows in all.  count: parts in all.
    """

    def __init__(self, units: int, count: int) -> None:
        edges = [units * i // count for i in range(count + 1)]
        cuts = list(pairwise(edges))
        shares = [count * i // THREADS for i in range(THREADS + 1)]
        self.cuts = [cuts[a:b] for a, b in pairwise(shares)]
        self._own = [Scratch().array for _ in self.cuts]
        self._sums: list[Any] = [_fresh, *(Scratch().array for _ in self.cuts[1:])]
        self._more = [Scratch().array for _ in self.cuts]

    def __call__(self, part: Callable[..., Any]) -> Any:
        """The sums of what `part(low, high, own, sums)` returns for each part of the rows."""
        totals: list[Any] = [None] * len(self.cuts)

        def share(i: int, _: Scratch) -> None:
            first, *rest = self.cuts[i]
            totals[i] = part(*first, self._own[i], self._sums[i])
            for rows in rest:
                _add(totals[i], part(*rows, self._own[i], self._more[i]))

        run(share, range(len(self.cuts)), THREADS)
        for other in totals[1:]:
            _add(totals[0], other)
        return totals[0]


def _add(totals: Any, more: Any) -> None:
    for total, x in zip(totals or (), more or (), strict=True):
        np.add(total, x, out=total)
