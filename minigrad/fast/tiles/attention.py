"""Attention in tiles: one op that never holds the n × m scores.

For each block of queries, forward visits tiles of keys and keeps the softmax's maximum and sum up
to date (Milakov & Gimelshein 2018, arXiv:1805.02867). Backward computes each tile's weights again
from those two (Dao et al. 2022, arXiv:2205.14135), or takes stored ones. mask_tiles.py finds the
tiles, schedule.py divides them among threads, kernels.py computes each. Few scores are one tile,
computed by the exact form's ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...engine.context import current
from ...engine.errors import ShapeError
from ...engine.op import Call, call, op
from ...engine.tensor import Tensor
from ...engine.types import Array
from ...ops.arithmetic import scale
from ...ops.attention import METHODS, Method, attention_weights
from ...ops.mask_rules import MaskRule, Window
from ...ops.masks import check_meaning
from ...ops.products import matmul
from ...ops.reduce import sum
from ...ops.shape import swapaxes
from ..limits import LIMITS
from . import kernels
from .mask_tiles import TileGrid
from .schedule import (
    TileSchedule,
    as_mask,
    as_rule,
    common_dtype,
    factor,
    is_threaded,
    leading,
    on_threads,
)

__all__ = ["attend_block", "attend_block_backward", "tiled_attention"]


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    def draw(*shapes: tuple[int, ...]) -> list[Array]:
        return [rng.uniform(-1, 1, shape) for shape in shapes]

    nowhere = np.tri(3, 7, 2, dtype=bool)
    nowhere[1] = False  # the second query sees no key
    padding = np.where(rng.uniform(size=(2, 1, 7)) < 0.6, 0.5, -np.inf)
    yield call(*draw((2, 3, 5), (2, 7, 5), (2, 7, 2)))
    yield call(*draw((2, 3, 5), (2, 7, 5), (2, 7, 2)), nowhere)
    yield call(*draw((2, 3, 5), (2, 7, 5), (2, 7, 2)), padding, scale=0.7)
    yield call(*draw((5, 3), (5, 3), (5, 2)), is_causal=True)
    yield call(*draw((5, 3), (5, 3), (5, 2)), is_causal=True, rule=Window(2))
    yield call(*draw((2, 2, 3, 2), (2, 1, 5, 2), (2, 1, 5, 3)), keep=LIMITS.weights_bytes)
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
    last = np.shape(mask)[::-1]
    if any(size not in (1, full) for size, full in zip(last, (m, n), strict=False)):
        return f"mask must broadcast to (..., {n}, {m}), got {np.shape(mask)}"
    try:
        leading(q, k, v, mask)
    except ValueError:
        return "leading axes must broadcast"
    return None


def _has_threads(q: Any, k: Any, v: Any) -> bool:
    """Whether the work on arrays of these shapes is shared by threads."""
    return not _is_one_tile(q, k, v, None) and is_threaded(q, k, v)


def _is_one_tile(q: Any, k: Any, v: Any, mask: Any) -> bool:
    return _entries(q, k, v, mask) <= LIMITS.one_tile_scores


def _entries(q: Any, k: Any, v: Any, mask: Any) -> int:
    """How many scores there are."""
    return prod((*leading(q, k, v, mask), np.shape(q)[-2], np.shape(k)[-2]))


def _computed(q: Any, k: Any, v: Any, mask: Any, rule: MaskRule | None) -> int:
    """How many of the scores are computed: all but those in tiles that are skipped."""
    entries = _entries(q, k, v, mask)
    n = np.shape(q)[-2]
    m = np.shape(k)[-2]
    if entries <= LIMITS.one_tile_scores or (mask is None and rule is None):
        return entries
    if mask is not None:
        mask = as_mask(mask)
        mask = np.broadcast_to(mask, (*mask.shape[:-1], m))
    masks = [None] if mask is None else [mask[index] for index in np.ndindex(mask.shape[:-2])]
    seen = [TileGrid(n, m, one, rule).entries for one in masks]
    return int(np.sum(seen) * (entries // (n * m)) // len(seen))


def _flops(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, rule: Any, out: Any) -> int:
    """For each score that is computed 2 d_k, 5 for the softmax, and 2 d_v for the values."""
    each = 2 * np.shape(q)[-1] + 5 + 2 * np.shape(v)[-1]
    return int(_computed(q, k, v, mask, as_rule(is_causal, rule)) * each)


def _factor(q: Any, scale: float | None) -> str:
    return rf"\tfrac{{1}}{{\sqrt{{{q.shape[-1]}}}}}" if scale is None else "<scale>"


def _weights(q: Any, is_causal: bool, scale: float | None, rule: MaskRule | None) -> str:
    """The attention weights of one call, as a formula: which keys are seen stands below."""
    seen = as_rule(is_causal, rule)
    below = "" if seen is None else rf"_{{{seen.tex()}}}"
    return rf"\operatorname{{softmax}}{below}({_factor(q, scale)}\, <q> <k>^\top + <mask>)"


def _tex(q: Any, is_causal: bool, scale: float | None, rule: MaskRule | None, keep: object) -> str:
    """`keep` is named since it changes no entry, so that nothing of it is left to say."""
    return rf"{_weights(q, is_causal, scale, rule)}\, <v>"


def _through_scores(gradient: str) -> Callable[..., str]:
    """The rule of what is multiplied into the scores S."""
    of_scores = r"\bar S = A \odot (<g> <v>^\top - \operatorname{rowsum}(<g> \odot <out>))"

    def rule_tex(q: Any, is_causal: bool, scale: float | None, rule: MaskRule | None) -> str:
        weights = rf"A = {_weights(q, is_causal, scale, rule)}"
        return rf"{_factor(q, scale)}\, {gradient}, \quad {of_scores}, \quad {weights}"

    return rule_tex


def _v_tex(q: Any, is_causal: bool, scale: float | None, rule: MaskRule | None) -> str:
    return rf"A^\top <g>, \quad A = {_weights(q, is_causal, scale, rule)}"


@op(
    tex=_tex,
    vjp_tex={
        "q": _through_scores(r"\bar S <k>"),
        "k": _through_scores(r"\bar S^\top <q>"),
        "v": _v_tex,
    },
    flops=_flops,
    samples=_samples,
    analytic=False,
    auxiliary=("schedule", "row_max", "row_sum", "weights"),
    requires=_misfit,
)
def tiled_attention(q, k, v, mask=None, is_causal=False, scale=None, keep=0, rule=None):
    """Averages values by how well queries meet keys, in tiles: softmax(q kᵀ · scale + mask) v.

    Its memory grows with n, not with n · m.

    Tiles that the mask or the rule closes are neither computed nor read; a query that sees no key
    gets zeros. From a few milliseconds of work on, threads share it, and BLAS keeps to one thread
    meanwhile.

    Args:
        mask: boolean (True = may attend) or floats to add, broadcastable to (..., n, m); no
            gradient flows into it.
        is_causal: query i sees keys j ≤ i only (on top of the mask).
        scale: 1/√d_k unless given.
        keep: bytes of exp(S - rowmax) to keep for backward; the rest it makes again.
        rule: a mask as a rule (see minigrad.ops.mask_rules), on top of the mask.
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
    if mask is not None:
        n, m = q.shape[-2], k.shape[-2]
        check_meaning("tiled_attention(q, k, v, mask)", mask, q.shape[:-2], n, m)
    rule = as_rule(is_causal, rule)
    if _is_one_tile(q, k, v, mask):
        q, k, v = (np.asarray(x, common_dtype(q, k, v)) for x in (q, k, v))
        A = attention_weights(q, k, mask, False, scale, rule)
        return matmul(A, v), None, None, None, A if A.nbytes <= keep else None
    schedule = TileSchedule(q, k, v, mask, rule, scale)
    out, *saved = on_threads(schedule, lambda threads: kernels.forward(schedule, threads, keep))
    return out.reshape(*schedule.shape, *out.shape[-2:]), schedule, *saved


