"""Which steps can run on parts of the rows, each part on its own, with the same result; and what
runs the parts on threads.

The rows are those of one input, along its first axis that has more than one entry: the examples of
a batch, or the positions of one sequence. Every other value is then cut into rows along one of its
axes, or whole. A step runs in parts where the table of labels says that it may, given rows of what
it reads; it makes rows, or a sum to which each part adds its own. A step that reads all rows, or
a whole sum, waits until every part has ended: there a phase ends, and another may begin. What
cannot be shown to work this way runs whole. On two cores, attention over 512 to 2,048 tokens takes
11 to 18 % less time for it (`python -m benchmarks table`, 2026-11-23).

As in einsum, the axes of what a step reads and of what it makes bear labels. Axes of one label may
be cut alike: what the step makes of some rows is then those rows of the result, or, if the result
lacks the label, what these rows add to it. None is the label of an axis that cannot be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ...engine.op import registry
from ...engine.types import Array, Kernel
from ..limits import LIMITS
from ..memory import empty
from ..threads import Scratch, one_threaded_blas, run
from .program import EFFECTS, Program, ProgramStep, Value, nbytes, root

__all__ = ["Partition", "Parts", "Unsplit", "find_partition", "has_threads"]

THREADS = 2
CALL = 1e-6  # seconds that Python takes for a step
CACHED = 0.5  # of the time that what stays in cache takes
CACHE = 1 << 20  # bytes of cache of one core
AFTER_THE_PARTS = 1 << 20  # the phase after which effects come
WORTH_CUTTING = 50e-6  # seconds from which a product of whole values runs in parts
SEEDS = 6  # inputs whose rows are tried


def find_partition(program: Program) -> Unsplit:
    """The partition that saves most; all as it is if none saves enough."""
    threads = 1 if has_threads(program) else THREADS
    plain = sum(_seconds(step, threads) + CALL for step in program.steps)
    if plain < LIMITS.split_seconds or blas_threads() < THREADS:
        return Unsplit()
    if program.once or _stays_whole(program):
        return Unsplit()
    labels = {id(step): labels_of(step) for step in program.steps}
    found = [Partition(program, labels, value, axis) for value, axis in _seeds(program)]
    found = [way for way in found if way.phases and way.seconds() < LIMITS.split_share * plain]
    return min(found, key=Partition.seconds, default=Unsplit())


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
    inputs = {id(v): v for step in program.steps for v in step.reads if v.kind in ranks}
    cut = [v for v in inputs.values() if any(n > 1 for n in v.shape)]
    for value in sorted(cut, key=lambda v: ranks[v.kind])[:SEEDS]:
        yield value, next(i for i, n in enumerate(value.shape) if n > 1)


def _seconds(step: ProgramStep, threads: int) -> float:
    """A rough time for a step, its products on so many threads."""
    if not step.outs or step.kind == "view" or step.out.dtype == object:
        return 0.0
    if step.kind == "matmul" and step.args[0].shape:
        wide = step.out.dtype.itemsize / 4
        return float(2 * prod(step.out.shape) * step.args[0].shape[-1] * wide / (7e10 * threads))
    size = max(map(nbytes, [step.out, *step.reads]))
    return float(size / 1.2e10)


def _rank(label: object) -> tuple[int, str]:
    """Of the labels of a product: its stack, its rows, what it sums over, its columns."""
    return "nkm".find(label) if isinstance(label, str) else -1, str(label)


class Way(NamedTuple):
    """One way to run a step in parts: in which phase, along which axis of its result (None for
    a sum), and along which axis it reads each value (None for whole).
    """

    phase: int
    axis: int | None
    needs: list[int | None]


class Unsplit:
    """Steps that all run as they are: a partition without parts.

    Attributes:
        units: how many rows there are.  count: in how many parts.
        phases: how many times the parts run.
        axes: the axis along which a value is cut, by its id; others are whole.
        local: values that live within the parts of one phase only, by the id of their root.
    """

    units = count = phases = 0

    def __init__(self) -> None:
        self.axes: dict[int, int] = {}
        self.local: set[int] = set()
        self._needs: dict[int, list[int | None]] = {}
        self._steps: dict[int, int] = {}  # the phase of a step, or that after which it runs whole

    def phase(self, step: ProgramStep) -> int:
        """The phase in whose parts a step runs, 0 for whole."""
        return self._steps[id(step)] if id(step) in self._needs else 0

    def order(self, step: ProgramStep) -> int:
        return 2 * self._steps.get(id(step), 0) - (id(step) in self._needs)

    def axis(self, value: Value) -> int | None:
        return self.axes.get(id(value))

    def needs(self, step: ProgramStep) -> list[int | None]:
        """The axis along which a step reads each value, None for whole."""
        return self._needs.get(id(step)) or [None] * len(step.reads)


class Partition(Unsplit):
    """When each step runs, for the rows of one input."""

    def __init__(
        self, program: Program, labels: dict[int, Labels | None], seed: Value, axis: int
    ) -> None:
        super().__init__()
        self.program, self.units = program, seed.shape[axis]
        self.axes[id(seed)] = axis
        # after which phase a value is whole, or in which its rows are
        self._times: dict[int, int] = {}
        for step in program.steps:
            self._schedule(step, labels[id(step)])
        self.phases = max(map(self.phase, program.steps), default=0)
        self.local = self._find_local()
        self.count = self._count()

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

    def _schedule(self, step: ProgramStep, labels: Labels | None) -> None:
        time = max([0, *(self._time(v) for v in step.reads)])
        if step.kind in EFFECTS and step.kind != "forget":
            time = AFTER_THE_PARTS
        elif step.kind == "view":
            self._follow(step, labels)
        elif labels is not None:
            way = self._best(step, labels)
            if way is not None:
                time, self._needs[id(step)] = way.phase, way.needs
                if way.axis is not None:
                    self.axes[id(step.out)] = way.axis
        self._steps[id(step)] = time
        self._times.update((id(out), time) for out in step.outs)

    def _time(self, value: Value) -> int:
        return self._times.get(id(value), 0)

    def _follow(self, step: ProgramStep, labels: Labels | None) -> None:
        """A view of rows is rows too, if it keeps their axis."""
        axis = self.axis(step.args[0])
        label = labels.read[0][axis] if labels is not None and axis is not None else None
        if label is not None and labels is not None and label in labels.made:
            made = labels.made.index(label)
            if step.out.shape[made] % self.units == 0:
                self.axes[id(step.out)] = made

    def _best(self, step: ProgramStep, labels: Labels) -> Way | None:
        """The way to run a step in parts in which something that is cut stays so, in the earliest
        phase; of products the one that leaves the most whole. A large product is cut anyway.
        """
        values = step.reads
        cut = [(row, self.axis(v)) for v, row in zip(values, labels.read, strict=True)]
        found = {row[axis] for row, axis in cut if axis is not None} - {None}
        if step.kind == "matmul" and not found and _seconds(step, 1) > WORTH_CUTTING:
            found = {"n", "k", "m"}
        ways = [self._way(step, labels, values, x) for x in sorted(found, key=_rank)]
        able = [way for way in ways if way is not None]
        earliest = min(able, key=lambda way: way.phase, default=None)
        return able[0] if able and step.kind == "matmul" else earliest

    def _way(
        self, step: ProgramStep, labels: Labels, values: list[Value], label: object
    ) -> Way | None:
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
            for value, need in zip(step.reads, self.needs(step), strict=True):
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


# ---------------------------------------------------------------- the labels of axes


Axes = tuple[Any, ...]


class Labels(NamedTuple):
    """The labels of every value that a step reads, in order, and of its result; and whether a
    label that the result lacks is summed over.
    """

    read: list[Axes]
    made: Axes
    sums: bool = False


def labels_of(step: ProgramStep) -> Labels | None:
    """None for a step that runs whole."""
    if any(not v.shape for v in step.reads) and step.kind != "elementwise":
        return None
    rule = _RULES.get(step.text) or _RULES.get(step.kind)
    return rule(step) if rule is not None else None


def _aligned(value: Value, out: Value) -> Axes:
    """Axes counted from the last one; one that is repeated has no label."""
    axes = range(-len(value.shape), 0)
    return tuple([i if value.shape[i] == out.shape[i] else None for i in axes])


def _elementwise(step: ProgramStep) -> Labels:
    return Labels([_aligned(v, step.out) for v in step.reads], _aligned(step.out, step.out))


def _reduce(step: ProgramStep) -> Labels:
    axis, ndim = step.kwargs.get("axis"), len(step.args[0].shape)
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    gone = {a % ndim for a in axes}
    keeps = step.kwargs.get("keepdims", False)
    made = [None if i in gone else i for i in range(ndim) if keeps or i not in gone]
    sums = step.text == "np.add.reduce" and "initial" not in step.kwargs
    return Labels([tuple(range(ndim))], tuple(made), sums)


def _matmul(step: ProgramStep) -> Labels:
    a, b = step.args
    n, m = ("n",) * (len(a.shape) > 1), ("m",) * (len(b.shape) > 1)

    def stack(value: Value, last: int) -> Axes:
        both = _aligned(value, step.out)[:-2] if n and m else ()
        return both or (None,) * (len(value.shape) - last)

    read = [(*stack(a, len(n) + 1), *n, "k"), (*stack(b, len(m) + 1), "k", *m)]
    return Labels(read, (*stack(step.out, len(n + m)), *n, *m), sums=True)


def _reshape(step: ProgramStep) -> Labels:
    """Axes with as many entries before them are cut into the same blocks."""

    def blocks(shape: tuple[int, ...]) -> Axes:
        before = accumulate((1, *shape), mul)
        return tuple([at if n > 1 else None for n, at in zip(shape, before, strict=False)])

    return Labels([blocks(step.args[0].shape)], blocks(step.out.shape))


def _view(step: ProgramStep) -> Labels:
    """For each axis of a view, the axis that it is all of: its stride tells which."""
    shape = step.args[0].shape
    strides = [10**9 + 7 + 2 * i for i in range(len(shape))]
    source = np.lib.stride_tricks.as_strided(np.empty(0, np.uint8), shape, strides)
    assert step.function is not None
    seen = step.function(source, *step.args[1:], **step.kwargs)
    known = dict(zip(strides, shape, strict=True))
    pairs = zip(seen.strides, seen.shape, strict=True)
    made = tuple([strides.index(s) if known.get(s) == n else None for s, n in pairs])
    return Labels([tuple(range(len(shape)))], made)


def _take(step: ProgramStep) -> Labels | None:
    x, indices = step.args[:2]
    axis = step.kwargs.get("axis")
    if not isinstance(axis, int) or indices.__class__ is not Value or x.__class__ is not Value:
        return None
    axis %= len(x.shape)
    named = tuple(("index", i) for i in range(len(indices.shape)))
    whole = tuple(None if i == axis else i for i in range(len(x.shape)))
    return Labels([whole, named], (*whole[:axis], *named, *whole[axis + 1 :]))


_RULES: dict[str, Callable[[ProgramStep], Labels | None]] = {
    "elementwise": _elementwise,
    "np.where": lambda step: _elementwise(step) if len(step.args) == 3 else None,
    "reduce": _reduce,
    "matmul": _matmul,
    "copy": _reshape,
    "np.take": _take,
    "reshape": _reshape,
    "broadcast_to": _elementwise,
    "cut": lambda step: None,
    "view": _view,
}

# ---------------------------------------------------------------- what runs the parts


def _fresh(_: int, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """A new array, which belongs to the caller."""
    return empty(shape, dtype)


class Parts:
    """Runs a function on parts of so many rows, on threads over single-threaded BLAS, and adds up
    what it returns: always in the same order, whatever the threads do.

    Args: units: rows in all.  count: parts in all.
    """

    def __init__(self, units: int, count: int) -> None:
        edges = [units * i // count for i in range(count + 1)]
        cuts = list(pairwise(edges))
        shares = [count * i // THREADS for i in range(THREADS + 1)]
        self.cuts = [cuts[a:b] for a, b in pairwise(shares)]
        self._own = [Scratch().array for _ in self.cuts]
        self._sums: list[Any] = [_fresh, *(Scratch().array for _ in self.cuts[1:])]
        self._more = [Scratch().array for _ in self.cuts]

    def __call__(self, part: Kernel) -> tuple[Array, ...]:
        """The sums of what `part(low, high, own, sums)` returns for each part of the rows."""
        totals: list[Any] = [None] * len(self.cuts)

        def share(i: int, _: Scratch) -> None:
            first, *rest = self.cuts[i]
            totals[i] = part(*first, self._own[i], self._sums[i])
            for rows in rest:
                _add(totals[i], part(*rows, self._own[i], self._more[i]))

        run(share, range(len(self.cuts)), THREADS)
        for other in totals[1:]:
            _add(totals[0], other)
        return totals[0]


def _add(totals: tuple[Array, ...], more: tuple[Array, ...]) -> None:
    for total, x in zip(totals or (), more or (), strict=True):
        np.add(total, x, out=total)
