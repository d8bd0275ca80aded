"""Images and sequences resampled to other lengths: upsample, adaptive_avg_pool.

Along an axis, each is a product with a small matrix: row i holds the weights of the entries of x in
entry i of the result. Where an entry is a copy, or a mean of equal windows, there is no matrix.
An entry that is not finite makes NaN of its whole line in such a product, as 0 times it is NaN.
"""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import as_array
from ..engine.refusals import explained
from ..engine.tensor import SameArray, TensorOrArray
from .convolution import avg_pool, per_axis
from .products import matmul
from .rearrange import repeat
from .reduce import mean
from .select import take
from .shape import swapaxes

__all__ = ["adaptive_avg_pool", "upsample"]


def _places(call: str, x: TensorOrArray) -> tuple[int, ...]:
    """The lengths behind (N, C).  Raises: ShapeError without any, or where one is 0."""
    if x.ndim < 3 or 0 in x.shape[2:]:
        raise ShapeError(f"{call}: x must be (N, C, length, …), got {x.shape}")
    return tuple(x.shape[2:])


def _along(x: SameArray, axis: int, shares: NDArray[np.float64]) -> SameArray:
    """x times a matrix (entries of the result, entries of x) along an axis."""
    matrix = shares.astype(x.dtype if x.dtype.kind == "f" else np.float64)
    if axis == x.ndim - 2:
        return matmul(matrix, x)
    if axis == x.ndim - 1:
        return matmul(x, matrix.T)
    return swapaxes(matmul(matrix, swapaxes(x, axis, -2)), axis, -2)


# ---------------------------------------------------------------- upsample


