"""Rotary positions: each pair of a query's or key's entries is turned by an angle that grows with
its position, so that a score depends on the distance of the two tokens alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .module import Module
from .position import positions_of, settled

__all__ = [
    "Rotary",
    "apply_rotary",
    "llama3_frequencies",
    "rotary_angles",
    "rotary_frequencies",
]


def rotary_frequencies(d: int, base: float = 10000.0) -> NDArray[Any]:
    """θ_k = base^(−2k / d), in radians a position, for each of the d / 2 pairs.

    Raises: ArgumentError unless d is even.

    >>> rotary_frequencies(4)
    array([1.  , 0.01])
    """
    if d < 2 or d % 2:
        raise ArgumentError(f"rotary_frequencies: d must be even, got {d}")
    return np.asarray(base ** (-np.arange(0, d, 2) / d))


def llama3_frequencies(
    d: int,
    base: float = 500000.0,
    factor: float = 8.0,
    low: float = 1.0,
    high: float = 4.0,
    length: int = 8192,
) -> NDArray[Any]:
    """Rotary frequencies stretched for contexts longer than the `length` trained on, as in Llama 3.

    What turns fewer than `low` times within the length is slowed by `factor`, what turns more than
    `high` times is kept, and in between the two are mixed.
    Source: Grattafiori et al. 2024, arXiv:2407.21783, and the model's reference code.

    >>> (llama3_frequencies(64) / rotary_frequencies(64, 500000.0))[[0, -1]]
    array([1.   , 0.125])
    """
    theta = rotary_frequencies(d, base)
    turns = length * theta / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray((1 - kept) * theta / factor + kept * theta)


def rotary_angles(
    positions: ArrayLike, frequencies: ArrayLike, dtype: DTypeLike = np.float64
) -> tuple[NDArray[Any], NDArray[Any]]:
    """cos(p θ_k) and sin(p θ_k) for each position p and pair k.

    Shapes: positions (...), frequencies (d / 2,) → two of (..., d / 2)

    >>> rotary_angles([0, 1], [np.pi])[0]
    array([[ 1.],
           [-1.]])
    """
    angles = np.asarray(positions, dtype)[..., None] * np.asarray(frequencies, dtype)
    return np.cos(angles), np.sin(angles)


def apply_rotary(x: Any, cos: Any, sin: Any, *, pairing: str = "half") -> Any:
    """The pairs (a, b) of x's last axis turned:  (a cos − b sin, a sin + b cos).

    Args:
        pairing: which entries are a pair, of r = 2 · cos.shape[-1] that turn; those after r stay.
            "half": k and k + r/2 (GPT-NeoX, Llama);  "interleaved": 2k and 2k + 1 (the paper).
    Shapes:  x (..., n, d), cos and sin (n, r/2); or (B, n, r/2), the same for every head → as x
    Raises:  ShapeError if cos and sin do not fit; ArgumentError for another pairing.
    Source:  Su et al. 2021, eq. (34), arXiv:2104.09864.

    >>> quarter = np.zeros((1, 1)), np.ones((1, 1))    # cos 90° and sin 90°
    >>> apply_rotary(np.array([[1.0, 0.0, 7.0]]), *quarter)
    array([[0., 1., 7.]])
    """
    r, shape = 2 * np.shape(cos)[-1], np.shape(x)
    if np.shape(cos) != np.shape(sin) or r > shape[-1]:
        raise ShapeError(
            "apply_rotary(x, cos, sin): cos and sin must be alike, and have at most half as many "
            f"columns as x\n  x: {shape}\n  cos: {np.shape(cos)}\n  sin: {np.shape(sin)}"
        )
    if pairing not in ("half", "interleaved"):
        raise ArgumentError(
            f'apply_rotary: pairing must be "half" or "interleaved", got {pairing!r}'
        )
    if len(shape) == 4 and np.ndim(cos) == 3:
        cos, sin = mg.expand_dims(cos, 1), mg.expand_dims(sin, 1)  # (B, 1, n, r/2)
    half = pairing == "half"
    first, second = (
        (slice(0, r // 2), slice(r // 2, r)) if half else (slice(0, r, 2), slice(1, r, 2))
    )
    a, b = mg.getitem(x, (..., first)), mg.getitem(x, (..., second))  # (..., n, r/2)
    turned = (a * cos - b * sin, a * sin + b * cos)
    if half:
        joined = mg.concatenate(turned, axis=-1)  # (..., n, r)
    else:
        joined = mg.reshape(mg.stack(turned, axis=-1), (*shape[:-1], r))
    if r == shape[-1]:
        return joined
    return mg.concatenate((joined, mg.getitem(x, (..., slice(r, None)))), axis=-1)


class Rotary(Module):
    """Rotary position embedding: what turns an attention layer's queries and keys (`position=`).

        q_p → R(p) q_p,   k_p → R(p) k_p,   so that  (R(i) q) · (R(j) k) = q · R(j − i) k

    Args:
        d: how many entries of each head turn: all of d_k, or fewer.
        base: sets the frequencies, unless `frequencies` (d / 2,) gives them.
        pairing: as `apply_rotary`.
        dtype: what the angles are computed in.
    Shapes:  x (..., n, d_k), positions (n,) or (B, n) → as x
    Raises:  ArgumentError unless d is even; ShapeError if it is more than d_k.
    Source:  Su et al. 2021, section 3.4, arXiv:2104.09864.

    >>> rotary = Rotary(4)
    >>> rotary(np.ones((1, 4)), offset=3).numpy().round(4)
    array([[-1.1311,  0.9696, -0.8489,  1.0295]])
    """

    def __init__(
        self,
        d: int,
        base: float = 10000.0,
        *,
        frequencies: ArrayLike | None = None,
        pairing: str = "half",
        dtype: DTypeLike = np.float64,
    ) -> None:
        theta = rotary_frequencies(d, base) if frequencies is None else np.asarray(frequencies)
        if theta.shape != (d // 2,):
            raise ShapeError(f"Rotary: frequencies must be ({d // 2},), got {theta.shape}")
        self.d, self.base, self.pairing = d, base, pairing
        self._theta, self._dtype = (theta,), dtype  # in a tuple: an array would be a parameter's

    def forward(self, x: Any, positions: ArrayLike | None = None, *, offset: int = 0) -> Any:
        at = positions_of(x.shape[-2], positions, offset)
        cos, sin = rotary_angles(at, self._theta[0], self._dtype)  # (n, d/2) or (B, n, d/2)
        cos, sin = (settled(y.astype(x.dtype, copy=False), positions) for y in (cos, sin))
        return apply_rotary(x, cos, sin, pairing=self.pairing)

    def rotate(self, x: Any, positions: NDArray[Any] | None) -> Any:
        """What an attention layer asks of its position, for Q and for K."""
        return self(x, positions)
