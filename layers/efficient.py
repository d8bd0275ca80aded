"""Attention whose cost grows with n, not n²: what `MultiHeadAttention(attend=…)` takes.

With a kernel φ(q)·φ(k) in place of exp(q·k / √d) the sum over keys needs no query and is made once.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .attention import Attended, attend
from .basic import Seed, check_sizes, generator, parameter
from .call import ArrayOrTensor
from .masking import Mask, Positions, for_scores, joined, rules_apart
from .masks import causal
from .module import Module

__all__ = ["LinearKernel", "Linformer", "Performer", "linear_attention", "orthogonal_features"]


def linear_attention(
    Q_phi: ArrayOrTensor, K_phi: ArrayOrTensor, V: ArrayOrTensor, is_causal: bool = False
) -> Any:
    """O_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j);  if causal, over j ≤ i.

    A query that sees no key, where all φ(k_j) are 0, gets zeros.
    Shapes: Q_phi (..., n, r), K_phi (..., m, r), V (..., m, d_v) → (..., n, d_v)
    Source: Katharopoulos et al. 2020, eqs. (5), (9), arXiv:2006.16236.

    >>> linear_attention(np.ones((2, 1)), np.ones((2, 1)), np.array([[1.0], [3.0]]), is_causal=True)
    array([[1.],
           [2.]])
    """
    if is_causal:
        each = mg.multiply(mg.expand_dims(K_phi, -1), mg.expand_dims(V, -2))  # (..., n, r, d_v)
        S, Z = mg.cumsum(each, axis=-3), mg.cumsum(K_phi, axis=-2)
        N = mg.sum(mg.multiply(mg.expand_dims(Q_phi, -1), S), axis=-2)  # (..., n, d_v)
    else:
        N = mg.matmul(Q_phi, mg.matmul(mg.swapaxes(K_phi, -1, -2), V))
        Z = mg.sum(K_phi, axis=-2, keepdims=True)  # (..., 1, r)
    D = mg.sum(mg.multiply(Q_phi, Z), axis=-1, keepdims=True)  # (..., n, 1)
    return mg.divide(N, mg.where(D == 0, 1.0, D))


class LinearKernel(Module):
    """φ(x) = elu(x) + 1: not an estimate of softmax but another weighting.

    Source: Katharopoulos et al. 2020, eq. (7), arXiv:2006.16236.

    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, 3, mask=causal, attend=LinearKernel(), rng=0)
    >>> layer(np.zeros((1, 5, 6))).shape
    (1, 5, 6)
    """

    def features(self, x: ArrayOrTensor) -> Any:
        """φ of each row: (..., n, d) → (..., n, r)."""
        return mg.add(mg.maximum(x, 0.0), mg.exp(mg.minimum(x, 0.0)))

    def forward(
        self, Q: Any, K: Any, V: Any, i: Positions, j: Positions, *masks: Mask | None,
        drop: Any = None,
    ) -> Attended:  # fmt: skip
        is_causal, seen = _parted(self, K, i, j, masks, drop)
        Q_phi, K_phi = self.features(Q).named("Q_phi"), self.features(K)
        K_phi = (K_phi if seen is None else mg.multiply(K_phi, seen)).named("K_phi")
        return linear_attention(Q_phi, K_phi, V, is_causal).named("O"), None, None


class Performer(LinearKernel):
    """φ(x) = exp(w·y − ‖y‖²/2) / √r,  y = x / d^¼: an unbiased estimate of exp(q·k / √d) (FAVOR+).

    Args:   d_k: width of a head.  r: features, whose directions w are drawn once and never trained.
    Source: Choromanski et al. 2021, lemma 1, arXiv:2009.14794.

    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, 3, attend=Performer(d_k=2, r=16, rng=0), rng=0)
    >>> layer(np.zeros((1, 5, 6))).shape
    (1, 5, 6)
    """

    buffers = ("W",)

    def __init__(self, d_k: int, r: int, rng: Seed = None, dtype: DTypeLike = np.float64) -> None:
        self.W = mg.tensor(orthogonal_features(r, d_k, rng).astype(dtype))

    def features(self, x: ArrayOrTensor) -> Any:
        y = mg.scale(x, x.shape[-1] ** -0.25)
        h = mg.scale(mg.sum(mg.multiply(y, y), axis=-1, keepdims=True), 0.5)
        S = mg.subtract(mg.matmul(y, mg.swapaxes(self.W, 0, 1)), h)  # (..., n, r)
        return mg.scale(mg.exp(S), 1 / sqrt(self.W.shape[0]))


class Linformer(Module):
    """softmax(Q (E K)ᵀ / √d) (F V): each query sees k mixtures of all tokens, so none is causal.

    Args:   seq_len: the longest sequence; a shorter one takes the first columns of E and F.
    Source: Wang et al. 2020, eq. (7), arXiv:2006.04768.

    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, 3, attend=Linformer(seq_len=9, k=2, rng=0), rng=0)
    >>> layer(np.zeros((1, 5, 6))).shape
    (1, 5, 6)
    """

    def __init__(
        self, seq_len: int, k: int, rng: Seed = None, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("Linformer", seq_len=seq_len, k=k)
        E, F = generator(rng).normal(0.0, 1 / sqrt(k), (2, k, seq_len))
        self.E, self.F = parameter(E, dtype), parameter(F, dtype)  # (k, seq_len)

    def forward(
        self, Q: Any, K: Any, V: Any, i: Positions, j: Positions, *masks: Mask | None,
        drop: Any = None,
    ) -> Attended:  # fmt: skip
        is_causal, seen = _parted(self, K, i, j, masks, None)
        m, longest = K.shape[-2], self.E.shape[1]
        if is_causal or m > longest:
            raise ShapeError(f"Linformer: it has {longest} tokens and no order, got {m} keys")
        if seen is not None:
            K, V = mg.multiply(K, seen), mg.multiply(V, seen)
        EK, FV = mg.matmul(self.E[:, :m], K), mg.matmul(self.F[:, :m], V)  # (B, h, k, d)
        O, _ = attend(Q, EK, FV, drop=drop)
        return O, None, None


def _parted(
    how: Module,
    K: ArrayOrTensor,
    i: Positions,
    j: Positions,
    masks: tuple[Mask | None, ...],
    drop: Any,
) -> tuple[bool, Any]:
    """Whether a rule is `causal`; and e^M of each key by the arrays, (B, 1, m, 1), or None."""
    call = type(how).__name__
    rules, others = rules_apart(masks)
    if drop is not None or any(rule != causal for rule in rules):
        raise ArgumentError(
            f"{call}: keys are summed once for all queries, so a rule can only be `causal`, and "
            "there are no weights to drop"
        )
    if rules and (len(j) != len(i) or (np.asarray(i) != j).any()):
        raise ArgumentError(f"{call}: causal sums are over X itself, without a cache or context")
    M = joined(i, j, *others)
    if M is None:
        return bool(rules), None
    M = for_scores(M, (*K.shape[:-2], 1, K.shape[-2]))
    return bool(rules), mg.swapaxes(mg.exp(mg.mask_add(mg.tensor(0.0), M)), -1, -2)


def orthogonal_features(r: int, d: int, rng: Seed = None) -> NDArray[np.float64]:
    """r directions w ~ N(0, I_d), orthogonal within each block of d: (r, d).

    >>> W = orthogonal_features(3, 3, rng=0)
    >>> bool(abs(W[0] @ W[1]) < 1e-12)
    True
    """
    check_sizes("orthogonal_features", r=r, d=d)
    rng = generator(rng)
    turns, R = np.linalg.qr(rng.normal(size=(-(-r // d), d, d)))
    turns = turns * np.sign(np.diagonal(R, axis1=-2, axis2=-1))[:, None, :]
    lengths = np.linalg.norm(rng.normal(size=(r, d)), axis=-1, keepdims=True)
    return np.asarray(turns.swapaxes(-1, -2).reshape(-1, d)[:r] * lengths)
