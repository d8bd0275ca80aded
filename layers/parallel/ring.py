"""Ring attention: each rank has some tokens of one long sequence, and keys travel round the ranks.

Rank r attends to the keys that it has, hands them on, gets those of the rank before, and joins what
it finds by an online softmax; p times, until the keys are home. Backward they travel once more, and
their gradients with them. A rank holds n / p tokens, and never more.

Under a causal mask rank r has chunks r and 2p - 1 - r of 2p (zigzag), so that all have equal work.
Source: Liu et al. 2023, arXiv:2310.01889; zigzag: Brandon et al. 2023, arXiv:2311.09431.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import minigrad as mg
from minigrad import distributed as dist
from minigrad.distributed import Ranks
from minigrad.errors import ArgumentError, ShapeError

from ..arrays import Array, Mask
from ..attention import MultiHeadAttention, repeat_heads
from ..attention_call import AttentionCall
from ..cache import KVCache
from ..linear import linear
from ..module import Module

__all__ = ["RingAttention", "ring_attention", "ring_rows"]


def ring_rows(n: int, ranks: Ranks | None = None, is_causal: bool = True) -> NDArray[np.intp]:
    """Which of n tokens this rank has: a run of them; of a causal sequence, two runs (zigzag).

    Raises: ArgumentError unless 2p divides n, or p without a mask.

    >>> dist.run(2, ring_rows, 8)
    [array([0, 1, 6, 7]), array([2, 3, 4, 5])]
    """
    ranks = ranks or dist.world()
    p, r = ranks.size, ranks.rank
    chunks = 2 * p if is_causal else p
    if n % chunks:
        raise ArgumentError(f"ring_rows: {chunks} must divide the number of tokens, got {n}")
    c = n // chunks
    starts = (r * c, (2 * p - 1 - r) * c) if is_causal else (r * c,)
    return np.concatenate([np.arange(start, start + c) for start in starts])


def _steps(
    ranks: Ranks, n: int, is_causal: bool
) -> Iterator[tuple[slice, slice, mg.mask_rules.MaskRule | None]]:
    """For the keys of each rank in turn: which queries attend to which of them, by what rule."""
    for step in range(ranks.size):
        source, c = (ranks.rank - step) % ranks.size, n // 2
        if not is_causal or source == ranks.rank:
            yield slice(0, n), slice(0, n), mg.mask_rules.Causal() if is_causal else None
        elif source < ranks.rank:  # all queries attend to the earlier half
            yield slice(0, n), slice(0, c), None
        else:  # the later half attends to all
            yield slice(c, n), slice(0, n), None


def _block(q, k, v, rule, scale):
    """Attention to one block of keys: O, the rows' maxima and sums."""
    if hasattr(mg, "attend_block"):  # in tiles, where minigrad/fast is there
        return mg.attend_block(q, k, v, rule=rule, scale=scale)
    S = _scores(q, k, rule, scale)
    row_max = S.max(axis=-1)
    P = np.exp(S - row_max[..., None])
    row_sum = P.sum(axis=-1)
    return P @ v / row_sum[..., None], row_max, row_sum


def _block_back(g, q, k, v, out, row_max, row_sum, rule, scale):
    """The gradients of q, k and v by one block of keys."""
    if hasattr(mg, "attend_block_backward"):
        return mg.attend_block_backward(g, q, k, v, out, row_max, row_sum, rule=rule, scale=scale)
    A = np.exp(_scores(q, k, rule, scale) - row_max[..., None]) / row_sum[..., None]
    dS = A * (g @ np.swapaxes(v, -1, -2) - (g * out).sum(axis=-1, keepdims=True)) * scale
    return dS @ k, np.swapaxes(dS, -1, -2) @ q, np.swapaxes(A, -1, -2) @ g


def _scores(q, k, rule, scale):
    S = q @ np.swapaxes(k, -1, -2) * scale
    return S if rule is None else np.where(rule.array(*S.shape[-2:]), S, -np.inf)


