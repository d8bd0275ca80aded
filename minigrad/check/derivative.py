"""The numeric derivative ⟨g, f'(x) d⟩: by the complex step, or by central differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..engine.op import Array
from .comparison import Comparison

__all__ = ["Slope", "beside", "differentiate", "length", "rms"]

TINY = 1e-40  # the complex step needs no tuning: nothing is subtracted
STEP = 6e-6  # about the cube root of float64's rounding unit: best for central differences
KINK = 1e-3  # the slopes around a smooth point differ by less than this part of them
VAGUE = 0.2  # a check that cannot tell a difference of this size says nothing
EPS = 2.3e-16  # float64's rounding unit


class Slope(NamedTuple):
    """⟨g, f'(x) d⟩, as it was measured.

    size: of the entries that are added up in it.  noise: how far rounding may have moved it.
    jump: how far apart the slopes around x are, where f has a kink.
    """

    value: float
    size: float
    noise: float = 0.0
    jump: float = 0.0

    def compared(self, engine: float, tolerance: float, least: float, where: str) -> Comparison:
        """The engine's figure beside it.

        Args: least: what the difference is relative to, at least.
        """
        gap = abs(engine - self.value)
        size = max(least, abs(engine), abs(self.value), self.size, 1e-300)
        difference = max(gap - self.noise - self.jump, 0.0) / size
        if np.isnan(difference):
            difference = float("inf")
        hides_a_gap = self.jump > VAGUE * size and difference <= tolerance < gap / size
        why = "too near kinks to tell" if hides_a_gap else ""
        return Comparison(engine, self.value, difference, tolerance, where, why=why)


def beside(slope: Callable[[bool], Slope], analytic: bool, **figures: Any) -> Comparison:
    """The engine's derivative beside a numeric one; where they differ, at a closer look.

    Args: slope: `differentiate`, of whether to look closely.  figures: see `Slope.compared`.
    """
    comparison = slope(False).compared(**figures)
    if not comparison.ok and not analytic:
        comparison = slope(True).compared(**figures)
    return replace(comparison, method="complex step" if analytic else "central differences")


def differentiate(
    f: Callable[[list[Any]], Array],
    values: Sequence[Any],
    toward: Mapping[int, Array],
    g: Array,
    analytic: bool,
    closely: bool = False,
) -> Slope:
    """Measure ⟨g, f'(x) d⟩.

    Args:
        f: from the inputs, an array of g's shape; where g is 0, it may be anything.
        toward: d, for the inputs that move.
        analytic: by the complex step, Im f(x + ihd) / h, which subtracts nothing. Else by central
            differences.
        closely: by the slopes on both sides, at two distances: those of a smooth f come together
            with the distance, at a kink or a jump they stay apart.
    Source: Squire & Trapp 1998 (the complex step).
    """

    def at(scale: complex) -> Array:
        moved = list(values)
        for i, d in toward.items():
            moved[i] = np.asarray(values[i] + scale * d)
        return f(moved)

    def weighted(array: Array) -> Array:
        wide = np.zeros(g.shape, np.result_type(array, np.float64))
        return np.multiply(g, array, out=wide, where=g != 0)

    if analytic:
        parts = weighted(at(1j * TINY).imag / TINY)
        return Slope(float(parts.sum()), length(parts))
    step = STEP * (max(rms(values[i]) for i in toward) or 1.0)
    if not closely:
        ahead = weighted(at(step))
        parts = (ahead - weighted(at(-step))) / (2 * step)
        return Slope(float(parts.sum()), length(parts), 4 * EPS * length(ahead) / step)
    here = weighted(at(0.0))
    distances = (step, -step, step / 8, -step / 8)
    right, left, *near = (((weighted(at(h)) - here) / h) for h in distances)
    near.append((right + left) / 2)
    high, low = np.max(near, axis=0), np.min(near, axis=0)
    noise = 32 * EPS * length(here) / step
    apart = high - low > KINK * np.maximum(abs(high), abs(low)) + noise
    jump = np.where(apart & (high - low > abs(right - left) / 4), high - low, 0.0)
    parts = np.where(jump > 0, high + low, near[0] + near[1]) / 2
    return Slope(float(parts.sum()), length(parts), noise, float(jump.sum()))


def rms(array: Any) -> float:
    """The root mean square of the entries that are finite, 0 of none."""
    array = np.abs(np.asarray(array, dtype=np.float64))
    finite = array[np.isfinite(array)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def length(array: Any) -> float:
    """The Euclidean length of all entries."""
    return float(np.linalg.norm(np.asarray(array, dtype=np.float64).ravel()))