@explained
def upsample(
    x: SameArray,
    size: int | tuple[int, ...] | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> SameArray:
    """Images or sequences with more entries, or fewer: copies of the nearest, or lines in between.

    Args:
        size: the lengths of the result; or
        scale_factor: by how much they grow, rounded down; each a number, or one an axis.
        mode: "nearest", where entry i is that at floor(i / scale); or "linear" of one axis and
            "bilinear" of two, straight lines between centres of entries, flat beyond the ends.
        align_corners: with lines, the first and last entries of x and result are those that meet,
            and not the edges around them.
    Shapes: x (N, C, length, …) → (N, C, length', …)
    Raises: ArgumentError unless one of size and scale_factor is given, for a mode that is not there
        or is of other axes; ShapeError without entries, here or in the result.
    Source: as torch.nn.functional.interpolate, but for a scale_factor by which a length stays or
        doubles only as it is rounded down (1.1 of 3, 2.05 of 4): torch then has modes that take 1
        or 2 in its place; and with lines, an entry that is not finite makes NaN of its whole row.

    >>> x = np.array([[[1.0, 3.0]]])
    >>> upsample(x, scale_factor=2)
    array([[[1., 1., 3., 3.]]])
    >>> upsample(x, size=4, mode="linear")
    array([[[1. , 1.5, 2.5, 3. ]]])
    """
    x = as_array(x)
    lengths = _places("upsample", x)
    n = len(lengths)
    modes = {1: ("nearest", "linear"), 2: ("nearest", "bilinear")}.get(n, ("nearest",))
    if mode not in modes:
        known = " or ".join(f'"{one}"' for one in modes)
        raise ArgumentError(f"upsample: mode of {n} axes must be {known}, got {mode!r}")
    if (size is None) == (scale_factor is None):
        raise ArgumentError("upsample: give one of size and scale_factor")
    if align_corners and mode == "nearest":
        raise ArgumentError('upsample: align_corners is for mode="linear" and "bilinear"')
    if scale_factor is None:
        targets = per_axis(size, n, "upsample: size")
        steps = [m / t if t else 0.0 for m, t in zip(lengths, targets, strict=True)]
    else:
        factors = _factors(scale_factor, n)
        targets = tuple(floor(m * factor) for m, factor in zip(lengths, factors, strict=True))
        steps = [1 / factor for factor in factors]
    if min(targets) < 1:
        raise ShapeError(f"upsample: the result would have lengths {targets}")
    for axis, (length, target, step) in enumerate(zip(lengths, targets, steps, strict=True), 2):
        x = _resampled(x, axis, length, target, step, mode, align_corners)
    return x


def _factors(scale_factor: Any, n: int) -> tuple[float, ...]:
    """By how much each axis grows.  Raises: ArgumentError unless all are above 0."""
    factors = (scale_factor,) * n if np.ndim(scale_factor) == 0 else tuple(scale_factor)
    numbers = all(isinstance(factor, int | float | np.number) for factor in factors)
    if len(factors) != n or not numbers or not all(factor > 0 for factor in factors):
        raise ArgumentError(
            f"upsample: scale_factor must be above 0, one number or one for each of {n} axes, "
            f"got {scale_factor!r}"
        )
    return factors


def _resampled(
    x: SameArray,
    axis: int,
    length: int,
    target: int,
    step: float,
    mode: str,
    align_corners: bool,
) -> SameArray:
    """x resampled along one axis; entry i of the result is at step · i in x."""
    if target == length and step == 1:
        return x
    if mode == "nearest":
        if target % length == 0 and step * target == length:
            return repeat(x, target // length, axis)
        nearest = np.floor(np.arange(target) * step + 1e-9).astype(int)
        return take(x, np.minimum(nearest, length - 1), axis)
    return _along(x, axis, _lines(length, target, step, align_corners))


def _lines(length: int, target: int, step: float, align_corners: bool) -> NDArray[np.float64]:
    """Row i: the weights of x's entries in entry i of the result, linear between neighbours."""
    if align_corners:
        at = np.arange(target) * ((length - 1) / max(target - 1, 1))
    else:
        at = np.maximum((np.arange(target) + 0.5) * step - 0.5, 0)
    lower = np.minimum(at.astype(int), length - 1)
    share = np.minimum(at - lower, 1)
    shares = np.zeros((target, length))
    rows = np.arange(target)
    shares[rows, lower] += 1 - share
    shares[rows, np.minimum(lower + 1, length - 1)] += share
    return shares


# ---------------------------------------------------------------- adaptive pooling


@explained
def adaptive_avg_pool(x: SameArray, size: int | tuple[int | None, ...] | None) -> SameArray:
    """Means of as many windows as the result has entries, whatever the length; size=1 is the mean.

    Window i of m over a length n goes from floor(i n / m) up to ceil((i + 1) n / m).

    Args: size: the lengths of the result, one number or one an axis; None keeps a length.
    Shapes: x (N, C, length, …) → (N, C, length', …)
    Raises: ArgumentError for a size below 1; ShapeError without entries.
    Source: as torch.nn.functional.adaptive_avg_pool2d, but where windows differ in length, an entry
        that is not finite makes NaN of its whole row.

    >>> adaptive_avg_pool(np.array([[[1.0, 2.0, 3.0, 6.0, 8.0]]]), 2)
    array([[[2.        , 5.66666667]]])
    """
    x = as_array(x)
    lengths = _places("adaptive_avg_pool", x)
    n = len(lengths)
    given = tuple(size) if isinstance(size, tuple | list) else (size,) * n
    if len(given) != n:
        raise ArgumentError(f"adaptive_avg_pool: size must be one for each of {n} axes, got {size}")
    kept = [m if one is None else one for m, one in zip(lengths, given, strict=True)]
    targets = per_axis(tuple(kept), n, "adaptive_avg_pool: size")
    if min(targets) < 1:
        raise ArgumentError(f"adaptive_avg_pool: size must be at least 1, got {size}")
    if {*targets} == {1}:
        return mean(x, tuple(range(2, n + 2)), keepdims=True)
    if all(m % t == 0 for m, t in zip(lengths, targets, strict=True)):
        return avg_pool(x, tuple(m // t for m, t in zip(lengths, targets, strict=True)))
    for axis, (length, target) in enumerate(zip(lengths, targets, strict=True), 2):
        if length != target:
            x = _along(x, axis, _windows(length, target))
    return x


def _windows(length: int, target: int) -> NDArray[np.float64]:
    """Row i: 1 over the length of window i within the window, 0 elsewhere."""
    i, entries = np.arange(target)[:, None], np.arange(length)
    inside = (i * length // target <= entries) & (entries < -(-(i + 1) * length // target))
    return inside / inside.sum(axis=1, keepdims=True)