def _samples(rng: np.random.Generator) -> Iterator[Any]:
    q, k, v = (rng.uniform(-1, 1, (2, 6, d)) for d in (5, 5, 3))
    yield mg.call(q, k, v)
    yield mg.call(q, k, v, is_causal=True, scale=0.7)
    yield mg.call(q[:0], k[:0], v[:0])


def _flops(q: Any, v: Any, ranks: Ranks | None, is_causal: bool) -> int:
    """Of each key that a query sees: 2 d_k for its score, 5 for softmax, 2 d_v for its value."""
    n, p = q.shape[-2], 1 if ranks is None else ranks.size
    keys = n + (p - 1) * n // 2 if is_causal else n * p
    return int(prod(q.shape[:-1]) * keys * (2 * q.shape[-1] + 5 + 2 * v.shape[-1]))


_A = r"\operatorname{softmax}(\tfrac{1}{\sqrt{d_k}} <q> \operatorname{concat}_r(<k>^{(r)})^\top)"
_S = r"\bar S = A \odot (<g> V^\top - \operatorname{rowsum}(<g> \odot <out>))"


@mg.op(
    tex=rf"A \operatorname{{concat}}_r(<v>^{{(r)}}), \quad A = {_A}",
    vjp_tex={
        "q": rf"\tfrac{{1}}{{\sqrt{{d_k}}}} \bar S K, \quad {_S}",
        "k": r"\operatorname{part}_r \sum_r \tfrac{1}{\sqrt{d_k}} \bar S^\top <q>",
        "v": r"\operatorname{part}_r \sum_r A^\top <g>",
    },
    flops=_flops,
    samples=_samples,
    analytic=False,
    auxiliary=("row_max", "row_sum"),
    effect=True,
)
def ring_attention(q, k, v, ranks=None, is_causal=False, scale=None):
    """Scaled dot-product attention of this rank's queries to the keys of all ranks.

    Args: is_causal: tokens are those of `ring_rows`, and query i sees keys j ≤ i of the whole.
        scale: 1/√d_k unless given.
    Shapes: q (..., n / p, d_k), k (..., n / p, d_k), v (..., n / p, d_v) → (..., n / p, d_v)
    Raises: ShapeError for keys that are more or fewer, or causal ones in no two equal runs.

    >>> ring_attention(np.zeros((2, 3)), np.ones((2, 3)), np.array([[2.0], [4.0]]))
    array([[3.],
           [3.]])
    """
    ranks, scale = ranks or dist.world(), _factor(q, scale)
    n, d_k = q.shape[-2:]
    if not n == k.shape[-2] == v.shape[-2]:
        raise ShapeError("q, k and v must have as many rows: those of this rank's tokens")
    if is_causal and ranks.size > 1 and n % 2:
        raise ShapeError(f"the rows must be two runs of one length, as ring_rows says, got {n}")
    out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    row_max, row_sum = np.full(q.shape[:-1], -np.inf, q.dtype), np.zeros(q.shape[:-1], q.dtype)
    kv = np.concatenate([k, v], axis=-1)
    for step, (rows, keys, rule) in enumerate(_steps(ranks, n, is_causal)):
        kv = kv if step == 0 else dist.ring_shift(kv, ranks)
        k_r, v_r = kv[..., keys, :d_k], kv[..., keys, d_k:]
        O, block_max, block_sum = _block(q[..., rows, :], k_r, v_r, rule, scale)
        new_max = np.maximum(row_max[..., rows], block_max)
        old_sum = row_sum[..., rows] * np.exp(row_max[..., rows] - new_max)
        block_sum = block_sum * np.exp(block_max - new_max)
        row_max[..., rows] = new_max
        row_sum[..., rows] = old_sum + block_sum
        share = (block_sum / (old_sum + block_sum))[..., None]
        out[..., rows, :] += share * (O - out[..., rows, :])
    return out, row_max, row_sum


