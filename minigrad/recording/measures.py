"""Statistics of one array for each training step: its rms, how much saturates, how heads look.

Everything here is quick for small arrays, since it runs within a training step.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

import numpy as np

from ..engine.op import Op
from ..engine.types import Arguments, Array
from .record import rms

__all__ = [
    "changes",
    "cosine",
    "heads",
    "rows_of_weights",
    "saturation",
    "subsample",
    "unmasked_rms",
]

BLOCK_ENTRIES = 1 << 13  # entries that are measured at once, and stay in the processor's cache
HISTOGRAM_ENTRIES = 96  # entries of an array that are kept for its histogram
BATCH = 32  # examples, enough to show that a unit is not dead
LEAST_ENTRIES_PER_UNIT = 16  # with fewer, a unit that is 0 in all of them may do so by chance
MEASURED_WEIGHTS = 1 << 12  # of one attention


def unmasked_rms(array: Array) -> float:
    """Root of the mean square, of what no mask has set to -inf; not finite where an entry is not.

    >>> unmasked_rms(np.array([3.0, -4.0])) == sqrt(12.5)
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


def _product(one: Array, other: Array) -> float:
    """Σ x y; BLAS is quick, but wakes its threads for a long one."""
    return one.dot(other) if one.size < 10_000 else np.einsum("i,i", one, other)


def changes(
    before: Array, now: Array, start: Array, gradient: Array | None = None
) -> dict[str, float]:
    """Sizes of a weight, of its update and of its way from the start; where the update points.

    Returns: value, update, ratio, drift (not in parts of the start); with a gradient, inward and
        uphill: cosines of the update with −before and with the gradient, over the first entries.

    >>> one = np.array([1.0, 1.0])
    >>> found = changes(one, 0.5 * one, one, one)
    >>> [round(found[name], 3) for name in ("value", "ratio", "inward", "uphill")]
    [1.0, 0.5, 1.0, -1.0]
    """
    arrays = [x for x in (before, now, start, gradient) if x is not None]
    if any(x.strides != before.strides for x in arrays):
        arrays = [np.ascontiguousarray(x) for x in arrays]
    old, new, first, *slope = (x.ravel(order="K") for x in arrays)
    sums = dict.fromkeys(("value", "update", "drift"), 0.0)
    for i in range(0, old.size, BLOCK_ENTRIES):  # each array is read once
        block = slice(i, i + BLOCK_ENTRIES)
        update, way = new[block] - old[block], new[block] - first[block]
        for name, x in (("value", old[block]), ("update", update), ("drift", way)):
            sums[name] += float(x.dot(x))
    if all(1e-30 < x < 1e30 for x in sums.values()):
        found = {name: sqrt(x / old.size) for name, x in sums.items()}
    else:  # 0, or out of the squares' range
        moves = {"value": old, "update": new - old, "drift": new - first}
        found = {name: unmasked_rms(x) for name, x in moves.items()}
    found["ratio"] = found["update"] / found["value"] if found["value"] else 0.0
    if slope:
        update = new[:BLOCK_ENTRIES] - old[:BLOCK_ENTRIES]
        found["inward"] = -_cosine(update, old[:BLOCK_ENTRIES])
        found["uphill"] = _cosine(update, slope[0][:BLOCK_ENTRIES])
    return found


def _cosine(a: Array, b: Array) -> float:
    lengths = float(_product(a, a)) * float(_product(b, b))
    return float(_product(a, b)) / sqrt(lengths) if 0 < lengths < np.inf else 0.0


def subsample(array: Array) -> Array:
    """Some of an array's entries, the same places each time."""
    flat = array.ravel(order="K")
    if flat.size <= HISTOGRAM_ENTRIES:
        return flat.astype(np.float32)
    return flat.take(_places(flat.size))


@lru_cache(maxsize=256)
def _places(count: int) -> Array:
    return np.random.default_rng(0).integers(count, size=HISTOGRAM_ENTRIES)


def cosine(one: Array, other: Array) -> tuple[float, float]:
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


# ------------------------------------------------------------------ where an op saturates


def saturation(op: Op, out: Array, settings: Arguments) -> float | None:
    """The share of units, entries or rows that saturate, as the op declares (`saturates=`).

    None where a unit has too few entries to say.
    """
    assert op.saturates is not None
    words, function = op.saturates
    named = dict(zip(op.settings, settings, strict=True))

    def share(out: Array) -> tuple[float, bool]:
        where = op.call_by_name(function, out=out, **named)
        enough = not words.startswith("units") or out.size >= LEAST_ENTRIES_PER_UNIT * where.size
        return (np.count_nonzero(where) / where.size if where.size else 0.0), enough

    first = out if "axis" in named else out[:BATCH]
    found, enough = share(first)
    if found and len(first) < len(out):  # alive in some is alive
        found, enough = share(out)
    return found if enough else None


# ------------------------------------------------------------------ attention


def rows_of_weights(A: Array) -> tuple[Array, Array] | None:
    """For each row of attention weights, how many are not 0, and the entropy in nats.

    None unless every row sums to 1 or is zero.
    """
    allowed = (A > 0).sum(axis=-1)
    if A.min() < 0 or np.abs(A.sum(axis=-1)[allowed > 0] - 1).max(initial=0) > 1e-2:
        return None
    return allowed, -(A * np.log(np.maximum(A, 1e-30))).sum(axis=-1)


def heads(weights: Array) -> dict[str, float] | None:
    """Entropy and agreement of attention's heads; None if rows are no weights that sum to 1.

    Returns: entropy: the mean over rows, as a share of the largest there can be; agreement: mean
        cosine between two heads' weights.
    """
    if weights.ndim < 2 or weights.shape[-1] < 2 or not weights.size:
        return None
    per = max(1, MEASURED_WEIGHTS // (weights[0].size or 1))
    A = weights[:per].astype(np.float32, copy=False)
    rows = rows_of_weights(A)
    if rows is None or not (rows[0] > 1).any():
        return None
    allowed, entropy = rows
    free = allowed > 1
    found = {"entropy": float((entropy[free] / np.log(allowed[free])).mean())}
    if A.ndim == 4 and A.shape[1] > 1:
        h = A.shape[1]
        flat = A.reshape(len(A), h, -1)
        flat = flat[flat.any(axis=-1).all(axis=-1)]  # examples of which no head is masked whole
        flat = flat / np.sqrt((flat * flat).sum(axis=-1, keepdims=True))
        pairs = ((flat.sum(axis=1) ** 2).sum(axis=-1) - h) / (h * (h - 1))
        if len(pairs):
            found["agreement"] = float(pairs.mean())
    return found
