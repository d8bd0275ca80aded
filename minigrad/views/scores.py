"""Figures that say how a head attends, and what flows across layers.

In all of them A (..., n, m) holds attention weights; axis −3, where there is one, is the heads.
Each row sums to 1, or to 0 if it may attend nowhere.
Raw attention is not an explanation: hold it against `rollout` and `gradient_times_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..engine.errors import ShapeError
from ..record.attention import AttentionWeights
from ..record.heads import by_head, entropy, key_offsets, row_entropy, visible
from ..record.record import Array, rms
from .words import sized

__all__ = [
    "evenness", "figures", "gradient_times_attention", "looks_at", "patterns", "pooled", "rollout",
]  # fmt: skip

THRESHOLD = 0.5  # the score from which on a head has a pattern, unless it is one of
THRESHOLDS = {"off-diagonal spike": 0.6, "lower-triangular": 1 - 1e-6, "diffuse": 0.95}
NEAR = 2  # keys on either side that belong to a band


def figures(weights: AttentionWeights) -> list[str]:
    """For each head, in words: its patterns, entropy, and the size of its gradient."""
    allowed = ~weights.forbidden if weights.forbidden.any() else None
    heads = zip(
        patterns(weights.A, allowed),
        entropy(weights.A),
        evenness(weights.A, allowed),
        strict=True,
    )
    lines = []
    for head, (scores, H, share) in enumerate(heads):
        named = ", ".join(f"{name} {score:.2f}" for name, score in scores.items()) or "no pattern"
        line = f"{named}; entropy {H:.2f} nats, {share:.0%} of the largest possible"
        if weights.dA is not None:
            line += f"; rms of ∂L/∂A {sized(rms(weights.dA[:, head]))}"
        lines.append(line)
    return lines


def evenness(A: ArrayLike, allowed: ArrayLike | None = None) -> Array:
    """The entropy of each head as a share of the largest that its rows could have.

    Args: allowed: where a mask lets rows look; not given, a head that never looks ahead is causal.
    """
    weights = by_head(A, "evenness")
    most = np.log(np.maximum(visible(weights, allowed).sum(-1), 1)).mean(axis=(0, -1))
    return np.divide(entropy(weights), most, out=np.zeros_like(most), where=most > 0)


# ---------------------------------------------------------------- patterns


def patterns(A: ArrayLike, allowed: ArrayLike | None = None) -> list[dict[str, float]]:
    r"""The patterns that each head has, with the score behind the verdict, 0 to 1.

    With A_ij the weight of key j for query i; keys end where queries end, so that with m keys
    query i stands at i + m − n. Each is found from 0.5 on unless another limit stands behind it:

        diagonal           mean_i (A_ii − e_i) / (1 − e_i), e_i = 1 / (keys that row i may see);
                           rows that see one key left out
        previous token     the same of A_{i,i−1};   next token: of A_{i,i+1}
        band               the same of Σ_j A_ij over |i − j| ≤ 2, times 1 − the most that any one of
                           these diagonals has: itself or nearby, and no one place alone
        blocks             the same of the keys of i's own block, times 1 − as above; a block ends
                           where neighbours see each other less than a quarter of what each sees of
                           itself. What blocks explain is no band
        vertical stripe    max_j mean_i A_ij, over i ≠ j
        horizontal stripe  max_i h_i (1 − mean of h over all other rows), h_i the entropy of row i
                           over the largest it could have
        off-diagonal spike max of A_ij − (mean of column j in all other rows), |i − j| ≥ 2; 0.6
        lower-triangular   min_i Σ_{j ≤ i} A_ij / Σ_j A_ij; 1 − 1e-6
        diffuse            entropy over the largest possible; 0.95

    Shapes: A (..., n, m) → a dict a head, over the mean of a batch.
    Source: Clark et al. 2019, section 3, arXiv:1906.04341, for the first four; scores are ours.

    >>> patterns(np.eye(4))
    [{'diagonal': 1.0, 'lower-triangular': 1.0}]
    """
    weights = by_head(A, "patterns")
    seen = np.asarray(visible(weights, allowed).any(axis=0))
    heads = []
    for head, even in enumerate(evenness(A, allowed)):
        scores = _scores(weights[:, head], seen[head]) | {"diffuse": float(even)}
        clear = [name for name, x in scores.items() if x >= THRESHOLDS.get(name, THRESHOLD)]
        heads.append({name: min(scores[name], 1.0) for name in clear})
    return heads


def _scores(A: Array, seen: Array) -> dict[str, float]:
    """The score of each pattern but the last for one head (batch, n, m)."""
    mean = A.mean(axis=0)
    away = key_offsets(*A.shape[1:])

    def weight_on(keys: Array) -> float:
        gain = _beyond_even(mean, seen, keys)
        return 0.0 if gain is None else float(gain)

    lines = {k: weight_on(away == k) for k in range(-NEAR, NEAR + 1)}
    spread = 1 - max(lines.values())
    blocks = weight_on(_in_one_block(mean)) * spread
    others = np.maximum((away != 0).sum(axis=0), 1)
    columns = np.where(others > 1, np.where(away != 0, mean, 0.0).sum(axis=0) / others, 0.0)
    elsewhere = (mean.sum(axis=0) - mean) / max(len(mean) - 1, 1)
    below = np.where(away <= 0, A, 0).sum(-1) / np.maximum(A.sum(-1), 1e-300)
    most = np.log(np.maximum(seen.sum(-1), 1))
    even = row_entropy(mean)[most > 0] / most[most > 0]  # of rows with a choice
    alone = even * (1 - (even.sum() - even) / max(len(even) - 1, 1))
    return {
        "diagonal": lines[0], "previous token": lines[-1], "next token": lines[1],
        "band": weight_on(abs(away) <= NEAR) * spread * (1 - blocks), "blocks": blocks,
        "vertical stripe": float(columns.max()),
        "horizontal stripe": float(alone.max()) if len(even) > 1 else 0.0,
        "off-diagonal spike": float(np.where(abs(away) > 1, mean - elsewhere, 0.0).max()),
        "lower-triangular": float(below.min()) if len(mean) > 1 else 0.0,
    }  # fmt: skip


def _in_one_block(A: Array) -> Array:
    """Whether a key is in its query's block: one ends where neighbours hardly see each other."""
    if A.shape[0] != A.shape[1]:
        return np.ones(A.shape, bool)  # which says nothing
    own, across = np.diagonal(A), np.diagonal(A, 1) + np.diagonal(A, -1)
    ends = across < np.minimum(own[:-1], own[1:]) / 4
    block = np.concatenate([[0], np.cumsum(ends)])
    return np.equal.outer(block, block)


