"""Forward and backward of attention in tiles: what is done at each tile of the scores.

A tile is held transposed, keys down and queries across: so all six products run at BLAS's best
speed, and the softmax goes down the columns.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...engine.types import Array, DType
from ..memory import empty, empty_as
from ..threads import Scratch, run
from .mask_tiles import TILE_KEYS
from .schedule import HeadGroup, Heads, TileSchedule, WorkTile, within

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
        empty(rows, schedule.dtype),
        empty(rows, schedule.dtype),
        empty((schedule.stored,), schedule.dtype) if schedule.stored else None,
    )
    work = [(group, k) for group in schedule.groups for k in range(len(group.query_blocks))]
    work.sort(key=lambda item: item[1], reverse=True)  # under a causal mask, the longest first
    run(lambda item, scratch: attend(schedule, saved, item[0], item[1], scratch), work, threads)
    return saved


def attend(
    schedule: TileSchedule, saved: Saved, group: HeadGroup, k: int, scratch: Scratch
) -> None:
    """One block of queries: O = E V / rowsum(E).

    E is exp(S) where that is as good as exp(S - rowmax), which costs two passes over S more.
    """
    heads, (rows, tiles) = group.heads, group.query_blocks[k]
    q = schedule.queries(heads, rows, scratch)
    sums = None
    if _seems_small(q, schedule.k[heads]):
        with np.errstate(over="ignore", invalid="ignore"):
            sums = _sums(schedule, heads, rows, tiles, q, saved.store, scratch, shifted=False)
    if sums is None or not _are_safe(*sums):
        sums = _sums(schedule, heads, rows, tiles, q, saved.store, scratch, shifted=True)
    O, row_max, row_sum = sums
    row_sum[row_sum == 0] = np.inf  # no weight to anything
    saved.row_max[heads][..., None, rows] = row_max
    saved.row_sum[heads][..., None, rows] = row_sum
    np.divide(O, row_sum.swapaxes(-1, -2), out=saved.out[heads][..., rows, :])


def _sums(
    schedule: TileSchedule,
    heads: Heads,
    rows: slice,
    tiles: list[WorkTile],
    q: Array,
    store: Array | None,
    scratch: Scratch,
    shifted: bool,
) -> tuple[Array, Array, Array]:
    """E V, the shift, and rowsum(E), tile by tile, for E = exp(S - shift): rowmax(S) so far, or 0.

    Online softmax (Milakov & Gimelshein 2018): where a tile raises the maximum, what was summed
    before it is scaled down.
    """
    V = schedule.v[heads]
    *several, queries, _ = q.shape
    O = scratch.array("O", (*several, queries, schedule.d_v), schedule.dtype)
    O[...] = 0
    lowest = np.finfo(schedule.dtype).min  # of a query that sees no key: -inf - -inf would be NaN
    row_max = np.full((*several, 1, queries), lowest if shifted else 0, schedule.dtype)
    row_sum = np.zeros_like(row_max)
    for j, work in enumerate(tiles):
        here = within(work.tile.rows, rows)
        S, stored_max = schedule.weights_buffer(work, q, store, scratch)
        schedule.scores(heads, work.tile, q[..., here, :], S)
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
        O[..., here, :] += _matmul(E.swapaxes(-1, -2), V[..., work.tile.keys, :], scratch)
        if stored_max is not None:
            stored_max[...] = row_max[..., here]
    return O, row_max, row_sum


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
    heads, dtype = group.heads, schedule.dtype
    dq, dk, dv = (x if x is None else x[heads] for x in sums)
    K, V = schedule.k[heads], schedule.v[heads]
    dK, dV = _zeros("dK", dk, scratch), _zeros("dV", dv, scratch)
    for rows, tiles in group.query_blocks:
        q = schedule.queries(heads, rows, scratch)  # times the scale
        G = _weighed(schedule, heads, rows, g, saved, scratch)
        dQ = scratch.array("dQ", q.shape, dtype)
        dQ[...] = 0
        for work in tiles:
            keys, here = work.tile.keys, within(work.tile.rows, rows)
            E, dO = _weights(schedule, heads, rows, work, q, G, saved, scratch)
            if dk is not None or dq is not None:
                V1 = scratch.array("V1", (*E.shape[:-1], schedule.d_v + 1), dtype)
                V1[..., :-1], V1[..., -1] = V[..., keys, :], 1
                dS = scratch.array("dS", E.shape, dtype)  # transposed, as E is
                np.matmul(V1, dO.swapaxes(-1, -2), out=dS)
                dS *= E  # and E, which may come from far, is in the cache now
            if dV is not None:
                dV[..., keys, :] += _matmul(E, dO[..., :-1], scratch)
            if dK is not None:
                dK[..., keys, :] += _matmul(dS, q[..., here, :], scratch)
            if dq is not None:
                dQ[..., here, :] += _matmul(dS.swapaxes(-1, -2), K[..., keys, :], scratch)
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


def _weighed(
    schedule: TileSchedule, heads: Heads, rows: slice, g: Array, saved: Saved, scratch: Scratch
) -> Array:
    """[∂O  -D] / rowsum(E) for a block of queries: (..., queries, d_v + 1)."""
    g, out = (x[heads][..., rows, :] for x in (g, saved.out))
    row_sum = saved.row_sum[heads][..., rows]
    G = scratch.array("G", (*g.shape[:-1], schedule.d_v + 1), schedule.dtype)
    np.divide(g, row_sum[..., None], out=G[..., :-1])
    np.negative(np.einsum("...nd,...nd->...n", G[..., :-1], out), out=G[..., -1])
    return G


def _weights(
    schedule: TileSchedule,
    heads: Heads,
    rows: slice,
    work: WorkTile,
    q: Array,
    G: Array,
    saved: Saved,
    scratch: Scratch,
) -> tuple[Array, Array]:
    """Eᵀ on a tile, stored by forward or made again, and [∂O  -D] for these queries.

    E that was stored may be relative to a smaller maximum than the final one: ∂O and D make up for
    it.
    """
    here = within(work.tile.rows, rows)
    dO, row_max = G[..., here, :], saved.row_max[heads][..., None, work.tile.rows]
    E, stored_max = schedule.weights_buffer(work, q, saved.store, scratch)
    if stored_max is None:
        schedule.scores(heads, work.tile, q[..., here, :], E)
        if row_max.any():
            E -= row_max
        return np.exp(E, out=E), dO
    if np.array_equal(stored_max, row_max):
        return E, dO
    shrink = np.exp(stored_max - row_max).swapaxes(-1, -2)
    return E, np.multiply(dO, shrink, out=scratch.array("dO", dO.shape, schedule.dtype))
