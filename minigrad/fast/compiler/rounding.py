"""What rounding may do to the outcome of a program, measured.

Every call of the program is run again on numbers that are moved by one unit in the last place, each
up or down at random. The terms of a sum are among them: where large terms cancel, what is left of
them moves as much as rounding moves it. A result that does not depend on its last digits stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...engine.writes import caller, writes
from .effects import repeated
from .program import ExistingTensor, NewTensor, Program, Step, Value, looked_at, substitute
from .symbol import WRITES

__all__ = ["run_rounded"]

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

    def _step(self, step: Step) -> None:
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

    def _grad(self, step: Step) -> None:
        leaf, expression, value = step.args
        self._tensor(leaf, expression).grad = np.array(self.array(value))

    def _clear(self, step: Step) -> None:
        self._tensor(*step.args).grad = None

    def _assign(self, step: Step) -> None:
        target, value = self.array(step.args[2]), self.array(step.args[3])
        target[substitute(step.args[4], self._bare)] = value
        writes.note(target, caller())

    def _update(self, step: Step) -> None:
        result = repeated(*step.args)()
        if step.outs:
            self.arrays[id(step.out)] = result._data

    def _skip(self, step: Step) -> None:
        """What a kernel asked has the same answer, or the program would not have run."""

    def _returned(self, item: Any) -> Any:
        if isinstance(item, ExistingTensor):
            return self._tensor(item.tensor, item.expression)
        value = item.value if isinstance(item, NewTensor) else item
        return np.array(self.array(value)) if value.__class__ is Value else item


_EFFECTS: dict[str, Callable[[_Run, Step], None]] = {
    "check": _Run._skip,
    "grad": _Run._grad,
    "clear": _Run._clear,
    "forget": _Run._clear,
    "assign": _Run._assign,
    "update": _Run._update,
}
