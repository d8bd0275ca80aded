"""Which steps can run on parts of the rows, each part on its own, with the same result.

The rows are those of one input, along its first axis that has more than one entry: the examples of
a batch, or the positions of one sequence. Every other value is then cut into rows along one of its
axes, or whole. A step runs in parts where the table of labels says that it may, given rows of what
it reads; it makes rows, or a sum to which each part adds its own. A step that reads all rows, or
a whole sum, waits until every part has ended: there a phase ends, and another may begin. What
cannot be shown to work this way runs whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from ...engine.op import registry
from ..limits import LIMITS
from ..threads import one_threaded_blas
from .labels import Labels, labels_of
from .parts import THREADS
from .program import EFFECTS, Program, Step, Value, nbytes, root

__all__ = ["Partition", "find_partition", "has_threads"]

CALL = 1e-6  # seconds that Python takes for a step
CACHED = 0.5  # of the time that what stays in cache takes
CACHE = 1 << 20  # bytes of cache of one core
LAST = 1 << 20  # the phase after which effects come
WORTH_CUTTING = 50e-6  # seconds from which a product of whole values runs in parts
SEEDS = 6  # inputs whose rows are tried


def find_partition(program: Program) -> Partition | None:
    """The partition that saves most, or None if none saves enough."""
    threads = 1 if has_threads(program) else THREADS
    plain = sum(_seconds(step, threads) + CALL for step in program.steps)
    if plain < LIMITS.split_seconds or blas_threads() < THREADS:
        return None
    if program.once or _stays_whole(program):
        return None
    labels = {id(step): labels_of(step) for step in program.steps}
    found = [Partition(program, labels, value, axis) for value, axis in _seeds(program)]
    found = [way for way in found if way.phases and way.seconds() < LIMITS.split_share * plain]
    return min(found, key=Partition.seconds, default=None)


def has_threads(program: Program) -> bool:
    """Whether a kernel shares its work among threads of its own."""
    kernels = [step for step in program.steps if step.kind == "kernel" and step.op in registry]
    ops = [(registry[step.op], step.args) for step in kernels]
    return any(hasattr(op, "threaded") and op.threaded(*a[: len(op.inputs)]) for op, a in ops)


def blas_threads() -> int:
    """How many threads BLAS has, 1 if its setting cannot be changed."""
    with one_threaded_blas as threads:
        return threads


def _stays_whole(program: Program) -> bool:
    """Whether steps must run in their order, as something is computed after a write."""
    kinds = [step.kind for step in program.steps if step.outs or step.kind in ("assign", "update")]
    written = [kind in ("assign", "update") for kind in kinds]
    return True in written and not all(written[written.index(True) :])


def _seeds(program: Program) -> Iterator[tuple[Value, int]]:
    """Inputs whose rows may be cut; parameters last, a few in all."""
    ranks = {"argument": 0, "captured": 1, "leaf": 2}
    inputs = {id(v): v for step in program.steps for v in step.reads() if v.kind in ranks}
    cut = [v for v in inputs.values() if any(n > 1 for n in v.shape)]
    for value in sorted(cut, key=lambda v: ranks[v.kind])[:SEEDS]:
        yield value, next(i for i, n in enumerate(value.shape) if n > 1)


def _seconds(step: Step, threads: int) -> float:
    """A rough time for a step, its products on so many threads."""
    if not step.outs or step.kind == "view" or step.out.dtype == object:
        return 0.0
    if step.kind == "matmul" and step.args[0].shape:
        wide = step.out.dtype.itemsize / 4
        return float(2 * prod(step.out.shape) * step.args[0].shape[-1] * wide / (7e10 * threads))
    size = max(map(nbytes, [step.out, *step.reads()]))
    return float(size / 1.2e10)


def _rank(label: Any) -> tuple[int, str]:
    """Of the labels of a product: its stack, its rows, what it sums over, its columns."""
    return "nkm".find(label) if isinstance(label, str) else -1, str(label)


class Way(NamedTuple):
    """One way to run a step in parts: in which phase, along which axis of its result (None for
    a sum), and along which axis it reads each value (None for whole).
    """

    phase: int
    axis: int | None
    needs: list[int | None]


class Partition:
    """When each step runs, for the rows of one input.

    Attributes:
        units: how many rows there are.  count: in how many parts.
        phases: how many times the parts run.
        needs: for a step that runs in parts, the axis along which it reads each value, or None.
        axes: the axis along which a value is cut, by its id; others are whole.
        local: values that live within the parts of one phase only, by the id of their root.
    """

    def __init__(
        self, program: Program, labels: dict[int, Labels | None], seed: Value, axis: int
    ) -> None:
        self.program, self.units = program, seed.shape[axis]
        self.axes: dict[int, int] = {id(seed): axis}
        self.needs: dict[int, list[int | None]] = {}
        # after which phase a value is whole, or in which its rows are
        self._times: dict[int, int] = {}
        self._steps: dict[int, int] = {}  # the phase of a step, or that after which it runs whole
        for step in program.steps:
            self._schedule(step, labels[id(step)])
        self.phases = max(map(self.phase, program.steps), default=0)
        self.local = self._find_local()
        self.count = self._count()

    def phase(self, step: Step) -> int:
        """The phase in whose parts a step runs, 0 for whole."""
        return self._steps[id(step)] if id(step) in self.needs else 0

    def order(self, step: Step) -> int:
        return 2 * self._steps[id(step)] - (id(step) in self.needs)

    def axis(self, value: Value) -> int | None:
        return self.axes.get(id(value))

    def seconds(self) -> float:
        """A rough time for the program, cut so."""
        total, longest = self.phases * LIMITS.phase_seconds, -(-self.units // THREADS) / self.units
        for step in self.program.steps:
            seconds = _seconds(step, 1)
            if step.outs and step.kind != "matmul" and id(root(step.out)) in self.local:
                seconds *= CACHED
            in_parts = max(seconds * longest, LIMITS.turn_seconds)
            total += in_parts if self.phase(step) else seconds + CALL
        return total

    # ------------------------------------------------------------------ when a step runs

    def _schedule(self, step: Step, labels: Labels | None) -> None:
        time = max([0, *(self._time(v) for v in step.reads())])
        if step.kind in EFFECTS and step.kind != "forget":
            time = LAST
        elif step.kind == "view":
            self._follow(step, labels)
        elif labels is not None:
            way = self._best(step, labels)
            if way is not None:
                time, self.needs[id(step)] = way.phase, way.needs
                if way.axis is not None:
                    self.axes[id(step.out)] = way.axis
        self._steps[id(step)] = time
        self._times.update((id(out), time) for out in step.outs)

    def _time(self, value: Value) -> int:
        return self._times.get(id(value), 0)

    def _follow(self, step: Step, labels: Labels | None) -> None:
        """A view of rows is rows too, if it keeps their axis."""
        axis = self.axis(step.args[0])
        label = labels.read[0][axis] if labels is not None and axis is not None else None
        if label is not None and labels is not None and label in labels.made:
            made = labels.made.index(label)
            if step.out.shape[made] % self.units == 0:
                self.axes[id(step.out)] = made

    def _best(self, step: Step, labels: Labels) -> Way | None:
        """The way to run a step in parts in which something that is cut stays so, in the earliest
        phase; of products the one that leaves the most whole. A large product is cut anyway.
        """
        values = step.reads()
        cut = [(row, self.axis(v)) for v, row in zip(values, labels.read, strict=True)]
        found = {row[axis] for row, axis in cut if axis is not None} - {None}
        if step.kind == "matmul" and not found and _seconds(step, 1) > WORTH_CUTTING:
            found = {"n", "k", "m"}
        ways = [self._way(step, labels, values, x) for x in sorted(found, key=_rank)]
        able = [way for way in ways if way is not None]
        earliest = min(able, key=lambda way: way.phase, default=None)
        return able[0] if able and step.kind == "matmul" else earliest

    def _way(self, step: Step, labels: Labels, values: list[Value], label: Any) -> Way | None:
        if label not in labels.made and not labels.sums:
            return None
        if any(row.count(label) > 1 for row in labels.read):  # a diagonal
            return None
        needs = [row.index(label) if label in row else None for row in labels.read]
        axis = labels.made.index(label) if label in labels.made else None
        cut = [*zip(values, needs, strict=True), (step.out, axis)]
        if any(a is not None and v.shape[a] % self.units for v, a in cut):
            return None
        if all(need is None for need in needs):
            return None
        ready = [self._time(v) + (self.axis(v) != a or a is None) for v, a in cut[:-1]]
        return Way(max(1, *ready), axis, needs)

    # ------------------------------------------------------------------ what stays within the parts

    def _find_local(self) -> set[int]:
        """Roots that are made in rows, and read in no other way than as these, in their phase."""
        shared = {id(root(value)) for value in self.program.kept()}
        made: set[int] = set()
        for step in self.program.steps:
            if step.kind == "view":
                continue
            phase = self.phase(step)
            values = step.reads()
            needs = self.needs.get(id(step), [None] * len(values))
            for value, need in zip(values, needs, strict=True):
                alike = need is not None and self.axis(value) == need
                if not alike or self._time(value) != phase:
                    shared.add(id(root(value)))
            if phase:
                made.update(id(out) for out in step.outs if self.axis(out) is not None)
        return made - shared

    def _count(self) -> int:
        """How many parts: what one computes with should stay in cache, unless the sums, which each
        part adds to, weigh more.
        """
        made = [step.out for step in self.program.steps if step.kind != "view" and self.phase(step)]
        moved = sum(map(nbytes, made))
        sums = sum(nbytes(out) for out in made if self.axis(out) is None)
        largest = max([nbytes(out) for out in made if id(out) in self.local], default=0)
        most = THREADS * (1 + moved // (25 * sums)) if sums else self.units
        count = max(THREADS, min(-(-largest // CACHE), most, self.units))
        return min(count + count % THREADS, self.units)
