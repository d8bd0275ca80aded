"""Arrays that grow with the sizes: masks, positions and tables of them, found by their pattern.

    rows      entry (i, …) = T[i]        sinusoids, rotary angles, positions
    distance  entry (i, j, …) = T[i - j] causal masks, windows, ALiBi, buckets of distances
    prefix    all arrays are cut from the largest one

T is as long as in the longest run; an index beyond it is an error when the model runs. It has no
end where it is a multiple of its index, or where it has two values (a mask) and stays the same
towards both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..engine.types import Array
from .sizes import Size, Sizes, fit_size

__all__ = ["GrowingArray", "find_pattern"]


@dataclass(frozen=True, eq=False)
class GrowingArray:
    """An array that grows with the sizes.

    Attributes:
        shape: of the whole; axes along which all entries are equal are filled at the end.
        axes: those along which the index counts: none, one (rows) or two (distances).
        table: (K, …): an entry, over the other axes, for each index; for a prefix the whole array.
        beyond: "error"; "clip" to the table's ends; "line": its second entry is the step; or
            "prefix": the array is cut from the table.
        first: the index of the table's first entry.
        origin: what is subtracted from the position, or distance, to get the index.
        plus: what is added to every entry.
    """

    shape: tuple[int | Size, ...]
    axes: tuple[int, ...]
    table: Array
    beyond: str = "error"
    first: int = 0
    origin: int | Size = 0
    plus: int | Size = 0

    @property
    def content(self) -> tuple[object, ...]:
        """Equal for patterns of equal arrays."""
        table = self.table.shape, self.table.dtype.str, self.table.tobytes()
        return (self.shape, self.axes, self.beyond, self.first, self.origin, self.plus, table)


def find_pattern(
    arrays: Sequence[Array], sizes: Sequence[Sizes], shape: tuple[int | Size, ...]
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
        return GrowingArray(shape, (), arrays[0]) if alike else None
    found = _by_place(arrays, sizes, shape, moving)
    corners = [x.flat[0] for x in arrays]
    if found is None and arrays[0].dtype.kind == "i":  # positions counted from one that sizes give
        plus = fit_size([int(x) for x in corners], sizes)
        if isinstance(plus, Size):
            less = [x - corner for x, corner in zip(arrays, corners, strict=True)]
            found = _by_place(less, sizes, shape, moving)
            found = found and replace(found, plus=plus)
    return found or _prefix(arrays, shape, moving)


def _by_place(
    arrays: Sequence[Array],
    sizes: Sequence[Sizes],
    shape: tuple[int | Size, ...],
    moving: list[int],
) -> GrowingArray | None:
    """By rows or by distance: entry T[i - origin] or T[i - j - origin].

    The origin is the first, the last or the middle row; the distance of the first or last entries.
    """
    fronts = [np.moveaxis(x, moving, range(len(moving))) for x in arrays]
    if len(moving) == 1:
        lines = [(0, x) for x in fronts]
        starts = [[0 for _ in fronts], [len(x) - 1 for x in fronts]]
        if all(len(x) % 2 for x in fronts):
            starts.append([len(x) // 2 for x in fronts])
    elif len(moving) == 2 and all(map(_is_by_distance, fronts)):
        lines = [(1 - x.shape[1], _line(x)) for x in fronts]
        ends = [x.shape[0] - x.shape[1] for x in fronts]
        starts = [[0 for _ in fronts], ends, [x.shape[0] - 1 for x in fronts]]
    else:
        return None
    for origins in starts:
        pieces = [(at - o, line) for o, (at, line) in zip(origins, lines, strict=True)]
        entries, origin = _joined(pieces), fit_size(origins, sizes)
        if entries is not None and origin is not None:
            table, first, beyond = _extended(*entries)
            return GrowingArray(shape, tuple(moving), table, beyond, first, origin)
    return None


def _line(x: Array) -> Array:
    """The entries at distances i - j from 1 - m to n - 1, of (n, m, …)."""
    return np.concatenate([x[0, :0:-1], x[:, 0]])


def _is_by_distance(x: Array) -> bool:
    n, m = x.shape[:2]
    return _alike(_line(x)[np.arange(n)[:, None] - np.arange(m) + m - 1], x)


def _alike(x: Array, y: Array) -> bool:
    """Equal, but for the rounding of sines and the like."""
    if x.dtype.kind != "f":
        return bool(np.all(x == y))
    near = 64 * np.finfo(x.dtype).eps
    with np.errstate(invalid="ignore"):
        close = np.isfinite(y) & (np.abs(x - y) <= near * (1 + np.abs(y)))
        return bool(np.all((x == y) | close))


def _joined(pieces: list[tuple[int, Array]]) -> tuple[int, Array] | None:
    """Pieces of one table, each with the index of its first entry, as one; None if they differ."""
    first, last = min(at for at, _ in pieces), max(at + len(x) for at, x in pieces)
    table = np.zeros((last - first, *pieces[0][1].shape[1:]), pieces[0][1].dtype)
    known = np.zeros(last - first, bool)
    for at, x in pieces:
        here = slice(at - first, at - first + len(x))
        if not _alike(x[known[here]], table[here][known[here]]):
            return None
        table[here], known[here] = x, True
    return (first, table) if known.all() else None


def _extended(first: int, table: Array) -> tuple[Array, int, str]:
    """The table, the index of its first entry, and `beyond` (see GrowingArray)."""
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
    arrays: Sequence[Array], shape: tuple[int | Size, ...], moving: list[int]
) -> GrowingArray | None:
    """All arrays as parts of the largest, from its first entry on."""
    largest = arrays[int(np.argmax([x.size for x in arrays]))]
    for x in arrays:
        if any(n > m for n, m in zip(x.shape, largest.shape, strict=True)):
            return None
        if not _alike(largest[tuple(map(slice, x.shape))], x):
            return None
    return GrowingArray(shape, tuple(moving), largest, "prefix")