tiled_attention.threaded = _has_threads  # type: ignore[attr-defined]  # compile reads it


@tiled_attention.vjp("q", "k", "v")
def _(
    g, q, k, v, out, mask, is_causal, rule, scale, schedule, row_max, row_sum, weights, needed
):  # fmt: skip
    """The gradients of the average, the softmax and the products, tile by tile."""
    recorded = hasattr(g, "__apply__")
    if recorded or schedule is None:
        if recorded or weights is None:
            weights = attention_weights(q, k, mask, is_causal, scale, rule)
        return _by_ops(g, q, k, v, weights, factor(scale, q.shape[-1]), needed)
    g = np.asarray(g)  # compiled, this is called whole
    g, out = (x.reshape(*schedule.lead, schedule.n, schedule.d_v) for x in (g, out))
    saved = kernels.Saved(out, row_max, row_sum, weights)
    return on_threads(schedule, lambda _: kernels.backward(schedule, g, saved, needed))


def _by_ops(
    g: Any, q: Any, k: Any, v: Any, A: Any, scale_by: float, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """∂V = Aᵀ ∂O,  ∂S = A ⊙ (∂A - rowsum(∂A ⊙ A)),  ∂Q = ∂S K,  ∂K = ∂Sᵀ Q, for few scores and
    for derivatives of derivatives.
    """
    dv = matmul(swapaxes(A, -1, -2), g) if needed[2] else None
    if not any(needed[:2]):
        return None, None, dv
    dA = matmul(g, swapaxes(v, -1, -2))
    dS = scale(A * (dA - sum(dA * A, axis=-1, keepdims=True)), scale_by)
    dq = matmul(dS, k) if needed[0] else None
    return dq, matmul(swapaxes(dS, -1, -2), q) if needed[1] else None, dv


# ---------------------------------------------------------------- keys in several blocks
#
# For who holds the keys in several blocks: on several machines, say.
#
#     O, row_max, row_sum = attend_block(q, k, v)  # softmax over these keys alone
#     dq, dk, dv = attend_block_backward(g, q, k, v, O, row_max, row_sum)  # those over all keys
#
# Results of two blocks of keys, 1 and 2, are one after the other scaled to a common maximum:
#
#     row_max = maximum(max₁, max₂),  weightᵢ = sumᵢ · exp(maxᵢ - row_max)
#     row_sum = weight₁ + weight₂,    O = (weight₁ O₁ + weight₂ O₂) / row_sum
#
# and gradients of K and V belong to their block alone, while those of Q are added up over blocks.


def attend_block(
    q: Array,
    k: Array,
    v: Array,
    mask: ArrayLike | None = None,
    rule: MaskRule | None = None,
    scale: float | None = None,
) -> tuple[Array, Array, Array]:
    """Attention to these keys, with what it takes to join it to attention to others.

    Args: as of `tiled_attention`; `rule.shifted(offset)` where queries and keys begin at different
        positions.
    Returns: O, the shift of the scores (their row maximum, or another number near it), and the sum
        of exp(S - shift): 0 for a query that sees none of these keys.
    Shapes: q (..., n, d_k), k (..., m, d_k), v (..., m, d_v) → (..., n, d_v), (..., n), (..., n)

    >>> v = np.array([[2.0], [4.0]])
    >>> O, row_max, row_sum = attend_block(np.zeros((1, 3)), np.ones((2, 3)), v)
    >>> O, row_sum * np.exp(row_max)
    (array([[3.]]), array([2.]))
    """
    schedule = TileSchedule(q, k, v, mask, rule, scale)
    out, row_max, row_sum, _ = on_threads(
        schedule, lambda threads: kernels.forward(schedule, threads, 0)
    )
    row_sum[np.isinf(row_sum)] = 0
    rows = (*schedule.shape, schedule.n)
    return out.reshape(*rows, schedule.d_v), row_max.reshape(rows), row_sum.reshape(rows)


def attend_block_backward(
    g: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    row_max: Array,
    row_sum: Array,
    mask: ArrayLike | None = None,
    rule: MaskRule | None = None,
    scale: float | None = None,
    needed: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Array | None, ...]:
    """What these keys contribute to ∂Q, and their own ∂K and ∂V; None where not needed.

    Args: out, row_max, row_sum: of attention to all keys; g: the gradient of that out.
    """
    schedule = TileSchedule(q, k, v, mask, rule, scale)
    rows = (*schedule.lead, schedule.n)
    g, out = (np.asarray(x).reshape(*rows, schedule.d_v) for x in (g, out))
    row_max, row_sum = (np.asarray(x).reshape(rows) for x in (row_max, row_sum))
    saved = kernels.Saved(out, row_max, np.where(row_sum == 0, np.inf, row_sum), None)

    def work(threads: int) -> Any:
        schedule.plan(threads, 0)
        return kernels.backward(schedule, g, saved, needed)

    return on_threads(schedule, work)


# ---------------------------------------------------------------- as a method of attention


def _tiled(
    q: Any, k: Any, v: Any, mask: Any, *, is_causal: bool, scale: float | None, rule: Any
) -> Any:
    """Some weights are kept for backward, if there may be one."""
    needed = any(isinstance(x, Tensor) and x.requires_grad for x in (q, k, v))
    keep = LIMITS.weights_bytes if needed and current().recording else 0
    return tiled_attention(q, k, v, mask, is_causal=is_causal, scale=scale, keep=keep, rule=rule)


METHODS["tiled"] = Method(
    attend=_tiled,
    is_faster=lambda scores: scores >= LIMITS.tiled_scores,
    form=lambda scores: "one tile" if scores <= LIMITS.one_tile_scores else "tiled",
)
