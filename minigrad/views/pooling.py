"""Large matrices made small enough to look at."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["pooled"]

Entries = TypeVar("Entries", bound=np.generic)


def pooled(matrices: NDArray[Entries], tall: int, wide: int) -> NDArray[Entries]:
    """Each block of tall × wide entries becomes the one furthest from zero, sign kept.

    Shapes: (..., rows, columns) → (..., ⌈rows / tall⌉, ⌈columns / wide⌉)
    >>> pooled(np.array([[1.0, -3.0, 2.0, 0.0]]), 1, 2)
    array([[-3.,  2.]])
    """
    rows, columns = matrices.shape[-2:]
    if tall == wide == 1 or matrices.size == 0:
        return matrices
    if matrices.strides[-1] > matrices.strides[-2]:  # transposed: read as it lies in memory
        return pooled(matrices.swapaxes(-1, -2), wide, tall).swapaxes(-1, -2)

    def over_blocks(extreme: np.ufunc) -> NDArray[Entries]:
        bands = [matrices[..., i : i + tall, :] for i in range(0, rows, tall)]
        reduced = np.stack([extreme.reduce(band, axis=-2) for band in bands], axis=-2)
        return extreme.reduceat(reduced, np.arange(0, columns, wide), axis=-1)

    high, low = over_blocks(np.maximum), over_blocks(np.minimum)
    return np.where(np.abs(low) > np.abs(high), low, high)
