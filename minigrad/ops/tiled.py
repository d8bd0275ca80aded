"""Attention in tiles: one op that never holds the n × m scores.

Forward goes over blocks of queries, and over tiles of keys with the softmax's maximum and sum kept
up to date (Milakov & Gimelshein 2018, arXiv:1805.02867); backward makes each tile's weights again
from the logarithm of the sum (Dao et al. 2022, arXiv:2205.14135), or takes those that were kept. A
tile is held transposed, keys down and queries across: so all six products run at BLAS's best
speed, and the softmax goes down the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..context import constant
from ..errors import ShapeError
from ..op import Call, call, op
from ..parallel import Scratch, one_threaded_blas, run
from .attention import mask_add, scale
from .linalg import matmul
from .reduce import softmax, sum
from .shape import swapaxes
from .tiles import WIDTH
from .walk import Lane, Part, Walk, factor

__all__ = ["KEPT", "attention_weights", "tiled_attention"]

# Bytes of exp(S - rowmax) that a call under recording may keep, so that backward need not make
# them again: that saves a fifth of the time. Causal float32 fits whole up to n = 4096; of n = 8192
# a quarter does, and the rest is remade.
KEPT = 32 << 20
MOST_THREADS = 4  # measured on two cores; each thread may need a ∂K and ∂V of its own


def _threaded(walk: Walk, work: Callable[[int], Any]) -> Any:
    """Do the work on as many threads as BLAS has, if it is large, with BLAS on one meanwhile."""
    if not walk.is_large:
        return work(1)
    with one_threaded_blas as threads:
        return work(min(threads, MOST_THREADS))


# ---------------------------------------------------------------- forward


class _Results(NamedTuple):
    """What forward fills: O, and for each query max(S) and the sum of exp(S - max)."""

    out: Any
    most: Any
    total: Any
    kept: Any


def _forward(walk: Walk, threads: int, keep: int) -> tuple[Any, ...]:
    walk.plan(threads, keep)
    entries = (*walk.lead, walk.n)
    results = _Results(
        np.empty_like(
            walk.q, shape=(*entries, walk.d_v)
        ),  # laid out as q is, so merging heads is a view
        np.empty(entries, walk.dtype),
        np.empty(entries, walk.dtype),
        np.empty(walk.kept, walk.dtype) if walk.kept else None,
    )
    items = [(lane.heads, *band) for lane in walk.lanes for band in lane.bands]
    items.sort(key=_last_query, reverse=True)  # under a causal mask, the longest first
    run(lambda item, scratch: _attend(walk, item, results, scratch), items, threads)
    out, most, total, kept = results
    seen = total > 0
    logsumexp = np.where(
        seen, most + np.log(total, where=seen, out=total), np.inf
    )  # exp(S - inf) = 0
    return out.reshape(*walk.shape, walk.n, walk.d_v), walk, logsumexp, kept


def _attend(
    walk: Walk, item: tuple[Any, slice, list[Part]], results: _Results, scratch: Scratch
) -> None:
    """One block of queries, tile by tile: O = E V / rowsum(E),  E = exp(S - rowmax)."""
    heads, rows, parts = item
    q = walk.queries(heads, rows, scratch)
    many, queries, _ = q.shape
    O = scratch.array("O", (many, queries, walk.d_v), walk.dtype)
    O[...] = 0
    lowest = np.finfo(walk.dtype).min  # of a query that sees no key: so no -inf - -inf comes about
    most = np.full((many, 1, queries), lowest, walk.dtype)
    total = np.zeros_like(most)
    for j, part in enumerate(parts):
        keys = part.tile.keys
        S, kept_most = walk.room(
            part, (many, keys.stop - keys.start, queries), results.kept, scratch
        )
        walk.scores(heads, rows, part.tile, q, S)
        before, most = most, np.maximum(most, S.max(axis=-2, keepdims=True, initial=lowest))
        S -= most
        E, V = np.exp(S, out=S), walk.v[heads][:, keys]
        if j > 0:  # what there is was relative to a smaller maximum
            shrink = np.exp(before - most)
            total *= shrink
            O *= shrink.swapaxes(-1, -2)
        total += _column_sums(E)
        O += np.matmul(E.swapaxes(-1, -2), V, out=scratch.array("T", O.shape, walk.dtype))
        if kept_most is not None:
            kept_most[...] = most
    results.most[heads][:, None, rows], results.total[heads][:, None, rows] = most, total
    total[total == 0] = 1
    np.divide(O, total.swapaxes(-1, -2), out=results.out[heads][:, rows])


def _last_query(item: tuple[Any, slice, list[Part]]) -> int:
    return int(item[1].stop)


def _column_sums(E: Any) -> Any:
    """As a product with ones, three times as fast as a sum along that axis: (heads, 1, queries)."""
    return np.matmul(_ones(E.dtype)[: E.shape[-2]], E)[:, None]


@cache
def _ones(dtype: Any) -> Any:
    return np.ones(WIDTH, dtype)


# ---------------------------------------------------------------- backward


class _Given(NamedTuple):
    """What backward reads."""

    g: Any
    out: Any
    logsumexp: Any
    kept: Any


def _backward(walk: Walk, given: _Given, needed: tuple[bool, bool, bool]) -> tuple[Any, ...]:
    lanes = walk.shared_lanes()
    shares = max((lane.share for lane in lanes), default=0) + 1
    likes = (walk.q, walk.k, walk.v)
    sums = [  # ∂Q has no two writers; ∂K and ∂V are summed by each share on its own
        [
            np.zeros_like(like, shape=like.shape) if want else None
            for want, like in zip(needed, likes, strict=True)
        ]
    ]
    for _ in range(1, shares):
        sums.append([sums[0][0], *(None if x is None else np.zeros_like(x) for x in sums[0][1:])])
    run(
        lambda lane, scratch: _differentiate(walk, lane, given, sums[lane.share], scratch),
        lanes,
        walk.threads,
    )
    dq, dk, dv = sums[0]
    for _, more_dk, more_dv in sums[1:]:
        for total, more in ((dk, more_dk), (dv, more_dv)):
            if total is not None:
                total += more
    return tuple(x if x is None else x.reshape(*walk.shape, *x.shape[-2:]) for x in (dq, dk, dv))


def _differentiate(
    walk: Walk, lane: Lane, given: _Given, sums: list[Any], scratch: Scratch
) -> None:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂O Vᵀ - D),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q,  with D = rowsum(∂O ⊙ O)."""
    dq, dk, dv = (x if x is None else x[lane.heads] for x in sums)
    K, V = walk.k[lane.heads], walk.v[lane.heads]
    g, out, L = (x[lane.heads] for x in given[:3])

    def product(a: Any, b: Any) -> Any:
        return np.matmul(a, b, out=scratch.array("T", (*a.shape[:-1], b.shape[-1]), walk.dtype))

    for rows, parts in lane.bands:
        q = walk.queries(lane.heads, rows, scratch)  # times the scale
        D = np.einsum("hnd,hnd->hn", g[:, rows], out[:, rows])[:, None]
        for part in parts:
            keys = part.tile.keys
            E, share = _weights(
                walk, lane.heads, rows, part, q, L[:, None, rows], given.kept, scratch
            )
            dO = scratch.array("dO", (len(q), q.shape[1], walk.d_v), walk.dtype)
            np.multiply(g[:, rows], share.swapaxes(-1, -2), out=dO)
            if dv is not None:
                dv[:, keys] += product(E, dO)
            if dk is None and dq is None:
                continue
            P = scratch.array("P", E.shape, walk.dtype)
            np.matmul(V[:, keys], dO.swapaxes(-1, -2), out=P)
            P -= D * share
            P *= E  # ∂Sᵀ
            if dk is not None:
                dk[:, keys] += product(P, q)
            if dq is not None:
                dq[:, rows] += product(P.swapaxes(-1, -2), K[:, keys])
        if dq is not None:
            dq[:, rows] *= walk.scale


