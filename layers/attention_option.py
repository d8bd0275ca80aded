"""What changes attention beside its formula, each as one small object with the hooks it needs.

    Q, K = project(Q, K)      then  S = Q Kᵀ / √d_k,    S = scores(S),    A = softmax(S + M),
    A = weights(A)            then  O = A V,            O = values(O)

An attention layer goes through its options in order at each of the four places. Attention in tiles
never holds the scores, so only options that have no hook but `project` go with it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import minigrad as mg

from .arrays import Array
from .module import named

__all__ = [
    "AttentionOption",
    "DropWeights",
    "Norms",
    "SoftCap",
    "TokenPositions",
    "add_bias",
    "soft_cap",
]

HOOKS = ("project", "scores", "weights", "values")


class TokenPositions(Protocol):
    """Where queries and keys stand: positions (n,) or (B, n), None counts from 0; and the scale."""

    i: Any
    j: Any
    scale: float


class AttentionOption:
    """One option: a subclass overrides the hooks that it needs, and `hooks` tells which.

    `at` says where the tokens stand: at.i and at.j are the positions of queries and keys, (n,) or
    (B, n); None counts from 0. at.scale is what Q Kᵀ is multiplied by.

    >>> SoftCap(30.0).hooks, SoftCap(30.0).needs_scores
    (('scores',), True)
    """

    __slots__ = ()
    hooks: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = (name for name in HOOKS if getattr(cls, name) is not getattr(AttentionOption, name))
        cls.hooks = tuple(own)

    def project(self, Q: Array, K: Array | None, at: TokenPositions) -> tuple[Any, Any]:
        """Before the scores; K is None where a cache of a context has it already."""
        return Q, K

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Any:
        """After the scale, before the mask: (..., n, m)."""
        return S

    def weights(self, A: Array) -> Any:
        """After softmax: what the values are multiplied by, (..., n, m)."""
        return A

    def values(self, O: Array, A: Array, at: TokenPositions) -> Any:
        """After A V: (..., n, d_v)."""
        return O

    @property
    def needs_scores(self) -> bool:
        """Whether it works on what tiles never hold as a whole."""
        return self.hooks not in ((), ("project",))

    @property
    def idle(self) -> bool:
        """Whether it changes nothing as things are."""
        return False


class Norms(AttentionOption):
    """Each head's queries, and its keys, normed."""

    def __init__(self, q_norm: Any, k_norm: Any) -> None:
        self.q_norm = q_norm
        self.k_norm = k_norm

    def project(self, Q: Array, K: Array | None, at: TokenPositions) -> tuple[Any, Any]:
        Q = self.q_norm(Q).named("Q_norm")
        return Q, K if K is None else self.k_norm(K).named("K_norm")


class SoftCap(AttentionOption):
    """c tanh(S / c) for S. Source: Gemma 2, arXiv:2408.00118."""

    def __init__(self, cap: float) -> None:
        self.cap = cap

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Any:
        return named("S_capped", soft_cap(S, self.cap))


class DropWeights(AttentionOption):
    """In training, some weights dropped, the others enlarged."""

    def __init__(self, drop: Any) -> None:
        self.drop = drop

    def weights(self, A: Array) -> Any:
        return A if self.idle else named("A_dropped", self.drop(A))

    @property
    def idle(self) -> bool:
        return not self.drop.training


def soft_cap(S: Any, cap: float) -> Any:
    """c tanh(S / c): like S near 0, never beyond ±c."""
    return mg.scale(mg.tanh(mg.scale(S, 1 / cap)), cap)


def add_bias(X: Array, bias: Any) -> Any:
    """X + bias, in the dtype of X; a bias of one head for an X that has no axis of heads."""
    bias = bias if bias.dtype == X.dtype else mg.astype(bias, X.dtype)
    return mg.add(X, mg.squeeze(bias, 1) if bias.ndim > X.ndim else bias)
