"""Attention in tiles, by both cores: what is done at each tile of the scores.

Forward sums E = exp(S - shift), and E V, tile by tile; softmax is the same for every shift that
neither overflows nor vanishes. Backward makes each tile's weights again, A = exp(S - log Σ exp S)
(Dao et al. 2022, arXiv:2205.14135). What is subtracted, or summed, is one more column of a product.
A tile is stored transposed, (keys, queries): so all products run at BLAS's best speed. Few scores
are left to the op's own kernel.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...engine.op import Array
from ...ops.attention import PairRule, leading, misfit, tiled_attention
from ...ops.masks import check_mask
from ..limits import LIMITS
from ..overlay import faster
from .schedule import Tile, TileSchedule

__all__ = ["backward", "forward"]

VANISHING = 1e-30  # a row's sum of exponentials, of which float32 may have lost some


def _has_many_scores(q: Any, k: Any, v: Any, mask: Any, rule: PairRule | None) -> bool:
    if misfit(q, k, v, mask) or np.result_type(q, k, v).char not in "fd":
        return False  # the op's own kernel says what does not fit
    scores = prod((*leading(q, k, v, mask), np.shape(q)[-2], np.shape(k)[-2]))
    return scores > LIMITS.one_tile_scores


@faster(tiled_attention, _has_many_scores, ("shown", "most", "log_sum"), above=0)
def in_tiles(q: Any, k: Any, v: Any, mask: Any = None, rule: Any = None) -> Any:
    if mask is not None:
        check_mask(np.asarray(mask))
    schedule = TileSchedule(q, k, v, mask, rule)
    out, log_sum = forward(schedule)
    return out, schedule.shown, schedule.most, log_sum


@in_tiles.vjp("q", "k", "v")
def _(
    g: Any, q: Any, k: Any, v: Any, mask: Any, rule: Any, shown: Array, most: Array, out: Array,
    log_sum: Array,
) -> Any:  # fmt: skip
    return backward(TileSchedule(q, k, v, mask, rule, (shown, most)), g, out, log_sum)


def exponentials(Q: Array, K: Array, tile: Tile) -> Array:
    """Eᵀ on one tile: (heads, keys, queries)."""
    S = scores(Q, K, tile)
    return np.exp(S, out=S)


def scores(Q: Array, K: Array, tile: Tile) -> Array:
    """Sᵀ - shift on one tile, where Q's last column is -shift."""
    S = np.matmul(K[:, tile.keys], Q.mT)
    for keys, mask in tile.masks:
        if mask.dtype == np.bool_:
            np.copyto(S[:, keys], -np.inf, where=mask)
        else:
            S[:, keys] += mask
    return S


def with_column(x: Array, value: Any) -> Array:
    """(..., columns) with one column more."""
    wider = np.empty((*x.shape[:-1], x.shape[-1] + 1), x.dtype)
    wider[..., :-1], wider[..., -1] = x, value
    return wider


# ---------------------------------------------------------------- forward


def forward(schedule: TileSchedule) -> tuple[Array, Array]:
    """O (..., n, d_v), and the logarithm of each row's sum of exponentials (heads, n)."""
    L, n, _ = schedule.q.shape
    out = np.empty((L, n, schedule.v.shape[2]), schedule.dtype)
    log_sum = np.empty((L, n), schedule.dtype)

    def work(heads: slice, half: int) -> None:
        K = with_column(schedule.k[heads], 1)
        V = with_column(schedule.v[heads], 1)
        longest = lengths(schedule.k[heads]).max(axis=1, keepdims=True, initial=0)
        for i in schedule.blocks(half):
            rows = schedule.queries[i]
            tiles = schedule.tiles(heads, i)
            Q = with_column(schedule.q[heads, rows] * schedule.scale, 0)
            with np.errstate(over="ignore"):
                shift = lengths(Q) * longest + schedule.seen(heads, i)[1]  # no score is larger
            O = weighted_sums(Q, K, V, tiles, shift)
            if not (O[..., -1] > VANISHING).all():
                Q[..., -1] = 0
                shift = largest_scores(Q, K, tiles)
                O = weighted_sums(Q, K, V, tiles, shift)
            sums = O[..., -1]
            sums[sums == 0] = 1  # the query sees no key
            np.divide(O[..., :-1], sums[..., None], out=out[heads, rows])
            np.add(shift, np.log(sums), out=log_sum[heads, rows])

    schedule.run(work)
    return out.reshape(*schedule.lead, n, -1), log_sum


def lengths(x: Array) -> Array:
    """Of the rows."""
    with np.errstate(over="ignore"):
        return np.sqrt(np.vecdot(x, x))


def weighted_sums(Q: Array, K: Array, V: Array, tiles: list[Tile], shift: Array) -> Array:
    """E V, and rowsum(E) as its last column."""
    Q[..., -1] = -shift
    total = np.zeros((*shift.shape, V.shape[-1]), V.dtype)
    for tile in tiles:
        total += np.matmul(exponentials(Q, K, tile).mT, V[:, tile.keys])
    return total


def largest_scores(Q: Array, K: Array, tiles: list[Tile]) -> Array:
    """Each query's, and a finite one if it sees no key."""
    found = np.full(Q.shape[:-1], np.finfo(Q.dtype).min)
    for tile in tiles:
        np.maximum(found, scores(Q, K, tile).max(axis=1), out=found)
    return found


# ---------------------------------------------------------------- backward


def backward(schedule: TileSchedule, g: Array, out: Array, log_sum: Array) -> tuple[Array, ...]:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂O Vᵀ - D),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q,  with D = rowsum(∂O ⊙ O).

    Each half of the blocks of queries adds to a ∂K and a ∂V of its own, so that sums are the same
    whichever thread is faster.
    """
    g = schedule.over_one_axis(g)
    out = schedule.over_one_axis(out)
    dq = np.empty(schedule.q.shape, schedule.dtype)
    dk, dv = (np.zeros((2, *x.shape), x.dtype) for x in (schedule.k, schedule.v))

    def work(heads: slice, half: int) -> None:
        K = with_column(schedule.k[heads], 1)
        V = with_column(schedule.v[heads], 1)
        for i in schedule.blocks(half):
            rows = schedule.queries[i]
            Q = with_column(schedule.q[heads, rows] * schedule.scale, -log_sum[heads, rows])
            G = with_column(g[heads, rows], -np.vecdot(g[heads, rows], out[heads, rows]))
            dQ = np.zeros_like(dq[heads, rows])
            for tile in schedule.tiles(heads, i):
                keys = tile.keys
                A = exponentials(Q, K, tile)
                dv[half, heads, keys] += np.matmul(A, G[..., :-1])
                dS = np.matmul(V[:, keys], G.mT)  # transposed, as A is
                dS *= A
                dk[half, heads, keys] += np.matmul(dS, Q[..., :-1])
                dQ += np.matmul(dS.mT, K[:, keys, :-1])
            np.multiply(dQ, schedule.scale, out=dq[heads, rows])

    schedule.run(work)
    found = dq, dk.sum(axis=0), dv.sum(axis=0)
    return tuple(x.reshape(schedule.lead + x.shape[1:]) for x in found)
