"""What one array of a training step is told as: its size, where its op is flat, how heads look.

Everything here is quick for small arrays, since it runs within somebody's training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from ..engine.op import Op
from ..functional import vjp
from .formulas import UNHEARD
from .record import rms

__all__ = ["Slope", "cosine", "few_of", "flatness", "heads", "of_one", "size", "slope_of"]

FEW = 96  # entries of an array that are kept for its histogram
FLAT = 0.01  # of an op's usual slope: below it, next to nothing passes back
BATCH = 32  # examples that are enough to see that a unit is not dead
LOOKED_AT = 1 << 12  # entries of an attention that are looked at
SURE = 0.99  # a row of weights with one above this is saturated


def size(array: Any) -> float:
    """Root of the mean square, of what no mask has set to -inf; not finite where an entry is not.

    >>> size(np.array([3.0, -4.0])) == sqrt(12.5)
    True
    """
    flat = array.ravel(order="K")
    if flat.dtype.kind == "f" and flat.dtype.itemsize > 2 and flat.size:
        squares = float(_product(flat, flat))
        if 1e-30 < squares < 1e30:
            return sqrt(squares / flat.size)
        if not squares < np.inf:
            flat = flat[flat != -np.inf]
    return rms(flat)


def _product(one: Any, other: Any) -> Any:
    """Σ x y; BLAS is quick, but wakes its threads for a long one."""
    return one.dot(other) if one.size < 10_000 else np.einsum("i,i", one, other)


def few_of(array: Any) -> Any:
    """Some of an array's entries, the same places each time."""
    flat = array.ravel(order="K")
    return flat.astype(np.float32) if flat.size <= FEW else flat.take(_places(flat.size))


@lru_cache(maxsize=256)
def _places(count: int) -> Any:
    return np.random.default_rng(0).integers(count, size=FEW)


def cosine(one: Any, other: Any) -> tuple[float, float]:
    """Of two gradients: the cosine of their angle, and ‖a - b‖² / (2 ‖(a + b)/2‖²), the noise.

    >>> cosine(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    (1.0, 0.0)
    """
    a, b = one.ravel(), other.ravel()
    aa, ab, bb = (float(_product(x, y)) for x, y in ((a, a), (a, b), (b, b)))
    if not 0 < aa * bb < np.inf:
        return 0.0, 0.0
    mean = (aa + 2 * ab + bb) / 4
    noise = (aa - 2 * ab + bb) / (2 * mean) if mean > 0 else np.inf
    return round(ab / sqrt(aa * bb), 12), max(noise, 0.0)


# ------------------------------------------------------------------ where an op is flat


class Slope(NamedTuple):
    """The derivative of an op that acts entry by entry and is flat somewhere."""

    usual: float  # its mean size between -3 and 3
    kind: str  # "bounded" if it is flat on both sides, "one-sided" if on the left alone


def slope_of(op: Op, inputs: Sequence[Any], settings: Sequence[Any]) -> Slope | None:
    """What the op's own rule says of it, None for one that is nowhere flat or mixes entries."""
    arrays = [i for i, x in enumerate(inputs) if getattr(x, "ndim", 0)]
    if len(arrays) != 1 or op.variadic or any(isinstance(x, np.random.Generator) for x in settings):
        return None
    plain = tuple([None if i in arrays else _number(x) for i, x in enumerate(inputs)])
    try:
        return _slope(op, plain, tuple(settings))
    except TypeError:  # a setting that cannot be hashed
        return None


def of_one(op: Op, inputs: Sequence[Any], settings: Sequence[Any], at: int) -> Any:
    """An op as a function of one input, the others as they are."""
    named = dict(zip(op.settings, settings, strict=True))
    return lambda x: op(*inputs[:at], x, *inputs[at + 1 :], **named)


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


