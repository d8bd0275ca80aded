"""Φ, the standard normal distribution function, entry by entry: NumPy has no erf."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ..memory import empty

__all__ = ["normal_cdf_of"]

# (4 + a) e^(a²/2) Φ(-a) for a ≥ 0, as a polynomial in t = (a - 4) / (a + 4), lowest power first:
# the interpolant at 60 Chebyshev points, worked out in 50 digits and cut where less than 1e-17 is
# lost.
_TAIL = (
    0.7552851304157515, -0.6078966419718923, 0.3871374007422149, -0.18652185795963658,
    0.060396574890917876, -0.007540188967386313, -0.003479692367047974, 0.0016308184674099088,
    0.00013334430941183256, -0.0002310950173627743, -1.9082463514145713e-06,
    3.514511190283765e-05, 7.166587641195121e-07, -5.9216110459239795e-06, -6.298367338492369e-07,
    1.0247851016552774e-06, 2.724629695114587e-07, -1.5977396142239217e-07, -8.68664701599789e-08,
    1.784492777298142e-08, 2.1427603843452348e-08, -5.873626764987198e-10, -3.730645081868368e-09,
    -1.1997782031253095e-10, 3.403312308649495e-10,
)  # fmt: skip
# In float32 Φ(x + h) ≈ Φ(x) + φ(x) h (1 - x h / 2), with tables of Φ and φ at every 256th from -15
# to 9, where Φ is 0 and 1. Adding 3 · 2²² to a float leaves its nearest integer in the last bits.
_STEPS = 256
_LOW = -15
_HIGH = 9
_ROUND, _SCALE, _HALF, _ONE = np.array((3 << 22, _STEPS, -0.5 / _STEPS**2, 1), np.float32)
_FIRST = _ROUND.view(np.int32) + np.int32(_LOW * _STEPS)
_FEW, _PART = 64, 1 << 15  # entries from which it pays; entries that stay in cache at once


def normal_cdf_of(x: Any, out: Any = None) -> Any:
    """Φ(x) of an array, in its dtype, small tails included: right to 4 ulp; in float32 to 5e-6 of
    each entry, and to 1e-7 in all.

    >>> normal_cdf_of(np.array([-40.0, -1.0, 0.0, 1.0]))
    array([0.        , 0.15865525, 0.5       , 0.84134475])
    """
    if hasattr(x, "elementwise"):  # what compile hands in to write the call down
        return x.elementwise(normal_cdf_of, x)
    x = np.asarray(x)
    dtype = np.result_type(x, 0.0)
    entries = np.ravel(x)
    direct = out is not None and out.flags.c_contiguous
    made = out.reshape(-1) if direct else empty((x.size,), dtype)
    if x.size < _FEW:
        made[:] = [0.5 * math.erfc(-math.sqrt(0.5) * entry) for entry in entries.tolist()]
    else:
        cdf, wide = (_cdf, np.float64) if dtype.itemsize > 4 else (_single_cdf, np.float32)
        for i in range(0, x.size, _PART):
            made[i : i + _PART] = cdf(entries[i : i + _PART].astype(wide, copy=False))
    if out is None:
        return made.reshape(x.shape)
    if not direct:
        out[...] = made.reshape(x.shape)
    return out


def _cdf(x: Any) -> Any:
    a = np.minimum(np.abs(x), 40.0)  # beyond, Φ(-a) is 0
    tail = _tail(a, _TAIL)
    short = a.astype(np.float32).astype(np.float64)  # whose square is exact
    tail *= np.exp(-0.5 * short * short)
    tail *= np.exp(-0.5 * (a - short) * (a + short))
    return np.abs((x >= 0) - tail)  # tail, or 1 - tail


@lru_cache(1)
def _tables() -> tuple[Any, Any]:
    """Φ, and φ times a step, in float32."""
    at = np.arange(_LOW * _STEPS, _HIGH * _STEPS + 1) / _STEPS
    cdf = [0.5 * math.erfc(-math.sqrt(0.5) * x) for x in at.tolist()]
    pdf = np.exp(-0.5 * at * at) / math.sqrt(2 * math.pi) / _STEPS
    return np.array(cdf, np.float32), pdf.astype(np.float32)


def _single_cdf(x: Any) -> Any:
    cdf, pdf = _tables()
    h = np.clip(x, _LOW, _HIGH)
    h *= _SCALE
    nearest = h + _ROUND
    row = (nearest.view(np.int32) - _FIRST).astype(np.intp)
    nearest -= _ROUND
    h -= nearest
    nearest *= h
    nearest *= _HALF
    nearest += _ONE
    h *= nearest
    h *= pdf.take(row, mode="clip")  # NaN has no row, and stays NaN
    h += cdf.take(row, mode="clip")
    return h


def _tail(a: Any, terms: tuple[Any, ...]) -> Any:
    """e^(a²/2) Φ(-a)."""
    over = a + 4
    t = a - 4
    t /= over
    tail = t * terms[-1]
    for term in terms[-2:0:-1]:
        tail += term
        tail *= t
    tail += terms[0]
    tail /= over
    return tail
