"""Attention in tiles: one op that never holds the n × m scores.

Forward goes over bands of queries, and over tiles of keys with the softmax's maximum and sum kept
up to date (Milakov & Gimelshein 2018, arXiv:1805.02867); backward makes each tile's weights again
from those two (Dao et al. 2022, arXiv:2205.14135), or takes them where they were kept. Which tiles
there are: tiles.py; who does which: walk.py; what is done at each: tile_kernels.py. Few scores are
one tile: one_tile.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from ...engine.context import mark_constant
from ...engine.errors import ShapeError
from ...engine.op import Call, call, op
from ...ops.attention import mask_add, scale
from ...ops.linalg import matmul
from ...ops.reduce import softmax, sum
from ...ops.shape import swapaxes
from ..threads import one_threaded_blas
from . import kernels as tile_kernels
from . import one_tile
from .kernels import Given
from .tiles import Grid
from .walk import Walk, as_mask, factor, is_large, leading

__all__ = ["KEPT", "attention_weights", "tiled_attention"]

# Bytes of exp(S - rowmax) that a call under recording may keep, so that backward need not make
# them again: that saves a fifth of the time. Of causal float32 four fifths fit at n = 4096, at 8192
# a fifth; a step then takes 62 MiB there in all.
KEPT = 26 << 20
MOST_THREADS = 4  # measured on two cores; each thread may need a ∂K and ∂V of its own


ONE_TILE = 3 << 18  # score entries up to which one tile takes them all, as fast as the exact form


def _threaded(walk: Walk, work: Callable[[int], Any]) -> Any:
    """Do the work on as many threads as BLAS has, if it is large, with BLAS on one meanwhile."""
    if not is_large(walk.q, walk.k, walk.v):
        return work(1)
    with one_threaded_blas as threads:
        return work(min(threads, MOST_THREADS))


# ---------------------------------------------------------------- the op


def attention_weights(q: Any, k: Any, mask: Any, is_causal: bool, scale_by: float | None) -> Any:
    """A = softmax(q kᵀ · scale + mask), each step an op: (..., n, m)."""
    S = scale(matmul(q, swapaxes(k, -1, -2)), factor(scale_by, q.shape[-1]))
    if is_causal:
        S = mask_add(S, mark_constant(np.tri(S.shape[-2], S.shape[-1], dtype=bool)))
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
        leading(q, k, v, mask)
    except ValueError:
        return "leading axes must broadcast"
    return None


def _has_threads(q: Any, k: Any, v: Any) -> bool:
    """Whether the work on arrays of these shapes is shared by threads."""
    return _entries(q, k, v, None) > ONE_TILE and is_large(q, k, v)


def _entries(q: Any, k: Any, v: Any, mask: Any) -> int:
    """How many scores there are."""
    return prod((*leading(q, k, v, mask), np.shape(q)[-2], np.shape(k)[-2]))


def _computed(q: Any, k: Any, v: Any, mask: Any, is_causal: bool) -> int:
    """How many of the scores are computed: all but those in tiles that are skipped."""
    entries, n, m = _entries(q, k, v, mask), np.shape(q)[-2], np.shape(k)[-2]
    if entries <= ONE_TILE or (mask is None and not is_causal):
        return entries
    if mask is not None:
        mask = as_mask(mask)
        mask = np.broadcast_to(mask, (*mask.shape[:-1], m))
    masks = [None] if mask is None else [mask[index] for index in np.ndindex(mask.shape[:-2])]
    seen = [Grid(n, m, one, is_causal).entries for one in masks]
    return int(np.sum(seen) * (entries // (n * m)) // len(seen))


def _flops(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, out: Any) -> int:
    """For each score that is computed 2 d_k, 5 for the softmax, and 2 d_v for the values."""
    return int(
        _computed(q, k, v, mask, is_causal) * (2 * np.shape(q)[-1] + 5 + 2 * np.shape(v)[-1])
    )


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
    auxiliary=("walk", "most", "total", "kept"),
    requires=_misfit,
    threaded=_has_threads,
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
    if _entries(q, k, v, mask) <= ONE_TILE:
        return one_tile.forward(q, k, v, mask, is_causal, scale, keep)
    walk = Walk(q, k, v, mask, is_causal, scale)
    return _threaded(walk, lambda threads: tile_kernels.forward(walk, threads, keep))


@tiled_attention.vjp("q", "k", "v")
def _(g, q, k, v, out, mask, is_causal, scale, walk, most, total, kept, needed):
    if hasattr(g, "__apply__"):
        return _recorded(g, q, k, v, mask, is_causal, scale)
    g = np.asarray(g)  # compiled, this is called whole
    if walk is None:
        A = one_tile.weights(q, k, mask, is_causal, scale) if kept is None else kept
        return one_tile.backward(g, q, k, v, out, A, scale, needed)
    g, out = (x.reshape(*walk.lead, walk.n, walk.d_v) for x in (g, out))
    given = Given(g, out, most, total, kept)
    return _threaded(walk, lambda _: tile_kernels.backward(walk, given, needed))


def _recorded(
    g: Any, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale_by: float | None
) -> tuple[Any, ...]:
    """The same gradients by ops, n × m arrays and all, for derivatives of derivatives."""
    A = attention_weights(q, k, mask, is_causal, scale_by)
    dA = matmul(g, swapaxes(v, -1, -2))
    dS = scale(A * (dA - sum(dA * A, axis=-1, keepdims=True)), factor(scale_by, q.shape[-1]))
    return matmul(dS, k), matmul(swapaxes(dS, -1, -2), q), matmul(swapaxes(A, -1, -2), g)
