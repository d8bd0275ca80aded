"""`compile(step)`: a step runs once and is written as Python, a list of NumPy calls, which later
calls run.

What a step prints, what it writes to a file, how it moves a progress bar: such side effects of
Python happen only when it is recorded, which is at the first call, at the second, and then at ever
fewer calls. Look at what it returns instead.

    def step(x, y):
        loss = mg.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = mg.compile(step)
    for x, y in batches(...):
        print(run(x, y).item())        # here, and not within the step

reach.py finds what the step depends on beside its arguments; tape.py records lines; symbols.py
takes ops apart into NumPy calls, which source.py writes down.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from ...engine.context import current, observe
from ...engine.errors import CompileWarning
from .arguments import key_of
from .program import Program
from .tape import Tape

__all__ = ["Compiled", "compile"]

P = ParamSpec("P")
R = TypeVar("R")

MOST = 16  # programs that are kept


class Compiled(Generic[P, R]):
    """What `compile` returns: call it as the step.

    Attributes:
        source: Python of the program that ran last.
        reasons: why the step runs eagerly, if it does.
        recordings: how many programs were made.
    """

    def __init__(self, step: Callable[P, R]) -> None:
        self.step = step
        self.reasons: list[str] = []
        self.recordings = 0
        self._programs: dict[Any, list[Program]] = {}
        self._last: Program | None = None
        self._lock = RLock()
        self._replays = 0
        if hasattr(step, "__name__"):
            update_wrapper(self, step)

    def __get__(self, holder: Any, owner: type) -> Any:
        return self if holder is None else MethodType(self, holder)

    @property
    def source(self) -> str:
        if self._last is None:
            return f"# runs eagerly: {self.reasons[0]}\n" if self.reasons else ""
        return self._last.source

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        around = current()
        if self.reasons or around.observers:
            return self.step(*args, **kwargs)
        key = (around.recording, *key_of(args, kwargs))
        for program in self._programs.get(key, ()):
            if program.fits(args, kwargs):
                break
        else:
            return self._record(key, args, kwargs, None)
        self._last = program
        program.calls += 1
        if program.calls == program.check_at:
            return self._record(key, args, kwargs, program)
        self._replays += 1
        return program.run(args, kwargs)

    def _record(self, key: Any, args: Any, kwargs: Any, before: Program | None) -> Any:
        """Run the step and record it: as a new program, or to compare with the one before."""
        with self._lock:
            tape = Tape(self.step, args, kwargs)
            try:
                with observe(tape):
                    result = self.step(*tape.args, **tape.kwargs)
            finally:
                tape.end()
            result = tape.finish(result)
            reason, remedy = tape.reason, tape.remedy
            if reason is None and before is not None:
                reason = before.difference(tape)
                remedy = "pass what changes to the step as an argument"
            if reason is not None:
                self._refuse(reason, remedy)
            elif before is not None:
                before.check_at *= 8
            else:
                self._add(key, Program(self.step, tape))
            return result

    def _add(self, key: Any, program: Program) -> None:
        self._last = program
        self.recordings += 1
        if sum(map(len, self._programs.values())) == MOST:
            self._programs.clear()
        self._programs.setdefault(key, []).insert(0, program)
        if self.recordings > 2 * MOST > 4 * self._replays:
            self._refuse(
                f"{self.recordings} calls had other shapes, plain values or objects than those "
                f"before, and {self._replays} had the same",
                "pass what changes as arrays",
            )

    def _refuse(self, reason: str, remedy: str) -> None:
        self.reasons.append(reason)
        self._programs.clear()
        self._last = None
        name = getattr(self.step, "__name__", type(self.step).__name__)
        text = f"mg.compile: {name} runs eagerly: {reason}"
        warnings.warn(f"{text}\n  {remedy}" if remedy else text, CompileWarning, stacklevel=4)


def compile(step: Callable[P, R]) -> Compiled[P, R]:
    """A function that does what `step` does, without running its Python each time.

    Python's own side effects (`print`, a progress bar, files) happen only when the step is
    recorded: at the first call, the second, and then ever fewer. What Python reads beside the names
    below is as it was then: a clock, `random`, `next` of an iterator, a number that NumPy took out
    of an array of the closure (`a[0]`). Give such things as arguments.

    A call with other shapes, dtypes or plain values than before, or with other plain values (small
    lists, tuples and dicts of them included), arrays, Tensors or modules bound in the step's
    closure, its globals or the attributes of its modules, records again; so does one that finds
    other leaves that require or hold a gradient. Read at each call are the arrays and Tensors
    themselves: arguments, parameters, buffers, the state and the settings of optimizers,
    generators. What the step writes (`assign_`, `.grad`, what a layer keeps of its last call) is
    written at each call. What it returns has no graph.

    Refused, with the reason and the line in a CompileWarning and in `reasons`, is a step that takes
    numbers out of the graph, computes by NumPy with arrays (but for views and comparisons), uses
    hooks or a graph from outside, or changes what it reads (a hidden state, a counter, a KVCache).
    It then runs eagerly. So do calls within a trace, a watch or another observer.

    Calls are recorded again from time to time, the second first, and must give the same lines.

    >>> import numpy as np, minigrad as mg
    >>> w = mg.tensor(np.ones(3), requires_grad=True, name="w")
    >>> @mg.compile
    ... def step(x):
    ...     loss = mg.sum(x * w)
    ...     loss.backward()
    ...     return loss
    >>> [float(step(np.full(3, i)).item()) for i in (1.0, 2.0, 3.0)], w.grad
    ([3.0, 6.0, 9.0], array([6., 6., 6.]))
    """
    if not callable(step):
        raise TypeError(f"compile(step): a step is a function, got {type(step).__name__}")
    return Compiled(step)