@lru_cache(maxsize=512)
def _slope(op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> Slope | None:
    grid = np.concatenate([[-8.0], np.linspace(-3, 3, 61) + 1e-3, [8.0]])
    mixed = np.random.default_rng(0).permutation(len(grid))
    try:
        run = of_one(op, inputs, settings, inputs.index(None))
        with UNHEARD, np.errstate(all="ignore"):
            y, part = run(grid), run(grid[mixed][:20])
            if y.shape != grid.shape or not np.array_equal(part, y[mixed][:20], equal_nan=True):
                return None
            slopes = np.abs(vjp(run, grid, np.ones_like(grid))[1])
    except Exception:  # not on such an array: then it is no function of single entries
        return None
    usual = float(slopes[1:-1].mean())
    if not np.isfinite([slopes, y]).all() or np.ptp(slopes) <= 1e-9 * usual:
        return None
    left, right = slopes[[0, -1]] < FLAT * usual
    steep = slopes.max() > 4 * usual  # as exp is
    if not left or (steep and not right):
        return None
    return Slope(usual, "bounded" if right else "one-sided")


def flatness(gradient: Any, passed: Any, slope: Slope) -> dict[str, float]:
    """How much of what came back an op let through.

    Returns: flat: the share of entries where its slope is next to nothing; dead: the share of units
        where that is so for the whole batch. A unit is a slice along the axis where most are dead.
    """
    few = _flatness(gradient[:BATCH], passed[:BATCH], slope)
    whole = len(gradient) <= BATCH or not few.get("dead")
    return few if whole else _flatness(gradient, passed, slope)  # alive in some is alive


def _flatness(gradient: Any, passed: Any, slope: Slope) -> dict[str, float]:
    arrived = gradient != 0
    alive = np.abs(passed) > (FLAT * slope.usual) * np.abs(gradient)
    count = int(np.count_nonzero(arrived))
    if not count:
        return {}
    found = {"flat": 1 - int(np.count_nonzero(alive)) / count}
    if found["flat"] > 0.1 and gradient.ndim > 1:
        found["dead"] = max(_dead_slices(alive, arrived, i) for i in range(1, gradient.ndim))
    return found


def _dead_slices(alive: Any, arrived: Any, axis: int) -> float:
    """The share of slices that let nothing back; 0 if there are few entries in each."""
    others = tuple(i for i in range(alive.ndim) if i != axis)
    reached = int(arrived.any(axis=others).sum())
    known = reached and alive.size >= 16 * alive.shape[axis]
    return float(1 - alive.any(axis=others).sum() / reached) if known else 0.0


# ------------------------------------------------------------------ attention


def heads(weights: Any) -> dict[str, float] | None:
    """Entropy and agreement of attention's heads; None if rows are no weights that sum to 1.

    Returns: entropy: the mean over rows, as a share of the largest there can be; sharp: the share
        of rows that look at one place alone; agreement: mean cosine between two heads' weights.
    """
    if weights.ndim < 2 or weights.shape[-1] < 2 or not weights.size:
        return None
    per = max(1, LOOKED_AT // (weights[0].size or 1))
    A = weights[:per].astype(np.float32, copy=False)
    allowed = (A > 0).sum(axis=-1)
    if A.min() < 0 or np.abs(A.sum(axis=-1)[allowed > 0] - 1).max(initial=0) > 1e-2:
        return None
    free = allowed > 1
    if not free.any():
        return None
    entropy = -(A * np.log(np.maximum(A, 1e-30))).sum(axis=-1)[free] / np.log(allowed[free])
    found = {"entropy": float(entropy.mean()), "sharp": float((A.max(axis=-1) > SURE)[free].mean())}
    if A.ndim == 4 and A.shape[1] > 1:
        flat = A.reshape(*A.shape[:2], -1)
        flat = flat / np.sqrt((flat * flat).sum(axis=-1, keepdims=True))
        h = A.shape[1]
        found["agreement"] = float(
            ((flat.sum(axis=1) ** 2).sum(axis=-1) - h).mean() / (h * (h - 1))
        )
    return found
