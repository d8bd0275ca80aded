"""Where the values of a program live: which arrays there are, and who writes over whom.

A *fixed* array stays where it is from call to call; its memory is used again once the last view of
its value was read. What the caller gets to keep is *fresh* at every call, so no array that was
handed out changes at the next one. What lives within the parts of a partition only is each thread's
*own*.
"""

from __future__ import annotations

from typing import NamedTuple

from ..limits import LIMITS
from .partition import Unsplit
from .program import Program, ProgramStep, Value, is_whole, nbytes, root
from .symbol import WRITES

__all__ = ["Buffers", "Storage"]


class Storage(NamedTuple):
    """The array of a value: "fixed", "fresh" or "own", and the number of its memory."""

    kind: str
    slot: int


class Buffers:
    """The array of every value that is computed, by the id of its root.

    Args: program: its steps in the order in which they will run.
    """

    def __init__(self, program: Program, partition: Unsplit) -> None:
        self.program, self.partition = program, partition
        self.arrays: dict[int, Storage] = {}
        self.handed = {id(root(value)) for value in program.kept()}
        self._pinned: set[int] = set()  # a kernel's result may share their memory
        self._last: dict[int, int] = {}  # when a root is read last
        self._free: dict[tuple[str, int], list[int]] = {}  # slots, by kind and bytes
        self._slots = 0
        self.over: dict[int, Value] = {}  # what a value is written over, as its step reads it
        self._moments = self._find_moments()
        self._find_last()
        self._assign()
        self._pass_on_names()
        self.last_reads = self._find_last_reads()

    def _find_last_reads(self) -> dict[int, list[Value]]:
        """The large new arrays that only the program holds, by the step that reads them last."""
        found: dict[int, list[Value]] = {}
        for step in self.program.steps:
            for out in step.outs if step.kind != "view" else ():
                large = nbytes(out) >= LIMITS.large_bytes and out.dtype != object
                known = self.arrays.get(id(out))
                if large and known is not None and known.kind == "fresh":
                    if id(out) not in self.handed and id(out) in self._last:
                        found.setdefault(self._last[id(out)], []).append(out)
        return found

    def is_fixed(self, value: Value) -> bool:
        """Whether a value, read whole, is the same array at every call."""
        base = root(value)
        if id(base) in self.arrays:
            return self.arrays[id(base)].kind == "fixed"
        return base.kind in ("leaf", "captured", "constant") and id(base) not in self.handed

    def _is_own(self, base: Value) -> bool:
        return id(base) in self.partition.local

    def _find_moments(self) -> list[int]:
        """When each step has run; those of one phase have all run when the last of them has."""
        moments, ends = [], {}
        for i, step in enumerate(self.program.steps):
            ends[self.partition.phase(step)] = i
        for i, step in enumerate(self.program.steps):
            phase = self.partition.phase(step)
            moments.append(ends[phase] if phase else i)
        return moments

    def _find_last(self) -> None:
        for i, step in enumerate(self.program.steps):
            for value in step.reads if step.kind != "view" else ():
                base = root(value)
                moment = i if self._is_own(base) else self._moments[i]
                self._last[id(base)] = max(moment, self._last.get(id(base), -1))
                if step.shares:
                    self._pinned.add(id(base))
            if step.kind == "grad":
                self.handed.add(id(root(step.args[1])))

    def _assign(self) -> None:
        """Give each value an array when it is made, and take its memory back after its last use."""
        dying: dict[int, list[Value]] = {}
        taken: set[int] = set()  # roots over which another was written
        for i, step in enumerate(self.program.steps):
            phase = self.partition.phase(step)
            for out in () if step.kind == "view" else step.outs:
                kind = self._kind(step, out, phase)
                over = self._over(step, out, kind, i) if kind != "fresh" else None
                if over is not None:
                    taken.add(id(root(over)))
                    slot = self.arrays[id(root(over))].slot
                    self.over[id(out)] = over
                else:
                    free = self._free.get((kind, nbytes(out)))
                    self._slots += not free
                    slot = free.pop() if free else self._slots
                self.arrays[id(out)] = Storage(kind, slot)
                made = i if kind == "own" else self._moments[i]
                dying.setdefault(max(made, self._last.get(id(out), -1)), []).append(out)
            for base in dying.pop(i, ()):
                kind, slot = self.arrays[id(base)]
                if kind != "fresh" and id(base) not in taken | self._pinned:
                    self._free.setdefault((kind, nbytes(base)), []).append(slot)

    def _pass_on_names(self) -> None:
        """A value without a name takes that of the value which is written over it."""
        for step in reversed(self.program.steps):
            for out in step.outs:
                over = self.over.get(id(out))
                if over is not None and over.name is None:
                    over.name = out.name

    def _kind(self, step: ProgramStep, out: Value, phase: int) -> str:
        if step.kind not in WRITES or (not phase and id(out) in self.program.laid_out):
            return "fresh"
        if self._is_own(out):
            return "own"
        total = phase and self.partition.axis(out) is None
        return "fresh" if total or id(out) in self.handed else "fixed"

    def _over(self, step: ProgramStep, out: Value, kind: str, i: int) -> Value | None:
        """What an elementwise step may write over: ours, whole, of the same form, and not read
        again. NumPy takes longer over a single entry, which it copies first.
        """
        parted = kind != "fixed"
        if (
            step.kind != "elementwise"
            or parted != bool(self.partition.phase(step))
            or nbytes(out) <= 8
        ):
            return None
        for value in step.reads:
            base = root(value)
            array = self.arrays.get(id(base))
            if array is None or array.kind != kind or self._last[id(base)] != i:
                continue
            alike = (value.shape, value.dtype, value.offset) == (out.shape, out.dtype, 0)
            alike = alike and is_whole(value) and nbytes(value) == nbytes(base)
            if kind == "own":
                alike = alike and self.partition.axis(value) == self.partition.axis(out)
            alone = all(v is value or root(v) is not base for v in step.reads)
            if alike and alone and id(base) not in self._pinned:
                return value
        return None
