"""Where the values of a program live: which arrays there are, and who writes over whom.

A *fixed* array stays where it is from call to call (a parameter, a constant, a buffer of ours); a
buffer is used again once the last view of its value was read. What the caller gets to keep is
*fresh* at every call, so no array that was handed out changes at the next one. What lives within
the parts of a split only is each thread's *own*.
"""

from __future__ import annotations

from typing import Any

from .parts import LARGE
from .program import Program, Step, Value, is_whole, nbytes, root
from .rewrite import kept
from .split import Split

__all__ = ["Array", "Homes", "stem"]

_WRITES = {"elementwise", "reduce", "matmul", "copy", "cast"}  # kinds that take an `out`


class Array:
    """An array of the source, and the values it holds one after the other.

    Attributes:
        kind: "fixed", "fresh" or "own".
        slot: its memory, which others may share.
        over: whether another array holds that memory now.
    """

    __slots__ = ("kind", "over", "slot", "values")

    def __init__(self, kind: str, slot: int, value: Value) -> None:
        self.kind, self.slot, self.values, self.over = kind, slot, [value], False

    @property
    def symbols(self) -> list[str]:
        """What its values are called."""
        return [value.name for value in self.values if value.name]

    def takes(self, value: Value) -> bool:
        """Whether a value that is written over the last one may go by the same name: one of its
        form and not of another symbol, as d_S is not d_A, nor of another op without symbols.
        """
        stems = {stem(name) for name in (*self.symbols, value.name) if name}
        made = [v.step.op for v in (self.values[-1], value) if v.step is not None and not stems]
        return value.shape == self.values[-1].shape and len(stems) < 2 and len(set(made)) < 2


def stem(name: str) -> str:
    """S of S_masked, d_S of d_S_raw."""
    parts = name.split("_")
    return "_".join(parts[: 1 + (parts[0] == "d")])


class Homes:
    """The array of every value that is computed, by the id of its root.

    Args: program: its steps in the order in which they will run.
    """

    def __init__(self, program: Program, split: Split | None) -> None:
        self.program, self.split = program, split
        self.arrays: dict[int, Array] = {}
        self.handed: set[int] = {id(root(value)) for value in kept(program)}
        self.pinned: set[int] = set()  # a kernel's result may share their memory
        self.last: dict[int, int] = {}
        self._free: dict[Any, list[tuple[int, int]]] = {}  # by pool: (bytes, slot)
        self._slots = 0
        self._survey()
        self._walk()

    def is_fixed(self, value: Value) -> bool:
        """Whether a value, read whole, is the same array at every call."""
        base = root(value)
        array = self.arrays.get(id(base))
        if array is not None:
            return array.kind == "fixed"
        stays = base.kind in ("leaf", "captured", "constant", "room")
        return stays and id(base) not in self.handed

    def _phase(self, step: Step) -> int:
        """The phase in whose parts a step runs, 0 for whole."""
        if self.split is None:
            return 0
        time, in_parts = self.split.time(step)
        return time if in_parts and step.kind != "view" else 0

    def _survey(self) -> None:
        """When each root is read last; what runs in parts counts as one moment for the others."""
        steps = self.program.steps
        self.moments = list(range(len(steps)))
        end, later = len(steps), 0
        for i in reversed(range(len(steps))):
            phase = self._phase(steps[i])
            if phase != later and phase:
                end = i
            later = phase or later
            self.moments[i] = end if phase else i
        for i, step in enumerate(steps):
            for value in step.reads():
                base = root(value)
                moment = i if self._is_own(base) else self.moments[i]
                self.last[id(base)] = max(moment, self.last.get(id(base), -1))
                if step.shares:
                    self.pinned.add(id(base))
            if step.kind == "grad":
                self.handed.add(id(root(step.args[2])))

    def _is_own(self, base: Value) -> bool:
        return self.split is not None and id(base) in self.split.local

    def _walk(self) -> None:
        dying: dict[int, list[tuple[Value, Array, int]]] = {}
        for i, step in enumerate(self.program.steps):
            phase = self._phase(step)
            for value in () if step.kind == "view" else step.outs:
                base = root(value)
                if id(base) not in self.arrays:
                    self._settle(i, step, base, phase)
                array = self.arrays[id(base)]
                made = i if array.kind == "own" else self.moments[i]
                moment = max(made, self.last.get(id(base), -1))
                dying.setdefault(moment, []).append((base, array, phase))
            for base, array, phase in dying.pop(i, ()):
                taken = array.over or array.values[-1] is not base or id(base) in self.pinned
                if array.kind != "fresh" and not taken:
                    pool = (array.kind, phase if array.kind == "own" else 0)
                    entry = (nbytes(array.values[0]), array.slot)
                    free = self._free.setdefault(pool, [])
                    if entry not in free:
                        free.append(entry)

    def _settle(self, i: int, step: Step, base: Value, phase: int) -> None:
        """Give a root its array: that of an input which dies here, or one in memory that is free,
        or a new one.
        """
        own = self._is_own(base)
        able = base.kind == "room" or (step.kind in _WRITES and base is step.out)
        kind = "own" if own and able else "fresh"
        total = self.split is not None and self.split.place(base).kind == "sum"
        if able and not (own or total or id(base) in self.handed):
            kind = "fixed"
        large = kind == "fresh" and able and nbytes(base) >= LARGE
        if kind == "own" or ((kind == "fixed" or large) and not phase):
            taken = self._taken(i, step, base, phase) if step.kind == "elementwise" else None
            if taken is not None and large:  # what is handed out lies there from then on
                self._free.setdefault(("fixed", 0), []).append((nbytes(base), taken.slot))
                self._slots += 1
                taken.kind, taken.slot = "fresh", self._slots
            if taken is not None and taken.takes(base):
                taken.values.append(base)
                self.arrays[id(base)] = taken
                return
            if taken is not None:
                taken.over = True
                self.arrays[id(base)] = Array(kind, taken.slot, base)
                return
        free = self._free.get((kind, phase if kind == "own" else 0), [])
        found = next((entry for entry in reversed(free) if entry[0] == nbytes(base)), None)
        if found is not None and nbytes(base):
            free.remove(found)
            self.arrays[id(base)] = Array(kind, found[1], base)
        else:
            self._slots += 1
            self.arrays[id(base)] = Array(kind, self._slots, base)

    def _taken(self, i: int, step: Step, out: Value, phase: int) -> Array | None:
        """The array that an elementwise step may write over: ours, whole, of the same form, and not
        read again.
        """
        for value in step.reads():
            base = root(value)
            array = self.arrays.get(id(base))
            if (
                array is None
                or array.over
                or array.values[-1] is not base
                or id(base) in self.pinned
            ):
                continue
            if array.kind != ("own" if phase else "fixed") or self.last[id(base)] != i:
                continue
            form = (value.shape, value.dtype, value.offset, nbytes(value))
            if form != (out.shape, out.dtype, base.offset, nbytes(base)) or not is_whole(value):
                continue
            if self.split is not None and phase:
                place, made = self.split.place(value), self.split.place(out)
                if (place.kind, place.axis) != (made.kind, made.axis):
                    continue
            if all(v is value or root(v) is not base for v in step.reads()):
                return array
        return None
