"""Whether two results are the same numbers to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["difference"]

RELATIVE = {2: 2e-2, 4: 1e-3, 8: 1e-8}  # of the largest entry, by bytes of a real number
ULPS = 256  # of the scale of what was summed


def difference(found: Any, wanted: Any, scale: float = 0.0, of: Any = None) -> str:
    """How two arrays differ by more than rounding, "" if they do not.

    A sum that cancels holds nothing but the rounding of its terms: `scale` is the size of these.
    `of` is the dtype that the numbers come from, where they are no more precise than that.

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
    if np.all(found == wanted):
        return ""
    with np.errstate(all="ignore"):
        apart, sizes = np.abs(found - wanted), np.abs(wanted)
        if not np.isfinite(apart.max()):  # NaN beside NaN, and an infinity beside the same, agree
            alike = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
            apart = np.where(alike, 0.0, np.where(np.isnan(apart), np.inf, apart))
            sizes = np.where(np.isfinite(sizes), sizes, 0.0)
        most, largest = float(apart.max()), float(sizes.max())
    precision = np.finfo(wanted.dtype if of is None else of)
    allowed = RELATIVE.get(precision.bits // 8, 1e-8) * largest
    if most <= allowed + ULPS * float(precision.eps) * scale:
        return ""
    return f"by up to {most:.2g}, where the largest entry is {largest:.2g}"
