"""Repeated blocks: the last is told, through which backward goes first; the others are copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import Model

if TYPE_CHECKING:
    from ...recording.record import Entry
    from ...recording.trace import Trace

__all__ = ["Blocks"]


class Blocks:
    def __init__(self, trace: Trace) -> None:
        self.trace, self.fold = trace, Model(trace).fold
        self._twins: dict[int, list[int]] = {}
        for entry in trace.entries:
            self._twins.setdefault(self.fold.leader(entry.id), []).append(entry.id)

    @property
    def any(self) -> bool:
        return bool(self.fold.times)

    def hidden(self, entry: int) -> bool:
        """Whether an entry is in a copy of a block."""
        copies = self.fold.copy_of.get(entry, {})
        return any(number < self.fold.times[block] - 1 for block, number in copies.items())

    def block(self, entry: int) -> tuple[str, str]:
        """Which blocks an entry's is one of, and the scope of the one that is told."""
        block = next(iter(self.fold.copy_of[entry]))
        above, _, _ = block.rpartition("/")
        names = self.fold.names[block]
        last = names.rpartition(" … ")[2]
        return names, f"{above}/{last}" if above else last

    def copies(self, entry: int) -> list[Entry]:
        """An entry and its twins in the other copies of its block."""
        return [self.trace[i] for i in self._twins[self.fold.leader(entry)]]
