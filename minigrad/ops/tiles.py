"""Which tiles of the score matrix attention must compute: what a mask closes is skipped.

Nothing about a mask is remembered, for whoever holds an array may write to it: each call reads it
once, with both cores, in a hundredth of the time that the attention takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError

__all__ = ["BAND", "BLOCK", "WIDTH", "Band", "Place", "Tile", "bands", "triangle"]

BLOCK = 128  # the grain at which queries and keys are skipped
BAND = 256  # queries worked on at a time
WIDTH = 1024  # keys in a tile at most: in float32 it then fills 1 MiB, a core's cache

# What is to be done at a block: compute it, add the mask, add causality's own cut.
CLOSED, OPEN, MASKED, TRIANGLE = 0, 1, 2, 4


class Place(NamedTuple):
    """Some queries and some keys."""

    rows: slice
    keys: slice


class Tile(NamedTuple):
    """Keys that are computed for some queries of a band."""

    rows: slice
    keys: slice
    masked: tuple[Place, ...]  # where the mask is neither all open nor all closed: it is added
    diagonal: tuple[Place, ...]  # blocks that causality cuts through

    @property
    def entries(self) -> int:
        return (self.rows.stop - self.rows.start) * (self.keys.stop - self.keys.start)


class Band(NamedTuple):
    """Queries that are worked on together, and the tiles that they see."""

    rows: slice
    tiles: tuple[Tile, ...]


def _in_order(work: Callable[[int], None], items: Iterable[int]) -> None:
    for item in items:
        work(item)


def bands(
    n: int,
    m: int,
    mask: Any,
    is_causal: bool,
    share: Callable[[Callable[[int], None], Sequence[int]], None] = _in_order,
) -> list[Band]:
    """The bands of n queries over m keys under one mask, (n or 1, m) or None.

    Args: share: calls a function for every item, possibly on several threads.
    Raises: ArgumentError if the mask holds NaN or +inf.

    >>> [sum(tile.entries for tile in band.tiles) // 128**2 for band in bands(512, 512, None, True)]
    [3, 7]
    """
    grid = _grid(n, m, mask, is_causal, share)
    return _bands(n, m, grid.shape, grid.tobytes())


@lru_cache(64)
def _bands(n: int, m: int, shape: tuple[int, int], grid: bytes) -> list[Band]:
    """The bands of a grid; one that was met before has them ready."""
    rows = np.frombuffer(grid, np.int8).reshape(shape).tolist()
    per_band = BAND // BLOCK
    return [
        Band(_part(first, first + per_band, n), tuple(_tiles(rows, first, first + per_band, n, m)))
        for first in range(0, len(rows), per_band)
    ]


def _part(first: int, last: int, size: int) -> slice:
    """Blocks as entries."""
    return slice(first * BLOCK, min(last * BLOCK, size))


def _grid(n: int, m: int, mask: Any, is_causal: bool, share: Callable[..., None]) -> Any:
    """What is to be done at each block of queries and keys."""
    grid = np.full((-(-n // BLOCK), -(-m // BLOCK)), OPEN, np.int8)
    if mask is not None and mask.size:
        grid[:] = guesses = _guesses(mask)

        def read(i: int) -> None:
            grid[i] = _row(mask[_part(i, i + 1, n)], guesses[i].tolist(), i)

        if len(mask) == 1:
            grid[:] = _row(mask, guesses[0].tolist())
        else:
            share(read, range(len(grid)))
    if is_causal:  # queries and keys share one grid, so only the blocks on the diagonal are cut
        diagonal = np.arange(min(grid.shape))
        grid = np.tril(grid)
        grid[diagonal, diagonal] |= TRIANGLE * (grid[diagonal, diagonal] != CLOSED)
    return grid


def _tiles(grid: list[list[int]], first: int, last: int, n: int, m: int) -> Iterator[Tile]:
    """The tiles of one band: runs of blocks that are seen by the same of its queries."""
    rows = grid[first:last]
    seen_by = [tuple([what != CLOSED for what in column]) for column in zip(*rows, strict=True)]
    for start, stop in _runs(seen_by):
        for a, b in _pieces(start, stop):
            for i, j in _runs(seen_by[a]):
                if seen_by[a][i]:
                    masked, diagonal = (
                        tuple(
                            Place(_part(first + r, first + r + 1, n), _part(a + p, a + q, m))
                            for r in range(i, j)
                            for p, q in _runs([what & flag for what in rows[r][a:b]])
                            if rows[r][a + p] & flag
                        )
                        for flag in (MASKED, TRIANGLE)
                    )
                    place = _part(first + i, first + j, n), _part(a, b, m)
                    yield Tile(*place, masked, diagonal)


def _runs(values: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Where neighbours are equal: (first, one past the last) of each run."""
    first = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[first]:
            yield first, i
            first = i


def _pieces(first: int, last: int) -> Iterator[tuple[int, int]]:
    """A run in as few pieces as WIDTH allows, about equally long."""
    count = -(-(last - first) * BLOCK // WIDTH)
    edges = [first + (last - first) * i // count for i in range(count + 1)]
    return zip(edges, edges[1:], strict=False)


# ---------------------------------------------------------------- reading a mask


def _guesses(mask: Any) -> Any:
    """What the four corners of each block have in common: what it may be."""
    above, below = (_edges(size) for size in mask.shape)
    corners = [mask[np.ix_(i, j)] for i in above for j in below]
    closed, opened = (False, True) if mask.dtype == bool else (-np.inf, 0)
    closed, opened = (np.logical_and.reduce([x == y for x in corners]) for y in (closed, opened))
    return np.where(closed, CLOSED, np.where(opened, OPEN, MASKED))


def _edges(size: int) -> tuple[Any, Any]:
    """The first and the last entry of each block."""
    first = np.arange(0, size, BLOCK)
    return first, np.minimum(first + BLOCK, size) - 1


def _row(mask: Any, guesses: list[int], diagonal: int = -1) -> list[int]:
    """What is to be done at each block of keys under a mask for one block of queries.

    Each run of equal guesses is read at once, and block by block if it is not what it seemed.
    """
    found, m = guesses, mask.shape[-1]
    for first, last in list(_runs(found)):
        if not _is_all(found[first], mask[:, _part(first, last, m)]):
            for i in range(first, last):
                if last - first == 1 or not _is_all(found[i], mask[:, _part(i, i + 1, m)]):
                    found[i] = MASKED
    if 0 <= diagonal < len(found) and found[diagonal] == MASKED:
        if _is_triangle(mask[:, _part(diagonal, diagonal + 1, m)]):
            found[diagonal] = TRIANGLE  # added as causality is, from one small array
    for first, last in _runs(found):
        if found[first] == MASKED:
            _check(mask[:, _part(first, last, m)])
    return [what | OPEN if what else CLOSED for what in found]


def _is_all(what: int, mask: Any) -> bool:
    """Whether the mask is all closed, or all open, in one pass over it."""
    if what == MASKED:
        return True
    if mask.dtype == bool:
        return bool(mask.all() if what == OPEN else not mask.any())
    if what == CLOSED:
        return bool(mask.max(axis=1).max() == -np.inf)
    bits = mask.view(f"u{mask.itemsize}")
    return not bits.max(axis=1).any()  # the bits of 0, and of nothing else


def _check(mask: Any) -> None:
    if mask.dtype != bool and not mask.max() < np.inf:
        raise ArgumentError("mask holds NaN or +inf, use 0 and -inf (0 * -inf, for one, is NaN)")


def _is_triangle(mask: Any) -> bool:
    """Whether a block is the causal mask's on its diagonal: open up to it, closed beyond."""
    rows, keys = mask.shape
    return np.array_equal(mask, triangle(mask.dtype)[:rows, :keys])


@cache
def triangle(dtype: Any, keys_first: bool = False) -> Any:
    """The causal mask on its diagonal, boolean or to add; queries first, or keys as tiles are."""
    seen = np.tri(BLOCK, dtype=np.bool_)
    closed = seen if dtype.kind == "b" else np.where(seen, dtype.type(0), dtype.type(-np.inf))
    return np.ascontiguousarray(closed.T) if keys_first else closed
