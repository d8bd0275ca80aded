"""Memory of large arrays, used again once nobody holds it.

What a step frees goes back to the system, and for the next step each page is mapped and cleared
anew: an array of a megabyte then takes ten times as long to write. So kernels and rules put large
results where earlier ones lay:

    np.multiply(g, b, out_buffer(g, b))  # None for small arrays, and for Tensors

An array of `empty` lies on a `Loan`, which is the base object of the array, of its views, of their
buffers: nothing can be held without holding it. The block beneath goes back to the pool when the
loan itself is gone. Nothing counts references.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Iterator
from functools import cache
from math import prod
from sys import maxsize
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import DTypeLike

from .limits import LIMITS

__all__ = [
    "by_size",
    "empty",
    "empty_as",
    "in_place_buffer",
    "out_buffer",
    "release",
    "row_blocks",
    "zeros",
]

# ---------------------------------------------------------------- blocks and loans


_BYTE = np.dtype(np.uint8)


class Block(ndarray):
    """Memory of the pool. A class of its own, so that NumPy does not take it for a loan's array."""

    __slots__ = ()


class Loan(ndarray):
    """A block while it is lent out: what keeps it from being lent again."""

    __slots__ = ()
    base = None  # the block beneath stays out of reach: who held it would not hold the loan


_RECENT = 1 << 12  # loans from one recount to the next