@ring_attention.vjp("q", "k", "v")
def _(g, q, k, v, out, row_max, row_sum, ranks, is_causal, scale):
    """The gradient goes round the ring with keys and values, through each block's own softmax."""
    ranks, scale = ranks or dist.world(), _factor(q, scale)
    if hasattr(g, "__apply__"):
        return _recorded(g, q, k, v, ranks, is_causal, scale)
    dq = np.zeros_like(q)
    ring = np.concatenate([k, v, np.zeros_like(k), np.zeros_like(v)], axis=-1)
    ends = np.cumsum([k.shape[-1], v.shape[-1], k.shape[-1]])
    for rows, keys, rule in _steps(ranks, q.shape[-2], is_causal):
        k_r, v_r, dk_r, dv_r = np.split(ring[..., keys, :], ends, axis=-1)
        g_r, q_r, out_r = (x[..., rows, :] for x in (g, q, out))
        statistics = row_max[..., rows], row_sum[..., rows]
        gradients = _block_back(g_r, q_r, k_r, v_r, out_r, *statistics, rule, scale)
        for total, gradient in zip((dq[..., rows, :], dk_r, dv_r), gradients, strict=True):
            total += gradient
        ring = dist.ring_shift(ring, ranks)
    return dq, *np.split(ring, ends, axis=-1)[2:]


def _recorded(g, q, k, v, ranks, is_causal, scale):
    """The same gradients by ops, all keys on each rank, for derivatives of derivatives."""
    K, V = (dist.all_gather_apart(x, ranks, axis=-2) for x in (k, v))
    S = mg.scale(mg.matmul(q, mg.swapaxes(K, -1, -2)), scale)
    if is_causal:
        i = ring_rows(q.shape[-2] * ranks.size, ranks)
        j = dist.all_gather(i, ranks)
        S = mg.mask_add(S, i[:, None] >= j)
    A = mg.softmax(S)
    dA = mg.matmul(g, mg.swapaxes(V, -1, -2))
    dS = mg.scale(A * (dA - mg.sum(dA * A, axis=-1, keepdims=True)), scale)
    dK, dV = mg.matmul(mg.swapaxes(dS, -1, -2), q), mg.matmul(mg.swapaxes(A, -1, -2), g)
    return mg.matmul(dS, K), *(dist.reduce_scatter(x, ranks, axis=-2) for x in (dK, dV))


def _factor(q: Array, scale: float | None) -> float:
    return 1 / sqrt(q.shape[-1]) if scale is None else scale


class RingAttention(Module):
    """A MultiHeadAttention whose sequence is spread over ranks, each with its `ring_rows`.

    Weights are whole on every rank; their gradients are this rank's tokens' share, to be added up
    as `DataParallel` does.

    Shapes: X (B, n / p, d_model) → as X
    """

    def __init__(self, layer: MultiHeadAttention, ranks: Ranks | None = None) -> None:
        self.ranks = ranks or dist.world()
        if layer.window or any(option.needs_scores for option in layer.options):
            raise ArgumentError("RingAttention: takes no window, softcap, dropout or bias")
        if self.ranks.size > 1 and getattr(layer.position, "depends_on_length", False):
            raise ArgumentError(
                'RingAttention: takes no "dynamic" or "longrope" angles, which depend on how many '
                "positions there are: each rank would count its own"
            )
        self.part = layer

    def forward(
        self,
        X: mg.Tensor,
        mask: Mask | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: KVCache | None = None,
    ) -> mg.Tensor:
        layer = self.part
        if mask is not None or cache is not None:
            raise ArgumentError("RingAttention: takes no mask and no cache; use is_causal=True")
        if positions is None:
            positions = ring_rows(X.shape[-2] * self.ranks.size, self.ranks, layer.causal)
        call = AttentionCall(layer, X, None, None, positions, None)
        Q, K, V = call.prepare(*layer.project(X, call))  # (B, h, n / p, d_k)
        K, V = (repeat_heads(x, layer.n_heads // layer.n_kv_heads) for x in (K, V))
        O = ring_attention(Q, K, V, self.ranks, layer.causal, layer.scale).named("O")
        return linear(layer.merge(O), layer.W_O, layer.b_O).named("out")  # (B, n / p, d_model)
