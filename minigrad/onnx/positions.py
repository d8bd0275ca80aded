"""Arrays that sizes determine: masks, positions and tables of them, found by their pattern.

    rows      entry (i, …) = T[i]        sinusoids, rotary angles, positions
    distance  entry (i, j, …) = T[i - j] causal masks, windows, ALiBi, buckets of distances
    prefix    all arrays are cut from the largest one

T is as long as the longest run saw; an index beyond it is an error when the model runs. It goes on
for ever where it is a multiple of its index, or where it has two values (a mask) and does not
change any more at either end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .sizes import Size, fit_size

__all__ = ["GrowingArray", "find_pattern"]


@dataclass(frozen=True, eq=False)
class GrowingArray:
    """An array that grows with the sizes.

    Attributes:
        shape: of the whole; axes along which all entries are equal are filled at the end.
        axes: those along which the index counts: none, one or two.
        kind: "filled", "rows", "distance" or "prefix".
        table: (K, …): an entry, over the other axes, for each index; for a prefix the whole array.
        first: the index of the table's first entry.
        origin: what is subtracted from the position, or distance, to get the index.
        beyond: "error"; "clip" to the table's ends; or "line": its second entry is the step.
        plus: what is added to every entry.
    """

    shape: tuple[int | Size, ...]
    axes: tuple[int, ...]
    kind: str
    table: Any
    first: int = 0
    origin: int | Size = 0
    beyond: str = "error"
    plus: int | Size = 0

    @property
    def content(self) -> tuple[Any, ...]:
        """Equal for patterns of equal arrays."""
        told = str([*map(str, self.shape), self.axes, self.kind, self.first, str(self.origin)])
        return (
            told,
            self.beyond,
            str(self.plus),
            self.table.shape,
            self.table.dtype.str,
            self.table.tobytes(),
        )


def find_pattern(
    arrays: Sequence[Any], sizes: Sequence[dict[str, int]], shape: tuple[int | Size, ...]
) -> GrowingArray | None:
    """The pattern that gives each array at its sizes, None if none is found."""
    moving = [k for k, n in enumerate(shape) if isinstance(n, Size)]
    for axis in [*moving]:
        first = [np.take(x, [0], axis) for x in arrays]
        if all(_alike(x, y) for x, y in zip(arrays, first, strict=True)):
            arrays = first
            moving.remove(axis)
    if not moving:
        alike = all(_alike(x, arrays[0]) for x in arrays)
        return GrowingArray(shape, (), "filled", arrays[0]) if alike else None
    found = _by_place(arrays, sizes, shape, moving)
    corners = [x.flat[0] for x in arrays]
    if found is None and arrays[0].dtype.kind == "i":  # places counted from one that moves
        plus = fit_size([int(x) for x in corners], sizes)
        if isinstance(plus, Size):
            less = [x - corner for x, corner in zip(arrays, corners, strict=True)]
            found = _by_place(less, sizes, shape, moving)
            found = found and replace(found, plus=plus)
    return found or _prefix(arrays, shape, moving)


def _by_place(
    arrays: Sequence[Any], sizes: Sequence[dict[str, int]], shape: Any, moving: list[int]
) -> GrowingArray | None:
    """By rows or by distance."""
    fronts = [np.moveaxis(x, moving, range(len(moving))) for x in arrays]
    found = None
    if len(moving) == 1:
        found = _by_rows(fronts, sizes)
    elif len(moving) == 2:
        found = _by_distance(fronts, sizes)
    if found is None:
        return None
    kind, entries, origin = found
    table, first, beyond = _extended(entries)
    return GrowingArray(shape, tuple(moving), kind, table, first, origin, beyond)


def _alike(x: Any, y: Any) -> bool:
    """Equal, but for the rounding of sines and the like."""
    if x.dtype.kind != "f":
        return bool(np.all(x == y))
    near = 64 * np.finfo(x.dtype).eps
    with np.errstate(invalid="ignore"):
        close = np.isfinite(y) & (np.abs(x - y) <= near * (1 + np.abs(y)))
        return bool(np.all((x == y) | close))


def _by_rows(fronts: Sequence[Any], sizes: Sequence[dict[str, int]]) -> Any:
    """Entry i = T[i - origin], where the origin is the first, the last or the middle row."""
    lengths = [len(x) for x in fronts]
    origins = [[0] * len(lengths), [n - 1 for n in lengths]]
    if all(n % 2 for n in lengths):
        origins.append([n // 2 for n in lengths])
    for starts in origins:
        pieces = [(-o, x) for o, x in zip(starts, fronts, strict=True)]
        entries = _joined(pieces)
        origin = fit_size(starts, sizes) if entries is not None else None
        if origin is not None:
            return "rows", entries, origin
    return None


def _by_distance(fronts: Sequence[Any], sizes: Sequence[dict[str, int]]) -> Any:
    """Entry (i, j) = T[i - j - origin], where the first entries or the last ones are at 0."""
    ends = [x.shape[0] - x.shape[1] for x in fronts]
    for starts in ([0] * len(ends), ends, [x.shape[0] - 1 for x in fronts]):
        pieces = []
        for origin, x in zip(starts, fronts, strict=True):
            n, m = x.shape[:2]
            line = np.concatenate([x[0, :0:-1], x[:, 0]])  # distances 1 - m to n - 1
            index = np.arange(n)[:, None] - np.arange(m) + m - 1
            if not _alike(line[index], x):
                return None
            pieces.append((1 - m - origin, line))
        entries, origin_size = _joined(pieces), fit_size(starts, sizes)
        if entries is not None and origin_size is not None:
            return "distance", entries, origin_size
    return None


def _joined(pieces: list[tuple[int, Any]]) -> tuple[int, Any] | None:
    """Pieces of one table, each with the index of its first entry, as one; None if they differ."""
    first, last = min(at for at, _ in pieces), max(at + len(x) for at, x in pieces)
    table, known = np.zeros((last - first, *pieces[0][1].shape[1:]), pieces[0][1].dtype), None
    known = np.zeros(last - first, bool)
    for at, x in pieces:
        here = slice(at - first, at - first + len(x))
        if not _alike(x[known[here]], table[here][known[here]]):
            return None
        table[here], known[here] = x, True
    return (first, table) if known.all() else None


def _extended(entries: tuple[int, Any]) -> tuple[Any, int, str]:
    """The table, the index of its first entry, and how it goes on beyond its ends."""
    first, table = entries
    index = np.arange(first, first + len(table))
    if table.dtype.kind in "iuf" and first <= 0 and len(table) + first > 1:
        zero, step = table[-first], table[1 - first] - table[-first]
        with np.errstate(invalid="ignore"):
            line = index.reshape(-1, *[1] * (table.ndim - 1)) * step + zero
        if _alike(line.astype(table.dtype), table):
            return np.stack([zero, step]), 0, "line"
    masks = table.ndim == 1 and any({*table.tolist()} <= {0, closed} for closed in (1, -np.inf))
    changes = [k for k in range(1, len(table)) if not _alike(table[k], table[k - 1])]
    if masks and changes:
        widest = max(np.diff(changes), default=1)
        if min(changes[0], len(table) - changes[-1]) > 2 * widest:
            return table[changes[0] - 1 : changes[-1] + 1], first + changes[0] - 1, "clip"
    return table, first, "error"


def _prefix(
    arrays: Sequence[Any], shape: tuple[int | Size, ...], moving: list[int]
) -> GrowingArray | None:
    """All of them cut from the largest."""
    largest = arrays[int(np.argmax([x.size for x in arrays]))]
    for x in arrays:
        if any(n > m for n, m in zip(x.shape, largest.shape, strict=True)):
            return None
        if not _alike(largest[tuple(map(slice, x.shape))], x):
            return None
    return GrowingArray(shape, tuple(moving), "prefix", largest)
