"""How attention in tiles divides its work: which keys a block of queries meets, and which heads go
together.

Keys of which no query of a block sees any are skipped. Whoever holds a mask may write to it, so
each call reads it anew; what a rule says is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, product
from math import prod, sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...engine.op import Array, DType
from ...ops.attention import MaskRule, leading, seen_by
from ...ops.masks import check_mask
from ..limits import LIMITS
from ..threads import run, slices

__all__ = ["Heads", "Tile", "TileSchedule", "tiles_of", "what_rule_hides"]

QUERIES = 128  # queries that are worked on at a time; so many keys are skipped at a time
TILE_KEYS = 1024  # keys in a tile, at most: in float32 it then fills half of a core's cache
KEPT_BLOCKS = 32  # of different content, for each rule; what it says of others is asked each time
EXP_WORK = 64  # e^x and the passes over a score, in multiplications: it adds to d_k + d_v

Heads: TypeAlias = tuple[slice, slice]  # of examples, and of their heads
Hidden: TypeAlias = bool | Array | None  # all is hidden, nothing, what to add; None: read it


class Tile(NamedTuple):
    """Keys that a block of queries meets; and those of them of which a rule, or a mask, hides some.

    With the rule's stands what it adds to the scores, keys first, unless it must be asked.
    """

    keys: slice
    ruled: list[tuple[slice, Array | None]]
    masked: list[slice]


class TileSchedule:
    """The operands over two leading axes, as views; the work on them by groups of heads and blocks
    of queries. Forward makes it, and backward uses it again.
    """

    def __init__(self, q: Any, k: Any, v: Any, mask: Any, rule: MaskRule | None) -> None:
        mask = None if mask is None else np.asarray(mask)
        self.dtype = np.result_type(q, k, v)
        self.shape = leading(q, k, v, mask)
        self.lead = prod(self.shape[:-1]), prod(self.shape[-1:])
        self.q, self.k, self.v = (self.by_heads(_for_blas(x, self.dtype)) for x in (q, k, v))
        self.n: int = q.shape[-2]
        self.m: int = v.shape[-2]
        self.d_v: int = v.shape[-1]
        self.scale = self.dtype.type(1 / sqrt(q.shape[-1]))
        self.rule = rule
        self.mask = None if mask is None else self._of_four_axes(mask)
        self.blocks = slices(self.n, QUERIES)
        self.groups: list[Heads] = []
        self._tiles: dict[tuple[int, ...], list[Tile]] = {}

    def by_heads(self, x: Array) -> Array:
        """(..., rows, columns) with all leading axes, as two: a view where there can be one."""
        return np.broadcast_to(x, self.shape + x.shape[-2:]).reshape(self.lead + x.shape[-2:])

    def _of_four_axes(self, mask: Array) -> Array:
        """A mask (B or 1, h or 1, n or 1, m), as a view if there can be one."""
        check_mask(mask)
        mask = mask.reshape((1,) * (max(len(self.shape), 2) + 2 - mask.ndim) + mask.shape)
        mask = np.broadcast_to(mask, (*mask.shape[:-1], self.m))
        if mask.ndim == 4:
            return mask
        alike = max(mask.shape[:-3]) == 1
        mask = np.broadcast_to(mask, (mask.shape if alike else self.shape[:-1] + mask.shape[-3:]))
        return mask.reshape(-1, *mask.shape[-3:])

    def plan(self) -> None:
        """Read the masks, and make the groups: two for each thread, if there are as many heads."""
        hidden = what_rule_hides(self.rule, self.n, self.m)
        masks = (1, 1) if self.mask is None else self.mask.shape[:2]

        def read(place: tuple[int, ...]) -> None:
            b, h, i = place
            mask = None if self.mask is None else _rows(self.mask[b, h], self.blocks[i])
            self._tiles[place] = tiles_of(hidden[i], mask, self.m)

        self.run(read, [*product(*map(range, masks), range(len(self.blocks)))])
        examples, heads = self.lead
        size = min(self.n, QUERIES) * min(self.m, TILE_KEYS)
        several = max(1, min(QUERIES * TILE_KEYS // size, examples * heads // 4))
        of_heads = min(several, heads) if masks[1] == 1 else 1
        of_examples = several // heads if masks[0] == 1 and of_heads == heads else 1
        self.groups = [*product(slices(examples, of_examples), slices(heads, of_heads))]

    def run(self, work: Any, items: list[Any]) -> None:
        """On two threads, if there is so much to do."""
        width = self.q.shape[-1] + self.d_v + EXP_WORK
        if prod(self.lead) * self.n * self.m * width < LIMITS.threaded_work:
            for item in items:
                work(item)
        else:
            run(work, items)

    def mask_of(self, heads: Heads) -> tuple[int, int]:
        """Which mask some heads have."""
        sizes = (1, 1) if self.mask is None else self.mask.shape[:2]
        b, h = (0 if size == 1 else at.start for at, size in zip(heads, sizes, strict=True))
        return b, h

    def tiles(self, heads: Heads, i: int) -> list[Tile]:
        """The tiles of the i-th block of queries."""
        return self._tiles[*self.mask_of(heads), i]

    def added(self, heads: Heads, rows: slice, tile: Tile) -> Iterator[tuple[slice, Array]]:
        """What rule and mask add to the scores of some keys of a tile: (keys, queries)."""
        for keys, block in tile.ruled:
            if block is None:
                assert self.rule is not None
                block = _to_add(seen_by(self.rule, rows, keys), self.dtype).T
            yield keys, block
        for keys in tile.masked:
            assert self.mask is not None
            yield keys, _to_add(_rows(self.mask[self.mask_of(heads)], rows)[:, keys], self.dtype).T


# ---------------------------------------------------------------- what is hidden


def tiles_of(by_rule: Sequence[Hidden], mask: Array | None, m: int) -> list[Tile]:
    """The tiles of a block of queries, by what a rule and a mask, (n or 1, m), hide of keys."""
    blocks = slices(m, QUERIES)
    by_mask = [True] * len(blocks) if mask is None else _what_mask_shows(mask)
    found = []
    is_open = [a is not False and b is not False for a, b in zip(by_rule, by_mask, strict=True)]
    for computed, some in groupby(range(len(blocks)), is_open.__getitem__):
        together = [*some] if computed else []
        for part in np.array_split(together, -(-len(together) * QUERIES // TILE_KEYS) or 1):
            if len(part):
                keys = slice(blocks[part[0]].start, blocks[part[-1]].stop)
                ruled = [(blocks[j], by_rule[j]) for j in part if by_rule[j] is not True]
                found.append(Tile(keys, ruled, [blocks[j] for j in part if by_mask[j] is None]))
    return found


def _what_mask_shows(mask: Array) -> list[bool | None]:
    """Of each block of keys: all (True), nothing (False), or some."""
    starts = [keys.start for keys in slices(mask.shape[-1], QUERIES)]
    least, greatest = mask.min(axis=0), mask.max(axis=0)
    nothing, everything = (False, True) if mask.dtype == np.bool_ else (-np.inf, 0)
    least, greatest = np.minimum.reduceat(least, starts), np.maximum.reduceat(greatest, starts)
    return [
        True if low == high == everything else False if high == nothing else None
        for low, high in zip(least, greatest, strict=True)
    ]


def what_rule_hides(rule: MaskRule | None, n: int, m: int) -> Sequence[Sequence[Hidden]]:
    """For each block of queries and each of keys: False if no query sees any, True if all see all,
    or what is added to the scores, keys first; None where there is too much of that to keep.

    A rule is asked once for these sizes, as long as it says the same of some queries and keys.
    """
    if rule is None:
        return [[True] * len(slices(m, QUERIES))] * len(slices(n, QUERIES))
    some = np.packbits(seen_by(rule, slice(0, n, 16), slice(0, m, 17))).tobytes()
    try:
        return _asked(rule, n, m, some)
    except TypeError:  # it cannot be hashed
        return _asked.__wrapped__(rule, n, m, some)


@lru_cache(8)
def _asked(rule: MaskRule, n: int, m: int, _: bytes) -> Sequence[Sequence[Hidden]]:
    kept: dict[Any, Array] = {}

    def ask(rows: slice, keys: slice) -> Hidden:
        seen = seen_by(rule, rows, keys)
        if seen.all() or not seen.any():
            return bool(seen.any())
        content = seen.shape, seen.tobytes()
        if content not in kept and len(kept) < KEPT_BLOCKS:
            kept[content] = np.ascontiguousarray(_to_add(seen, np.dtype(np.float32)).T)
        return kept.get(content)

    return [[ask(rows, keys) for keys in slices(m, QUERIES)] for rows in slices(n, QUERIES)]


def _to_add(mask: Array, dtype: DType) -> Array:
    """A mask as what is added to the scores."""
    return np.where(mask, dtype.type(0), dtype.type(-np.inf)) if mask.dtype == np.bool_ else mask


# ---------------------------------------------------------------- operands


def _rows(mask: Array, rows: slice) -> Array:
    """Those of a mask (n or 1, m)."""
    return mask[rows] if len(mask) > 1 else mask


def _for_blas(x: Any, dtype: DType) -> Array:
    """The array, copied unless BLAS reads its rows as they lie."""
    x = np.asarray(x, dtype)
    high, wide = x.strides[-2:]
    return x if wide == x.itemsize and high >= wide * x.shape[-1] else np.ascontiguousarray(x)
