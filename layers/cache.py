"""The KV cache: keys and values of earlier tokens, so that each token is projected once."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad as mg
from minigrad.errors import DTypeError, GradientError, ShapeError

from .call import Array, ArrayOrTensor
from .masking import Positions

__all__ = ["KVCache"]


class KVCache:
    """Keys and values of one layer: pass it as `cache=`, and only new tokens as X.

    Attending to m keys reads them all, so that appending by a copy costs no more than that.

    Attributes: K, V: (B, h_kv, m, d_k), None at first; j: their positions, (m,) or (B, m).
    Raises:     GradientError for keys that need a gradient: decode within `mg.no_grad()`;
                ShapeError for those of another batch or layer.

    >>> from layers import MultiHeadAttention, causal
    >>> layer, cache = MultiHeadAttention(6, n_heads=3, mask=causal, rng=0), KVCache()
    >>> X = np.random.default_rng(0).normal(size=(1, 5, 6))
    >>> with mg.no_grad():
    ...     steps = [layer(X[:, t : t + 1], cache=cache).numpy() for t in range(5)]
    >>> bool(np.allclose(np.concatenate(steps, axis=1), layer(X).numpy())), len(cache)
    (True, 5)
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every token."""
        self.K: Array | None = None
        self.V: Array | None = None
        self.j: Positions | None = None

    def __len__(self) -> int:
        """How many tokens there were."""
        return 0 if self.K is None else self.K.shape[-2]

    def append(
        self, K: ArrayOrTensor, V: ArrayOrTensor, j: Positions
    ) -> tuple[Array, Array, Positions]:
        """Keep the next tokens' keys and values; returns all that are kept, and their positions."""
        if any(isinstance(x, mg.Tensor) and x.requires_grad for x in (K, V)):
            raise GradientError("KVCache: what is kept is constant; decode within mg.no_grad()")
        K, V = (x.numpy() if isinstance(x, mg.Tensor) else x for x in (K, V))
        if self.K is not None and self.V is not None and self.j is not None:
            self.check(K.shape[:-2], K.shape[-1])
            if K.dtype != self.K.dtype:
                raise DTypeError(f"KVCache: it holds {self.K.dtype}, got {K.dtype}; reset() it")
            K = np.concatenate((self.K, K), axis=-2)
            V = np.concatenate((self.V, V), axis=-2)
            j = np.concatenate((self.j, j), axis=-1)
        self.K, self.V = K, V
        self.j = j
        return K, V, j

    def kept(self, batch: tuple[int, ...], heads: int) -> tuple[Any, Any]:
        """Keys and values of a context, from the first call on it."""
        assert self.K is not None
        self.check((*batch, heads), self.K.shape[-1])
        return self.K, self.V

    def check(self, lead: tuple[int, ...], d_k: int) -> None:
        """Raise ShapeError unless what is kept is of this batch, so many heads, and their width."""
        held = () if self.K is None else self.K.shape
        if (*held[:-2], *held[-1:]) != (*lead, d_k):
            got = ", ".join(map(str, (*lead, "n", d_k)))
            raise ShapeError(
                f"KVCache: it holds keys {held}, got ({got}); each layer and batch has a cache of "
                "its own, or reset() it"
            )
