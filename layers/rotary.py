"""Rotary positions: each pair of a query's or key's entries is turned by an angle that grows with
its position, so that a score depends on the distance of the two tokens alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .arrays import Array
from .frequencies import rotary_frequencies, scaled_frequencies
from .module import Module, named
from .options import AttentionOption, TokenPositions
from .position import mark_constant, positions_of

__all__ = ["Rotary", "apply_rotary", "rotary_angles"]


def rotary_angles(
    positions: ArrayLike, frequencies: ArrayLike, dtype: DTypeLike = np.float64
) -> tuple[NDArray[Any], NDArray[Any]]:
    """cos(p θ_k) and sin(p θ_k) for each position p and pair k.

    Shapes: positions (...), frequencies (d / 2,) → two of (..., d / 2)

    >>> rotary_angles([0, 1], [np.pi])[0]
    array([[ 1.],
           [-1.]])
    """
    at = np.asanyarray(positions).astype(dtype, copy=False)
    angles = at[..., None] * np.asarray(frequencies, dtype)
    return np.cos(angles), np.sin(angles)


def apply_rotary(x: Array, cos: Array, sin: Array, *, pairing: str = "half") -> Any:
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
    a = named("a", mg.getitem(x, (..., first)))  # (..., n, r/2)
    b = named("b", mg.getitem(x, (..., second)))  # (..., n, r/2)
    turned = (a * cos - b * sin, a * sin + b * cos)
    if half:
        joined = mg.concatenate(turned, axis=-1)  # (..., n, r)
    else:
        joined = mg.reshape(mg.stack(turned, axis=-1), (*shape[:-1], r))
    if r == shape[-1]:
        return joined
    return mg.concatenate((joined, mg.getitem(x, (..., slice(r, None)))), axis=-1)


class Rotary(Module, AttentionOption):
    """Rotary position embedding: what turns an attention layer's queries and keys (`position=`).

        q_p → R(p) q_p,   k_p → R(p) k_p,   so that  (R(i) q) · (R(j) k) = q · R(j − i) k

    Args:
        d: how many entries of each head turn: all of d_k, or fewer.
        base: sets the frequencies, unless `frequencies` (d / 2,) gives them: an array, or a
            function of how many positions there are.
        amplitude: what cos and sin are multiplied by.
        scaling: a checkpoint's `rope_scaling`, which sets both (see `scaled_frequencies`).
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
        frequencies: ArrayLike | Callable[[int], ArrayLike] | None = None,
        amplitude: float = 1.0,
        scaling: Mapping[str, Any] | None = None,
        pairing: str = "half",
        dtype: DTypeLike = np.float64,
    ) -> None:
        if scaling is not None:
            frequencies, amplitude = scaled_frequencies(d, base, scaling)
        theta = rotary_frequencies(d, base) if frequencies is None else frequencies
        self.d, self.pairing = d, pairing
        self.base, self.amplitude = base, amplitude
        self._theta, self._dtype = (theta,), dtype  # in a tuple: an array would be a parameter's
        self._frequencies(1)

    def forward(self, x: mg.Tensor, positions: ArrayLike | None = None, *, offset: int = 0) -> Any:
        cos, sin = self._tables(x, positions, offset)  # (n, d/2) or (B, n, d/2)
        return apply_rotary(x, cos, sin, pairing=self.pairing)

    @property
    def depends_on_length(self) -> bool:
        """Whether angles change with how many positions there are, as "dynamic" scaling has it."""
        return callable(self._theta[0])

    def _tables(self, x: Any, positions: ArrayLike | None, offset: int) -> list[mg.Tensor]:
        """cos and sin of x's angles."""
        at = positions_of(x.shape[-2], positions, offset)
        theta = self._frequencies(int(at.max(initial=0)) + 1 if self.depends_on_length else 1)
        angles = rotary_angles(at, theta, self._dtype)
        tables = [(self.amplitude * y).astype(x.dtype, copy=False) for y in angles]
        return [
            mg.tensor(mark_constant(table, positions), name=name)
            for name, table in zip(("cos", "sin"), tables, strict=True)
        ]

    def _frequencies(self, positions: int) -> NDArray[Any]:
        """θ (d / 2,), for so many positions."""
        given: Any = self._theta[0]
        theta: NDArray[Any] = np.asarray(given(positions) if callable(given) else given)
        if theta.shape != (self.d // 2,):
            raise ShapeError(f"Rotary: frequencies must be ({self.d // 2},), got {theta.shape}")
        return theta

    def project(self, Q: Array, K: Array | None, at: TokenPositions) -> tuple[Any, Any]:
        """Q and K turned: what an attention layer does to them before the scores."""
        Q = named("Q_rot", self(Q, at.i))
        return Q, K if K is None else named("K_rot", self(K, at.j))
