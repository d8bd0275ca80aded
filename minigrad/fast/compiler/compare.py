"""Whether two results are the same numbers to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["difference"]

RELATIVE = {2: 2e-2, 4: 1e-3, 8: 1e-8}  # of the largest entry, by bytes of a real number
ULPS = 256  # of the scale of what was summed
BLOCK = 1 << 16  # entries that are compared at a time, to take little memory


def difference(found: Any, wanted: Any, scale: float = 0.0) -> str:
    """How two arrays differ by more than rounding, "" if they do not.

    A sum that cancels holds nothing but the rounding of its terms: `scale` is the size of these.

    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-15]))
    ''
    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    'by up to 0.5, where the largest entry is 2.5'
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype} {found.shape} in place of {wanted.dtype} {wanted.shape}"
    kind = wanted.dtype.kind
    if kind not in "fc":
        same = np.array_equal(found, wanted)
        return "" if same else f"in {np.sum(found != wanted)} of {wanted.size} entries"
    blocks = list(zip(_blocks(found), _blocks(wanted), strict=True))
    if all((a == b).all() for a, b in blocks):
        return ""
    with np.errstate(all="ignore"):
        largest = max(_largest(b) for _, b in blocks)
        bytes_ = wanted.dtype.itemsize // (2 if kind == "c" else 1)
        eps = float(np.finfo(wanted.dtype).eps)
        allowed = RELATIVE.get(bytes_, 1e-8) * largest + ULPS * eps * scale
        most = max(_apart(a, b) for a, b in blocks)
    if most <= allowed:
        return ""
    return f"by up to {most:.2g}, where the largest entry is {largest:.2g}"


def _blocks(array: Any) -> list[Any]:
    flat = array.reshape(-1)
    return [flat[i : i + BLOCK] for i in range(0, flat.size, BLOCK)]


def _largest(array: Any) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max(initial=0.0))


def _apart(a: Any, b: Any) -> float:
    """The largest difference; infinite where only one is NaN, or infinities differ."""
    apart = np.abs(a - b)
    apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0))
