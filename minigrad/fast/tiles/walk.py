"""How tiled attention divides its work: which heads, queries and keys, in what order, by whom."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ...engine.errors import DTypeError
from ..threads import Scratch
from .tiles import BAND, WIDTH, Grid, Tile, triangle

__all__ = [
    "Lane",
    "Part",
    "Walk",
    "as_mask",
    "common_dtype",
    "factor",
    "is_large",
    "leading",
    "to_add",
    "within",
]

EXP = 64  # what e^x and the passes over a score take, in terms of the products at d_k + d_v
THREADED = 1e8  # scores times d_k + d_v + EXP from which threads pay: some 5 ms both ways


class Part(NamedTuple):
    """One tile of the work on some heads, and where its weights are kept, if they are."""

    tile: Tile
    kept: int | None


class Lane(NamedTuple):
    """Some heads, and for each band of their queries its parts; each share has its own ∂K, ∂V."""

    heads: Any  # an index: an entry for each leading axis, a slice for the last one or two
    bands: list[tuple[slice, list[Part]]]
    share: int = 0


class Walk:
    """Operands over the same leading axes, as views, and the tiles to compute, in lanes."""

    def __init__(self, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: Any) -> None:
        self.n: int
        self.m: int
        self.d_k: int
        self.d_v: int
        self.dtype = common_dtype(q, k, v)
        q, k, v = (_for_blas(x, self.dtype) for x in (q, k, v))
        self.n, self.d_k = q.shape[-2:]
        self.m, self.d_v = v.shape[-2:]
        mask = None if mask is None else as_mask(mask)
        self.shape = leading(q, k, v, mask)
        self.lead = self.shape or (1,)
        self.heads = prod(self.lead)
        self.q, self.k, self.v = (np.broadcast_to(x, self.lead + x.shape[-2:]) for x in (q, k, v))
        extra = 0 if mask is None else len(self.lead) + 2 - mask.ndim
        self.mask: Any = None if mask is None else mask.reshape((1,) * extra + mask.shape)
        self.is_causal, self.scale = is_causal, self.dtype.type(factor(scale, self.d_k))
        self.threads, self.kept = 1, 0
        self.grids: dict[tuple[int, ...], Grid] = {}
        self.lanes: list[Lane] = []

    # ------------------------------------------------------------ dividing it

    def plan(self, threads: int, keep: int) -> None:
        """Make the lanes: one a head, or for several small heads; two a thread if there are."""
        self.threads = threads
        masks = () if self.mask is None else self.mask.shape[:-2]
        self.grids = {
            index: Grid(self.n, self.m, self._mask_at(index), self.is_causal)
            for index in np.ndindex(*masks)
        }
        self.lanes += [Lane(heads, self._with_room(heads, keep)) for heads in self._heads()]

    def _heads(self) -> Iterator[tuple[Any, ...]]:
        """Some heads at a time, of one mask: of one example, or all heads of several examples."""
        entries = max(1, min(self.n, BAND) * min(self.m, WIDTH))
        several = BAND * WIDTH // entries
        if self.threads > 1:
            several = min(several, self.heads // (2 * self.threads))
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

    def _with_room(self, heads: Any, keep: int) -> list[tuple[slice, list[Part]]]:
        """The bands, with room for each tile's weights and maxima while the budget lasts."""
        grid = self.grids[self._mask_of(heads)]
        many = prod(_length(place) for place in heads if isinstance(place, slice))
        divided = []
        for k in range(len(grid)):
            parts = []
            for tile in grid.guessed(k):
                size = many * (_length(tile.keys) + 1) * _length(tile.rows)
                fits = (self.kept + size) * self.dtype.itemsize <= keep
                parts.append(Part(tile, self.kept if fits else None))
                self.kept += size if fits else 0
            divided.append((grid.rows(k), parts))
        return divided

    def settle(self, lane: Lane, k: int) -> tuple[slice, list[Part]]:
        """Band k of a lane, as the mask has it; where it was not what it seemed, none is kept."""
        rows, parts = lane.bands[k]
        tiles = self.grids[self._mask_of(lane.heads)].tiles(k)
        if tuple([part.tile for part in parts]) != tiles:
            parts = [Part(tile, None) for tile in tiles]
            lane.bands[k] = rows, parts
        return rows, parts

    def _mask_of(self, heads: Any) -> tuple[int, ...]:
        """Which mask some heads have."""
        if self.mask is None:
            return ()
        places = [place.start if isinstance(place, slice) else place for place in heads]
        return tuple(
            0 if size == 1 else i for i, size in zip(places, self.mask.shape, strict=False)
        )

    def _mask_at(self, index: tuple[int, ...]) -> Any:
        """One mask: (n or 1, m), or None."""
        if self.mask is None:
            return None
        return np.broadcast_to(self.mask[index], (self.mask.shape[-2], self.m))

    def shared_lanes(self) -> list[Lane]:
        """The lanes for backward; the threads share the blocks of each where that is more even."""
        rounds = -(-len(self.lanes) // self.threads)
        uneven = rounds * self.threads > 1.1 * len(self.lanes)
        shares = self.threads if uneven else 1
        turns = [*range(shares), *reversed(range(shares))]  # 0 1 1 0 0 1: long and short for both
        return [
            Lane(
                heads,
                [band for i, band in enumerate(work) if turns[i % len(turns)] == share],
                share,
            )
            for heads, work, _ in self.lanes
            for share in range(shares)
        ]

    # ------------------------------------------------------------ the arrays of one part

    def queries(self, heads: Any, rows: slice, scratch: Scratch) -> Any:
        """q · scale, contiguous: (..., queries, d_k)."""
        q = self.q[heads][..., rows, :]
        return np.multiply(q, self.scale, out=scratch.array("q", q.shape, self.dtype))

    def out_buffer(self, part: Part, q: Any, kept: Any, scratch: Scratch) -> tuple[Any, Any]:
        """Where a part's weights (..., keys, queries) go, and its maxima if they are kept."""
        many, keys, queries = q.shape[:-2], _length(part.tile.keys), _length(part.tile.rows)
        if part.kept is None:
            return scratch.array("S", (*many, keys, queries), self.dtype), None
        shape = (*many, keys + 1, queries)
        slab = kept[part.kept : part.kept + prod(shape)].reshape(shape)
        return slab[..., 1:, :], slab[..., :1, :]

    def scores(self, heads: Any, tile: Tile, q: Any, S: Any) -> None:
        """Sᵀ = K (q · scale)ᵀ + Mᵀ on one tile: (..., keys, queries)."""
        np.matmul(self.k[heads][..., tile.keys, :], q.swapaxes(-1, -2), out=S)
        for rows, keys in tile.masked:
            mask = self._mask_at(self._mask_of(heads))
            part = to_add(mask[rows if len(mask) > 1 else slice(None), keys], self.dtype)
            S[..., within(keys, tile.keys), within(rows, tile.rows)] += part.T
        for rows, keys in tile.diagonal:
            closed = triangle(self.dtype, keys_first=True)[: _length(keys), : _length(rows)]
            S[..., within(keys, tile.keys), within(rows, tile.rows)] += closed


def within(part: slice, whole: slice) -> slice:
    """The part, counted from where the whole begins."""
    return slice(part.start - whole.start, part.stop - whole.start)


def is_large(q: Any, k: Any, v: Any) -> bool:
    """Whether the work on arrays of these shapes is worth several threads."""
    heads = prod(np.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v))))
    (n, d_k), (m, d_v) = q.shape[-2:], v.shape[-2:]
    return bool(heads * n * m * (d_k + d_v + EXP) >= THREADED)