class _Shelf:
    """The blocks of one size that lie idle, and the number of the last loan of that size."""

    __slots__ = ("blocks", "last_loan", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.blocks = deque[Any]()
        self.last_loan = 0


class _Return(weakref.ref):  # type: ignore[type-arg]
    """Tells when a loan is gone, and where its block goes."""

    __slots__ = ("block", "shelf")
    block: Any
    shelf: _Shelf


_lent: dict[int, _Return] = {}


def _give_back(loan: _Return) -> None:
    """Called when a loan is gone: at any moment, on any thread, within any other line of this file.

    A view that somebody made of the loan's own array keeps the loan, and so the block.
    """
    del _lent[id(loan)]
    _pool.give(loan.block, loan.shelf)


class _Pool:
    """The blocks that lie idle.

    They are at most as many bytes as were lent at once during the last few thousand loans, or a
    small amount that is always allowed. There is no lock, for a finalizer that runs while its own
    thread holds it would wait forever: every single operation on a deque or a dict is atomic. The
    counts may be off when two threads meet, and are made anew every few thousand loans.
    """

    def __init__(self) -> None:
        self.shelves: dict[int, _Shelf] = {}
        self.by_size: dict[int, _Shelf] = {}  # for sizes as they were asked for
        self.idle_bytes = self.lent_bytes = self.loans = 0
        self.most_lent = self.most_lent_before = 0  # since the last recount, and before it
        self.allowed = 0  # bytes that may lie idle
        self._allow()

    def shelf(self, size: int) -> _Shelf:
        """The shelf for arrays of so many bytes; nearly equal sizes share one."""
        rounded = _rounded(size)
        found = self.shelves.get(rounded)
        if found is None:
            found = self.shelves.setdefault(rounded, _Shelf(rounded))
        if len(self.by_size) == _RECENT:
            self.by_size.clear()
        self.by_size[size] = found
        return found

    def take(self, shelf: _Shelf) -> Any:
        """A block for a loan, an idle one if there is one."""
        size = shelf.size
        shelf.last_loan = self.loans = self.loans + 1
        if not self.loans % _RECENT:
            self._recount()
        self.lent_bytes += size
        if self.lent_bytes > self.most_lent:
            self.most_lent = self.lent_bytes
            self._allow()
        try:
            block = shelf.blocks.pop()
        except IndexError:
            return self._new(size)
        self.idle_bytes -= size
        return block

    def _new(self, size: int) -> Any:
        try:
            return np.empty(size, _BYTE).view(Block)
        except MemoryError:
            self.keep(0)
            return np.empty(size, _BYTE).view(Block)

    def give(self, block: Any, shelf: _Shelf) -> None:
        """Take back the block of a loan that is gone."""
        shelf.blocks.append(block)
        self.lent_bytes -= shelf.size
        self.idle_bytes += shelf.size
        if self.idle_bytes > self.allowed:
            self.keep(self.allowed)

    def keep(self, limit: int) -> None:
        """Let go of idle blocks, of the size that was not asked for for longest first."""
        while self.idle_bytes > limit:
            filled = [shelf for shelf in list(self.shelves.values()) if shelf.blocks]
            if not filled:
                self.idle_bytes = 0
                return
            oldest = min(filled, key=lambda shelf: shelf.last_loan)
            try:
                oldest.blocks.pop()
            except IndexError:  # another thread has just taken it
                continue
            self.idle_bytes -= oldest.size

    def _allow(self) -> None:
        self.allowed = max(LIMITS.idle_bytes, self.most_lent, self.most_lent_before)

    def _recount(self) -> None:
        """Count anew, and forget how much was lent long ago."""
        shelves, loans = list(self.shelves.values()), list(_lent.values())
        self.most_lent_before = self.most_lent
        self.most_lent = self.lent_bytes = sum(loan.shelf.size for loan in loans)
        self.idle_bytes = sum(shelf.size * len(shelf.blocks) for shelf in shelves)
        self._allow()
        self.keep(self.allowed)


_pool = _Pool()


def by_size() -> dict[int, int]:
    """How many blocks lie idle, by their size in bytes.

    >>> isinstance(by_size(), dict)
    True
    """
    shelves = list(_pool.shelves.values())
    return {shelf.size: len(shelf.blocks) for shelf in shelves if shelf.blocks}


def release() -> None:
    """Give all idle memory back to the system, as happens by itself when it has no more to give.

    What C's allocator keeps goes too, where it is glibc's: arrays that were freed lie in it.
    """
    _pool.keep(0)
    if (trim := _malloc_trim()) is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None


# ---------------------------------------------------------------- arrays


def empty(shape: tuple[int, ...], dtype: DTypeLike, strides: tuple[int, ...] | None = None) -> Any:
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
    shelf = _pool.by_size.get(size) or _pool.shelf(size)
    block = _pool.take(shelf)
    loan = Loan(shelf.size, _BYTE, block)
    back = _Return(loan, _give_back)
    back.block, back.shelf = block, shelf
    _lent[id(back)] = back
    return ndarray(shape, dtype, loan, 0, strides)


def _rounded(size: int) -> int:
    """A size that nearly equal ones share: up to one of eight between powers of two."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


def zeros(shape: tuple[int, ...], like: Any) -> Any:
    """Zeros of a shape, in the dtype of `like` and of its kind; large ones lie as it does.

    >>> zeros((2,), np.float32(1))
    array([0., 0.], dtype=float32)
    """
    if like.__class__ is not ndarray and hasattr(like, "__array_function__"):
        return np.zeros(shape, like.dtype, like=like)
    alike = like.nbytes >= LIMITS.reuse_bytes and like.ndim <= len(shape)
    array = empty_as(like, shape) if alike else empty(shape, like.dtype)
    array.fill(0)
    return array


def out_buffer(like: Any, other: Any = 1.0) -> Any:
    """Where `like * other` may be written: an array of the form and dtype of `like`, if large.

    None, which leaves the matter to NumPy, unless both are plain arrays of one floating dtype (or
    `other` a Python number), `like` is large, and `other` broadcasts into it.

    >>> out_buffer(np.zeros(3)) is None
    True
    """
    if like.__class__ is not ndarray or like.nbytes < LIMITS.reuse_bytes or like.dtype.kind != "f":
        return None
    shape = like.shape
    if other.__class__ is ndarray:
        fits = shape[-other.ndim :] == other.shape  # in most cases, and found at once
        fits = fits or np.broadcast_shapes(other.shape, shape) == shape
        if other.dtype is not like.dtype or not fits:
            return None
    elif other.__class__ is not float and other.__class__ is not int:
        return None
    return empty_as(like, shape)


def empty_as(like: Any, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Any:
    """An array of this shape whose axes lie in memory in the order that those of `like` do.

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


def in_place_buffer(own: Any, other: Any = 1.0) -> Any:
    """Where `own * other` may be written: over `own`, an array that the caller made.

    None, which leaves the matter to NumPy, for numbers, for Tensors, which are never written to,
    and where `other` has another dtype, in which the result may be.
    """
    if own.__class__ is not ndarray or own.ndim == 0:
        return None
    return own if other.__class__ is not ndarray or other.dtype == own.dtype else None


def row_blocks(*arrays: Any) -> Iterator[tuple[Any, ...]]:
    """A few rows of each array at a time, which stay in cache from one pass over them to the next.

    The arrays are row-major and of one shape; what comes are views (rows, length of the last axis).

    >>> [x.shape for x, in row_blocks(np.zeros((2, 300, 1000)))]
    [(131, 1000), (131, 1000), (131, 1000), (131, 1000), (76, 1000)]
    """
    width = arrays[0].shape[-1]
    flat = [array.reshape(-1, width) for array in arrays]
    step = max(1, LIMITS.cached_entries // width)
    for i in range(0, len(flat[0]), step):
        yield tuple([array[i : i + step] for array in flat])
