"""Forward and backward of attention in tiles: what is done at each tile of the scores.

A tile is held transposed, keys down and queries across: so all six products run at BLAS's best
speed, and the softmax goes down the columns.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from ..memory import empty, empty_as
from ..threads import Scratch, run
from .tiles import WIDTH, Grid
from .walk import Lane, Part, Walk, within

__all__ = ["Given", "backward", "forward"]

SMALL = 12  # scores whose exponentials are surely far from overflow and underflow
RANGE = 1e-5, 1e10  # sums of exponentials to go on with

# ---------------------------------------------------------------- forward


class Results(NamedTuple):
    """What forward fills: O, and for each query max(S) and the sum of exp(S - max)."""

    out: Any
    most: Any
    total: Any
    kept: Any


def forward(walk: Walk, threads: int, keep: int) -> tuple[Any, ...]:
    """O, and what backward wants again: the walk, max(S), the sums, and the weights kept."""
    walk.plan(threads, keep)
    entries = (*walk.lead, walk.n)
    results = Results(
        empty_as(walk.q, (*entries, walk.d_v)),  # laid out as q is: merging is a view
        empty(entries, walk.dtype),
        empty(entries, walk.dtype),
        empty((walk.kept,), walk.dtype) if walk.kept else None,
    )
    items = [(k, lane) for lane in walk.lanes for k in range(len(lane.bands))]
    items.sort(key=_band, reverse=True)  # under a causal mask, the longest first
    jobs = [partial(attend, walk, results, lane, k) for k, lane in items]
    if len(walk.lanes) > len(walk.grids):  # what several lanes want of a mask is read before
        jobs = [
            partial(_read, grid, k) for grid in walk.grids.values() for k in range(len(grid))
        ] + jobs
    run(lambda job, scratch: job(scratch), jobs, threads)
    out, *rest = results
    return out.reshape(*walk.shape, walk.n, walk.d_v), walk, *rest


def attend(walk: Walk, results: Results, lane: Lane, k: int, scratch: Scratch) -> None:
    """One band of queries: O = E V / rowsum(E).

    E is exp(S) where that is as good as exp(S - rowmax), which costs two passes over S more.
    """
    heads, (rows, parts) = lane.heads, walk.settle(lane, k)
    q = walk.queries(heads, rows, scratch)
    sums = None
    if _seems_small(q, walk.k[heads]):
        with np.errstate(over="ignore", invalid="ignore"):
            sums = _sums(walk, heads, rows, parts, q, results.kept, scratch, shifted=False)
    if sums is None or not _in_range(*sums):
        sums = _sums(walk, heads, rows, parts, q, results.kept, scratch, shifted=True)
    O, most, total = sums
    total[total == 0] = np.inf  # no weight to anything
    results.most[heads][..., None, rows], results.total[heads][..., None, rows] = most, total
    np.divide(O, total.swapaxes(-1, -2), out=results.out[heads][..., rows, :])


def _sums(
    walk: Walk,
    heads: Any,
    rows: slice,
    parts: list[Part],
    q: Any,
    kept: Any,
    scratch: Scratch,
    shifted: bool,
) -> tuple[Any, Any, Any]:
    """E V, the shift m, and rowsum(E), tile by tile, for E = exp(S - m): m is rowmax(S), or 0."""
    V = walk.v[heads]
    *many, queries, _ = q.shape
    O = scratch.array("O", (*many, queries, walk.d_v), walk.dtype)
    O[...] = 0
    lowest = np.finfo(walk.dtype).min  # of a query that sees no key: so no -inf - -inf comes about
    most = np.full((*many, 1, queries), lowest if shifted else 0, walk.dtype)
    total = np.zeros_like(most)
    for j, part in enumerate(parts):
        here = within(part.tile.rows, rows)
        S, kept_most = walk.out_buffer(part, q, kept, scratch)
        walk.scores(heads, part.tile, q[..., here, :], S)
        if shifted:
            before = most[..., here].copy()
            now = np.maximum(before, S.max(axis=-2, keepdims=True), out=most[..., here])
            S -= now
            if j > 0:  # what there is was relative to a smaller maximum
                shrink = np.exp(before - now)
                total[..., here] *= shrink
                O[..., here, :] *= shrink.swapaxes(-1, -2)
        E = np.exp(S, out=S)
        total[..., here] += _column_sums(E)
        O[..., here, :] += _product(E.swapaxes(-1, -2), V[..., part.tile.keys, :], scratch)
        if kept_most is not None:
            kept_most[...] = most[..., here]
    return O, most, total


def _seems_small(q: Any, K: Any) -> bool:
    """Whether a few of the scores are all small: a guess, that the sums will prove or not."""
    if q.itemsize < 4:
        return False
    few_q, few_k = (x[..., :: 1 + x.shape[-2] // 16, :] for x in (q, K))
    few = few_q @ few_k.swapaxes(-1, -2)
    return bool(np.abs(few).max(initial=0) < SMALL)


def _in_range(O: Any, _: Any, total: Any) -> bool:
    """Whether sums of exp(S) are far from overflow, and from losing what matters to underflow."""
    low, high = RANGE
    return bool(((total > low) & (total < high)).all() and np.isfinite(O).all())


def _band(item: tuple[int, Lane]) -> int:
    return item[0]


def _read(grid: Grid, k: int, _: Scratch) -> None:
    grid.tiles(k)


def _product(a: Any, b: Any, scratch: Scratch) -> Any:
    return np.matmul(a, b, out=scratch.array("T", (*a.shape[:-1], b.shape[-1]), a.dtype))


def _column_sums(E: Any) -> Any:
    """As a product with ones, three times as fast as a sum along that axis: (..., 1, queries)."""
    return np.matmul(_ones(E.dtype)[: E.shape[-2]], E)[..., None, :]


@cache
def _ones(dtype: Any) -> Any:
    return np.ones(WIDTH, dtype)


# ---------------------------------------------------------------- backward


class Given(NamedTuple):
    """What backward reads."""

    g: Any
    out: Any
    most: Any
    total: Any
    kept: Any


def backward(walk: Walk, given: Given, needed: tuple[bool, bool, bool]) -> tuple[Any, ...]:
    """∂Q, ∂K and ∂V, None where not needed."""
    lanes = walk.shared_lanes()
    shares = max((lane.share for lane in lanes), default=0) + 1

    def blank(like: Any, want: bool) -> Any:
        return empty_as(like, like.shape) if want else None

    q, k, v = (blank(x, want) for x, want in zip((walk.q, walk.k, walk.v), needed, strict=True))
    # ∂Q has no two writers; ∂K and ∂V are summed by each share on its own
    sums = [(q, k, v), *((q, blank(k, needed[1]), blank(v, needed[2])) for _ in range(1, shares))]
    run(
        lambda lane, scratch: differentiate(walk, lane, given, sums[lane.share], scratch),
        lanes,
        walk.threads,
    )
    for _, *more in sums[1:]:
        for total, part in zip((k, v), more, strict=True):
            if total is not None:
                total += part
    return tuple(x if x is None else x.reshape(*walk.shape, *x.shape[-2:]) for x in (q, k, v))


def differentiate(
    walk: Walk, lane: Lane, given: Given, sums: tuple[Any, ...], scratch: Scratch
) -> None:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂O Vᵀ - D),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q,  with D = rowsum(∂O ⊙ O)."""
    dq, dk, dv = (x if x is None else x[lane.heads] for x in sums)
    K, V = walk.k[lane.heads], walk.v[lane.heads]
    dK, dV = _zeros("dk", dk, scratch), _zeros("dv", dv, scratch)
    for rows, parts in lane.bands:
        q = walk.queries(lane.heads, rows, scratch)  # times the scale
        G = _weighed(walk, lane.heads, rows, given, scratch)
        dQ = scratch.array("dq", q.shape, walk.dtype)
        dQ[...] = 0
        for part in parts:
            keys, here = part.tile.keys, within(part.tile.rows, rows)
            E, dO = _weights(walk, lane.heads, rows, part, q, G, given, scratch)
            if dk is not None or dq is not None:
                V1 = scratch.array("V", (*E.shape[:-1], walk.d_v + 1), walk.dtype)
                V1[..., :-1], V1[..., -1] = V[..., keys, :], 1
                P = scratch.array("P", E.shape, walk.dtype)
                np.matmul(V1, dO.swapaxes(-1, -2), out=P)
                P *= E  # ∂Sᵀ; and E, which may come from far, is now in the cache
            if dV is not None:
                dV[..., keys, :] += _product(E, dO[..., :-1], scratch)
            if dK is not None:
                dK[..., keys, :] += _product(P, q[..., here, :], scratch)
            if dq is not None:
                dQ[..., here, :] += _product(P.swapaxes(-1, -2), K[..., keys, :], scratch)
        if dq is not None:
            np.multiply(dQ, walk.scale, out=dq[..., rows, :])
    for result, total in ((dk, dK), (dv, dV)):
        if result is not None and result is not total:
            result[...] = total


