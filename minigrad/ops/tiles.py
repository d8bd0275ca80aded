"""Which tiles of the score matrix attention must compute: what a mask closes is skipped.

Masks are read anew in every call, about 0.4 ns an entry, so one that was written to is never taken
for what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError

__all__ = ["BLOCK", "WIDTH", "Band", "Tile", "bands", "triangle"]

BLOCK = 128  # queries in a tile, and the grain at which keys are skipped
WIDTH = 1024  # keys in a tile at most: two such tiles in float32 fill 1 MiB, a core's cache

CLOSED, MIXED, OPEN = range(3)


class Tile(NamedTuple):
    """Some keys, seen by the queries of one band."""

    keys: slice
    cuts: tuple[slice, ...]  # keys where the mask is neither all open nor all closed: it is added
    diagonal: slice | None  # keys where causality cuts through


class Band(NamedTuple):
    """A block of queries, and the tiles that they see."""

    rows: slice
    tiles: tuple[Tile, ...]

    @property
    def seen(self) -> int:
        """How many keys are computed for each of the queries."""
        return sum(tile.keys.stop - tile.keys.start for tile in self.tiles)


def bands(n: int, m: int, mask: Any, is_causal: bool) -> Iterator[Band]:
    """The bands of n queries over m keys under one mask, (n or 1, m) or None.

    Raises: ArgumentError if the mask holds NaN or +inf.

    >>> [band.seen for band in bands(300, 300, None, is_causal=True)]
    [128, 256, 300]
    """
    mask = None if mask is None or mask.size == 0 else mask
    same = None if mask is None or len(mask) != 1 else _kinds(mask)
    for k in range(_count(n)):
        rows = slice(k * BLOCK, min((k + 1) * BLOCK, n))
        kinds, diagonal = np.full(_count(m), OPEN), is_causal
        if mask is not None:
            kinds = _kinds(mask[rows]) if same is None else same.copy()
            if same is None and _is_triangle(mask[rows, _keys(k, k + 1, m)]):
                kinds[k], diagonal = OPEN, True  # added as causality is, from one small array
        to_add = (kinds == MIXED).tolist()
        if is_causal:  # rows and keys share one grid, so only block k is cut through
            kinds[k + 1 :] = CLOSED
        tiles = _tiles((kinds != CLOSED).tolist(), to_add, k if diagonal else -1, m)
        yield Band(rows, tuple(tiles))


def _count(n: int) -> int:
    """How many blocks n queries or keys make."""
    return -(-n // BLOCK)


def _tiles(seen: list[bool], to_add: list[bool], diagonal: int, m: int) -> Iterator[Tile]:
    """Runs of blocks that are seen, cut at WIDTH."""
    for first, last in _runs(seen, WIDTH // BLOCK):
        cuts = tuple(_keys(first + a, first + b, m) for a, b in _runs(to_add[first:last]))
        through = _keys(diagonal, diagonal + 1, m) if first <= diagonal < last else None
        yield Tile(_keys(first, last, m), cuts, through)


def _runs(flags: list[bool], longest: int | None = None) -> Iterator[tuple[int, int]]:
    """Where flags are true: (first, one past the last) of each run, none longer than told."""
    first = None
    for i, flag in enumerate([*flags, False]):
        if first is not None and (not flag or i - first == longest):
            yield first, i
            first = None
        if flag and first is None:
            first = i


def _keys(first: int, last: int, m: int) -> slice:
    return slice(first * BLOCK, min(last * BLOCK, m))


def _kinds(mask: Any) -> Any:
    """For each block of keys: is the mask, over these queries, all closed, all open, or mixed?

    A block's corners say what it may be; runs of equal guesses are then read at once, as integers,
    whose largest and smallest tell exactly whether all are the same.
    """
    guesses, m = _guesses(mask), mask.shape[-1]
    firsts = [i for i, guess in enumerate(guesses) if i == 0 or guess != guesses[i - 1]]
    found = _uniform(mask, firsts)
    kinds = np.repeat(found, np.diff([*firsts, len(guesses)]))
    missed = np.flatnonzero((kinds == MIXED) & (np.array(guesses) != MIXED)).tolist()
    for i in missed:  # a run that was not all alike: block by block
        kinds[i] = _uniform(mask[:, _keys(i, i + 1, m)], [0])[0]
    for first, last in _runs((kinds == MIXED).tolist()):
        if mask.dtype != bool and not mask[:, _keys(first, last, m)].max() < np.inf:
            raise ArgumentError(
                "mask holds NaN or +inf, use 0 and -inf (0 * -inf, for one, is NaN)"
            )
    return kinds


def _guesses(mask: Any) -> list[int]:
    """What the four corners of each block have in common."""
    m = mask.shape[-1]
    lefts, rights = slice(None, None, BLOCK), [*range(BLOCK - 1, m - 1, BLOCK), m - 1]
    corners = [mask[row, keys].tolist() for row in (0, -1) for keys in (lefts, rights)]
    closed, opened = (False, True) if mask.dtype == bool else (-np.inf, 0)
    alike = {(closed,) * 4: CLOSED, (opened,) * 4: OPEN}
    return [alike.get(corner, MIXED) for corner in zip(*corners, strict=True)]


def _uniform(mask: Any, firsts: list[int]) -> Any:
    """The kinds of runs of blocks that begin at `firsts`: what all entries are, or MIXED."""
    bits = mask.view(f"u{mask.itemsize}")
    starts = [first * BLOCK for first in firsts]
    largest = np.maximum.reduceat(bits, starts, axis=1).max(axis=0)
    smallest = np.minimum.reduceat(bits, starts, axis=1).min(axis=0)
    closed, opened = np.array(
        [-np.inf, 0.0] if mask.dtype != bool else [False, True], mask.dtype
    ).view(bits.dtype)
    same = largest == smallest
    return np.where(
        same & (largest == closed), CLOSED, np.where(same & (largest == opened), OPEN, MIXED)
    )


def _is_triangle(mask: Any) -> bool:
    """Whether a block is the causal mask's on its diagonal: open up to it, closed beyond."""
    rows, keys = mask.shape
    return mask.size > 0 and np.array_equal(mask, triangle(mask.dtype)[:rows, :keys])


@cache
def triangle(dtype: Any) -> Any:
    """The causal mask on its diagonal, boolean or to add; laid out keys first, as tiles are."""
    seen = np.asfortranarray(np.tri(BLOCK, dtype=np.bool_))
    if dtype.kind == "b":
        return seen
    return np.where(seen, dtype.type(0), dtype.type(-np.inf))
