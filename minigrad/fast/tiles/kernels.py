"""Attention in tiles, by both cores: what is done at each tile of the scores.

Forward keeps the maximum and sum up to date (Milakov & Gimelshein 2018, arXiv:1805.02867);
backward makes each tile's weights again from those two (Dao et al. 2022, arXiv:2205.14135). A tile
is stored transposed, (keys, queries): so all six products run at BLAS's best speed. Few scores are
left to the op's own kernel.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...engine.op import Array, DType
from ...ops.attention import MaskRule, leading, misfit, tiled_attention
from ..limits import LIMITS
from ..memory import empty_as
from ..overlay import faster
from .schedule import TILE_KEYS, Heads, Tile, TileSchedule

__all__ = ["backward", "forward"]

SMALL_SCORE = 12  # exponentials of smaller scores are surely far from overflow and underflow
SAFE_SUMS = 1e-5, 1e10  # sums of exponentials to go on with


def _has_many_scores(q: Any, k: Any, v: Any, mask: Any, rule: MaskRule | None) -> bool:
    if misfit(q, k, v, mask) or np.result_type(q, k, v).char not in "fd":
        return False  # the op's own kernel says what does not fit
    scores = prod((*leading(q, k, v, mask), np.shape(q)[-2], np.shape(k)[-2]))
    return scores > LIMITS.one_tile_scores


@faster(tiled_attention, _has_many_scores, auxiliary=("schedule", "tiled", "shift", "row_sum"))
def in_tiles(q: Any, k: Any, v: Any, mask: Any = None, rule: Any = None) -> Any:
    schedule = TileSchedule(q, k, v, mask, rule)
    saved = forward(schedule)
    return saved.out.reshape(schedule.shape + saved.out.shape[-2:]), schedule, *saved


@in_tiles.vjp("q", "k", "v")
def _(g: Any, schedule: TileSchedule, tiled: Array, shift: Array, row_sum: Array) -> Any:
    return backward(schedule, np.asarray(g), Saved(tiled, shift, row_sum))


class Saved(NamedTuple):
    """What forward fills, and backward reads: O (B, h, n, d_v); and for each query, (B, h, 1, n),
    the shift of its scores and the sum of E = exp(S - shift).
    """

    out: Array
    shift: Array
    row_sum: Array


class QueryBlock:
    """A block of the queries of some heads, as one thread works on it."""

    def __init__(self, schedule: TileSchedule, heads: Heads, i: int) -> None:
        self.schedule = schedule
        self.heads = heads
        self.rows = schedule.blocks[i]
        self.tiles = schedule.tiles(heads, i)
        q = schedule.q[heads][..., self.rows, :]
        self.q = np.multiply(q, schedule.scale, out=self.array("q", *q.shape))
        self.K, self.V = schedule.k[heads], schedule.v[heads]

    def array(self, name: str, *shape: int) -> Array:
        return np.empty(shape, self.schedule.dtype)

    def matmul(self, a: Array, b: Array, name: str = "ab") -> Array:
        return np.matmul(a, b, out=self.array(name, *a.shape[:-1], b.shape[-1]))

    def scores(self, tile: Tile) -> Array:
        """Sᵀ = K (q · scale)ᵀ + Mᵀ on one tile: (..., keys, queries)."""
        S = self.matmul(self.K[..., tile.keys, :], self.q.mT, "S")
        for keys, added in self.schedule.added(self.heads, self.rows, tile):
            start = tile.keys.start
            S[..., keys.start - start : keys.stop - start, :] += added
        return S

    def sums(self, shifted: bool) -> tuple[Array, Array, Array]:
        """E V, the shift, and rowsum(E), for E = exp(S - shift): rowmax(S) so far, or 0.

        Where a tile raises the maximum, what was summed before it is scaled down.
        """
        O = self.array("O", *self.q.shape[:-1], self.schedule.d_v)
        O[...] = 0
        lowest = np.finfo(O.dtype).min  # of a query that sees no key: -inf - -inf would be NaN
        shift = np.full((*O.shape[:-2], 1, O.shape[-2]), lowest if shifted else 0, O.dtype)
        row_sum = np.zeros_like(shift)
        for tile in self.tiles:
            S = self.scores(tile)
            if shifted:
                before, shift = shift, np.maximum(shift, S.max(axis=-2, keepdims=True))
                S -= shift
                shrink = np.exp(before - shift)
                row_sum *= shrink
                O *= shrink.mT
            E = np.exp(S, out=S)
            row_sum += np.matmul(_ones(E.dtype)[: E.shape[-2]], E)[..., None, :]  # faster than sum
            O += self.matmul(E.mT, self.V[..., tile.keys, :])
        return O, shift, row_sum


@cache
def _ones(dtype: DType) -> Array:
    return np.ones(TILE_KEYS, dtype)


# ---------------------------------------------------------------- forward


def forward(schedule: TileSchedule) -> Saved:
    """O, and what backward wants again."""
    schedule.plan()
    rows = (*schedule.lead, 1, schedule.n)
    out = empty_as(schedule.q, (*schedule.lead, schedule.n, schedule.d_v))  # merging is a view
    saved = Saved(out, np.empty(rows, out.dtype), np.empty(rows, out.dtype))

    def work(item: tuple[int, Heads]) -> None:
        i, heads = item
        block = QueryBlock(schedule, heads, i)
        O, shift, row_sum = weighted_sums(block)
        row_sum[row_sum == 0] = np.inf  # no weight to anything
        np.divide(O, row_sum.mT, out=saved.out[heads][..., block.rows, :])
        saved.shift[heads][..., block.rows] = shift
        saved.row_sum[heads][..., block.rows] = row_sum

    longest_first = reversed(range(len(schedule.blocks)))  # under a causal mask
    schedule.run(work, [(i, heads) for i in longest_first for heads in schedule.groups])
    return saved


def weighted_sums(block: QueryBlock) -> tuple[Array, Array, Array]:
    """E V, the shift and rowsum(E): E is exp(S) where that is as good as exp(S - rowmax), which
    costs two passes over S more.
    """
    if _seem_small(block.q, block.K):
        with np.errstate(over="ignore", invalid="ignore"):
            found = block.sums(shifted=False)
        if _are_safe(*found):
            return found
    return block.sums(shifted=True)


def _seem_small(q: Array, K: Array) -> bool:
    """Whether a few of the scores are all small: a guess, that the sums will prove or not."""
    few_q, few_k = (x[..., :: 1 + x.shape[-2] // 16, :] for x in (q, K))
    return bool(np.abs(few_q @ few_k.mT).max(initial=0) < SMALL_SCORE)


def _are_safe(O: Array, _: Array, row_sum: Array) -> bool:
    """Whether sums of exp(S) are far from overflow, and from losing what matters to underflow."""
    low, high = SAFE_SUMS
    return bool(((row_sum > low) & (row_sum < high)).all() and np.isfinite(O).all())


# ---------------------------------------------------------------- backward


def backward(schedule: TileSchedule, g: Array, saved: Saved) -> tuple[Array, ...]:
    """∂Q, ∂K and ∂V.

    Each thread takes a group of heads at a time; or, where they do not come out even, a part of
    the queries of each group, with a ∂K and a ∂V of its own.
    """
    g = schedule.by_heads(g)
    shares = 2 if len(schedule.groups) % 2 else 1
    dq, *first = (empty_as(x, x.shape) for x in (schedule.q, schedule.k, schedule.v))
    sums = [first, *([np.empty_like(x) for x in first] for _ in range(1, shares))]

    def work(item: tuple[Heads, int]) -> None:
        heads, share = item
        turns = [*range(shares), *reversed(range(shares))]  # 0 1 1 0: long and short for both
        blocks = [i for i in range(len(schedule.blocks)) if turns[i % len(turns)] == share]
        differentiate(schedule, heads, blocks, g, saved, (dq, *sums[share]))

    schedule.run(work, [(heads, share) for heads in schedule.groups for share in range(shares)])
    for more in sums[1:]:
        for total, part in zip(first, more, strict=True):
            total += part
    if schedule.shape == schedule.lead:  # no views: who gets them need not copy them
        return dq, *first
    return tuple(x.reshape(schedule.shape + x.shape[-2:]) for x in (dq, *first))


def differentiate(
    schedule: TileSchedule,
    heads: Heads,
    blocks: list[int],
    g: Array,
    saved: Saved,
    into: tuple[Array, ...],
) -> None:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂O Vᵀ - D),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q,  with D = rowsum(∂O ⊙ O).

    A = E / rowsum(E): the division is done to ∂O and D, which are smaller than E; and -D is one
    more column of ∂O, over a column of ones in V.
    """
    dq, dk, dv = (x[heads] for x in into)
    K, V = schedule.k[heads], schedule.v[heads]
    dK = np.empty(K.shape, K.dtype)
    dV = np.empty(V.shape, V.dtype)
    V1 = np.empty((*V.shape[:-1], schedule.d_v + 1), V.dtype)
    V1[..., :-1], V1[..., -1] = V, 1
    dK[...] = dV[...] = 0
    for i in blocks:
        block = QueryBlock(schedule, heads, i)
        rows = block.rows
        shift = saved.shift[heads][..., rows]
        G = block.array("G", *block.q.shape[:-1], schedule.d_v + 1)  # [∂O  -D] / rowsum(E)
        np.divide(g[heads][..., rows, :], saved.row_sum[heads][..., rows].mT, out=G[..., :-1])
        D = np.einsum("...nd,...nd->...n", G[..., :-1], saved.out[heads][..., rows, :])
        np.negative(D, out=G[..., -1])
        dQ = block.array("dQ", *block.q.shape)
        dQ[...] = 0
        for tile in block.tiles:
            E = block.scores(tile)
            if shift.any():
                E -= shift
            np.exp(E, out=E)
            dV[..., tile.keys, :] += block.matmul(E, G[..., :-1])
            dS = block.matmul(V1[..., tile.keys, :], G.mT, "dS")  # transposed, as E is
            dS *= E
            dK[..., tile.keys, :] += block.matmul(dS, block.q)
            dQ += block.matmul(dS.mT, K[..., tile.keys, :])
        np.multiply(dQ, schedule.scale, out=dq[..., rows, :])
    dk[...], dv[...] = dK, dV
