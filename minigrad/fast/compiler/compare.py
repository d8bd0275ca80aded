"""Whether two results are the same numbers to rounding, and how far rounding may move the outcome
of a program.

For that, every call of the program is run again on numbers that are moved by one unit in the last
place, each up or down at random. The terms of a sum are among them: where large terms cancel, what
is left of them moves as much as rounding moves it. A result that does not depend on its last digits
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...engine.writes import caller, writes
from .program import ExistingTensor, NewTensor, Program, ProgramStep, Value, looked_at, substitute
from .source import repeated
from .symbol import WRITES

__all__ = ["Sketch", "difference", "run_rounded", "sketched"]

RELATIVE = {2: 2e-2, 4: 1e-3, 8: 1e-8}  # of the largest entry, by bytes of a real number
ULPS = 256  # of the scale of what was summed
SKETCHED_BYTES = 1 << 16  # larger arrays are compared by a sketch
_BLOCK = 64  # entries that one number of a sketch stands for
_SIGNS = np.random.default_rng(0).choice((-1.0, 1.0), _BLOCK)


class Sketch:
    """What is kept of a large array to compare it with another.

    Attributes:
        sums: of each 64 entries that follow one another, the sum with fixed random signs.
        largest: the largest entry.
    """

    def __init__(self, array: Any) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        flat = array.reshape(-1)
        whole = flat.size - flat.size % _BLOCK
        kind = np.result_type(array.dtype, np.float32)
        with np.errstate(all="ignore"):
            sums = flat[:whole].reshape(-1, _BLOCK) @ _SIGNS.astype(kind)
            self.largest = _largest(array)
        self.sums = np.concatenate([sums, flat[whole:].astype(kind)])


def sketched(item: Any) -> Any:
    """A sketch of a large array of real numbers, a copy of a smaller one, anything else as it is.

    >>> sketched(np.ones(100)).shape, sketched(np.ones(100_000)).sums.shape
    ((100,), (1594,))
    """
    if not isinstance(item, np.ndarray):
        return item
    large = item.dtype.kind == "f" and item.nbytes > SKETCHED_BYTES
    return Sketch(item) if large else item.copy()


def _largest(array: Any) -> float:
    """The largest absolute value that is finite."""
    largest = max(float(array.max(initial=0)), -float(array.min(initial=0)))
    if np.isfinite(largest):
        return largest
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))


def difference(found: Any, wanted: Any, scale: float = 0.0, of: Any = None) -> str:
    """How two arrays differ by more than rounding, "" if they do not.

    A sum that cancels holds nothing but the rounding of its terms: `scale` is the size of these.
    `of` is the dtype that the numbers come from, where they are no more precise than that.

    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-15]))
    ''
    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    'by up to 0.5, where the largest entry is 2.5'
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype} {found.shape} in place of {wanted.dtype} {wanted.shape}"
    known = None
    if wanted.__class__ is Sketch:
        known, of = wanted.largest, wanted.dtype
        found, wanted = found.sums, wanted.sums
    kind = wanted.dtype.kind
    if kind not in "fc":
        same = np.array_equal(found, wanted)
        return "" if same else f"in {np.sum(found != wanted)} of {wanted.size} entries"
    if np.all(found == wanted):
        return ""
    with np.errstate(all="ignore"):
        apart, sizes = np.abs(found - wanted), np.abs(wanted)
        if not np.isfinite(apart.max()):  # NaN beside NaN, and an infinity beside the same, agree
            alike = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
            apart = np.where(alike, 0.0, np.where(np.isnan(apart), np.inf, apart))
            sizes = np.where(np.isfinite(sizes), sizes, 0.0)
        most, largest = float(apart.max()), float(sizes.max()) if known is None else known
    precision = np.finfo(wanted.dtype if of is None else of)
    allowed = RELATIVE.get(precision.bits // 8, 1e-8) * largest
    if most <= allowed + ULPS * float(precision.eps) * scale:
        return ""
    return f"by up to {most:.2g}, where the largest entry is {largest:.2g}"


# ---------------------------------------------------------------- what rounding may do


_EXACT = ("np.maximum", "np.minimum", "np.maximum.reduce", "np.minimum.reduce", "spread")
_ROUNDS = ("elementwise", "reduce", "matmul", "kernel")


def run_rounded(program: Program, args: Any, kwargs: Any, seed: int) -> Any:
    """Run a program with rounding of another kind; what it returns. Its effects take place."""
    return _Run(program, args, kwargs, np.random.default_rng(seed)).finish()


class _Run:
    """The arrays of one run, by the id of their Value, each until it was read last."""

    def __init__(self, program: Program, args: Any, kwargs: Any, rng: np.random.Generator) -> None:
        self.program, self.rng = program, rng
        self.arguments = {"args": args, "kwargs": kwargs}
        self.arrays: dict[int, Any] = {}

    def finish(self) -> Any:
        last: dict[int, int] = {}
        for i, step in enumerate(self.program.steps):
            last |= {id(value): i for value in step.reads()}
        for value in self.program.kept():
            last[id(value)] = len(self.program.steps)
        for i, step in enumerate(self.program.steps):
            self._step(step)
            for value in (*step.reads(), *step.outs):
                if last.get(id(value), -1) <= i:
                    self.arrays.pop(id(value), None)
        for owner, key, value in self.program.keeps:
            owner[key] = self.array(value)
        return substitute(self.program.result, self._returned)

    def array(self, value: Value) -> Any:
        """What a Value holds in this run."""
        if id(value) not in self.arrays:
            self.arrays[id(value)] = self._input(value)
        return self.arrays[id(value)]

    def _input(self, value: Value) -> Any:
        if value.kind == "argument":
            return eval(value.what, self.arguments)
        if value.kind == "grad":
            return self._tensor(*value.what).grad
        return value.what._data if value.kind == "leaf" else value.what

    def _tensor(self, tensor: Any, expression: str | None) -> Any:
        return tensor if expression is None else eval(expression, self.arguments)

    def _step(self, step: ProgramStep) -> None:
        if step.kind in _EFFECTS:
            _EFFECTS[step.kind](self, step)
            return
        if step.kind == "view" and step.text != "cut":
            made = looked_at(step, self.array(step.args[0]))
        else:
            rounds = step.kind in _ROUNDS or step.text in ("np.einsum", "np.cumsum")
            moved = rounds and step.text not in _EXACT and step.out.dtype.kind in "fc"
            read: Callable[[Any], Any] = self._moved if moved else self._bare
            assert step.function is not None
            args, kwargs = substitute(step.args, read), substitute(step.kwargs, read)
            made = step.function(*args, **kwargs)
        several = made if isinstance(made, tuple) else (made,)
        for out, array in zip(step.outs, several, strict=False):
            self.arrays[id(out)] = np.asarray(array, order="C") if step.kind in WRITES else array

    def _bare(self, item: Any) -> Any:
        return self.array(item) if item.__class__ is Value else item

    def _moved(self, item: Any) -> Any:
        """An array with each number moved up or down in its last place."""
        array = self._bare(item)
        if item.__class__ is not Value or array.dtype.kind not in "fc":
            return array
        eps = np.finfo(array.dtype).eps
        sign = self.rng.integers(0, 2, array.shape, np.int8) * 2 - 1
        return np.asarray(array * (1 + sign * eps), array.dtype)

    # ------------------------------------------------------------------ effects

    def _grad(self, step: ProgramStep) -> None:
        leaf, expression, value = step.args
        self._tensor(leaf, expression).grad = np.array(self.array(value))

    def _clear(self, step: ProgramStep) -> None:
        self._tensor(*step.args).grad = None

    def _assign(self, step: ProgramStep) -> None:
        target, value = self.array(step.args[2]), self.array(step.args[3])
        target[substitute(step.args[4], self._bare)] = value
        writes.note(target, caller())

    def _update(self, step: ProgramStep) -> None:
        result = repeated(*step.args)()
        if step.outs:
            self.arrays[id(step.out)] = result._data

    def _skip(self, step: ProgramStep) -> None:
        """What a kernel asked has the same answer, or the program would not have run."""

    def _returned(self, item: Any) -> Any:
        if isinstance(item, ExistingTensor):
            return self._tensor(item.tensor, item.expression)
        value = item.value if isinstance(item, NewTensor) else item
        return np.array(self.array(value)) if value.__class__ is Value else item


_EFFECTS: dict[str, Callable[[_Run, ProgramStep], None]] = {
    "check": _Run._skip,
    "grad": _Run._grad,
    "clear": _Run._clear,
    "forget": _Run._clear,
    "assign": _Run._assign,
    "update": _Run._update,
}
