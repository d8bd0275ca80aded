"""Forward and backward of attention in tiles: what is done at each tile of the scores.

A tile is stored transposed, (keys, queries): so all six products run at BLAS's best speed, and the
softmax is along the first axis.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...engine.op import Array, DType
from ..memory import empty_as
from ..threads import Scratch, run
from .mask_tiles import TILE_KEYS, Tile, rule_to_add, to_add
from .schedule import HeadGroup, Heads, TileSchedule, WorkTile, length, within

__all__ = ["Saved", "backward", "forward"]

SMALL_SCORE = 12  # exponentials of smaller scores are surely far from overflow and underflow
SAFE_SUMS = 1e-5, 1e10  # sums of exponentials to go on with

# ---------------------------------------------------------------- forward


class Saved(NamedTuple):
    """What forward fills, and backward reads: O, and for each query max(S) and the sum of
    E = exp(S - max); some of the E, as far as the store reaches.
    """

    out: Array
    row_max: Array
    row_sum: Array
    store: Array | None


def forward(schedule: TileSchedule, threads: int, store_bytes: int) -> Saved:
    """O, and what backward wants again."""
    schedule.plan(threads, store_bytes)
    rows = (*schedule.lead, schedule.n)
    saved = Saved(
        empty_as(schedule.q, (*rows, schedule.d_v)),  # laid out as q is: merging heads is a view
        np.empty(rows, schedule.dtype),
        np.empty(rows, schedule.dtype),
        np.empty((schedule.stored,), schedule.dtype) if schedule.stored else None,
    )
    work = [(group, k) for group in schedule.groups for k in range(len(group.query_blocks))]
    work.sort(key=lambda item: item[1], reverse=True)  # under a causal mask, the longest first

    def attend(item: tuple[HeadGroup, int], scratch: Scratch) -> None:
        group, k = item
        rows, tiles = group.query_blocks[k]
        QueryBlock(schedule, saved, group.heads, rows, scratch).attend(tiles)

    run(attend, work, threads)
    return saved


class QueryBlock:
    """A block of the queries of some heads, as one thread works on it."""

    def __init__(
        self, schedule: TileSchedule, saved: Saved, heads: Heads, rows: slice, scratch: Scratch
    ) -> None:
        self.schedule = schedule
        self.saved = saved
        self.heads = heads
        self.rows = rows
        self.scratch = scratch
        q = schedule.q[heads][..., rows, :]
        self.q = np.multiply(q, schedule.scale, out=scratch.array("q", q.shape, schedule.dtype))
        self.K, self.V = schedule.k[heads], schedule.v[heads]

    def attend(self, tiles: list[WorkTile]) -> None:
        """O = E V / rowsum(E).

        E is exp(S) where that is as good as exp(S - rowmax), which costs two passes over S more.
        """
        sums = None
        if _seems_small(self.q, self.K):
            with np.errstate(over="ignore", invalid="ignore"):
                sums = self._sums(tiles, shifted=False)
        if sums is None or not _are_safe(*sums):
            sums = self._sums(tiles, shifted=True)
        O, row_max, row_sum = sums
        row_sum[row_sum == 0] = np.inf  # no weight to anything
        self.saved.row_max[self.heads][..., None, self.rows] = row_max
        self.saved.row_sum[self.heads][..., None, self.rows] = row_sum
        out = self.saved.out[self.heads][..., self.rows, :]
        np.divide(O, row_sum.swapaxes(-1, -2), out=out)

    def _sums(self, tiles: list[WorkTile], shifted: bool) -> tuple[Array, Array, Array]:
        """E V, the shift, and rowsum(E), for E = exp(S - shift): rowmax(S) so far, or 0.

        Online softmax (Milakov & Gimelshein 2018): where a tile raises the maximum, what was summed
        before it is scaled down.
        """
        dtype = self.q.dtype
        *several, queries, _ = self.q.shape
        O = self.scratch.array("O", (*several, queries, self.schedule.d_v), dtype)
        O[...] = 0
        lowest = np.finfo(dtype).min  # of a query that sees no key: -inf - -inf would be NaN
        row_max = np.full((*several, 1, queries), lowest if shifted else 0, dtype)
        row_sum = np.zeros_like(row_max)
        for j, work in enumerate(tiles):
            here = within(work.tile.rows, self.rows)
            S, stored_max = self._buffer(work)
            self._scores(work.tile, S)
            if shifted:
                before = row_max[..., here].copy()
                now = np.maximum(before, S.max(axis=-2, keepdims=True), out=row_max[..., here])
                S -= now
                if j > 0:
                    shrink = np.exp(before - now)
                    row_sum[..., here] *= shrink
                    O[..., here, :] *= shrink.swapaxes(-1, -2)
            E = np.exp(S, out=S)
            row_sum[..., here] += _column_sums(E)
            values = self.V[..., work.tile.keys, :]
            O[..., here, :] += _matmul(E.swapaxes(-1, -2), values, self.scratch)
            if stored_max is not None:
                stored_max[...] = row_max[..., here]
        return O, row_max, row_sum

    def _buffer(self, work: WorkTile) -> tuple[Array, Array | None]:
        """Where a tile's weights go, (..., keys, queries), and its row maxima, if stored."""
        several, (rows, keys, *_) = self.q.shape[:-2], work.tile
        if work.place is None or self.saved.store is None:
            shape = (*several, length(keys), length(rows))
            return self.scratch.array("S", shape, self.q.dtype), None
        shape = (*several, length(keys) + 1, length(rows))
        slab = self.saved.store[work.place : work.place + prod(shape)].reshape(shape)
        return slab[..., 1:, :], slab[..., :1, :]

    def _scores(self, tile: Tile, S: Array) -> None:
        """Sᵀ = K (q · scale)ᵀ + Mᵀ on one tile: (..., keys, queries)."""
        schedule, q = self.schedule, self.q[..., within(tile.rows, self.rows), :]
        np.matmul(self.K[..., tile.keys, :], q.swapaxes(-1, -2), out=S)
        for rows, keys in tile.masked:
            mask = schedule.mask_at(schedule.mask_index(self.heads))
            block = to_add(mask[rows if len(mask) > 1 else slice(None), keys], S.dtype)
            S[..., within(keys, tile.keys), within(rows, tile.rows)] += block.T
        for rows, keys in tile.ruled:
            assert schedule.rule is not None
            block = rule_to_add(schedule.rule, rows, keys, S.dtype)
            S[..., within(keys, tile.keys), within(rows, tile.rows)] += block

    # ------------------------------------------------------------ for backward

    def weighed(self, g: Array) -> Array:
        """[∂O  -D] / rowsum(E): (..., queries, d_v + 1)."""
        g, out = (x[self.heads][..., self.rows, :] for x in (g, self.saved.out))
        row_sum = self.saved.row_sum[self.heads][..., self.rows]
        G = self.scratch.array("G", (*g.shape[:-1], self.schedule.d_v + 1), self.q.dtype)
        np.divide(g, row_sum[..., None], out=G[..., :-1])
        np.negative(np.einsum("...nd,...nd->...n", G[..., :-1], out), out=G[..., -1])
        return G

    def weights(self, work: WorkTile, G: Array) -> tuple[Array, Array]:
        """Eᵀ on a tile, stored by forward or made again, and [∂O  -D] for its queries.

        E that was stored may be relative to a smaller maximum than the final one: ∂O and D make up
        for it.
        """
        dO = G[..., within(work.tile.rows, self.rows), :]
        row_max = self.saved.row_max[self.heads][..., None, work.tile.rows]
        E, stored_max = self._buffer(work)
        if stored_max is None:
            self._scores(work.tile, E)
            if row_max.any():
                E -= row_max
            return np.exp(E, out=E), dO
        if np.array_equal(stored_max, row_max):
            return E, dO
        shrink = np.exp(stored_max - row_max).swapaxes(-1, -2)
        return E, np.multiply(dO, shrink, out=self.scratch.array("dO", dO.shape, dO.dtype))