def _beyond_even(A: Array, seen: Array, keys: Array) -> Array | None:
    """The mean weight on some keys beyond that of even weights, over rows with a choice."""
    even = (keys & seen).sum(-1) / np.maximum(seen.sum(-1), 1)
    rows = (even > 0) & (even < 1)
    gains = ((A * (keys & seen)).sum(-1) - even)[..., rows] / (1 - even[rows])
    return np.maximum(gains.mean(axis=-1), 0.0) if rows.any() else None


def looks_at(A: ArrayLike, tokens: Sequence[object] | None = None) -> dict[str, Array]:
    r"""How much each head looks at keys of a kind, beyond what even weights would give: 0 to 1.

        mean_i (Σ_{j ∈ K_i} A_ij − e_i) / (1 − e_i),    e_i = |K_i| / |keys that row i may see|

    over the rows that see such keys K_i and others: of the token itself, the previous, the next,
    the first; given tokens, of the same token elsewhere, and of what followed it there (induction).

    Shapes: A (..., h, n, m), tokens (m,) → a figure a head by kind; kinds without a row left out.

    >>> looks_at(np.eye(4))["itself"]
    array([1.])
    """
    mean = by_head(A, "looks_at").mean(axis=0)
    seen = np.asarray(visible(mean[None], None).any(axis=(0, 1)))
    away = key_offsets(*mean.shape[1:])
    kinds = {"itself": away == 0, "previous token": away == -1, "next token": away == 1}
    kinds["first token"] = (np.arange(mean.shape[2]) == 0) & (away < 0)
    if tokens is not None:
        same = np.asarray(tokens)[-len(away) :, None] == np.asarray(tokens)
        kinds["the same token elsewhere"] = same & (away != 0)
        followed = np.pad(same, ((0, 0), (1, 0)))[:, :-1]
        kinds["what followed that one"] = followed & (away != 1)
    gains = {kind: _beyond_even(mean, seen, keys) for kind, keys in kinds.items()}
    return {kind: gain for kind, gain in gains.items() if gain is not None}


