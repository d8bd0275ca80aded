"""Embedding: a learned row for each token, and the same rows read backwards as an output layer."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

import minigrad as mg
from minigrad.errors import DTypeError

from .arrays import Array
from .initialisers import Seed, generator, parameter
from .linear import check_sizes
from .module import Module, as_array

__all__ = ["Embedding"]


class Embedding(Module):
    """Row t of W for each token t, times √d_model if `scaled`.

    The output layer may be tied to it: `as_linear` gives logits X Wᵀ from the same W, whose
    gradient is then the sum of both uses.

    Args:
        n_tokens, d_model: rows and columns of W.
        scaled: multiply by √d_model, as Vaswani et al. and Gemma do; `as_linear` never does.
        rng: draws W ~ N(0, 1 / d_model); a Generator, a seed, or None for fresh entropy.
    Shapes:  tokens (...) of integers → (..., d_model)
    Raises:  OutOfRangeError or DTypeError for tokens that are no row numbers.
    Source:  Vaswani et al. 2017, section 3.4; tying: Press & Wolf 2017, arXiv:1608.05859.

    >>> embedding = Embedding(5, 3, rng=np.random.default_rng(0))
    >>> X = embedding(np.array([[4, 0]]))
    >>> X.shape, embedding.as_linear(X).shape
    ((1, 2, 3), (1, 2, 5))
    """

    def __init__(
        self,
        n_tokens: int,
        d_model: int,
        scaled: bool = False,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_sizes("Embedding", n_tokens=n_tokens, d_model=d_model)
        self.scaled = scaled
        W = generator(rng).normal(0.0, 1 / sqrt(d_model), (n_tokens, d_model))
        self.W = parameter(W, dtype)

    def forward(self, tokens: ArrayLike) -> mg.Tensor:
        tokens = as_array(tokens)
        if tokens.dtype.kind not in "iu":
            raise DTypeError(f"Embedding(tokens): tokens must be integers, got {tokens.dtype}")
        X = mg.take(self.W, tokens, axis=0, negative=False)  # (..., d_model)
        return (mg.scale(X, sqrt(self.W.shape[1])) if self.scaled else X).named("X")

    def as_linear(self, X: Array) -> mg.Tensor:
        """Logits X Wᵀ of each token's row.

        Shapes: X (..., d_model) → (..., n_tokens)
        """
        with mg.scope(f"{self._name or self._scope}_tied"):
            return mg.matmul(X, mg.swapaxes(self.W, 0, 1)).named("logits")
