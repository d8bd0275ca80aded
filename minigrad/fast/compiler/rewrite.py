"""Rewriting a program: steps are visited in order; whoever read an old value reads the new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .program import (
    Known,
    Program,
    Step,
    Value,
    Wrapped,
    address,
    blank,
    contiguous,
    flat,
    substitute,
)

__all__ = [
    "Rewriting",
    "draws",
    "drop_dead",
    "is_transpose",
    "kept",
    "uses_of",
]


def kept(program: Program) -> list[Value]:
    """The values that outlive the program, other than gradients."""
    found = [item.value if isinstance(item, Wrapped) else item for item in flat(program.result)]
    found += [value for _, _, value in program.keeps]
    return [v for v in found if v.__class__ is Value]


def drop_dead(program: Program) -> None:
    """Drop calls whose results nobody reads; a random kernel stays, for the numbers it draws."""
    needed = {id(v) for v in kept(program)}
    alive = []
    for step in reversed(program.steps):
        if not step.outs or draws(step) or any(id(out) in needed for out in step.outs):
            alive.append(step)
            needed.update(id(v) for v in step.reads())
            if step.into is not None:
                needed.add(id(step.into))
    program.steps[:] = reversed(alive)


def draws(step: Step) -> bool:
    return step.kind.startswith("kernel") and any(
        isinstance(a, np.random.Generator) for a in step.args
    )


class Rewriting:
    """A new list of steps, and what became of each old value."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.steps: list[Step] = []
        self.now: dict[int, Value] = {}
        self.near: Step | None = None  # the step in whose place new ones are made

    def map(self, item: Any) -> Any:
        return self.now.get(id(item), item) if item.__class__ is Value else item

    def replace(self, old: Value, new: Value) -> None:
        """Whoever read `old` reads `new`, which takes its name over."""
        self.now[id(old)] = new
        if new.kind == "step" and old.name and not new.name:
            new.name = old.name

    def emit(
        self, kind: str, text: str, args: tuple[Any, ...], shape: Any, dtype: Any, **kwargs: Any
    ) -> Value:
        """A new step of ours, and its value."""
        step = Step(kind, text, None, args, kwargs)
        if self.near is not None:
            step.op, step.path = self.near.op, self.near.path
        value = Value("step", step, tuple(shape), dtype)
        step.outs = [value]
        self.steps.append(step)
        return value

    def view(self, value: Value, text: str, args: tuple[Any, ...]) -> Value:
        """A view of a value; whether it is one is seen at once, and `kind` is "copy" if not."""
        dummy = np.broadcast_to(np.empty((), value.dtype), value.shape)
        shape = args[0] if text == "reshape" else _look(text, dummy, args, {}).shape
        out = self.emit("view", text, (value, *args), shape, value.dtype)
        lay_out(self.steps[-1])
        return out

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        return value if value.shape == shape else self.view(value, "reshape", (shape,))

    def transposed(self, value: Value) -> Value:
        """The last two axes exchanged; of something exchanged already, the thing itself."""
        step = value.step
        if step is not None and step.kind == "view" and is_transpose(step):
            return step.args[0]  # type: ignore[no-any-return]
        return self.view(value, "swapaxes", (-1, -2))

    def run(self, visit: Callable[[Step], bool]) -> bool:
        """Visit each step, its inputs replaced; what `visit` does not take over is kept. Whether
        anything was replaced.
        """
        program = self.program
        for step in program.steps:
            if self.now:
                step.args = substitute(step.args, self.map)
                step.kwargs = substitute(step.kwargs, self.map) if step.kwargs else step.kwargs
                step.into = self.map(step.into)
            self.near = step
            view = step.kind == "view" or (step.text == "reshape" and step.into is None)
            if view and self.now:
                lay_out(step)
            if not visit(step):
                self.steps.append(step)
        program.steps[:] = self.steps
        program.result = substitute(program.result, self._result)
        program.keeps = [(owner, key, self.map(value)) for owner, key, value in program.keeps]
        return bool(self.now)

    def _result(self, item: Any) -> Any:
        if isinstance(item, Wrapped):
            return Wrapped(self.map(item.value), item.name, item.scalar)
        return item if isinstance(item, Known) else self.map(item)


def lay_out(step: Step) -> None:
    """Where a view's entries lie, now that what it is a view of may lie otherwise; or that it has
    to be a copy.
    """
    source = step.args[0]
    if step.text == "cut":
        return
    if step.text == "joined":
        step.out.strides, step.out.offset = source.strides, source.offset
        return
    dummy = blank(source)  # never touched: only addresses matter
    seen = _look(step.text, dummy, step.args[1:], step.kwargs)
    if seen.size and not np.may_share_memory(seen, dummy):
        step.kind = "copy"  # NumPy's reshape copies where it must
        step.out.strides, step.out.offset = contiguous(step.out.shape, step.out.dtype), 0
        return
    step.kind = "view"
    step.out.strides = seen.strides
    step.out.offset = source.offset + address(seen) - address(dummy)


def _look(text: str, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view by its name."""
    return x[args[0]] if text == "getitem" else getattr(np, text)(x, *args, **kwargs)


def is_transpose(step: Step) -> bool:
    """Whether a view exchanges the last two axes and does nothing else."""
    ndim = len(step.args[0].shape)
    if step.text == "swapaxes":
        return {a % ndim for a in step.args[1:]} == {ndim - 1, ndim - 2}
    axes = step.args[1] if len(step.args) > 1 else None
    return step.text == "transpose" and ndim == 2 and axes in (None, (1, 0))


def uses_of(program: Program) -> dict[int, list[Step | None]]:
    """Who reads each value; None stands for the caller."""
    found: dict[int, list[Step | None]] = {}
    for step in program.steps:
        for value in step.reads():
            found.setdefault(id(value), []).append(step)
    for value in kept(program):
        found.setdefault(id(value), []).append(None)
    return found