# ---------------------------------------------------------------- across heads and layers


def rollout(layers: Sequence[ArrayLike], residual: float = 0.5) -> Array:
    r"""Attention rollout: how much of each input token is in each output token, by attention alone.

        R = Â_L … Â_1,    Â = (1 − r) mean_h A + r I,  rows made to sum to 1

    Args: layers: A of each layer, first to last. residual: r, the share of the residual stream.
    Shapes: each A (..., h, n, n) or (n, n) → (n, n), mean over a batch; rows sum to 1.
    Raises: ShapeError where they do not fit.
    Source: Abnar & Zuidema 2020, section 3, arXiv:2005.00928.

    >>> rollout([np.full((2, 2), 0.5)] * 2)
    array([[0.625, 0.375],
           [0.375, 0.625]])
    """
    maps = [by_head(A, "rollout") for A in layers]
    sizes = {size for A in maps for size in A.shape[-2:]}
    if len(sizes) != 1:
        shapes = ", ".join(str(np.shape(A)) for A in layers)
        raise ShapeError(
            f"rollout: every layer must be (..., n, n) with the same n, got {shapes or 'none'}"
        )
    total = np.eye(*sizes)
    for A in maps:
        mixed = (1 - residual) * A.mean(axis=1) + residual * np.eye(A.shape[-1])
        total = mixed / mixed.sum(-1, keepdims=True) @ total
    return np.asarray(total.mean(axis=0))


def gradient_times_attention(A: ArrayLike, dA: ArrayLike) -> Array:
    r"""Attention weighted by what it does to the loss: mean_h (A ⊙ ∂L/∂A)⁺.

    L is what the reader wants explained, such as a logit: positive entries raise it. For a loss,
    pass −∂L/∂A. Across layers, R = I is followed by R ← R + mean_h (A ⊙ ∂L/∂A)⁺ R, layer by layer.

    Shapes: A and dA (..., h, n, m) → (n, m), mean over a batch.
    Source: Chefer, Gur & Wolf 2021, eq. (5), arXiv:2103.15679.

    >>> gradient_times_attention(np.full((2, 2), 0.5), [[2.0, -2.0], [0.0, 4.0]])
    array([[1., 0.],
           [0., 2.]])
    """
    call = "gradient_times_attention"
    if np.shape(A) != np.shape(dA):
        raise ShapeError(f"{call}: A is {np.shape(A)} but dA {np.shape(dA)}")
    return np.asarray(np.maximum(by_head(A, call) * by_head(dA, call), 0).mean(axis=(0, 1)))


# ---------------------------------------------------------------- smaller


def pooled(matrices: Array, tall: int, wide: int) -> Array:
    """Each block of tall × wide entries becomes the one furthest from zero, sign kept.

    Shapes: (..., rows, columns) → (..., ⌈rows / tall⌉, ⌈columns / wide⌉)

    >>> pooled(np.array([[1.0, -3.0, 2.0, 0.0]]), 1, 2)
    array([[-3.,  2.]])
    """
    if tall == wide == 1 or matrices.size == 0:
        return matrices

    def most(f: np.ufunc) -> Array:
        starts = range(0, matrices.shape[-2], tall)  # reduceat takes 30 times as long along rows
        rows = [f.reduce(matrices[..., i : i + tall, :], axis=-2) for i in starts]
        return f.reduceat(np.stack(rows, -2), np.arange(0, matrices.shape[-1], wide), axis=-1)

    high, low = most(np.maximum), most(np.minimum)
    return np.where(np.abs(low) > np.abs(high), low, high)