def _zeros(name: str, like: Any, scratch: Scratch) -> Any:
    """Zeros to sum up in: the result itself where that is contiguous, or scratch."""
    if like is None:
        return None
    zeros = like if like.flags.c_contiguous else scratch.array(name, like.shape, like.dtype)
    zeros[...] = 0
    return zeros


def _weighed(walk: Walk, heads: Any, rows: slice, given: Given, scratch: Scratch) -> Any:
    """[∂O  -D] / rowsum(E) for a band of queries: (..., queries, d_v + 1)."""
    g, out = (x[heads][..., rows, :] for x in (given.g, given.out))
    total = given.total[heads][..., rows]
    G = scratch.array("G", (*g.shape[:-1], walk.d_v + 1), walk.dtype)
    np.divide(g, total[..., None], out=G[..., :-1])
    np.negative(np.einsum("...nd,...nd->...n", G[..., :-1], out), out=G[..., -1])
    return G


def _weights(
    walk: Walk,
    heads: Any,
    rows: slice,
    part: Part,
    q: Any,
    G: Any,
    given: Given,
    scratch: Scratch,
) -> tuple[Any, Any]:
    """Eᵀ on a tile, kept from forward or made again, and [∂O  -D] for these queries.

    E that was kept may be relative to a smaller maximum than the final one: ∂O and D make up for
    it, which are smaller than E.
    """
    here = within(part.tile.rows, rows)
    dO, most = G[..., here, :], given.most[heads][..., None, part.tile.rows]
    E, kept_most = walk.out_buffer(part, q, given.kept, scratch)
    if kept_most is None:
        walk.scores(heads, part.tile, q[..., here, :], E)
        if most.any():
            E -= most
        return np.exp(E, out=E), dO
    if np.array_equal(kept_most, most):
        return E, dO
    shrink = np.exp(kept_most - most).swapaxes(-1, -2)
    return E, np.multiply(dO, shrink, out=scratch.array("dO", dO.shape, walk.dtype))
