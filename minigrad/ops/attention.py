"""Attention as one node whose memory grows with n, in blocks of queries."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any, TypeAlias

import numpy as np

from ..engine.backward import broadcast_axes
from ..engine.errors import DTypeError, ShapeError
from ..engine.op import Array, op
from .masks import mask_add
from .samples import of_shapes
from .softmax import softmax

__all__ = ["tiled_attention"]

PairRule: TypeAlias = Callable[[Any, Any], Any]  # which queries at i see which keys at j

SCORES = 1 << 18  # so many are held at a time, if a block of one query has no more


SHAPES = [2, 3, 5], [2, 7, 5], [2, 7, 2]
NOWHERE = np.tri(3, 7, 2, dtype=bool) & [[True], [False], [True]]  # the second query sees no key
PADDING = np.where(np.arange(14).reshape(2, 1, 7) % 3 > 0, 0.5, -np.inf)


def misfit(q: Any, k: Any, v: Any, mask: Any = None, rule: Any = None) -> str | None:
    """The rule of attention that the shapes break, in words."""
    shapes = [np.shape(x) for x in (q, k, v)]
    if min(map(len, shapes)) < 2:
        return f"q, k and v need two axes or more, got {shapes}"
    (*_, n, d_q), (*_, m, d_k), (*_, m_v, _) = shapes
    if d_q != d_k:
        return f"q and k must have last axes of the same length, got {d_q} != {d_k}"
    if m != m_v:
        return f"k and v must have as many rows, got {m} != {m_v}"
    of_mask = getattr(mask, "shape", ())
    if broadcast_axes(of_mask[-2:], (n, m)) is None:
        return f"mask must broadcast to (..., {n}, {m}), got {of_mask}"
    try:
        leading(q, k, v, mask)
    except ValueError:
        return "leading axes must broadcast"
    return None


def leading(*operands: Any) -> tuple[int, ...]:
    """The axes before the last two, as operands broadcast together; some may be None."""
    return np.broadcast_shapes(*(getattr(x, "shape", ())[:-2] for x in operands))


def seen_by(rule: PairRule, queries: slice, keys: slice) -> Array:
    """What a rule says of these queries and keys: (queries, keys).

    Raises: DTypeError if these are not booleans.
    """
    i, j = (np.arange(at.start, at.stop, at.step) for at in (queries, keys))
    seen = np.asarray(rule(i[:, None], j))
    if seen.dtype != np.bool_:
        raise DTypeError(f"rule(i, j) must give booleans (True = may attend), got {seen.dtype}")
    return np.broadcast_to(seen, (len(i), len(j)))


def _flops(q: Any, k: Any, v: Any, mask: Any) -> int:
    """For each score 2 d_k, 5 for the softmax, and 2 d_v for the values."""
    scores = prod(leading(q, k, v, mask)) * q.shape[-2] * k.shape[-2]
    return int(scores * (2 * q.shape[-1] + 5 + 2 * v.shape[-1]))


def _scale(q: Any) -> str:
    """1/√d_k, with its number."""
    return rf"\tfrac{{1}}{{\sqrt{{{q.shape[-1]}}}}}"


def _weights(q: Any) -> str:
    """What A in a formula is."""
    scores = rf"{_scale(q)}\, <q> <k>^\top + <mask> + <rule>"
    return rf", \quad A = \operatorname{{softmax}}({scores})"


def _of_scores(q: Any) -> str:
    """What S̄, the gradient of the scores, and A in a formula are."""
    back = r"<g> <v>^\top - \operatorname{rowsum}(<g> \odot <out>)"
    return rf", \quad \bar S = A \odot ({back}){_weights(q)}"


@op(
    tex=lambda q: rf"A <v>{_weights(q)}",
    vjp_tex={
        "q": lambda q: rf"{_scale(q)}\, \bar S <k>{_of_scores(q)}",
        "k": lambda q: rf"{_scale(q)}\, \bar S^\top <q>{_of_scores(q)}",
        "v": lambda q: rf"A^\top <g>{_weights(q)}",
    },
    flops=_flops,
    samples=of_shapes(
        SHAPES,
        (*SHAPES, NOWHERE),
        (*SHAPES, PADDING),
        ([0, 5], [3, 5], [3, 2]),
        ([2, 3, 5], [2, 3, 5], [2, 3, 5], None, np.greater_equal),
        ([3, 5], [0, 5], [0, 2]),
        ([2, 2, 3, 2], [2, 1, 5, 2], [2, 1, 5, 3]),
    ),
    requires=misfit,
)
def tiled_attention(q, k, v, mask=None, rule=None):
    """Averages values by how well queries meet keys, in blocks: softmax(q kᵀ/√d_k + mask) v.

    The (n, m) scores are never whole: its memory grows with n, and the rule makes them again. A
    query that sees no key gets zeros.

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to (..., n, m); no
            gradient flows into it.
        rule: a mask as a function of positions, on top of the mask: rule(i, j) says of queries at i
            (n, 1) and keys at j (m,), counted from 0, which see which, as booleans. It may be asked
            of blocks, and once for many calls: it must always say the same of the same positions.
    Shapes: q (..., n, d_k), k (..., m, d_k), v (..., m, d_v) → (..., n, d_v); leading axes
        broadcast.
    Raises: ShapeError where these do not fit; ArgumentError if the mask holds NaN or +inf;
        DTypeError if the rule gives no booleans.
    Source: Rabe & Staats 2021, arXiv:2112.05682; Dao et al. 2022, arXiv:2205.14135.

    >>> q = k = v = np.eye(3)
    >>> tiled_attention(q, k, v, rule=lambda i, j: j <= i)[0]
    array([1., 0., 0.])
    """
    mask = None if mask is None else np.asarray(mask)
    if broken := misfit(q, k, v, mask):
        raise ShapeError(broken)
    parts = [np.matmul(A, v) for _, A in weights_by_blocks(q, k, v, mask, rule)]
    return np.concatenate(parts, axis=-2)


def weights_by_blocks(q, k, v, mask, rule):
    """Some queries, as a slice, and their weights A; until all had their turn."""
    n, d_k = q.shape[-2:]
    m = k.shape[-2]
    step = max(1, SCORES // max(1, m * prod(leading(q, k, v, mask))))
    for start in range(0, max(n, 1), step):
        rows = slice(start, min(start + step, n))
        S = np.matmul(q[..., rows, :], k.mT) * (1 / sqrt(d_k))  # (..., rows, m)
        if rule is not None:
            S = mask_add(S, seen_by(rule, rows, slice(0, m)))
        if mask is not None:
            each = np.ndim(mask) > 1 and np.shape(mask)[-2] > 1
            S = mask_add(S, np.asarray(mask)[..., rows, :] if each else mask)
        yield rows, softmax(S)


@tiled_attention.vjp("q", "k", "v")
def _(g, q, k, v, mask, rule):
    """The gradients of the average, the softmax and the products, block by block."""
    dq: list[Any] = []
    dk = dv = 0
    for rows, A in weights_by_blocks(q, k, v, mask, rule):
        G = g[..., rows, :]
        dA = np.matmul(G, v.mT)
        dS = A * (dA - np.sum(dA * A, axis=-1, keepdims=True)) * (1 / sqrt(q.shape[-1]))
        dq.append(np.matmul(dS, k))
        dk = dk + np.matmul(dS.mT, q[..., rows, :])
        dv = dv + np.matmul(A.mT, G)
    return np.concatenate(dq, axis=-2), dk, dv
