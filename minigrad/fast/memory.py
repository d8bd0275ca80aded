"""Memory of large arrays, used again once nobody holds it.

What a step frees goes back to the system, and for the next step each page is mapped and cleared
anew: an array of a megabyte then takes ten times as long to write. So kernels and rules put large
results where earlier ones lay, in an array of `empty`.

Its base is a `Loan`, as is the base of its views and their buffers: whoever holds any of them holds
the loan. The block beneath returns to the pool when the loan itself is gone. Nothing counts
references.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from math import prod
from sys import maxsize

import numpy as np
from numpy import ndarray
from numpy.typing import DTypeLike

from ..engine.types import Array
from .limits import LIMITS

__all__ = ["by_size", "empty", "empty_as", "release"]

# ---------------------------------------------------------------- blocks and loans


_BYTE = np.dtype(np.uint8)


class Block(ndarray):
    """Memory of the pool. A class of its own, so that NumPy does not take it for a loan's array."""

    __slots__ = ()


class Loan(ndarray):
    """A block while it is lent out: what keeps it from being lent again."""

    __slots__ = ()
    base = None  # the block beneath stays out of reach: who held it would not hold the loan


class _Return(weakref.ref):  # type: ignore[type-arg]
    """Called when a loan is gone; it knows the loan's block."""

    __slots__ = ("block",)
    block: Array


_lent: dict[int, _Return] = {}


def _give_back(loan: _Return) -> None:
    """Called when a loan is gone: at any moment, on any thread, within any other line of this file.

    A view that somebody made of the loan's own array keeps the loan, and so the block.
    """
    del _lent[id(loan)]
    _pool.give(loan.block)


class _BlockPool:
    """The idle blocks, by size; the size that was taken last comes last.

    They are at most as many bytes as were lent at once during the last few thousand loans, or a
    small amount that is always allowed. There is no lock, for a finalizer that runs while its own
    thread holds it would wait forever: every single operation on a deque or a dict is atomic. The
    counts may be off when two threads meet, and are made anew every few thousand loans.
    """

    RECENT = 1 << 12  # loans from one recount to the next

    def __init__(self) -> None:
        self.idle: dict[int, deque[Array]] = {}
        self.idle_bytes = self.lent_bytes = self.loans = 0
        self.most_lent = self.most_lent_before = 0  # since the last recount, and before it

    def take(self, size: int) -> Array:
        """A block for a loan, an idle one if there is one."""
        self.loans += 1
        if not self.loans % self.RECENT:
            self._recount()
        self.lent_bytes += size
        self.most_lent = max(self.most_lent, self.lent_bytes)
        blocks = self.idle.pop(size, None) or deque()
        self.idle[size] = blocks
        try:
            block = blocks.pop()
        except IndexError:
            try:
                return np.empty(size, _BYTE).view(Block)
            except MemoryError:
                self.keep(0)
                return np.empty(size, _BYTE).view(Block)
        self.idle_bytes -= size
        return block

    def give(self, block: Array) -> None:
        """Take back the block of a loan that is gone."""
        size = len(block)
        self.idle.setdefault(size, deque()).append(block)
        self.lent_bytes -= size
        self.idle_bytes += size
        if self.idle_bytes > LIMITS.idle_bytes:
            self.keep(max(LIMITS.idle_bytes, self.most_lent, self.most_lent_before))

    def keep(self, limit: int) -> None:
        """Free idle blocks, those of the size that was taken longest ago first."""
        while self.idle_bytes > limit:
            for size, blocks in list(self.idle.items()):
                if blocks:
                    break
                self.idle.pop(size, None)
            else:
                self.idle_bytes = 0
                return
            try:
                blocks.pop()
            except IndexError:  # another thread has just taken it
                continue
            self.idle_bytes -= size

    def _recount(self) -> None:
        """Count anew, and forget how much was lent long ago."""
        self.most_lent_before = self.most_lent
        self.most_lent = self.lent_bytes = sum(len(loan.block) for loan in list(_lent.values()))
        self.idle_bytes = sum(size * len(blocks) for size, blocks in list(self.idle.items()))


_pool = _BlockPool()


def by_size() -> dict[int, int]:
    """How many blocks are idle, by their size in bytes.

    >>> isinstance(by_size(), dict)
    True
    """
    return {size: len(blocks) for size, blocks in list(_pool.idle.items()) if blocks}


def release() -> None:
    """Give all idle memory back to the system, as happens by itself when it has no more to give.

    So does what C's allocator keeps of freed arrays, where it is glibc's.
    """
    _pool.keep(0)
    if (trim := _malloc_trim()) is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], object] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None


# ---------------------------------------------------------------- arrays


def empty(
    shape: tuple[int, ...], dtype: DTypeLike, strides: tuple[int, ...] | None = None
) -> Array:
    """np.empty, row-major unless strides are given, a large array in memory that is used again.

    The memory is used again when the array is gone, and all views of it, and whatever else holds
    them: `array.base`, a memoryview, another library through DLPack.

    >>> empty((2, 3), np.float32).shape
    (2, 3)
    """
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    if size < LIMITS.reuse_bytes or dtype.hasobject:
        return ndarray(shape, dtype, None, 0, strides)
    block = _pool.take(_rounded(size))
    loan = Loan(len(block), _BYTE, block)
    back = _Return(loan, _give_back)
    back.block = block
    _lent[id(back)] = back
    return ndarray(shape, dtype, loan, 0, strides)


def _rounded(size: int) -> int:
    """A size that nearly equal ones share: up to one of eight between powers of two."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


def empty_as(like: Array, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array of this shape whose axes have the memory order of those of `like`.

    Axes that `like` lacks are the first ones, and outermost. The dtype is its, too, unless given.

    >>> empty_as(np.zeros((2, 3)).T, (5, 7)).strides
    (8, 40)
    """
    dtype = like.dtype if dtype is None else np.dtype(dtype)
    if like.flags.c_contiguous:
        return empty(shape, dtype)
    distances = (maxsize,) * (len(shape) - like.ndim) + like.strides
    outward = sorted(range(len(shape)), key=lambda axis: -abs(distances[axis]))
    strides, step = [0] * len(shape), dtype.itemsize
    for axis in reversed(outward):
        strides[axis] = step
        step *= shape[axis]
    return empty(shape, dtype, tuple(strides))
