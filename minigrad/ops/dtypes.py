"""What ops do to the dtypes of what they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

__all__ = ["arrayed", "floating", "is_half", "narrowed", "single", "sum_dtype", "wider"]


def arrayed(x):
    """x as an array; what has a dtype already is taken as it is, whatever else it may be."""
    return x if hasattr(x, "dtype") else np.asarray(x)


def floating(x):
    """x with floats for entries; complex numbers stay."""
    x = arrayed(x)
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


def is_half(x):
    """Whether x is float16, in which a sum of ones ends at 2048: it is summed in float32."""
    return x.dtype.char == "e"


def single(x):
    """float16 as float32; others as they are."""
    return x.astype(np.float32) if is_half(x) else x


def wider(x):
    """float16 as float32 and float32 as float64, in which no square overflows or vanishes."""
    kind = {"e": np.float32, "f": np.float64}.get(x.dtype.char)
    return x if kind is None else x.astype(kind)


def sum_dtype(x: Any, axis: Any = None) -> Any:
    """In which dtype entries of x are added up, None for their own: float16 in float32, and float32
    in float64 unless the last axis is among those summed, along which NumPy adds in pairs; along
    others it adds one after the other, and would lose a digit for each power of ten of them.
    """
    kind = x.dtype.char
    if kind == "f":
        last = (-1, x.ndim - 1)
        if axis is None or (any(k in last for k in axis) if np.ndim(axis) else axis in last):
            return None
        return FLOAT64
    return FLOAT32 if kind == "e" else None


def narrowed(y, x):
    """y in the dtype of x, which it was computed from in a wider one."""
    return y if y.dtype == x.dtype else y.astype(x.dtype)
