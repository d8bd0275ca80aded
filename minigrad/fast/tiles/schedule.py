"""How tiled attention divides its work: which heads, queries and keys, in what order, by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod, sqrt
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ...engine.op import Array, DType
from ...ops.attention import leading
from ...ops.masks import check_mask
from ..limits import LIMITS
from ..threads import one_threaded_blas, run
from .mask_tiles import QUERY_ROWS, TILE_KEYS, MaskRule, Tile, TileGrid

__all__ = [
    "HeadGroup",
    "Heads",
    "TileSchedule",
    "WorkTile",
    "is_threaded",
    "length",
    "on_threads",
    "within",
]

EXP_WORK = 64  # e^x and the passes over a score, in multiplications: it adds to d_k + d_v


# an index: an entry for each leading axis, a slice for the last one or two
Heads: TypeAlias = tuple[int | slice, ...]
Result = TypeVar("Result")


class WorkTile(NamedTuple):
    """A tile, for some heads, and where in the store its weights are kept, if they are."""

    tile: Tile
    place: int | None


class HeadGroup(NamedTuple):
    """Some heads that are worked on together: for each block of their queries, the tiles.

    In backward several threads may share a group: each has a ∂K and a ∂V of its own.
    """

    heads: Heads
    query_blocks: list[tuple[slice, list[WorkTile]]]
    share: int = 0


class TileSchedule:
    """The operands over the same leading axes, as views, and the work on them in groups of heads.

    Made by forward, which calls `plan`, and used by backward again.
    """

    def __init__(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: ArrayLike | None,
        rule: MaskRule | None,
    ) -> None:
        self.dtype = np.result_type(q, k, v)
        q, k, v = (_for_blas(x, self.dtype) for x in (q, k, v))
        self.n, self.d_k = q.shape[-2:]
        self.m, self.d_v = v.shape[-2:]
        mask = None if mask is None else as_mask(mask)
        self.shape = leading(q, k, v, mask)
        self.lead = self.shape or (1,)
        self.q, self.k, self.v = (np.broadcast_to(x, self.lead + x.shape[-2:]) for x in (q, k, v))
        extra = 0 if mask is None else len(self.lead) + 2 - mask.ndim
        self.mask: Any = None if mask is None else mask.reshape((1,) * extra + mask.shape)
        self.rule, self.scale = rule, self.dtype.type(1 / sqrt(self.d_k))
        self.threads, self.stored = 1, 0
        self.grids: dict[tuple[int, ...], TileGrid] = {}
        self.groups: list[HeadGroup] = []

    # ------------------------------------------------------------ dividing it

    def plan(self, threads: int, store_bytes: int) -> None:
        """Read the masks, and make the groups: two for each thread, if there are as many heads.

        store_bytes: how many bytes of weights may be kept; `stored` tells how many entries are.
        """
        self.threads = threads
        masks = () if self.mask is None else self.mask.shape[:-2]
        self.grids = {
            index: TileGrid(self.n, self.m, self.mask_at(index), self.rule)
            for index in np.ndindex(*masks)
        }
        if self.mask is not None:
            first = self.mask[(0,) * (self.mask.ndim - 1)] if self.mask.size else 0
            if np.all((first == 0) | (first == 1)):  # all of it may be, which is refused
                check_mask(self.mask)
            reads = [(grid, k) for grid in self.grids.values() for k in range(len(grid))]
            run(lambda item, _: item[0].tiles(item[1]), reads, threads)
        for heads in self._heads():
            self.groups.append(HeadGroup(heads, self._query_blocks(heads, store_bytes)))

    def _heads(self) -> Iterator[Heads]:
        """Some heads at a time, of one mask: of one example, or all heads of several examples."""
        entries = max(1, min(self.n, QUERY_ROWS) * min(self.m, TILE_KEYS))
        several = QUERY_ROWS * TILE_KEYS // entries
        if self.threads > 1:
            several = min(several, prod(self.lead) // (2 * self.threads))
        alike = (1,) * len(self.lead) if self.mask is None else self.mask.shape[:-2]
        *outer, inner = self.lead
        whole: tuple[slice, ...] = ()
        if len(self.lead) > 1 and several > inner > 0 and alike[-2:] == (1, 1):
            several, whole = several // inner, (slice(0, inner),)
            *outer, inner = outer
        step = max(1, several) if alike[len(outer)] == 1 else 1
        for index in np.ndindex(*outer):
            for first in range(0, inner, step):
                yield (*index, slice(first, min(first + step, inner)), *whole)

    def _query_blocks(self, heads: Heads, store_bytes: int) -> list[tuple[slice, list[WorkTile]]]:
        """The tiles, with a place for the weights and maxima of each while the budget lasts."""
        grid = self.grids[self.mask_index(heads)]
        several = prod(length(place) for place in heads if isinstance(place, slice))
        divided = []
        for k in range(len(grid)):
            tiles = []
            for tile in grid.tiles(k):
                size = several * (length(tile.keys) + 1) * length(tile.rows)
                fits = (self.stored + size) * self.dtype.itemsize <= store_bytes
                tiles.append(WorkTile(tile, self.stored if fits else None))
                self.stored += size if fits else 0
            divided.append((grid.rows(k), tiles))
        return divided

    def mask_index(self, heads: Heads) -> tuple[int, ...]:
        """Which mask some heads have."""
        if self.mask is None:
            return ()
        places = [place.start if isinstance(place, slice) else place for place in heads]
        return tuple(
            0 if size == 1 else i for i, size in zip(places, self.mask.shape, strict=False)
        )

    def mask_at(self, index: tuple[int, ...]) -> Any:
        """One mask: (n or 1, m), or None."""
        if self.mask is None:
            return None
        return np.broadcast_to(self.mask[index], (self.mask.shape[-2], self.m))

    def shared_groups(self) -> list[HeadGroup]:
        """The groups for backward; threads share the query blocks of each where it is more even."""
        rounds = -(-len(self.groups) // self.threads)
        uneven = rounds * self.threads > 1.1 * len(self.groups)
        shares = self.threads if uneven else 1
        turns = [*range(shares), *reversed(range(shares))]  # 0 1 1 0 0 1: long and short for both
        return [
            HeadGroup(
                heads,
                [block for i, block in enumerate(blocks) if turns[i % len(turns)] == share],
                share,
            )
            for heads, blocks, _ in self.groups
            for share in range(shares)
        ]


def within(part: slice, whole: slice) -> slice:
    """The part, counted from where the whole begins."""
    return slice(part.start - whole.start, part.stop - whole.start)


def on_threads(schedule: TileSchedule, work: Callable[[int], Result]) -> Result:
    """Do the work on as many threads as BLAS has, if it is large, with BLAS on one meanwhile."""
    if not is_threaded(schedule.q, schedule.k, schedule.v):
        return work(1)
    with one_threaded_blas as threads:
        return work(min(threads, LIMITS.attention_threads))


def is_threaded(q: Array, k: Array, v: Array) -> bool:
    """Whether the work on arrays of these shapes is worth several threads."""
    heads = prod(np.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v))))
    (n, d_k), (m, d_v) = q.shape[-2:], v.shape[-2:]
    return bool(heads * n * m * (d_k + d_v + EXP_WORK) >= LIMITS.threaded_work)


def as_mask(mask: ArrayLike) -> Array:
    """A mask of two axes or more."""
    mask = np.asarray(mask)
    if mask.dtype.kind not in "bf":
        check_mask(mask)  # raises
    return mask.reshape((1,) * (2 - mask.ndim) + mask.shape)


def _for_blas(x: ArrayLike, dtype: DType) -> Array:
    """The array, copied only where BLAS could not read it: rows or columns must be whole."""
    x = np.asarray(x, dtype)
    (rows, columns), (high, wide) = x.shape[-2:], x.strides[-2:]
    by_rows = wide == x.itemsize and high >= columns * x.itemsize and high % x.itemsize == 0
    by_columns = high == x.itemsize and wide >= rows * x.itemsize and wide % x.itemsize == 0
    return x if by_rows or by_columns else np.ascontiguousarray(x)


def length(part: slice) -> int:
    return int(part.stop - part.start)