def factor(scale: float | None, d_k: int) -> float:
    """The scale of the scores: 1/√d_k unless given."""
    return 1 / sqrt(d_k) if scale is None else float(scale)


def leading(*operands: Any) -> tuple[int, ...]:
    """The axes before the last two, as operands broadcast together; some may be None."""
    shapes = {np.shape(x)[:-2] for x in operands}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


def _length(part: slice) -> int:
    return int(part.stop - part.start)


def common_dtype(*operands: Any) -> np.dtype[Any]:
    dtype = np.result_type(*operands)
    if dtype.kind not in "fiub":
        raise DTypeError(f"attention in tiles takes real numbers, got {dtype}")
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def as_mask(mask: Any) -> Any:
    """A mask of two axes or more, its numbers in a dtype that integers can stand for."""
    mask = np.asarray(mask)
    if mask.dtype.kind not in "bf":
        raise DTypeError(
            f"a mask is boolean (True = may attend) or floats to add, got {mask.dtype}"
        )
    mask = mask.astype(np.float64) if mask.itemsize > 8 else mask
    return mask.reshape((1,) * (2 - mask.ndim) + mask.shape)


def _for_blas(x: Any, dtype: Any) -> Any:
    """The array, copied only where BLAS could not read it: rows or columns must be whole."""
    x = np.asarray(x, dtype)
    (rows, columns), (high, wide) = x.shape[-2:], x.strides[-2:]
    by_rows = wide == x.itemsize and high >= columns * x.itemsize and high % x.itemsize == 0
    by_columns = high == x.itemsize and wide >= rows * x.itemsize and wide % x.itemsize == 0
    return x if by_rows or by_columns else np.ascontiguousarray(x)


def to_add(mask: Any, dtype: Any) -> Any:
    return np.where(mask, dtype.type(0), dtype.type(-np.inf)) if mask.dtype == bool else mask
