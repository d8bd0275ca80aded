"""Arrays as the page shows them: matrices of at most 64 × 64 cells, and the exact range of all."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...recording.record import facts_of
from ..data import number
from ..pooling import pooled

__all__ = ["Arrays", "Limits", "pack"]


class Limits(NamedTuple):
    """At most so many rows and columns, and so many matrices of one array."""

    side: int
    matrices: int


# the first that keeps the page small enough to open at once
STEPS = (Limits(64, 64), Limits(64, 16), Limits(32, 8), Limits(16, 4), Limits(8, 1))
CELLS = 750_000  # 4 bytes each, 4 MB of text in all


class Arrays:
    """Collects arrays, each once however often it appears, and packs them."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._seen: dict[int, tuple[Any, int]] = {}  # by id, each alive so that no id comes again

    def add(self, array: Any) -> int | None:
        """The number of an array; None for what has no numbers."""
        if array is None or np.asarray(array).dtype.kind not in "fiub":
            return None
        if id(array) not in self._seen:
            self._seen[id(array)] = array, self._number(np.asarray(array))
        return self._seen[id(array)][1]

    def _number(self, array: Any) -> int:
        """The number of an array, the same for all that hold the same."""
        key = (array.shape, str(array.dtype), sha256(np.ascontiguousarray(array).data).digest())
        if key not in self._known:
            self._known[key] = len(self._kept)
            self._kept.append(array)
        return self._known[key]

    def packed(self) -> list[dict[str, Any]]:
        """All arrays, pooled no more than the page's size asks for."""
        for limits in STEPS:
            if sum(_cells(a.shape, limits) for a in self._kept) <= CELLS:
                break
        return [pack(array, limits) for array in self._kept]


def pack(array: Any, limits: Limits = STEPS[0]) -> dict[str, Any]:
    """One array: its shape and range, and its cells as base64 of little-endian float32.

    The range is of all entries, before pooling; the rms of those that no mask has set to -inf.
    Cells outside what float32 holds well are divided by `scale`, a power of two.

    >>> pack(np.array([[1.0, 2.0]]))["data"]
    'AACAPwAAAEA='
    """
    shape = array.shape
    rows, columns = (1, *shape)[-2:] if shape else (1, 1)
    kept = array.reshape(prod(shape[:-2]), rows, columns)[: limits.matrices]
    tall, wide = (-(-n // limits.side) or 1 for n in (rows, columns))
    cells, facts = pooled(kept, tall, wide).astype(np.float64), facts_of(array)
    size = float(np.abs(cells, where=np.isfinite(cells), out=np.zeros_like(cells)).max(initial=0.0))
    scale = 1.0 if size == 0 or 1e-30 < size < 1e30 else 2.0 ** np.floor(np.log2(size))
    data = (cells / scale).astype("<f4").tobytes()
    made = {
        "shape": list(shape),
        "dtype": str(array.dtype),
        "rows": cells.shape[1],
        "columns": cells.shape[2],
        "pool": [tall, wide],
        "matrices": len(cells),
        "min": number(facts.low),
        "max": number(facts.high),
        "rms": number(facts.unmasked_rms),
        "data": b64encode(data).decode(),
    }
    return made if scale == 1.0 else made | {"scale": scale}


def _cells(shape: tuple[int, ...], limits: Limits) -> int:
    rows, columns = (1, 1, *shape)[-2:]
    matrices = min(prod(shape[:-2]), limits.matrices)
    return matrices * min(rows, limits.side) * min(columns, limits.side)
