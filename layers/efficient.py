"""Attention whose cost grows with n, not n²: Linformer, Performer, linear attention.

Each takes Q, K and V and returns what stands in for softmax(Q Kᵀ / √d) V; none makes an n × n
array. The layers made of them are in efficient_layers.py.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .arrays import Array, Mask
from .kernels import elu_features, kernel_attention, key_weights, positive_features
from .module import named, with_shapes
from .renamed import renamed

__all__ = ["linear_attention", "linformer_attention", "performer_attention"]


def linformer_attention(
    Q: Array, K: Array, V: Array, E: Array, F: Array, mask: Mask | None = None
) -> Any:
    """Attention to k mixtures of the keys and values, in place of all m of them.

        softmax(Q (E K)ᵀ / √d) (F V)

    With E = F = I it is exact attention. A mixture holds later tokens too: there is no causal form.

    Args:    E, F: mix keys, and values, along the sequence.
             mask: of keys, boolean or 0 / −inf; what it hides has no part in any mixture.
    Shapes:  Q (..., n, d), K (..., m, d), V (..., m, d_v), E and F (k, m) or broadcastable
             (..., k, m), mask (m,) or (..., 1, m) → (..., n, d_v)
    Raises:  ShapeError where these do not fit; ArgumentError for a mask that adds anything else.
    Source:  Wang et al. 2020, eq. (7), arXiv:2006.04768.

    >>> Q, K, V = np.zeros((1, 5, 2)), np.ones((1, 3, 2)), np.arange(3.0).reshape(1, 3, 1)
    >>> mean = np.full((1, 3), 1 / 3)
    >>> linformer_attention(Q, K, V, mean, mean)[0, 0]
    array([1.])
    """
    call = "linformer_attention(Q, K, V, E, F)"
    Q, K, V, E, F = _arrays(call, Q=Q, K=K, V=V, E=E, F=F)
    _check_fit(call, Q, K, V)
    for name, x in (("E", E), ("F", F)):
        if x.shape[-1] != K.shape[-2]:
            rule = f"{name}'s last axis must be the number of keys"
            _refuse(call, f"{rule}, got {x.shape[-1]} != {K.shape[-2]}", **{name: x, "K": K})
    if E.shape[-2] != F.shape[-2]:
        rule = "E and F must make as many rows"
        _refuse(call, f"{rule}, got {E.shape[-2]} != {F.shape[-2]}", E=E, F=F)
    if mask is not None:
        weights = key_weights(mask, K.shape[-2], K.dtype)  # (..., m, 1)
        if not ((weights == 0) | (weights == 1)).all():
            raise ArgumentError(
                f"{call}: keys are mixed before they are scored, so a mask can hide them, not "
                "weigh them: 0 or -inf only"
            )
        K, V = named("K_seen", mg.multiply(K, weights)), named("V_seen", mg.multiply(V, weights))
    K_bar = named("K_bar", mg.matmul(E, K))  # (..., k, d)
    V_bar = named("V_bar", mg.matmul(F, V))  # (..., k, d_v)
    S_raw = named("S_raw", mg.matmul(Q, mg.swapaxes(K_bar, -1, -2)))  # (..., n, k)
    S = named("S", mg.scale(S_raw, 1 / sqrt(Q.shape[-1])))  # (..., n, k)
    A = named("A", mg.softmax(S))  # (..., n, k)   rows sum to 1
    return named("O", mg.matmul(A, V_bar))  # (..., n, d_v)


@renamed("causal")
def linear_attention(
    Q: Array,
    K: Array,
    V: Array,
    is_causal: bool = False,
    *,
    mask: Mask | None = None,
    cache: Any = None,
) -> Any:
    """Attention with the kernel φ(q)·φ(k) in place of exp(q·k / √d), φ(x) = elu(x) + 1.

        O_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j)      if is_causal, over j ≤ i

    Not an estimate of softmax but another weighting, positive and summing to 1.

    Args:
        mask: of keys, the same for every query: boolean (True = may attend) or floats M to add,
            which multiply φ(k_j) by e^{M_j}. A query that sees no key gets zeros.
        cache: a KernelState, with the sums over earlier tokens; only if is_causal.
    Shapes:  Q (..., n, d), K (..., m, d), V (..., m, d_v), mask (m,) or (..., 1, m)
             → (..., n, d_v); n = m if is_causal
    Raises:  ShapeError where these do not fit; ArgumentError for a cache that is not causal.
    Source:  Katharopoulos et al. 2020, eqs. (5), (7), (9), arXiv:2006.16236.

    >>> Q, V = np.zeros((1, 3, 2)), np.array([[[1.0], [2.0], [6.0]]])
    >>> linear_attention(Q, Q, V).ravel(), linear_attention(Q, Q, V, is_causal=True).ravel()
    (array([3., 3., 3.]), array([1. , 1.5, 3. ]))
    """
    call = "linear_attention(Q, K, V)"
    Q, K, V = _arrays(call, Q=Q, K=K, V=V)
    _check_fit(call, Q, K, V, is_causal, cache)
    Q_phi = named("Q_phi", elu_features(Q))  # (..., n, d)
    K_phi = named("K_phi", elu_features(K))  # (..., m, d)
    return kernel_attention(Q_phi, K_phi, V, is_causal, mask, cache)  # (..., n, d_v)


@renamed("causal")
def performer_attention(
    Q: Array,
    K: Array,
    V: Array,
    features: Array,
    is_causal: bool = False,
    *,
    mask: Mask | None = None,
    cache: Any = None,
) -> Any:
    """Attention with an unbiased estimate of exp(q·k / √d) by positive random features (FAVOR+).

        O = Q′ (K′ᵀ V) / Q′ (K′ᵀ 1),    Q′ = φ(Q / d^¼),    K′ = φ(K / d^¼),
        φ(x) = exp(W x − ‖x‖²/2) / √m

    Its error falls as 1/√m. A constant that cancels keeps exp in range: of each query its largest
    exponent, of keys the largest of all; if causal, keys get none, for a later key would set it
    (they stay below exp(‖w‖²/2) anyway, but vanish, in float64, from ‖k‖² ≈ 1400 √d on).

    Args:    features: W, such as `orthogonal_features` draws; a constant or a Tensor.
             mask, cache: as `linear_attention`.
    Shapes:  Q (..., n, d), K (..., m, d), V (..., m, d_v), features (r, d) or broadcastable
             (..., r, d), mask (m,) or (..., 1, m) → (..., n, d_v); n = m if is_causal
    Source:  Choromanski et al. 2021, sections 2.2 to 2.4, arXiv:2009.14794.

    >>> from layers import orthogonal_features
    >>> Q, V = np.zeros((1, 3, 2)), np.array([[[1.0], [2.0], [6.0]]])
    >>> performer_attention(Q, Q, V, orthogonal_features(8, 2, rng=0)).ravel()
    array([3., 3., 3.])
    """
    call = "performer_attention(Q, K, V, features)"
    Q, K, V, W = _arrays(call, Q=Q, K=K, V=V, features=features)
    _check_fit(call, Q, K, V, is_causal, cache)
    d = Q.shape[-1]
    if W.shape[-1] != d:
        rule = "the features' last axis must be Q's"
        _refuse(call, f"{rule}, got {W.shape[-1]} != {d}", features=W, Q=Q)
    Q_root, K_root = (named(f"{s}_root", mg.scale(x, d**-0.25)) for s, x in (("Q", Q), ("K", K)))
    Q_phi = named("Q_phi", positive_features(Q_root, W, over=-1))  # (..., n, r)
    K_phi = named("K_phi", positive_features(K_root, W, over=None if is_causal else (-2, -1)))
    return kernel_attention(Q_phi, K_phi, V, is_causal, mask, cache)  # (..., n, d_v)


def _arrays(call: str, **given: Any) -> list[Any]:
    """Everything as an array or a Tensor, with at least two axes."""
    found = {n: x if hasattr(x, "__apply__") else np.asanyarray(x) for n, x in given.items()}
    for name, x in found.items():
        if x.ndim < 2:
            _refuse(call, f"{name} needs at least two axes, got {x.ndim}", **{name: x})
    return list(found.values())


def _check_fit(
    call: str, Q: Any, K: Any, V: Any, is_causal: bool = False, cache: Any = None
) -> None:
    """Raise ShapeError unless Q, K and V fit together, ArgumentError for a cache without order."""
    if cache is not None and not is_causal:
        raise ArgumentError(
            f"{call}: a cache holds the sums over earlier tokens; it needs is_causal=True"
        )
    n, d = Q.shape[-2:]
    m, d_k = K.shape[-2:]
    m_v = V.shape[-2]
    if d != d_k:
        _refuse(call, f"Q's last axis must equal K's, got {d} != {d_k}", Q=Q, K=K)
    if m != m_v:
        _refuse(call, f"V must have a row for each key, got {m_v} != {m}", K=K, V=V)
    if is_causal and n != m:
        _refuse(call, f"causal needs as many queries as keys, got {n} != {m}", Q=Q, K=K)
    try:
        np.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V)))
    except ValueError:
        _refuse(call, "leading axes must broadcast", Q=Q, K=K, V=V)


def _refuse(call: str, rule: str, **arrays: Any) -> None:
    raise ShapeError(with_shapes(f"{call}: {rule}", **arrays))
