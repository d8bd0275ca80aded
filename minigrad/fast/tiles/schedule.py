"""How attention in tiles divides its work: which heads go together, and which keys a block of
queries meets.

Keys of which no query of a block sees any are skipped. Whoever holds a mask may write to it, so
each call reads it anew; what a rule says is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import groupby, product, takewhile
from math import prod, sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...engine.op import Array
from ...ops.attention import PairRule, leading, seen_by
from ..limits import LIMITS
from ..threads import run, slices

__all__ = ["QUERIES", "Tile", "TileSchedule"]

QUERIES = 128  # queries that are worked on at a time; so many keys are skipped at a time
TILE_KEYS = 8 * QUERIES  # in a tile, at most: in float32 it then fills half of a core's cache
KEPT_BLOCKS = 64  # of queries and keys, for each rule; what it says of others is asked each time
EXP_WORK = 64  # e^x and the passes over a score, in multiplications: it adds to d_k + d_v

UNKNOWN, NOTHING, SOME, ALL = range(-1, 3)  # of a block of keys is seen by a block of queries
Hidden: TypeAlias = Callable[[int, int], Array]  # where such a block is hidden: (keys, queries)


class Tile(NamedTuple):
    """Keys that a block of queries meets; and for parts of them, where Sᵀ is hidden (booleans), or
    what is added to it.
    """

    keys: slice
    masks: list[tuple[slice, Array]]


class TileSchedule:
    """The operands over one leading axis, and the work on them: groups of heads with one mask, and
    blocks of queries.
    """

    def __init__(
        self,
        q: Any,
        k: Any,
        v: Any,
        mask: Any,
        rule: PairRule | None,
        known: tuple[Array, Array] | None = None,
    ) -> None:
        mask = None if mask is None else np.asarray(mask)
        self.lead = leading(q, k, v, mask)
        self.dtype = np.result_type(q, k, v)
        self.q, self.k, self.v = (self.over_one_axis(x) for x in (q, k, v))
        L, n, d_k = self.q.shape
        m, d_v = self.v.shape[1:]
        self.scale = self.dtype.type(1 / sqrt(d_k))
        self.queries, self.keys = slices(n, QUERIES), slices(m, QUERIES)
        self.is_long = L * n * m * (d_k + d_v + EXP_WORK) >= LIMITS.threaded_work
        self.said = None if rule is None else what_rule_says(rule, n, m)
        self.mask = None
        self.alike = L  # heads that have one mask
        if mask is not None:
            mask = mask.reshape((1,) * (2 + len(self.lead) - mask.ndim) + mask.shape)
            sizes = zip(mask.shape[-3::-1], self.lead[::-1], strict=True)
            self.alike = prod(size for _, size in takewhile(lambda pair: pair[0] == 1, sizes))
            self.mask = np.broadcast_to(mask, (*self.lead, mask.shape[-2], m))
        several = QUERIES * TILE_KEYS // (min(n, QUERIES) * min(m, TILE_KEYS))
        group = max(1, min(several, L // 4, self.alike))
        self.groups = [
            slice(first + heads.start, first + heads.stop)
            for first in range(0, L, self.alike)
            for heads in slices(self.alike, group)
        ]

        if known is None:
            places = L // self.alike, len(self.queries)
            known = np.full((*places, len(self.keys)), UNKNOWN, np.int8), np.zeros(places)
        self.shown: Array = known[0]  # what `seen` finds, for each mask and block of queries
        self.most: Array = known[1]

    def over_one_axis(self, x: Any) -> Array:
        """(..., rows, columns) as (heads, rows, columns)."""
        x = np.asarray(x, self.dtype)
        whole = np.broadcast_to(x, self.lead + x.shape[-2:])
        return whole.reshape(prod(self.lead), *x.shape[-2:])

    def run(self, work: Callable[[slice, int], object]) -> None:
        """Call `work(heads, half)` for both halves of the blocks of queries of each group; on
        several threads, if there is so much to do.
        """
        items = [*product(self.groups, range(min(2, len(self.queries))))]
        if self.is_long:
            run(lambda item: work(*item), items)
        else:
            for item in items:
                work(*item)

    def blocks(self, half: int) -> range:
        """Every other block of queries: under a causal mask, long ones and short ones."""
        return range(half, len(self.queries), 2)

    def seen(self, heads: slice, i: int) -> tuple[Array, float]:
        """How much the i-th block of queries sees of each block of keys; and the most that a mask
        adds to a score.
        """
        place = heads.start // self.alike, i
        if UNKNOWN in self.shown[place]:
            mask = self._mask(heads, i)
            shown = ALL if self.said is None else self.said[0][i]
            if mask is not None:
                by_mask, self.most[place] = what_is_seen(mask)
                shown = np.minimum(shown, by_mask)
            self.shown[place] = shown
        return self.shown[place], self.most[place]

    def _mask(self, heads: slice, i: int) -> Array | None:
        """What the i-th block of queries has of the mask: (queries or 1, keys)."""
        if self.mask is None:
            return None
        own: Array = self.mask[np.unravel_index(heads.start, self.lead)]
        return own[self.queries[i]] if len(own) > 1 else own

    def tiles(self, heads: slice, i: int) -> list[Tile]:
        """The keys that the i-th block of queries meets."""
        shown = self.seen(heads, i)[0]
        mask = self._mask(heads, i)
        found = []
        for is_open, blocks in groupby(range(len(shown)), lambda j: shown[j] > NOTHING):
            together = [*blocks] if is_open else []
            for part in slices(len(together), TILE_KEYS // QUERIES):
                found.append(self._tile(together[part], i, shown, mask))
        return found

    def _tile(self, blocks: list[int], i: int, shown: Array, mask: Array | None) -> Tile:
        """So many blocks of keys as one tile."""
        start = self.keys[blocks[0]].start
        stop = self.keys[blocks[-1]].stop
        masks = []
        for j in [j for j in blocks if shown[j] == SOME]:
            keys = self.keys[j]
            at = slice(keys.start - start, keys.stop - start)
            if self.said is not None:
                masks.append((at, self.said[1](i, j)))
            if mask is not None:
                own = mask[:, keys].T
                masks.append((at, ~own if own.dtype == np.bool_ else own))
        return Tile(slice(start, stop), masks)


def what_is_seen(mask: Array) -> tuple[Array, float]:
    """How much is seen of each block of keys; and the most that is added."""
    nothing, everything = (False, True) if mask.dtype == np.bool_ else (-np.inf, 0)
    starts = range(0, mask.shape[1], QUERIES)
    least, greatest = (
        extreme.reduceat(extreme.reduce(mask, axis=0), starts)
        for extreme in (np.minimum, np.maximum)
    )
    is_all = (least == everything) & (greatest == everything)
    return (greatest != nothing).astype(int) + is_all, float(greatest.max()) - everything


def what_rule_says(rule: PairRule, n: int, m: int) -> tuple[list[Array], Hidden]:
    """For each block of queries, how much it sees of each block of keys; and where those are
    hidden of which it sees some.

    A rule is asked once for these sizes, as long as it says the same of some queries and keys.
    """
    some = np.packbits(seen_by(rule, slice(0, n, 16), slice(0, m, 17))).tobytes()
    try:
        return _asked(rule, n, m, some)
    except TypeError:  # it cannot be hashed
        return _asked.__wrapped__(rule, n, m, some)


@lru_cache(8)
def _asked(rule: PairRule, n: int, m: int, _: bytes) -> tuple[list[Array], Hidden]:
    queries = slices(n, QUERIES)
    keys = slices(m, QUERIES)

    @lru_cache(KEPT_BLOCKS)
    def hidden(i: int, j: int) -> Array:
        return np.logical_not(seen_by(rule, queries[i], keys[j]).T, order="C")

    return [what_is_seen(seen_by(rule, rows, slice(0, m)))[0] for rows in queries], hidden