def _weights(
    walk: Walk, heads: Any, rows: slice, part: Part, q: Any, L: Any, kept: Any, scratch: Scratch
) -> tuple[Any, Any]:
    """Aᵀ on a tile as a product E · share: E kept from forward or made again, share (heads, 1,
    queries).

    The share, exp(rowmax - logsumexp) of what was kept, is left to ∂O and D, which are smaller
    than E.
    """
    keys = part.tile.keys
    E, most = walk.room(part, (len(q), keys.stop - keys.start, q.shape[1]), kept, scratch)
    if most is not None:
        return E, np.exp(most - L)
    walk.scores(heads, rows, part.tile, q, E)
    E -= L
    return np.exp(E, out=E), np.ones_like(L)


# ---------------------------------------------------------------- the op


def attention_weights(q: Any, k: Any, mask: Any, is_causal: bool, scale_by: float | None) -> Any:
    """A = softmax(q kᵀ · scale + mask), each step an op: (..., n, m)."""
    S = scale(matmul(q, swapaxes(k, -1, -2)), factor(scale_by, q.shape[-1]))
    if is_causal:
        S = mask_add(S, constant(np.tri(S.shape[-2], S.shape[-1], dtype=bool)))
    if mask is not None:
        S = mask_add(S, mask)
    return softmax(S)


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    def draw(*shapes: tuple[int, ...]) -> list[Any]:
        return [rng.uniform(-1, 1, shape) for shape in shapes]

    nowhere = np.tri(3, 7, 2, dtype=bool)
    nowhere[1] = False  # the second query sees no key
    padding = np.where(rng.uniform(size=(2, 1, 7)) < 0.6, 0.5, -np.inf)
    yield call(*draw((2, 3, 5), (2, 7, 5), (2, 7, 2)))
    yield call(*draw((2, 3, 5), (2, 7, 5), (2, 7, 2)), nowhere)
    yield call(*draw((2, 3, 5), (2, 7, 5), (2, 7, 2)), padding, scale=0.7)
    yield call(*draw((5, 3), (5, 3), (5, 2)), is_causal=True)
    yield call(*draw((2, 2, 3, 2), (2, 1, 5, 2), (2, 1, 5, 3)), keep=KEPT)
    yield call(*draw((0, 5), (3, 5), (3, 2)))
    yield call(*draw((3, 5), (0, 5), (0, 2)))


