"""Which tiles of the scores attention must compute: what a mask or a rule closes is skipped.

Whoever holds a mask may write to it, so each call reads it anew, once, on the threads that compute
afterwards. A rule never changes: what it says of each block is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...engine.op import Array, DType
from ...ops.masks import check_mask

__all__ = [
    "BLOCK_SIZE",
    "QUERY_ROWS",
    "TILE_KEYS",
    "MaskRule",
    "Tile",
    "TileGrid",
    "rule_to_add",
    "to_add",
]

MaskRule: TypeAlias = Callable[[Any, Any], Any]  # which queries at i see which keys at j

BLOCK_SIZE = 128  # queries and keys are skipped in squares of this size
QUERY_ROWS = 256  # queries that are worked on at a time
TILE_KEYS = 1024  # keys in a tile, at most: in float32 it then fills 1 MiB, a core's cache

# what is to be done at a block
CLOSED = 0  # skip it
OPEN = 1  # compute it
ADD_MASK = 2
ADD_RULE = 4


class MaskBlock(NamedTuple):
    """Some queries and some keys."""

    rows: slice
    keys: slice


class Tile(NamedTuple):
    """Keys that are computed for some queries, and what is added to the scores in which blocks."""

    rows: slice
    keys: slice
    masked: tuple[MaskBlock, ...]
    ruled: tuple[MaskBlock, ...]

    @property
    def entries(self) -> int:
        return int((self.rows.stop - self.rows.start) * (self.keys.stop - self.keys.start))


class TileGrid:
    """The tiles of n queries over m keys under one mask, (n or 1, m) or None, and one rule or None;
    by blocks of QUERY_ROWS queries.

    >>> TileGrid(512, 512, None, np.greater_equal).entries == 10 * 128**2
    True
    """

    def __init__(self, n: int, m: int, mask: Array | None, rule: MaskRule | None) -> None:
        self.n = n
        self.m = m
        self.rule = rule
        self.mask = None if mask is None or mask.size == 0 else mask
        self._by_rule = _flags_of_rule(rule, n, m)
        self._tiles: dict[int, tuple[Tile, ...]] = {}

    def __len__(self) -> int:
        return -(-self.n // QUERY_ROWS)

    @property
    def entries(self) -> int:
        """How many scores are computed."""
        return sum(tile.entries for k in range(len(self)) for tile in self.tiles(k))

    def rows(self, k: int) -> slice:
        """The k-th block of queries."""
        return slice(k * QUERY_ROWS, min((k + 1) * QUERY_ROWS, self.n))

    def tiles(self, k: int) -> tuple[Tile, ...]:
        """The tiles of the k-th block of queries, for which the mask is read once.

        Raises: ArgumentError if the mask holds NaN or +inf.
        """
        if k not in self._tiles:
            step = QUERY_ROWS // BLOCK_SIZE
            blocks = range(k * step, min((k + 1) * step, len(self._by_rule)))
            flags = tuple([self._flags(i) for i in blocks])
            self._tiles[k] = _tiles(flags, blocks.start, self.n, self.m)
        return self._tiles[k]

    def _flags(self, i: int) -> tuple[int, ...]:
        """What is to be done at each block of keys for the i-th block of queries."""
        by_rule = self._by_rule[i]
        left = [j for j, flags in enumerate(by_rule) if flags]
        if self.mask is None or not left:
            return by_rule
        first, last = left[0], left[-1] + 1
        rows = _part(i, i + 1, self.n) if len(self.mask) > 1 else slice(None)
        mask = self.mask[rows, _part(first, last, self.m)]
        by_mask = _flags_of_mask(mask)
        flags = [a and b and a | b for a, b in zip(by_rule[first:last], by_mask, strict=True)]
        return (*by_rule[:first], *flags, *by_rule[last:])


def _part(first: int, last: int, size: int) -> slice:
    """Blocks as entries."""
    return slice(first * BLOCK_SIZE, min(last * BLOCK_SIZE, size))


# ---------------------------------------------------------------- what is to be done at a block


@lru_cache(16)
def _flags_of_rule(rule: MaskRule | None, n: int, m: int) -> tuple[tuple[int, ...], ...]:
    """For each block of queries, what is to be done at each block of keys."""
    queries, keys = (
        [_part(i, i + 1, size) for i in range(-(-size // BLOCK_SIZE))] for size in (n, m)
    )
    if rule is None:
        return ((OPEN,) * len(keys),) * len(queries)
    return tuple([tuple(_flags_of_mask(entries(rule, i, slice(0, m)), ADD_RULE)) for i in queries])


def entries(rule: MaskRule, rows: slice, keys: slice) -> Array:
    """What a rule says of these queries and keys."""
    seen = rule(np.arange(rows.start, rows.stop)[:, None], np.arange(keys.start, keys.stop))
    return np.broadcast_to(seen, (rows.stop - rows.start, keys.stop - keys.start))


def _flags_of_mask(mask: Array, add: int = ADD_MASK) -> list[int]:
    """What is to be done at each block of keys, by the mask of one block of queries."""
    starts = range(0, mask.shape[-1], BLOCK_SIZE)
    least, greatest = mask.min(axis=0), mask.max(axis=0)
    if mask.dtype != np.bool_ and not (greatest < np.inf).all():
        check_mask(mask)
    closed, opened = (False, True) if mask.dtype == np.bool_ else (-np.inf, 0)
    all_closed = np.maximum.reduceat(greatest, starts) == closed
    all_open = np.minimum.reduceat(least, starts) == opened
    if mask.dtype != np.bool_:
        all_open &= np.maximum.reduceat(greatest, starts) == opened
    flags: list[int] = np.where(all_closed, CLOSED, np.where(all_open, OPEN, OPEN | add)).tolist()
    return flags


# ---------------------------------------------------------------- tiles


@lru_cache(1024)
def _tiles(flags: tuple[tuple[int, ...], ...], top: int, n: int, m: int) -> tuple[Tile, ...]:
    """The tiles of some queries that begin at block `top`: keys that the same queries see."""
    seen_by = [tuple([bool(flag) for flag in column]) for column in zip(*flags, strict=True)]

    def blocks(flag: int, i: int, j: int, a: int, b: int) -> tuple[MaskBlock, ...]:
        """Where a flag is set among blocks i to j of queries and a to b of keys."""
        return tuple(
            MaskBlock(_part(top + r, top + r + 1, n), _part(a + p, a + q, m))
            for r in range(i, j)
            for p, q in _runs([what & flag for what in flags[r][a:b]])
            if flags[r][a + p] & flag
        )

    return tuple(
        Tile(
            _part(top + i, top + j, n),
            _part(a, b, m),
            *(blocks(flag, i, j, a, b) for flag in (ADD_MASK, ADD_RULE)),
        )
        for first, last in _runs(seen_by)
        for a, b in _pieces(first, last)
        for i, j in _runs(seen_by[a])
        if seen_by[a][i]
    )


def _runs(values: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Where neighbours are equal: (first, one past the last) of each run."""
    first = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[first]:
            yield first, i
            first = i


def _pieces(first: int, last: int) -> Iterator[tuple[int, int]]:
    """A run in as few pieces as TILE_KEYS allows, about equally long."""
    count = -(-(last - first) * BLOCK_SIZE // TILE_KEYS)
    edges = [first + (last - first) * i // count for i in range(count + 1)]
    return pairwise(edges)


# ---------------------------------------------------------------- what is added to scores


def to_add(mask: Array, dtype: DType) -> Array:
    """A mask as what is added to the scores."""
    return np.where(mask, dtype.type(0), dtype.type(-np.inf)) if mask.dtype == bool else mask


def rule_to_add(rule: MaskRule, rows: slice, keys: slice, dtype: DType) -> Array:
    """What a rule adds to the scores of a block, keys first: (keys, queries)."""
    return _rule_to_add(rule, rows.start, rows.stop, keys.start, keys.stop, dtype)


@lru_cache(16)
def _rule_to_add(rule: MaskRule, i: int, i_end: int, j: int, j_end: int, dtype: DType) -> Array:
    seen = entries(rule, slice(i, i_end), slice(j, j_end))
    return np.ascontiguousarray(to_add(seen, dtype).T)
