"""Comparison: what the engine has beside what it must be, and how far apart the two are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """What the engine has beside what it must be, where the two differ most.

    Attributes:
        difference: relative, and beyond what rounding or a kink may have caused.
        where: `inputs[0][1, 2]`, `W_Q[1, 2]`, or the name of an input.  index: of the entry.
        method: "complex step", "central differences", or "formula".
        why: why nothing was compared, or "".
        order: of the derivative.  entries: how many were compared.  kinks: those left out.
        zeros: inputs whose gradient is 0 throughout, but for rounding, as that of b_K in attention.
    """

    measured: float = float("nan")
    expected: float = float("nan")
    difference: float = 0.0
    tolerance: float = 0.0
    where: str = ""
    index: tuple[int, ...] = ()
    method: str = ""
    why: str = ""
    order: int = 1
    entries: int = 1
    kinks: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()

    @property
    def ok(self) -> bool | None:
        """Whether what was compared agrees; None if nothing was."""
        return None if self.why else self.difference <= self.tolerance  # False for NaN

    def __bool__(self) -> bool:
        return bool(self.ok)

    def __str__(self) -> str:
        if self.why:
            return f"order {self.order}: nothing was compared: {self.why}"
        verdict = "agrees" if self.ok else "DISAGREES"
        kinks = f", {len(self.kinks)} at kinks left out ({self.kinks[0]} …)" if self.kinks else ""
        zeros = f"; 0 throughout: {', '.join(self.zeros)}" if self.zeros else ""
        return (
            f"order {self.order} by {self.method}: {verdict}; worst of {self.entries} "
            f"entries{kinks}: {self.where}, engine {self.measured:.15g}, numeric "
            f"{self.expected:.15g}, relative error {self.difference:.1e} "
            f"(tolerance {self.tolerance:.0e}){zeros}"
        )


def compare(engine: ArrayLike, formula: ArrayLike, scale: float = 0.0) -> Comparison:
    """Measure an engine's array against a formula's, to 10,000 rounding units of the coarser dtype.

    Args: scale: size of what was summed; a formula that is rounding beside it (∂L/∂b_K = 0 in
        attention: softmax ignores what all keys share) has no digits of its own, and the gap is
        measured against `scale` instead.

    >>> compare(np.array([1.0, 2.0]), np.array([1.0, 2.5])).difference
    0.2
    """
    engine, formula = np.asarray(engine), np.asarray(formula)
    eps = max(np.finfo(a.dtype).eps if a.dtype.kind == "f" else 0.0 for a in (engine, formula))
    tolerance = 1e4 * float(eps)
    if engine.shape != formula.shape:
        return Comparison(difference=float("inf"), tolerance=tolerance, method="formula")
    if engine.size == 0:
        return Comparison(tolerance=tolerance, method="formula", entries=0)
    gaps = np.abs(engine - formula)
    index = tuple(int(i) for i in np.unravel_index(np.argmax(gaps), gaps.shape))
    size = float(np.abs(formula).max())
    if size <= tolerance * scale:
        size = scale
    gap = float(gaps[index])
    if size:
        relative = gap / size
    else:
        relative = 0.0 if gap == 0 else float("inf")
    at = float(engine[index]), float(formula[index])
    return Comparison(*at, relative, tolerance, index=index, method="formula", entries=gaps.size)
