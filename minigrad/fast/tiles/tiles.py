"""Which tiles of the score matrix attention must compute: what a mask closes is skipped.

What a mask says is remembered for no longer than a call, for whoever holds the array may write to
it: each call reads the mask once, on the threads that then compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...ops.attention import check_mask

__all__ = ["BAND", "BLOCK", "WIDTH", "Grid", "Place", "Tile", "triangle"]

BLOCK = 128  # the grain at which queries and keys are skipped
BAND = 256  # queries worked on at a time
READ = 1 << 17  # entries of a mask that are read at once
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
        return int((self.rows.stop - self.rows.start) * (self.keys.stop - self.keys.start))


class Grid:
    """The blocks of n queries over m keys under one mask, (n or 1, m) or None; in bands of queries.

    What is to be done at a block is guessed from its corners at once, and read from the mask band
    by band, by whoever is about to work there.

    >>> Grid(512, 512, None, is_causal=True).entries == 10 * 128**2
    True
    """

    def __init__(self, n: int, m: int, mask: Any, is_causal: bool) -> None:
        self.n, self.m, self.is_causal = n, m, is_causal
        self.mask = None if mask is None or mask.size == 0 else mask
        shape = -(-n // BLOCK), -(-m // BLOCK)
        guesses = OPEN if self.mask is None else _guesses(self.mask)
        self._guesses = np.broadcast_to(guesses, shape).tolist()
        self._read: dict[int, tuple[Tile, ...]] = {}

    def __len__(self) -> int:
        return -(-self.n // BAND)

    @property
    def entries(self) -> int:
        """How many scores are computed."""
        return sum(tile.entries for k in range(len(self)) for tile in self.tiles(k))

    def rows(self, k: int) -> slice:
        """The queries of band k."""
        return slice(k * BAND, min((k + 1) * BAND, self.n))

    def guessed(self, k: int) -> tuple[Tile, ...]:
        """The tiles that the queries of band k seem to see."""
        return self._tiles(k, self._guesses[self._blocks(k)])

    def tiles(self, k: int) -> tuple[Tile, ...]:
        """The tiles that the queries of band k see.

        Raises: ArgumentError if the mask holds NaN or +inf.
        """
        if k not in self._read:
            blocks = self._blocks(k)
            found = [self._row(i) for i in range(blocks.start, blocks.stop)]
            self._read[k] = self._tiles(k, found)
        return self._read[k]

    def _blocks(self, k: int) -> slice:
        per_band = BAND // BLOCK
        return slice(k * per_band, min((k + 1) * per_band, len(self._guesses)))

    def _row(self, i: int) -> list[int]:
        """What the mask says about one block of queries; of keys that causality leaves, if any."""
        guesses: list[int] = self._guesses[i]
        if self.mask is None:
            return guesses
        m = _part(i, i + 1, self.m).stop if self.is_causal else self.m
        rows = _part(i, i + 1, self.n) if len(self.mask) > 1 else slice(None)
        count = -(-m // BLOCK)
        return _read(self.mask[rows, :m], guesses[:count], i) + guesses[count:]

    def _tiles(self, k: int, rows: list[list[int]]) -> tuple[Tile, ...]:
        first = self._blocks(k).start
        if self.is_causal:  # queries and keys share one grid, so only the diagonal is cut through
            rows = [
                [what if j < i else (what and what | TRIANGLE) if j == i else CLOSED
                 for j, what in enumerate(row)]
                for i, row in enumerate(rows, first)
            ]  # fmt: skip
        return _tiles(tuple(map(tuple, rows)), first, self.n, self.m)


def _part(first: int, last: int, size: int) -> slice:
    """Blocks as entries."""
    return slice(first * BLOCK, min(last * BLOCK, size))


@lru_cache(1024)
def _tiles(grid: tuple[tuple[int, ...], ...], top: int, n: int, m: int) -> tuple[Tile, ...]:
    """The tiles of a band that begins at block `top`: keys that are seen by the same queries."""
    seen_by = [tuple([what != CLOSED for what in column]) for column in zip(*grid, strict=True)]

    def places(flag: int, i: int, j: int, a: int, b: int) -> tuple[Place, ...]:
        return tuple(
            Place(_part(top + r, top + r + 1, n), _part(a + p, a + q, m))
            for r in range(i, j)
            for p, q in _runs([what & flag for what in grid[r][a:b]])
            if grid[r][a + p] & flag
        )

    return tuple(
        Tile(
            _part(top + i, top + j, n), _part(a, b, m), places(MASKED, i, j, a, b),
            places(TRIANGLE, i, j, a, b),
        )
        for first, last in _runs(seen_by)
        for a, b in _pieces(first, last)
        for i, j in _runs(seen_by[a])
        if seen_by[a][i]
    )  # fmt: skip


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
    return pairwise(edges)


# ---------------------------------------------------------------- reading a mask


def _guesses(mask: Any) -> Any:
    """What the four corners of each block have in common: what it may be."""
    above, below = (_edges(size) for size in mask.shape)
    corners = [mask[np.ix_(i, j)] for i in above for j in below]
    closed = [x == (False if mask.dtype == bool else -np.inf) for x in corners]
    opened = [x == (True if mask.dtype == bool else 0) for x in corners]
    found = np.where(_all(closed), CLOSED, np.where(_all(opened), OPEN, OPEN | MASKED))
    diagonal = np.eye(*found.shape, dtype=np.bool_)
    cut = opened[0] & closed[1] & opened[2] & opened[3] & diagonal
    return np.where(cut, OPEN | TRIANGLE, found)


def _all(conditions: list[Any]) -> Any:
    return np.logical_and.reduce(conditions)


def _edges(size: int) -> tuple[Any, Any]:
    """The first and the last entry of each block."""
    first = np.arange(0, size, BLOCK)
    return first, np.minimum(first + BLOCK, size) - 1


def _read(mask: Any, guesses: list[int], diagonal: int) -> list[int]:
    """What is to be done at each block of keys under a mask for one block of queries.

    All of it is read at once, then each run of equal guesses, and block by block what is not as it
    seemed.
    """
    seeming = _seeming(tuple(guesses), diagonal, mask.shape, mask.dtype)
    few = max(1, READ // mask.shape[-1])
    if seeming is not None and all(
        (mask[i : i + few] == seeming[i : i + few]).all() for i in range(0, len(mask), few)
    ):
        return guesses
    m, found = mask.shape[-1], list(guesses)
    check_mask(mask)
    for first, last in _runs(guesses):
        if not _is(guesses[first], mask[:, _part(first, last, m)]):
            for i in range(first, last):
                part = mask[:, _part(i, i + 1, m)]
                likely = (CLOSED, OPEN, OPEN | TRIANGLE)[: 3 if i == diagonal else 2]
                found[i] = next((what for what in likely if _is(what, part)), OPEN | MASKED)
    return found


@lru_cache(256)
def _seeming(guesses: tuple[int, ...], diagonal: int, shape: tuple[int, int], dtype: Any) -> Any:
    """A mask that is as guessed for one block of queries, as a view of hardly more than one row;
    None where entries are to be added, or cut other than by causality alone.
    """
    (rows, m), causal = shape, OPEN | TRIANGLE
    if causal not in guesses:
        return None if max(guesses) & MASKED else np.broadcast_to(_line(guesses, m, dtype), shape)
    if guesses != (*[OPEN] * diagonal, causal, *[CLOSED] * (len(guesses) - diagonal - 1)):
        return None
    # each query sees one key more than the one before: the same row, a step further
    steps = sliding_window_view(_line((OPEN, CLOSED), 2 * m + rows, dtype, m + rows), m)
    first = m + rows - 1 - diagonal * BLOCK
    return steps[first : first - rows : -1]


@lru_cache(16)
def _line(blocks: tuple[int, ...], m: int, dtype: Any, size: int = BLOCK) -> Any:
    """One row of a mask, from what it is at each block of so many keys."""
    opened, closed = (True, False) if dtype.kind == "b" else (0, -np.inf)
    return np.repeat([opened if what else closed for what in blocks], size)[:m].astype(dtype)


def _is(what: int, mask: Any) -> bool:
    """Whether the mask is all closed, or all open, or as causality cuts it."""
    if what & MASKED:
        return True
    if what & TRIANGLE:
        rows, keys = mask.shape
        return np.array_equal(mask, triangle(mask.dtype)[:rows, :keys])
    if mask.dtype == bool:
        return bool(mask.all() if what == OPEN else not mask.any())
    if what == CLOSED:
        return bool(mask.max(axis=1).max() == -np.inf)
    return not mask.view(f"u{mask.itemsize}").max(axis=1).any()  # 0 alone has no bits


@cache
def triangle(dtype: Any, keys_first: bool = False) -> Any:
    """The causal mask on its diagonal, boolean or to add; queries first, or keys as tiles are."""
    seen = np.tri(BLOCK, dtype=np.bool_)
    closed = seen if dtype.kind == "b" else np.where(seen, dtype.type(0), dtype.type(-np.inf))
    return np.ascontiguousarray(closed.T) if keys_first else closed
