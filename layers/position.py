"""Absolute positions: an encoding that is added to each token, computed or learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, OutOfRangeError, ShapeError, explained

from .initialisers import Seed, generator, parameter
from .linear import check_sizes
from .module import Module

__all__ = ["LearnedPosition", "SinusoidalPosition", "sinusoidal_encoding"]


@explained
def sinusoidal_encoding(
    positions: ArrayLike,
    d_model: int,
    base: float = 10000.0,
    *,
    interleaved: bool = True,
    dtype: DTypeLike = np.float64,
) -> NDArray[np.floating]:
    """Sines and cosines of each position, at wavelengths from 2π to 2π · base.

        PE(p, 2k) = sin(p / base^(2k / d_model)),    PE(p, 2k + 1) = cos(p / base^(2k / d_model))

    Args:
        positions: an array of positions, of any sign; or their number n, for 0 to n − 1.
        interleaved: False puts all sines before all cosines, as Transformer-XL does.
    Shapes:  positions (...) → (..., d_model)
    Raises:  ArgumentError unless d_model is even.
    Source:  Vaswani et al. 2017, section 3.5, arXiv:1706.03762.

    >>> sinusoidal_encoding(2, 4).round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    if d_model < 2 or d_model % 2:
        raise ArgumentError(f"sinusoidal_encoding: d_model must be even, got {d_model}")
    at = np.asanyarray(positions)
    at = np.arange(int(at)) if at.ndim == 0 else at
    angles = at[..., None] / base ** (np.arange(0, d_model, 2) / d_model)  # (..., d_model / 2)
    both = np.stack((np.sin(angles), np.cos(angles)), axis=-1 if interleaved else -2)
    return both.reshape(*at.shape, d_model).astype(dtype, copy=False)


class SinusoidalPosition(Module):
    """Each token with the sinusoidal encoding of its position added.

    Args:    as `sinusoidal_encoding`.
    Shapes:  X (B, n, d_model) or (n, d_model), positions (n,) or (B, n) → as X
    Raises:  ArgumentError unless d_model is even.

    >>> SinusoidalPosition(4)(np.zeros((1, 4)), offset=1).numpy().round(4)
    array([[0.8415, 0.5403, 0.01  , 1.    ]])
    """

    def __init__(self, d_model: int, base: float = 10000.0) -> None:
        sinusoidal_encoding(1, d_model)
        self.d_model, self.base = d_model, base

    def forward(
        self, X: mg.Tensor, positions: ArrayLike | None = None, *, offset: int = 0
    ) -> mg.Tensor:
        at = positions_of(X.shape[-2], positions, offset)
        PE = sinusoidal_encoding(at, self.d_model, self.base, dtype=X.dtype)
        return mg.add(X, mg.tensor(mark_constant(PE, positions), name="PE")).named("X")


class LearnedPosition(Module):
    """Each token with a learned row for its position added:  X + P[positions].

    Args:
        max_len: the number of positions that have a row.
        rng: draws P ~ N(0, 0.02²) (as GPT-2 and BERT); a Generator, a seed, or None.
    Attributes: P (max_len, d_model).
    Shapes:  X (B, n, d_model) or (n, d_model), positions (n,) or (B, n) → as X
    Raises:  OutOfRangeError for a position that has no row.

    >>> LearnedPosition(max_len=7, d_model=3, rng=0)(np.zeros((2, 5, 3))).shape
    (2, 5, 3)
    """

    def __init__(
        self, max_len: int, d_model: int, rng: Seed = None, dtype: DTypeLike = np.float64
    ) -> None:
        check_sizes("LearnedPosition", max_len=max_len, d_model=d_model)
        drawn = generator(rng).normal(0.0, 0.02, (max_len, d_model))
        self.dtype = np.dtype(dtype)
        self.P = parameter(drawn, dtype)

    def forward(
        self, X: mg.Tensor, positions: ArrayLike | None = None, *, offset: int = 0
    ) -> mg.Tensor:
        at = mark_constant(positions_of(X.shape[-2], positions, offset), positions)
        try:
            P = mg.take(self.P, at, axis=0, negative=False).named("P_positions")
        except OutOfRangeError as error:
            rows = f"LearnedPosition(X): max_len is {len(self.P)}, got {X.shape[-2]} tokens"
            raise OutOfRangeError(f"{rows}; {error}") from None
        return mg.add(X, P).named("X")


def positions_of(
    n: int, positions: ArrayLike | None = None, offset: int = 0
) -> NDArray[np.integer]:
    """The positions given, or offset to offset + n − 1.

    Raises: ShapeError for positions of more or fewer tokens.
    """
    if positions is None:
        return np.arange(offset, offset + n)
    at = np.asanyarray(positions)
    if at.ndim and at.shape[-1] != n:
        raise ShapeError(f"positions of {n} tokens must be ({n},) or (B, {n}), got {at.shape}")
    return at + offset


def mark_constant(array: NDArray[Any], *given: object) -> NDArray[Any]:
    """An array that `mg.compile` may keep, for without positions it depends on shapes alone."""
    if all(positions is None for positions in given):
        mg.mark_constant(array)
    return array
