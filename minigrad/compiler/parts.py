"""What generated source calls: memory to compute in, and parts of the rows run on threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from itertools import pairwise
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

__all__ = ["LARGE", "THREADS", "Parts", "Spare"]

THREADS = 2

LARGE = 1 << 15  # bytes from which a fresh array costs more than looking for one handed back


class Spare:
    """Arrays to hand out: one that was handed out before and that nobody holds any more, or a new
    one. Memory that is given back to the system and asked for anew is slow: every page is cleared
    again.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype
        self.arrays: list[Any] = []

    def __call__(self) -> Any:
        for array in self.arrays:
            if getrefcount(array) == 3:  # the list, the loop, the count; a view holds its array too
                return array
        array = np.empty(self.shape, self.dtype)
        if len(self.arrays) < 3:
            self.arrays.append(array)
        return array


class _Fresh:
    """Arrays to hand out, each slot its own."""

    def __init__(self) -> None:
        self._spares: dict[int, Spare] = {}

    def __call__(self, slot: int, shape: tuple[int, ...], dtype: Any) -> Any:
        spare = self._spares.get(slot)
        if spare is None:
            spare = self._spares[slot] = Spare(shape, dtype)
        return spare()


class _Own:
    """Memory of one thread, used again from part to part."""

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}

    def __call__(self, slot: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array with arbitrary entries; the next one in this slot takes its place."""
        size = prod(shape) * np.dtype(dtype).itemsize
        memory = self._memory.get(slot)
        if memory is None or memory.nbytes < size:
            memory = self._memory[slot] = np.empty(size, np.uint8)
        return np.ndarray(shape, dtype, memory)


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
        self._own = [_Own() for _ in self.cuts]
        self._sums: list[Any] = [_Fresh(), *(_Own() for _ in self.cuts[1:])]
        self._more = [_Own() for _ in self.cuts]

    def __call__(self, part: Callable[..., Any]) -> Any:
        """The sums of what `part(low, high, own, sums)` returns for each part of the rows."""
        totals: list[Any] = [None] * len(self.cuts)

        def share(i: int) -> None:
            first, *rest = self.cuts[i]
            totals[i] = part(*first, self._own[i], self._sums[i])
            for rows in rest:
                _add(totals[i], part(*rows, self._own[i], self._more[i]))

        _at_once(share, len(self.cuts))
        for other in totals[1:]:
            _add(totals[0], other)
        return totals[0]


def _at_once(share: Callable[[int], None], count: int) -> None:
    """Call `share(i)` for each i, the first here and each other on a thread, and wait for all."""
    others = [_helpers.submit(copy_context().run, share, i) for i in range(1, count)]
    try:
        share(0)
    finally:
        wait(others)
    for other in others:
        other.result()


def _new_helpers() -> None:
    """Threads that wait for work: starting one for each call would take 0.1 ms. A forked child has
    none of its parent's.
    """
    global _helpers
    _helpers = ThreadPoolExecutor(THREADS - 1, "minigrad")


_helpers: ThreadPoolExecutor
_new_helpers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_helpers)


def _add(totals: Any, more: Any) -> None:
    for total, x in zip(totals or (), more or (), strict=True):
        np.add(total, x, out=total)
