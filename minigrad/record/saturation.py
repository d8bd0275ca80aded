"""How many units, entries or rows of a value are saturated, as its op declares."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.declaration import call_by_name
from ..engine.op import Op, registry
from .record import Array

__all__ = ["by_rows", "saturation"]

ENTRIES_PER_UNIT = 16  # with fewer, a unit that is 0 in all of them may be so by chance


def saturation(op_name: str, out: Array, settings: dict[str, Any]) -> tuple[int, int, str] | None:
    """How many units, entries or rows of how many are saturated, as the op declares, and what."""
    op = registry[op_name]
    if op.saturates is None or not out.size:
        return None
    words, function = op.saturates
    where = np.asarray(call_by_name(function, {**settings, "out": out}))
    if words.startswith("units") and out.size < ENTRIES_PER_UNIT * where.size:
        return None
    return int(np.count_nonzero(where)), where.size, words


def by_rows(op: Op) -> bool:
    """Whether an op makes rows that may saturate, as weights of attention do."""
    return op.saturates is not None and op.saturates[0].startswith("rows")
