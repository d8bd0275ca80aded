"""Adding rows of a gradient at an index: sorted by name and in runs, faster than np.add.at."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..engine.sparse import SparseGradient
from .limits import LIMITS

__all__ = ["add_at", "add_rows", "names_rows"]


def add_at(total: Any, index: Any, values: Any) -> None:
    """np.add.at(total, index, values), by sorted rows where the index names many."""
    if isinstance(values, np.ndarray) and names_rows(index, total, values):
        add_rows(total, index, values)
    else:
        np.add.at(total, index, values)


def names_rows(index: Any, total: Any, values: Any) -> bool:
    """Whether the index is an array of integers, one for each of so many rows that sorting pays."""
    kind = getattr(getattr(index, "dtype", None), "kind", "")
    return kind in ("i", "u") and len(total.shape) > 1 and prod(values.shape) > LIMITS.small_entries


OFTEN = 8  # rows to a name from which reduceat adds them as fast


def add_rows(total: Any, index: Any, values: Any) -> None:
    """Add each row of values to the one that the index names: sorted by name, in runs."""
    names = np.arange(len(total))[index.reshape(-1)]  # none negative
    order = np.argsort(names, kind="stable")
    names = names[order]
    starts = np.flatnonzero(np.diff(names, prepend=-1))
    rows = values.reshape((len(names), *total.shape[1:]))[order]
    if len(names) > OFTEN * len(starts):
        total[names[starts]] += np.add.reduceat(rows, starts, axis=0)
    else:
        _add_up(rows, starts)
        total[names[starts]] += rows[starts]


def _add_up(rows: Any, starts: Any) -> None:
    """Add each run of rows up in its first: every second one to the one before, until none is."""
    count = len(rows)
    place = np.arange(count) - np.repeat(starts, np.diff(starts, append=count))  # within its run
    left = np.arange(count)
    while place.any():
        odd = np.flatnonzero(place & 1)
        rows[left[odd - 1]] += rows[left[odd]]
        even = place & 1 == 0
        left, place = left[even], place[even] >> 1


SparseGradient.add_at = staticmethod(add_at)
