"""Arrays as the page shows them: matrices of bounded size, and the exact range of all entries."""

from __future__ import annotations

from base64 import b64encode
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...engine.errors import ArgumentError
from ...recording.record import Facts, facts_of
from ..data import number
from ..pooling import pooled

__all__ = ["KINDS", "Arrays", "Limits", "pack"]


class Limits(NamedTuple):
    """At most so many rows and columns, and so many matrices of one array."""

    side: int
    matrices: int


ALL = 1 << 62
# the first that keeps the page small enough to open at once; of attention every head is kept
STEPS = (Limits(64, 64), Limits(64, 16), Limits(32, 8), Limits(16, 4), Limits(8, 1))
HEADS = (Limits(64, ALL), Limits(32, ALL), Limits(16, ALL), Limits(8, ALL), Limits(8, 256))
CELLS = 750_000  # 4 bytes each, 4 MB of text in all
FULL = 30_000_000  # what a browser opens, 160 MB of text
KINDS = ("pooled", "full", "none")


class Arrays:
    """Collects arrays, each once however often it appears, and packs them."""

    def __init__(self, kind: str = "pooled") -> None:
        if kind not in KINDS:
            raise ArgumentError(
                f"html(arrays=...): arrays must be one of {', '.join(KINDS)}, got {kind!r}"
            )
        self.kind = kind
        self._kept: list[Any] = []
        self._known: dict[tuple[Any, ...], list[int]] = {}
        self._seen: dict[int, tuple[Any, int]] = {}  # by id, each alive so that no id comes again
        self._heads: set[int] = set()

    def add(self, array: Any, *, heads: bool = False) -> int | None:
        """The number of an array; None for what has no numbers. Args: heads: keep every matrix."""
        if array is None or np.asarray(array).dtype.kind not in "fiub":
            return None
        if id(array) not in self._seen:
            self._seen[id(array)] = array, self._number(np.asarray(array))
        known = self._seen[id(array)][1]
        self._heads |= {known} if heads else set()
        return known

    def _number(self, array: Any) -> int:
        """The number of an array, the same for all that hold the same."""
        alike = self._known.setdefault((array.shape, array.dtype, str(facts_of(array))), [])
        for known in alike:
            if np.array_equal(self._kept[known], array, equal_nan=array.dtype.kind == "f"):
                return known
        alike.append(len(self._kept))
        self._kept.append(array)
        return alike[-1]

    def packed(self) -> list[dict[str, Any]]:
        """All arrays, pooled no more than the page's size asks for."""
        rest = [a for i, a in enumerate(self._kept) if i not in self._heads]
        limits = self._limits(STEPS, rest)
        heads = self._limits(HEADS, [self._kept[i] for i in self._heads])
        return [
            pack(array, heads if i in self._heads else limits) for i, array in enumerate(self._kept)
        ]

    def _limits(self, steps: tuple[Limits, ...], arrays: list[Any]) -> Limits:
        """Raises: ArgumentError if all entries are asked for and are more than a browser opens."""
        if self.kind == "none":
            return Limits(1, 0)
        if self.kind == "full":
            count = sum(array.size for array in arrays)
            if count > FULL:
                raise ArgumentError(
                    f'html(arrays="full"): the arrays hold {count:,} numbers, more than the '
                    f'{FULL:,} that a browser opens; arrays="pooled" keeps the look of each'
                )
            return Limits(ALL, ALL)
        fits = (one for one in steps if sum(_cells(a.shape, one) for a in arrays) <= CELLS)
        return next(fits, steps[-1])


def pack(array: Any, limits: Limits = STEPS[0]) -> dict[str, Any]:
    """One array: its shape and range, and its cells as base64 of little-endian float32.

    The range is of all entries, before pooling; the rms of those that no mask has set to -inf.
    Cells outside what float32 holds well are divided by `scale`, a power of two.

    >>> pack(np.array([[1.0, 2.0]]))["data"]
    'AACAPwAAAEA='
    """
    rows, columns = (1, *array.shape)[-2:] if array.shape else (1, 1)
    kept = array.reshape(prod(array.shape[:-2]), rows, columns)[: limits.matrices]
    tall, wide = (-(-n // limits.side) or 1 for n in (rows, columns))
    cells = pooled(kept, tall, wide).astype(np.float64)
    size = float(np.abs(cells, where=np.isfinite(cells), out=np.zeros_like(cells)).max(initial=0.0))
    scale = 1.0 if size == 0 or 1e-30 < size < 1e30 else 2.0 ** np.floor(np.log2(size))
    made = _ranges(array, facts_of(array)) | {
        "rows": cells.shape[1],
        "columns": cells.shape[2],
        "pool": [tall, wide],
        "matrices": len(cells),
        "data": b64encode((cells / scale).astype("<f4").tobytes()).decode(),
    }
    return made if scale == 1.0 else made | {"scale": scale}


def _ranges(array: Any, facts: Facts) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "min": number(facts.low),
        "max": number(facts.high),
        "rms": number(facts.unmasked_rms),
    }


def _cells(shape: tuple[int, ...], limits: Limits) -> int:
    rows, columns = (1, 1, *shape)[-2:]
    matrices = min(prod(shape[:-2]), limits.matrices)
    return matrices * min(rows, limits.side) * min(columns, limits.side)