def _seems_small(q: Array, K: Array) -> bool:
    """Whether a few of the scores are all small: a guess, that the sums will prove or not."""
    if q.itemsize < 4:
        return False
    few_q, few_k = (x[..., :: 1 + x.shape[-2] // 16, :] for x in (q, K))
    few = few_q @ few_k.swapaxes(-1, -2)
    return bool(np.abs(few).max(initial=0) < SMALL_SCORE)


def _are_safe(O: Array, _: Array, row_sum: Array) -> bool:
    """Whether sums of exp(S) are far from overflow, and from losing what matters to underflow."""
    low, high = SAFE_SUMS
    return bool(((row_sum > low) & (row_sum < high)).all() and np.isfinite(O).all())


def _matmul(a: Array, b: Array, scratch: Scratch) -> Array:
    return np.matmul(a, b, out=scratch.array("ab", (*a.shape[:-1], b.shape[-1]), a.dtype))


def _column_sums(E: Array) -> Array:
    """As a product with ones, three times as fast as a sum along that axis: (..., 1, queries)."""
    return np.matmul(_ones(E.dtype)[: E.shape[-2]], E)[..., None, :]


@cache
def _ones(dtype: DType) -> Array:
    return np.ones(TILE_KEYS, dtype)


# ---------------------------------------------------------------- backward


def backward(
    schedule: TileSchedule, g: Array, saved: Saved, needed: tuple[bool, ...]
) -> tuple[Array | None, ...]:
    """∂Q, ∂K and ∂V, None where not needed."""
    groups = schedule.shared_groups()
    shares = max((group.share for group in groups), default=0) + 1

    def blank(like: Any, wanted: bool) -> Array | None:
        return empty_as(like, like.shape) if wanted else None

    q, k, v = map(blank, (schedule.q, schedule.k, schedule.v), needed)
    # no two threads write the same ∂Q; each share sums up a ∂K and a ∂V of its own
    sums = [(q, k, v), *((q, blank(k, needed[1]), blank(v, needed[2])) for _ in range(1, shares))]
    run(
        lambda group, scratch: differentiate(schedule, group, g, saved, sums[group.share], scratch),
        groups,
        schedule.threads,
    )
    for _, *more in sums[1:]:
        for total, part in zip((k, v), more, strict=True):
            if total is not None:
                total += part
    return tuple(x if x is None else x.reshape(*schedule.shape, *x.shape[-2:]) for x in (q, k, v))


def differentiate(
    schedule: TileSchedule,
    group: HeadGroup,
    g: Array,
    saved: Saved,
    sums: tuple[Array | None, ...],
    scratch: Scratch,
) -> None:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂O Vᵀ - D),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q,  with D = rowsum(∂O ⊙ O).

    A = E / rowsum(E): the division is done to ∂O and D, which are smaller than E.
    """
    dq, dk, dv = (x if x is None else x[group.heads] for x in sums)
    dK, dV = _zeros("dK", dk, scratch), _zeros("dV", dv, scratch)
    for rows, tiles in group.query_blocks:
        block = QueryBlock(schedule, saved, group.heads, rows, scratch)
        G = block.weighed(g)
        dQ = scratch.array("dQ", block.q.shape, schedule.dtype)
        dQ[...] = 0
        for work in tiles:
            keys, here = work.tile.keys, within(work.tile.rows, rows)
            E, dO = block.weights(work, G)
            if dk is not None or dq is not None:
                V1 = scratch.array("V1", (*E.shape[:-1], schedule.d_v + 1), E.dtype)
                V1[..., :-1], V1[..., -1] = block.V[..., keys, :], 1
                dS = scratch.array("dS", E.shape, E.dtype)  # transposed, as E is
                np.matmul(V1, dO.swapaxes(-1, -2), out=dS)
                dS *= E  # which brings E into the cache
            if dV is not None:
                dV[..., keys, :] += _matmul(E, dO[..., :-1], scratch)
            if dK is not None:
                dK[..., keys, :] += _matmul(dS, block.q[..., here, :], scratch)
            if dq is not None:
                dQ[..., here, :] += _matmul(dS.swapaxes(-1, -2), block.K[..., keys, :], scratch)
        if dq is not None:
            np.multiply(dQ, schedule.scale, out=dq[..., rows, :])
    for result, total in ((dk, dK), (dv, dV)):
        if result is not None and result is not total:
            result[...] = total


def _zeros(name: str, like: Array | None, scratch: Scratch) -> Array | None:
    """Zeros to sum up in: the result itself where that is contiguous, or scratch."""
    if like is None:
        return None
    zeros = like if like.flags.c_contiguous else scratch.array(name, like.shape, like.dtype)
    zeros[...] = 0
    return zeros
