"""NumPy's functions that are a few ops; and those that look at arrays and record nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import NDArray

from ..engine.array_protocol import data_of
from ..engine.errors import ShapeError
from ..engine.refusals import explained
from ..engine.tensor import Operand, TensorOrArray
from .shape import reshape, transpose

__all__ = ["argmax", "argmin", "moveaxis", "ravel"]


# ---------------------------------------------------------------- shapes


@explained
def ravel(x: Operand) -> TensorOrArray:
    """All entries in one row.

    >>> ravel(np.ones((2, 3))).shape
    (6,)
    """
    return reshape(x, (-1,))


@explained
def moveaxis(
    x: Operand, source: int | Sequence[int], destination: int | Sequence[int]
) -> TensorOrArray:
    """Axes moved to other positions; the rest stay in order.

    Raises: ShapeError for axes that x has not, or of which there are not as many.

    >>> moveaxis(np.ones((2, 3, 5)), 0, -1).shape
    (3, 5, 2)
    """
    try:
        pairs = [normalize_axis_tuple(axes, np.ndim(x)) for axes in (source, destination)]
        moves = sorted(zip(pairs[1], pairs[0], strict=True))
    except (ValueError, IndexError) as error:
        raise ShapeError(f"moveaxis(x, source, destination): {error}") from None
    axes = [k for k in range(np.ndim(x)) if k not in pairs[0]]
    for place, axis in moves:
        axes.insert(place, axis)
    return transpose(x, tuple(axes))


# ---------------------------------------------------------------- where entries are


@explained
def argmax(x: Operand, axis: int | None = None, keepdims: bool = False) -> NDArray[np.intp]:
    """Where the largest entry is, along an axis or in the flattened array. No gradient flows.

    >>> argmax(np.array([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    array([1, 0])
    """
    return np.argmax(data_of(x), axis=axis, keepdims=keepdims)


@explained
def argmin(x: Operand, axis: int | None = None, keepdims: bool = False) -> NDArray[np.intp]:
    """Where the smallest entry is, along an axis or in the flattened array. No gradient flows.

    >>> argmin(np.array([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    array([0, 1])
    """
    return np.argmin(data_of(x), axis=axis, keepdims=keepdims)
