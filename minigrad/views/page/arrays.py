"""Arrays as the page shows them: matrices of bounded size, and the exact range of all entries."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Hashable, Sequence
from math import isfinite, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...engine.errors import ArgumentError
from ...recording.record import Facts, facts_of
from ..data import Json, number
from ..plain import one_of
from ..pooling import pooled

__all__ = ["ARRAY_KINDS", "ArrayLimits", "Arrays", "pack"]


Shape: TypeAlias = tuple[int, ...]
Measured: TypeAlias = "NDArray[Any] | Facts"  # an array, or what is kept of one


class ArrayLimits(NamedTuple):
    """At most so many rows and columns, and so many matrices of one array."""

    side: int
    matrices: int


UNLIMITED = 1 << 62
# From the finest to the coarsest; the first whose cells fit is taken. Attention keeps its heads.
POOLED_STEPS = [ArrayLimits(*pair) for pair in ((64, 64), (64, 16), (32, 8), (16, 4), (8, 1))]
POOLED_STEPS_OF_HEADS = [ArrayLimits(side, UNLIMITED) for side in (64, 32, 16, 8)]
POOLED_STEPS_OF_HEADS += [ArrayLimits(8, 256)]
POOLED_CELLS = 750_000  # 4 bytes each, 4 MB of text in all
FULL_CELLS = 30_000_000  # what a browser opens, 160 MB of text


class ArrayKind(NamedTuple):
    """A choice of `arrays`: what the page says of it, and limits from the finest on."""

    said: str
    steps: Sequence[ArrayLimits]
    steps_of_heads: Sequence[ArrayLimits]


EVERY_ENTRY = [ArrayLimits(UNLIMITED, UNLIMITED)]
NO_ENTRY = [ArrayLimits(1, 0)]
ARRAY_KINDS = {
    "pooled": ArrayKind(
        "large arrays are pooled, their ranges exact", POOLED_STEPS, POOLED_STEPS_OF_HEADS
    ),
    "full": ArrayKind("every entry of every array", EVERY_ENTRY, EVERY_ENTRY),
    "none": ArrayKind("without arrays, only their sizes and ranges", NO_ENTRY, NO_ENTRY),
}


class Arrays:
    def __init__(self, kind: str = "pooled") -> None:
        one_of("html", ARRAY_KINDS, arrays=kind)
        self.kind = kind
        self._kept: list[tuple[Measured, Shape]] = []
        self._known: dict[Hashable, list[int]] = {}
        self._heads: set[int] = set()

    def add(self, array: Measured | None, shape: Shape = (), *, heads: bool = False) -> int | None:
        """The number of an array, or of the facts kept of one.

        Args: shape: of what facts were kept of.  heads: keep every matrix.
        """
        if array is None or (isinstance(array, np.ndarray) and array.dtype.kind not in "fiub"):
            return None
        known = self._number(array, _shape_of(array, shape))
        self._heads |= {known} if heads else set()
        return known

    def _number(self, array: Measured, shape: Shape) -> int:
        key = (shape, str(facts_of(array)), getattr(array, "dtype", None))
        alike = self._known.setdefault(key, [])
        for known in alike:
            if _same(self._kept[known][0], array):
                return known
        alike.append(len(self._kept))
        self._kept.append((array, shape))
        return alike[-1]

    def packed(self) -> list[Json]:
        """All arrays, pooled no more than the page's size asks for."""
        limits = [self._limits(heads) for heads in (False, True)]
        return [pack(a, limits[i in self._heads], shape) for i, (a, shape) in enumerate(self._kept)]

    def _limits(self, heads: bool) -> ArrayLimits:
        """Raises: ArgumentError if all entries are asked for and are more than a browser opens."""
        shapes = [s for i, (_, s) in enumerate(self._kept) if (i in self._heads) == heads]
        kind = ARRAY_KINDS[self.kind]
        steps = kind.steps_of_heads if heads else kind.steps
        fits = (one for one in steps if sum(_cells(shape, one) for shape in shapes) <= POOLED_CELLS)
        found = next(fits, steps[-1])
        count = sum(_cells(shape, found) for shape in shapes)
        if count > FULL_CELLS:
            raise ArgumentError(
                f'html(arrays="full"): the arrays hold {count:,} numbers, more than the '
                f'{FULL_CELLS:,} that a browser opens; arrays="pooled" keeps the look of each'
            )
        return found


def _shape_of(array: Measured, shape: Shape) -> Shape:
    return array.shape if isinstance(array, np.ndarray) else shape


def _same(one: Measured, other: Measured) -> bool:
    """Whether two of equal facts, shape and dtype hold the same entries."""
    if one is other or isinstance(one, Facts) or isinstance(other, Facts):
        return True
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def pack(array: Measured, limits: ArrayLimits = POOLED_STEPS[0], shape: Shape = ()) -> Json:
    """One array: its shape and range, and its cells as base64 of little-endian float32.

    The range is of all entries, before pooling; the rms of those that no mask has set to -inf.
    Cells outside what float32 holds well are divided by `scale`, a power of two. Facts have none.

    >>> pack(np.array([[1.0, 2.0]]))["data"]
    'AACAPwAAAEA='
    """
    facts, shape = facts_of(array), _shape_of(array, shape)
    found = {"min": facts.low, "max": facts.high, "rms": facts.unmasked_rms}
    made: Json = {"shape": list(shape)} | {name: number(x) for name, x in found.items()}
    if not all(x is None or isfinite(x) for x in (facts.low, facts.high)):
        entries = np.zeros(0) if isinstance(array, Facts) else array
        finite = entries[np.isfinite(entries)]
        made["range"] = [float(finite.min()), float(finite.max())] if finite.size else [0.0, 0.0]
    if isinstance(array, Facts):
        return made | {"rows": 0, "columns": 0, "pool": [1, 1], "matrices": 0, "data": ""}
    rows, columns = (1, *shape)[-2:] if shape else (1, 1)
    kept = array.reshape(prod(shape[:-2]), rows, columns)[: limits.matrices]
    pool = [-(-n // limits.side) or 1 for n in (rows, columns)]
    cells = pooled(kept, *pool).astype(np.float64)
    size = float(np.abs(cells, where=np.isfinite(cells), out=np.zeros_like(cells)).max(initial=0.0))
    scale = 1.0 if size == 0 or 1e-30 < size < 1e30 else 2.0 ** np.floor(np.log2(size))
    matrices, rows, columns = cells.shape
    data = b64encode((cells / scale).astype("<f4").tobytes()).decode()
    made |= {"rows": rows, "columns": columns, "pool": pool, "matrices": matrices, "data": data}
    return made if scale == 1.0 else made | {"scale": scale}


def _cells(shape: Shape, limits: ArrayLimits) -> int:
    rows, columns = (1, 1, *shape)[-2:]
    matrices = min(prod(shape[:-2]), limits.matrices)
    return matrices * min(rows, limits.side) * min(columns, limits.side)
