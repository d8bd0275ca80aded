"""From which sizes on a faster way pays: one object, and one meaning for each of its fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["LIMITS", "Limits"]


class Limits:
    """Sizes measured on two cores with 1 MiB of cache each.

    Read a field where it is used (`LIMITS.large_bytes`), never into a constant of a module: so a
    test changes it for all of `fast/` at once.

    >>> with LIMITS.changed(large_bytes=1):
    ...     LIMITS.large_bytes
    1
    >>> LIMITS.large_bytes
    16384
    """

    # arrays
    small_entries: int = 1 << 12  # with fewer entries, NumPy's plain expression is the fastest

    # attention in tiles
    one_tile_scores: int = 3 << 18  # up to here one tile takes them all, as fast as the exact form
    threaded_work: float = 1e8  # scores times (d_k + d_v + 64) from which threads pay: 5 ms

    # compiled steps
    large_bytes: int = 1 << 14  # arrays from so many bytes on are let go of before the step ends

    @contextmanager
    def changed(self, **values: Any) -> Iterator[None]:
        """Other values within, for tests and for measuring.

        Raises: AttributeError for a limit that there is none of.
        """
        before = {name: getattr(self, name) for name in values}
        try:
            vars(self).update(values)
            yield
        finally:
            vars(self).update(before)


LIMITS = Limits()
