"""Which steps can run on parts of the rows, each part on its own, with the same result.

The rows are those of one input, along its first axis that has more than one entry: the examples of
a batch, or the positions of one sequence. Every other value is then *whole*, or cut into *rows*
along one of its axes, or a *sum* over the rows, to which each part adds its own. A step runs in
parts if its results are rows or sums again, given rows of what it reads; whole values may be cut as
needed. A step that reads all rows, or a whole sum, waits until every part has ended: there a phase
ends, and another may begin. What cannot be shown to work this way is run whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ...engine.op import registry
from ..threads import one_threaded_blas
from .axes import backward, forward
from .partition_rules import Need, Place, Ways
from .parts import THREADS
from .program import Program, Step, Value, nbytes, root
from .rewrite import kept

__all__ = ["Split", "has_threads", "split"]

PHASE = 120e-6  # seconds to start and end the parts
CALL = 1e-6  # seconds that Python takes for a step
TURN = 15e-6  # and at least for one that runs in parts: there each waits for the other to let go
CACHED = 0.5  # of the time that what stays in cache takes
CACHE = 1 << 20  # bytes of cache of one core
WORTH = 1e-3  # seconds from which a program is looked at
ENOUGH = 0.95  # of the time it may take then


def split(program: Program) -> Split | None:
    """The split that saves most, or None if none saves enough."""
    threads = 1 if has_threads(program) else THREADS
    plain = sum(_seconds(step, threads) + CALL for step in program.steps)
    if plain < WORTH or program.draws or _overwrites(program) or blas_threads() < THREADS:
        return None
    found = [Split(program, seed, axis) for seed, axis in _seeds(program)]
    found = [way for way in found if way.phases and way.seconds() < ENOUGH * plain]
    return min(found, key=Split.seconds, default=None)


def has_threads(program: Program) -> bool:
    """Whether a kernel shares its work among threads of its own."""
    kernels = [step for step in program.steps if step.kind == "kernel" and step.op in registry]
    ops = ((registry[step.op], step.args) for step in kernels)
    tests = [(getattr(op, "threaded", None), args[: len(op.inputs)]) for op, args in ops]
    return any(test is not None and test(*args) for test, args in tests)


def blas_threads() -> int:
    """How many threads BLAS has, 1 if its setting cannot be changed."""
    with one_threaded_blas as threads:
        return threads


def _overwrites(program: Program) -> bool:
    """Whether something is computed after an array was overwritten."""
    writes = [step.kind in ("assign", "update") for step in program.steps]
    after = program.steps[writes.index(True) :] if True in writes else []
    return any(step.outs for step in after)


def _seeds(program: Program) -> Iterator[tuple[Value, int]]:
    """Inputs whose rows may be cut; parameters last, a few in all."""
    ranks = {"argument": 0, "captured": 1, "leaf": 2}
    inputs: dict[int, Value] = {}
    for step in program.steps:
        for value in step.reads():
            if value.kind in ranks:
                inputs.setdefault(id(value), value)
    ordered = sorted(inputs.values(), key=lambda v: ranks[v.kind])
    tried = 0
    for value in ordered:
        axis = next((i for i, n in enumerate(value.shape) if n > 1), None)
        if axis is not None and tried < 6:
            tried += 1
            yield value, axis


_PASSES = {"np.exp": 3, "np.tanh": 8, "np.power": 8, "np.log": 3, "normal_cdf_of": 20}


def _seconds(step: Step, threads: int) -> float:
    """A rough time for a step, its products on so many threads."""
    if not step.outs or step.kind == "view" or step.out.dtype == object:
        return 0.0
    if step.kind == "matmul" and step.args[0].shape:
        wide = step.out.dtype.itemsize / 4
        return float(2 * prod(step.out.shape) * step.args[0].shape[-1] * wide / (7e10 * threads))
    size = max([nbytes(step.out), *map(nbytes, step.reads())])
    return float(size * _PASSES.get(step.text, 1) / 1.2e10)


class Split(Ways):
    """The places of all values, and when each step runs, for the rows of one input.

    Attributes:
        units: how many rows there are.  count: in how many parts.
        phases: how many times the parts run.
        needs: for a step that runs in parts, how it reads each value.
        local: values that live within the parts of one phase only, by the id of their root.
    """

    def __init__(self, program: Program, seed: Value, axis: int) -> None:
        self.program, self.units = program, seed.shape[axis]
        self.places: dict[int, Place] = {id(seed): Place("rows", axis, 0)}
        self.times: dict[int, tuple[int, bool]] = {}
        self.needs: dict[int, list[Need]] = {}
        for step in program.steps:
            self._schedule(step)
        self.phases = max((time for time, parts in self.times.values() if parts), default=0)
        self.local = self._find_local()
        self.count = self._count()

    def time(self, step: Step) -> tuple[int, bool]:
        """After how many phases a step runs whole, or in which phase in parts, and whether that."""
        return self.times[id(step)]

    def order(self, step: Step) -> int:
        time, in_parts = self.times[id(step)]
        return 2 * time - in_parts

    def seconds(self) -> float:
        """A rough time for the program, split."""
        total, longest = self.phases * PHASE, -(-self.units // THREADS) / self.units
        for step in self.program.steps:
            in_parts = self.times[id(step)][1] and step.kind != "view"
            seconds = _seconds(step, 1) * (longest if in_parts else 1)
            cached = step.kind != "matmul" and step.outs and id(root(step.out)) in self.local
            seconds *= CACHED if cached else 1
            total += max(seconds, TURN) if in_parts else seconds + CALL
        return total

    def is_large(self, step: Step) -> bool:
        return _seconds(step, THREADS) > PHASE

    # ------------------------------------------------------------------ when a step runs

    def _schedule(self, step: Step) -> None:
        if not step.outs and step.kind != "check":  # effects come when all is computed
            self.times[id(step)] = (1 << 20, False)
            return
        if step.kind == "view":
            return self._follow(step)
        best: Place | None = None
        for kind, axis, needs in self._options(step):
            phase = max([1, *(self._ready(v, need) for v, need in needs)])
            if any(need == "sum" and self.place(v).time != phase for v, need in needs):
                continue  # that sum is whole by then
            if best is None or (step.kind != "matmul" and phase < best.time):
                best = Place(kind, axis, phase)
                self.needs[id(step)] = needs
        place = best or Place("whole", 0, max([0, *(self.place(v).time for v in step.reads())]))
        self.times[id(step)] = (place.time, best is not None)
        for out in step.outs:
            self.places[id(out)] = place

    def _ready(self, value: Value, need: Any) -> int:
        """The first phase in which a value can be read so."""
        return self.place(value).time + (not self._is_cut(value, need))

    def _follow(self, step: Step) -> None:
        """A view: rows of rows, a sum of a sum, or of something whole."""
        place = self.place(step.args[0])
        if step.text == "joined":
            place = self._of_joined(step)
        elif place.kind == "rows":
            axis = forward(step, place.axis, self.units)
            place = place._replace(axis=axis) if axis is not None else place._replace(kind="whole")
        self.places[id(step.out)] = place
        self.times[id(step)] = (place.time, place.kind != "whole")

    def _of_joined(self, step: Step) -> Place:
        """Memory that several steps wrote to: rows if each wrote rows of it."""
        room, *parts = step.args
        places = [self.place(part) for part in parts]
        time = max(place.time for place in places)
        axes = {self.axis_below(part, p.axis, room) for part, p in zip(parts, places, strict=True)}
        if all(place.kind == "rows" for place in places) and len(axes) == 1 and None not in axes:
            (axis,) = axes
            assert axis is not None
            return Place("rows", axis, time)
        return Place("whole", 0, time)

    def axis_below(self, value: Value, axis: int, base: Value) -> int | None:
        """The axis of what a value is a view of that is this axis of the value."""
        while value is not base:
            step = value.step
            if step is None:
                return None
            if step.into is not None:
                value = step.into
                continue
            found = backward(step, axis, self.units) if step.kind == "view" else None
            if found is None:
                return None
            value, axis = step.args[0], found
        return axis

    # ------------------------------------------------------------------ what stays within the parts

    def _find_local(self) -> set[int]:
        """Roots that are made in one phase and read in no other way than in its parts."""
        shared = {id(root(value)) for value in kept(self.program)}
        homes: dict[int, set[tuple[int, int | None]]] = {}
        for step in self.program.steps:
            if step.kind == "view":
                continue
            time, in_parts = self.times[id(step)]
            reads = self.needs[id(step)] if in_parts else [(v, "whole") for v in step.reads()]
            for value, need in reads:
                if self.place(value).time != time or not self._is_cut(value, need):
                    shared.add(id(root(value)))
            for out in step.outs:
                base, place = root(out), self.place(out)
                rows = place.kind == "rows"
                below = self.axis_below(out, place.axis, base) if rows else -1
                homes.setdefault(id(base), set()).add((time, below))
                if not in_parts or (place.kind == "sum" and base is not out):
                    shared.add(id(base))
        return {
            key
            for key, found in homes.items()
            if key not in shared and len(found) == 1 and next(iter(found))[1] is not None
        }

    def _count(self) -> int:
        """How many parts: what one computes with should stay in cache, unless the sums, which each
        part adds to, weigh more.
        """
        largest, sums, moved = 0, 0, 0
        for step in self.program.steps:
            if step.kind == "view" or not self.times[id(step)][1]:
                continue
            for out in step.outs:
                moved += nbytes(out)
                if self.place(out).kind == "sum":
                    sums += nbytes(out)
                elif id(root(out)) in self.local:
                    largest = max(largest, nbytes(out))
        wanted = -(-largest // CACHE)
        most = THREADS * (1 + moved // (25 * sums)) if sums else self.units
        count = max(THREADS, min(wanted, most, self.units))
        return min(count + count % THREADS, self.units)