def _misfit(q: Any, k: Any, v: Any, mask: Any = None, *settings: Any) -> str | None:
    """The rule of attention that the shapes break, in words."""
    shapes = [np.shape(x) for x in (q, k, v)]
    if min(map(len, shapes)) < 2:
        return f"q, k and v need two axes or more, got {shapes}"
    (*_, n, d_q), (*_, m, d_k), (*_, m_v, _) = shapes
    if d_q != d_k:
        return f"q and k must have last axes of the same length, got {d_q} != {d_k}"
    if m != m_v:
        return f"k and v must have as many rows, got {m} != {m_v}"
    over = np.shape(mask)
    if any(size not in (1, full) for size, full in zip(over[::-1], (m, n), strict=False)):
        return f"mask must broadcast to (..., {n}, {m}), got {over}"
    try:
        np.broadcast_shapes(*(shape[:-2] for shape in (*shapes, over)))
    except ValueError:
        return "leading axes must broadcast"
    return None


def _flops(q: Any, k: Any, v: Any, out: Any) -> int:
    """As if no tile were skipped: 2 d_k for a score, 5 for the softmax, 2 d_v for the values."""
    (*_, d_k), (*_, m, d_v) = np.shape(q), np.shape(v)
    queries = int(np.prod(np.shape(out)[:-1], dtype=int))
    return int(queries * m * (2 * d_k + 5 + 2 * d_v))


_A = r"\quad A = \operatorname{softmax}(<scale>\, <q> <k>^\top + <mask>)"
_S_BAR = r"\quad \bar S = A \odot (<g> <v>^\top - \operatorname{rowsum}(<g> \odot <out>))"


@op(
    tex=r"\operatorname{softmax}(<scale>\, <q> <k>^\top + <mask>)\, <v>",
    vjp_tex={
        "q": rf"<scale>\, \bar S <k>, {_S_BAR}, {_A}",
        "k": rf"<scale>\, \bar S^\top <q>, {_S_BAR}, {_A}",
        "v": rf"A^\top <g>, {_A}",
    },
    flops=_flops,
    samples=_samples,
    analytic=False,
    also=("walk", "logsumexp", "kept"),
    requires=_misfit,
)
def tiled_attention(q, k, v, mask=None, is_causal=False, scale=None, keep=0):
    """Scaled dot-product attention in tiles: softmax(q kᵀ · scale + mask) v, in memory that grows
    with n, not n · m.

    Tiles that the mask closes are neither computed nor read; a query that sees no key gets zeros.
    From a few milliseconds of work on, threads share it, and BLAS keeps to one thread meanwhile.

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to (..., n, m); no
            gradient flows into it.
        is_causal: query i sees keys j ≤ i only (on top of the mask).
        scale: 1/√d_k unless given.
        keep: bytes of exp(S - rowmax) to keep for backward; the rest it makes again.
    Shapes: q (..., n, d_k), k (..., m, d_k), v (..., m, d_v) → (..., n, d_v); leading axes
        broadcast.
    Raises: ShapeError where these do not fit; ArgumentError if the mask holds NaN or +inf.
    Source: Dao et al. 2022, arXiv:2205.14135; Milakov & Gimelshein 2018, arXiv:1805.02867.

    >>> q = k = v = np.eye(3)
    >>> tiled_attention(q, k, v, is_causal=True)[0]
    array([1., 0., 0.])
    """
    if broken := _misfit(q, k, v, mask):
        raise ShapeError(broken)
    walk = Walk(q, k, v, mask, is_causal, scale)
    return _threaded(walk, lambda threads: _forward(walk, threads, keep))


@tiled_attention.vjp("q", "k", "v")
def _(g, q, k, v, out, mask, is_causal, scale, walk, logsumexp, kept, needed):
    if not isinstance(g, np.ndarray):
        return _recorded(g, q, k, v, mask, is_causal, scale)
    g, out = (x.reshape(*walk.lead, walk.n, walk.d_v) for x in (g, out))
    given = _Given(g, out, logsumexp, kept)
    return _threaded(walk, lambda _: _backward(walk, given, needed))


def _recorded(
    g: Any, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale_by: float | None
) -> tuple[Any, ...]:
    """The same gradients by ops, n × m arrays and all, for derivatives of derivatives."""
    A = attention_weights(q, k, mask, is_causal, scale_by)
    dA = matmul(g, swapaxes(v, -1, -2))
    dS = scale(A * (dA - sum(dA * A, axis=-1, keepdims=True)), factor(scale_by, q.shape[-1]))
    return matmul(dS, k), matmul(swapaxes(dS, -1, -2), q), matmul(swapaxes(A, -1, -2), g)
