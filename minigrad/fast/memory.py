"""Memory of large arrays, used again once nobody holds it.

What a step frees goes back to the system, and for the next step each page is mapped and cleared
anew: an array of a megabyte then takes ten times as long to write. So kernels and rules put large
results where earlier ones lay:

    np.multiply(g, b, out_buffer(g, b))  # None for small arrays, and for Tensors
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from math import prod
from pickle import PickleBuffer
from sys import getrefcount, maxsize
from threading import Lock
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import DTypeLike

__all__ = [
    "ALONE",
    "FEW",
    "by_size",
    "empty",
    "empty_as",
    "in_place_buffer",
    "out_buffer",
    "owns",
    "release",
    "reshaped",
    "row_blocks",
    "zeros",
]

LARGE = 1 << 17  # bytes from which memory is used again, at some 2 µs an array: glibc maps it anew
FEW = 1 << 12  # entries that are never many: who counts them first spares small arrays the rest
BAND = 1 << 17  # entries that stay in cache together with as many others
KEPT = 1 << 30  # bytes that may lie idle; beyond, what was idle longest goes to the system


def _one_holder() -> int:
    array = np.empty(0)
    return getrefcount(array)


def _one_view() -> int:
    view = np.empty((1, 1)).reshape(1)
    base = view.base
    return getrefcount(base)


ALONE = _one_holder()  # getrefcount of what one variable holds: 2, and 1 from Python 3.14 on
_VIEWED = _one_view()  # and of what one view holds, and one variable
_OWN = {type(None), PickleBuffer}  # what lies beneath NumPy's own arrays, and those of `empty`


def owns(array: Any) -> bool:
    """Whether no other array lies in its memory, if it is held by one variable alone.

    It may be the one view left of all of another, as reshape gives.
    """
    base = array.base if array.__class__ is ndarray else array
    if base is None:  # as it mostly is
        return True
    if base.__class__ is not ndarray:
        return base.__class__ in _OWN
    whole = array.flags.forc and array.flags.writeable and array.nbytes == base.nbytes
    return whole and base.base.__class__ in _OWN and getrefcount(base) == _VIEWED


def empty(shape: tuple[int, ...], dtype: DTypeLike, strides: tuple[int, ...] | None = None) -> Any:
    """np.empty, row-major unless strides are given, a large array in memory that one gave back.

    It comes back when the array and every view of it are gone, and not if anyone holds
    the buffer beneath (`array.base`) by itself; a memoryview made of that buffer does not hold it.

    >>> empty((2, 3), np.float32).shape
    (2, 3)
    """
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    if size < LARGE or dtype.hasobject:
        return np.ndarray(shape, dtype, None, 0, strides)
    memory = _idle.take(size := _rounded(size))
    array = np.ndarray(shape, dtype, memory, 0, strides)
    loan = _Loan(array, _give_back)
    loan.memory, loan.size = memory, size
    _loans[id(loan)] = loan
    return array


def _rounded(size: int) -> int:
    """A size that nearly equal ones share: up to one of eight between powers of two."""
    step = 1 << (size.bit_length() - 4)
    return -(-size // step) * step


def zeros(shape: tuple[int, ...], like: Any) -> Any:
    """Zeros of a shape, in the dtype of `like` and of its kind; large ones lie as it does.

    >>> zeros((2,), np.float32(1))
    array([0., 0.], dtype=float32)
    """
    if like.__class__ is not ndarray and hasattr(like, "__array_function__"):
        return np.zeros(shape, like.dtype, like=like)
    alike = like.nbytes >= LARGE and like.ndim <= len(shape)
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
    if like.__class__ is not ndarray or like.nbytes < LARGE or like.dtype.kind != "f":
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


def reshaped(x: Any, shape: Any) -> Any:
    """np.reshape: a view if there is one, otherwise a copy, a large one in memory used again.

    >>> reshaped(np.arange(6.0), (2, -1)).shape
    (2, 3)
    """
    if x.__class__ is not ndarray:
        return np.reshape(x, shape)
    if x.nbytes < LARGE or x.flags.c_contiguous:
        return x.reshape(shape)
    try:
        return x.reshape(shape, copy=False)
    except ValueError:  # it takes a copy, or there is no such shape, of which the copy will tell
        copy = empty(x.shape, x.dtype)
        copy[...] = x
        return copy.reshape(shape)


def in_place_buffer(own: Any, other: Any = 1.0) -> Any:
    """Where `own * other` may be written: over `own`, an array that no one else holds.

    None for numbers, for Tensors, which are never written to, and where `other` has another dtype.
    Operators ask less: `x *= y` binds a new Tensor, but keeps the dtype of an array.
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
    step = max(1, BAND // width)
    for i in range(0, len(flat[0]), step):
        yield tuple([array[i : i + step] for array in flat])


def by_size() -> dict[int, int]:
    """How many blocks lie idle, by their size in bytes.

    >>> isinstance(by_size(), dict)
    True
    """
    return {size: len(blocks) for size, blocks in _idle.blocks.items() if blocks}


def release() -> None:
    """Give all idle memory back to the system."""
    _idle.keep(0)


class _Loan(weakref.ref):  # type: ignore[type-arg]
    """Tells when an array is gone, and where it lay."""

    __slots__ = ("memory", "size")
    memory: Any
    size: int


_loans: dict[int, _Loan] = {}


def _give_back(loan: _Loan) -> None:
    _loans.pop(id(loan), None)
    if getrefcount(loan.memory) <= 3:  # the loan's, the dying array's and the one for counting
        _idle.give(loan.size, loan.memory)


class _Idle:
    """Blocks that nobody holds, by size; the size given back last comes last.

    Nobody waits for the lock: an array may die at any moment, on any thread, this one at this very
    place included. Who finds it taken turns to the system.
    """

    def __init__(self) -> None:
        self.lock, self.nbytes = Lock(), 0
        self.blocks: dict[int, list[Any]] = {}

    def take(self, size: int) -> Any:
        if self.lock.acquire(blocking=False):
            try:
                if self.blocks.get(size):
                    self.nbytes -= size
                    return self.blocks[size].pop()
            finally:
                self.lock.release()
        fresh: Any = np.empty(size, np.uint8)
        return PickleBuffer(fresh)  # of a memoryview NumPy would take what lies beneath as the base

    def give(self, size: int, block: Any) -> None:
        if self.lock.acquire(blocking=False):
            try:
                blocks = self.blocks.pop(size, [])
                blocks.append(block)
                self.blocks[size] = blocks
                self.nbytes += size
            finally:
                self.lock.release()
        if self.nbytes > KEPT:
            self.keep(KEPT)

    def keep(self, limit: int) -> None:
        """Let go of blocks, the size that was idle longest first, until no more are left."""
        if self.lock.acquire(blocking=False):
            try:
                while self.nbytes > limit:
                    size, blocks = next(iter(self.blocks.items()))
                    if blocks:
                        self.nbytes -= size
                        blocks.pop()
                    else:
                        del self.blocks[size]
            finally:
                self.lock.release()


_idle = _Idle()
