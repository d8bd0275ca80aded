"""Dtypes within kernels and rules: what is added up in a wider one, and written back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.backward import WIDE
from ..engine.op import is_tensor

__all__ = [
    "accumulation_dtype",
    "as_array",
    "cast_back",
    "floating",
    "masked",
    "widen",
    "widen_half",
]

ONE_BY_ONE = 1024  # so many float32 numbers added one after the other lose a digit at most


def as_array(x: Any) -> Any:
    """x as an array; a Tensor, or whatever else has a dtype, stays what it is."""
    return x if hasattr(x, "dtype") else np.asarray(x)


def floating(x: Any) -> Any:
    """x with entries of a floating dtype: integers become float64, complex numbers stay."""
    x = as_array(x)
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


def widen_half(x: Any) -> Any:
    """float16 as float32, because a sum of float16 ones ends at 2048; other dtypes as they are."""
    return x.astype(np.float32) if x.dtype.char == "e" else x


def widen(x: Any) -> Any:
    """float16 as float32 and float32 as float64, in which no square overflows or vanishes."""
    wide = WIDE.get(x.dtype.char)
    return x if wide is None else x.astype(wide)


def cast_back(y: Any, x: Any) -> Any:
    """y in the dtype of x, from which it was computed in a wider one."""
    return y if y.dtype == x.dtype else y.astype(x.dtype)


def accumulation_dtype(x: Any, axis: Any = None) -> Any:
    """The dtype in which entries of x are added up, None for their own.

    float16 is added up in float32. So is float32 in float64, unless the entries of each sum lie one
    after the other, which NumPy adds in pairs: elsewhere it would lose a digit for each factor of
    ten in their number.
    """
    kind = x.dtype.char
    if kind != "f":
        return np.float32 if kind == "e" else None
    if axis is None or axis in (-1, x.ndim - 1):
        if x.size <= ONE_BY_ONE or not hasattr(x, "flags") or x.flags.c_contiguous:
            return None
    return np.float64


_BITS = {np.dtype(f"f{n}"): np.dtype(f"i{n}") for n in (2, 4, 8)}


def masked(x: Any, mask: Any) -> Any:
    """x where the mask is not 0, and 0 elsewhere, as np.where(mask, x, 0): the bits of x times 1
    or 0.

    np.where branches at each entry. Where the mask follows random signs, half of the branches are
    guessed wrong, and it takes fifteen times as long.

    >>> masked(np.array([1.0, np.inf, np.nan]), np.array([True, False, False]))
    array([1., 0., 0.])
    """
    bits = _BITS.get(x.dtype) if x.size > 256 else None  # of fewer, np.where takes less time
    if bits is None or is_tensor(x):
        return np.where(mask != 0, x, 0)
    return np.multiply(x.view(bits), mask != 0).view(x.dtype)
