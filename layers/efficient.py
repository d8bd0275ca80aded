"""Attention whose cost grows with n, not n²: Linformer, Performer, linear attention.

Each takes Q, K and V and returns what stands in for softmax(Q Kᵀ / √d) V; none makes an n × n
array. With a kernel φ(q)·φ(k) in place of exp(q·k / √d) the sum over keys needs no query: it is
made once, and costs n r d_v for r features. The layers made of them are in efficient_layers.py.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError, explained

from .arrays import Array, Mask, SameArray
from .attention import attend
from .cache import KernelState
from .initialisers import Seed, generator
from .linear import check_sizes
from .module import as_named_tensor, matrices, named, with_shapes
from .renamed import renamed

__all__ = [
    "elu_features",
    "linear_attention",
    "linformer_attention",
    "orthogonal_features",
    "performer_attention",
    "positive_features",
]


@explained
def linformer_attention(
    Q: Array, K: Array, V: Array, E: Array, F: Array, mask: Mask | None = None
) -> Array:
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
    Q, K, V, E, F = matrices(call, Q=Q, K=K, V=V, E=E, F=F)
    _check_fit(call, Q, K, V)
    for name, x in (("E", E), ("F", F)):
        if x.shape[-1] != K.shape[-2]:
            rule = f"{name}'s last axis must be the number of keys"
            _reject(call, f"{rule}, got {x.shape[-1]} != {K.shape[-2]}", **{name: x, "K": K})
    if E.shape[-2] != F.shape[-2]:
        rule = "E and F must make as many rows"
        _reject(call, f"{rule}, got {E.shape[-2]} != {F.shape[-2]}", E=E, F=F)
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
    O, _ = attend(Q, K_bar, V_bar)  # (..., n, d_v), (..., n, k)
    return O


@renamed("causal")
@explained
def linear_attention(
    Q: Array,
    K: Array,
    V: Array,
    is_causal: bool = False,
    *,
    mask: Mask | None = None,
    cache: KernelState | None = None,
) -> Array:
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
    Q, K, V = matrices(call, Q=Q, K=K, V=V)
    _check_fit(call, Q, K, V, is_causal, cache)
    Q_phi = named("Q_phi", elu_features(Q))  # (..., n, d)
    K_phi = named("K_phi", elu_features(K))  # (..., m, d)
    return kernel_attention(Q_phi, K_phi, V, is_causal, mask, cache)  # (..., n, d_v)


@renamed("causal")
@explained
def performer_attention(
    Q: Array,
    K: Array,
    V: Array,
    features: Array,
    is_causal: bool = False,
    *,
    mask: Mask | None = None,
    cache: KernelState | None = None,
) -> Array:
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
    Q, K, V, W = matrices(call, Q=Q, K=K, V=V, features=features)
    _check_fit(call, Q, K, V, is_causal, cache)
    d = Q.shape[-1]
    if W.shape[-1] != d:
        rule = "the features' last axis must be Q's"
        _reject(call, f"{rule}, got {W.shape[-1]} != {d}", features=W, Q=Q)
    Q_root, K_root = (named(f"{s}_root", mg.scale(x, d**-0.25)) for s, x in (("Q", Q), ("K", K)))
    Q_phi = named("Q_phi", positive_features(Q_root, W, over=-1))  # (..., n, r)
    K_phi = named("K_phi", positive_features(K_root, W, over=None if is_causal else (-2, -1)))
    return kernel_attention(Q_phi, K_phi, V, is_causal, mask, cache)  # (..., n, d_v)


def _check_fit(
    call: str,
    Q: Array,
    K: Array,
    V: Array,
    is_causal: bool = False,
    cache: KernelState | None = None,
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
        _reject(call, f"Q's last axis must equal K's, got {d} != {d_k}", Q=Q, K=K)
    if m != m_v:
        _reject(call, f"V must have a row for each key, got {m_v} != {m}", K=K, V=V)
    if is_causal and n != m:
        _reject(call, f"causal needs as many queries as keys, got {n} != {m}", Q=Q, K=K)
    try:
        np.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V)))
    except ValueError:
        _reject(call, "leading axes must broadcast", Q=Q, K=K, V=V)


def _reject(call: str, rule: str, **arrays: Array) -> None:
    raise ShapeError(with_shapes(f"{call}: {rule}", **arrays))


# ------------------------------------------------------------------ kernels

CAUSAL_CHUNK = 32
"""Queries in a chunk, each scored against the keys of its chunk; earlier ones are one sum."""


@explained
def elu_features(X: SameArray) -> SameArray:
    """φ(x) = elu(x) + 1, entry by entry: x + 1 above zero, exp(x) below.

    Source: Katharopoulos et al. 2020, eq. (7), arXiv:2006.16236.

    >>> elu_features(np.array([-1.0, 0.0, 2.0])).round(3)
    array([0.368, 1.   , 3.   ])
    """
    return mg.add(mg.maximum(X, 0.0), mg.exp(mg.minimum(X, 0.0)))


@explained
def positive_features(
    X: Array, features: Array, over: int | tuple[int, ...] | None = None
) -> Array:
    """φ(x) = exp(w·x − ‖x‖²/2 − c) / √m for each row w of features. At c = 0, E φ(x)·φ(y) = e^x·y.

    Args:
        over: axes over which c is the largest exponent, so that nothing overflows; None: c = 0.
            It is taken as a constant, for it cancels where features are divided by features.
    Shapes: X (..., n, d), features (m, d) or broadcastable (..., m, d) → (..., n, m)
    Source: Choromanski et al. 2021, lemma 1 (SM⁺), arXiv:2009.14794.

    >>> positive_features(np.zeros((1, 3)), np.ones((4, 3)))
    array([[0.5, 0.5, 0.5, 0.5]])
    """
    h = mg.scale(mg.sum(mg.multiply(X, X), axis=-1, keepdims=True), 0.5)  # (..., n, 1)
    h = named("h", h)
    E = named("E", mg.subtract(mg.matmul(X, mg.swapaxes(features, -1, -2)), h))  # (..., n, m)
    if over is not None:
        c = mg.max(E.detach() if hasattr(E, "detach") else E, axis=over, keepdims=True)
        c = named("c", c)
        E = named("E_shifted", mg.subtract(E, c))
    return mg.scale(mg.exp(E), 1 / sqrt(features.shape[-2]))


@explained
def orthogonal_features(m: int, d: int, rng: Seed = None) -> NDArray[np.float64]:
    """m directions w ~ N(0, I_d), orthogonal within each block of d: each alone is Gaussian.

    Args:   rng: a Generator, a seed, or None for fresh entropy.
    Shapes: → (m, d)
    Raises: ArgumentError for a size below 1.
    Source: Choromanski et al. 2021, section 2.4, arXiv:2009.14794.

    >>> W = orthogonal_features(3, 3, rng=0)
    >>> (abs(W @ W.T) > 1e-12).astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """
    check_sizes("orthogonal_features", m=m, d=d)
    rng = generator(rng)
    turns, R = np.linalg.qr(rng.normal(size=(-(-m // d), d, d)))
    signs = np.sign(np.diagonal(R, axis1=-2, axis2=-1))  # without them, not uniform over rotations
    directions = (turns * signs[:, None, :]).swapaxes(-1, -2).reshape(-1, d)[:m]
    lengths = np.linalg.norm(rng.normal(size=(m, d)), axis=-1, keepdims=True)
    return np.asarray(directions * lengths)


def kernel_attention(
    Q_phi: Array,
    K_phi: Array,
    V: Array,
    is_causal: bool = False,
    mask: Mask | None = None,
    cache: KernelState | None = None,
) -> Array:
    """O_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j); if is_causal, the sums are over j ≤ i.

    Shapes: Q_phi (..., n, r), K_phi (..., m, r), V (..., m, d_v) → (..., n, d_v)
    """
    weights = None if mask is None else key_weights(mask, K_phi.shape[-2], K_phi.dtype)
    seen = _sees_a_key(weights, is_causal, cache)  # (..., 1, 1), or (..., n, 1) if causal
    if weights is not None:
        w = as_named_tensor(K_phi, "w", weights)
        K_phi = named("K_seen", mg.multiply(K_phi, w))  # (..., m, r)
    if is_causal:
        N = causal_product(Q_phi, K_phi, V)  # (..., n, d_v)
        Z = named("Z", mg.cumsum(K_phi, axis=-2))  # (..., n, r)
        before = None if cache is None else cache.append(K_phi, V)
        if cache is not None:
            cache.seen = seen[..., -1:, :]
        if before is not None:
            N, Z = mg.add(N, mg.matmul(Q_phi, before[0])), mg.add(Z, before[1])
    else:
        S = named("S", mg.matmul(mg.swapaxes(K_phi, -1, -2), V))  # (..., r, d_v)
        N = mg.matmul(Q_phi, S)  # (..., n, d_v)
        Z = named("Z", mg.sum(K_phi, axis=-2, keepdims=True))  # (..., 1, r)
    D = named("D", mg.sum(mg.multiply(Q_phi, Z), axis=-1, keepdims=True))  # (..., n, 1)
    if weights is not None and not seen.all():
        D = mg.add(D, np.asanyarray(~seen, weights.dtype))  # 0 / 1 in place of 0 / 0
    return named("O", mg.divide(named("N", N), D))  # (..., n, d_v)


def key_weights(mask: Mask, m: int, dtype: DTypeLike) -> NDArray[np.floating]:
    """What a mask of keys multiplies each by: e^M; so 0 hides it, as in softmax(S + M).

    A sum over keys is the same for every query, and so must the mask be.
    Shapes:  mask (m,), or (..., 1, m) → (..., m, 1)
    """
    if isinstance(mask, mg.Tensor):
        if mask.requires_grad:
            raise GradientError("a mask of keys is a constant; pass mask.detach()")
        mask = mask.numpy()
    mask = np.asanyarray(mask)
    if mask.ndim < 1 or mask.shape[-1] != m or mask.shape[-2:-1] not in ((), (1,)):
        raise ShapeError(
            "keys are summed once for all queries, so a mask must hide them from all alike: "
            f"({m},) or (..., 1, {m}), got {mask.shape}; for later keys, use is_causal=True"
        )
    if mask.dtype.kind not in "bf":
        raise DTypeError(
            f"a mask is boolean (True = may attend) or floats to add, got {mask.dtype}"
        )
    if mask.dtype.kind == "f" and not mask.max(initial=-np.inf) < np.inf:
        raise ArgumentError("the mask holds NaN or +inf, use 0 and -inf")
    weights = mask if mask.dtype.kind == "b" else np.exp(mask)
    weights = weights if weights.ndim > 1 else weights[None]
    return np.asanyarray(weights.swapaxes(-1, -2), dtype)


def _sees_a_key(
    weights: NDArray[np.floating] | None, is_causal: bool, cache: KernelState | None
) -> NDArray[np.bool_]:
    """Whether each query sees a key; of one that sees none, the weights sum to 0."""
    seen: Any = np.ones((1, 1), bool) if weights is None else weights > 0
    seen = (
        np.logical_or.accumulate(seen, axis=-2) if is_causal else seen.any(axis=-2, keepdims=True)
    )
    return np.asarray(seen if cache is None else np.logical_or(seen, cache.seen))


def causal_product(Q_phi: Array, K_phi: Array, V: Array) -> Array:
    """Σ_{j ≤ i} (φ(q_i)·φ(k_j)) v_j: between chunks by running sums, within a chunk directly.

    For chunks of c it makes n c + n r d_v / c entries, not n², nor the n r d_v of a sum a query.
    """
    n = Q_phi.shape[-2]
    if n <= CAUSAL_CHUNK:
        return _direct_product(Q_phi, K_phi, V)  # (..., n, d_v)
    Q, K, V = (
        named(f"{s}_chunks", _in_chunks(x, CAUSAL_CHUNK))  # (..., n/c, c, ·)
        for s, x in (("Q", Q_phi), ("K", K_phi), ("V", V))
    )
    S = named("S_chunks", mg.matmul(mg.swapaxes(K, -1, -2), V))  # (..., n/c, r, d_v)
    S_before = named("S_before", mg.cumsum(_delayed(S), axis=-3))  # of all earlier chunks
    N = mg.add(mg.matmul(Q, S_before), _direct_product(Q, K, V))  # (..., n/c, c, d_v)
    *lead, chunks, _, d_v = N.shape
    N = mg.reshape(named("N_chunks", N), (*lead, chunks * CAUSAL_CHUNK, d_v))
    return N[..., :n, :] if n % CAUSAL_CHUNK else N


def _direct_product(Q: Array, K: Array, V: Array) -> Array:
    """The sum over j ≤ i, from the product of every query and every key."""
    P = named("P", mg.matmul(Q, mg.swapaxes(K, -1, -2)))  # (..., c, c)
    T = as_named_tensor(
        P, "T", mg.mark_constant(np.tri(P.shape[-1], dtype=P.dtype))
    )  # 1 where j ≤ i
    return mg.matmul(named("P_seen", mg.multiply(P, T)), V)  # (..., c, d_v)


def _in_chunks(x: Array, c: int) -> Array:
    """(..., n, d) → (..., ⌈n / c⌉, c, d), the last filled up with zeros."""
    *lead, n, d = x.shape
    if n % c:
        x = mg.pad(x, [(0, 0)] * len(lead) + [(0, -n % c), (0, 0)])
    return mg.reshape(x, (*lead, -(-n // c), c, d))


def _delayed(S: Array) -> Array:
    """Each chunk's sum in the place of the next; the first gets zeros, the last is dropped."""
    return mg.pad(S[..., :-1, :, :], [(0, 0)] * (S.ndim - 3) + [(1, 0), (0, 0), (0, 0)])
