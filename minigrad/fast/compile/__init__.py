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

What the first call does, and the second:

    step → Tape (tape.py): TapeLines of Values, each an op, a rule or an effect (lines.py)
         → Bindings (bindings.py): what the step reads by name, which must be as it was
         → ProgramText (source.py): Statements (statements.py), with kernels and rules taken apart
           into NumPy calls (symbols.py) → Python, which is what a later call runs
    call → key of its arguments (arguments.py) → `Program.fits` → that Python

The second call is recorded again and compared; the third is the first that is not.
"""

from __future__ import annotations

import builtins
import inspect
import warnings
from collections.abc import Callable
from functools import cached_property, update_wrapper
from itertools import zip_longest
from operator import is_
from threading import RLock
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from ...engine.context import current, observe
from ...engine.errors import CompileWarning
from .arguments import add_to_key, described
from .lines import NO_LINE, signed
from .source import ProgramText
from .tape import Tape

__all__ = ["Compiled", "compile"]

P = ParamSpec("P")
R = TypeVar("R")

MOST = 16  # programs that are kept
FIRST_CHECK = 2  # call 2 is recorded again, and so are 16, 128 and so on
CHECKS_APART = 8


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
        return self._last.written[0]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        around = current()
        if self.reasons or around.observers:
            return self.step(*args, **kwargs)
        form: list[Any] = [around.recording]
        tensors: dict[int, int] = {}
        add_to_key((*args, kwargs) if kwargs else args, form, tensors)
        key = tuple(form)
        for program in self._programs.get(key, ()):
            if program.fits(tensors):
                break
        else:
            return self._record(key, args, kwargs, None)
        self._last = program
        program.calls += 1
        if program.calls == program.check_at:
            return self._record(key, args, kwargs, program)
        self._replays += 1
        return program.written[1](args, kwargs)

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
            if tape.reason is None and before is not None:
                tape.reason = before.difference(tape)
                tape.remedy = "pass what changes to the step as an argument"
            if tape.reason is not None:
                self._refuse(tape.reason, tape.remedy)
            elif before is not None:
                before.check_at *= CHECKS_APART
            else:
                self._add(key, Program(self.step, tape))
            return result

    def _add(self, key: Any, program: Program) -> None:
        before = self._last
        self._last = program
        self.recordings += 1
        if sum(map(len, self._programs.values())) == MOST:
            self._programs.clear()
        self._programs.setdefault(key, []).insert(0, program)
        is_long = self.recordings > 2 * MOST
        is_rarely_replayed = self._replays < MOST // 2
        if before is not None and is_long and is_rarely_replayed:
            self._refuse(
                f"{self.recordings} calls differed from those before, and {self._replays} did not: "
                f"in the last one {program.news(before)}",
                "pass what changes as arrays",
            )

    def _refuse(self, reason: str, remedy: str) -> None:
        self.reasons.append(reason)
        self._programs.clear()
        self._last = None
        name = getattr(self.step, "__name__", type(self.step).__name__)
        text = f"mg.compile: {name} runs eagerly: {reason}"
        warnings.warn(f"{text}\n  {remedy}" if remedy else text, CompileWarning, stacklevel=4)


class Program:
    """What a tape comes to.

    Attributes:
        calls: how often it was called.  check_at: the call at which it is recorded again.
    """

    def __init__(self, step: Any, tape: Tape) -> None:
        self.step = step
        self.lines = tape.lines
        self.result = tape.result
        self.calls = 1
        self.check_at = FIRST_CHECK
        self._bindings = [binding for binding in tape.bindings.all if binding.look]
        self._name_readers = [binding.look for binding in self._bindings if binding.look]
        self._state: list[Any] = []  # what they told when it last fitted
        leaves = {x: has for x, has in tape.held.items() if x not in tape.arguments}
        self._had_gradient = {x: has for x, has in leaves.items() if has is not None}
        self._arguments = {path: described(x) for path, x in tape.given}
        self._names = tape.bindings.names
        self._named = [id(x) for x in tape.arguments if id(x) in self._names]

    # ------------------------------------------------------------------ whether it may run

    def fits(self, tensors: dict[int, int]) -> bool:
        """Whether a call with its key may run it: all is as it was when it was recorded.

        Args: tensors: ids of those among the arguments.
        """
        for leaf, had_gradient in self._had_gradient.items():
            if (leaf.grad is not None) != had_gradient:
                return False
        if tensors and [x for x in tensors if x in self._names] != self._named:
            return False
        state: list[Any] = []
        for read_names in self._name_readers:
            state += read_names()
        if len(state) != len(self._state) or not all(map(is_, state, self._state)):
            if any(binding.changed() for binding in self._bindings):
                return False
            self._state = state
        return True

    def news(self, before: Program) -> str:
        """In what it differs from a program that did not fit."""
        names = _parameters(self.step)
        for path, form in self._arguments.items():
            if before._arguments.get(path) != form:
                was = before._arguments.get(path, "not given")
                return f"{names.get(path, path)} is {form}, and was {was}"
        for binding in before._bindings:
            for name in binding.changed():
                return f"{binding.called(name)} is another than before"
        return "a Tensor is another, or it holds a gradient, or an array lies otherwise in memory"

    # ------------------------------------------------------------------ what runs

    @cached_property
    def written(self) -> tuple[str, Callable[[Any, Any], Any]]:
        """Its source, and what it runs."""
        name = getattr(self.step, "__name__", "step")
        name = name if name.isidentifier() else "step"
        program = ProgramText(self.lines, self.result, name, _parameters(self.step))
        space: dict[str, Any] = {}
        exec(builtins.compile(program.text, f"<compiled {name}>", "exec"), space)
        return program.text, space["build"](**program.names.objects)

    def difference(self, tape: Tape) -> str | None:
        """How another recording differs; None if it does not."""
        old, new = (
            [line for line in lines if line.kind != "keep"] for lines in (self.lines, tape.lines)
        )
        for before, now in zip_longest(old, new, fillvalue=NO_LINE):
            if before.signature() != now.signature():
                return f"call {self.calls} runs {now} where the first ran {before}"
        if signed(self.result) != signed(tape.result):
            return f"call {self.calls} returns other plain values than the first"
        return None


def _parameters(step: Any) -> dict[str, str]:
    """What a step calls its arguments, by path."""
    try:
        names = [*inspect.signature(step).parameters]
    except (TypeError, ValueError):
        return {}
    known = {f"args[{i}]": name for i, name in enumerate(names)}
    return known | {f"kwargs[{name!r}]": name for name in names}


def compile(step: Callable[P, R]) -> Compiled[P, R]:
    """A function that does what `step` does, without running its Python each time.

    Python's own side effects (`print`, a progress bar, files) happen only when the step is
    recorded: at calls 1, 2, 16, 128, 1,024 and so on. What Python reads beside the names below is
    as it was then: a clock, `random`, `next` of an iterator. Give such things as arguments.

    A compiled call gives the bits of the eager call, on the same machine, NumPy, BLAS and number of
    threads: result, gradients, parameters, buffers, the optimizer's state, generators.

    A call with other shapes, strides, dtypes or plain values than before, or with other plain
    values (small lists, tuples and dicts of them included), arrays, Tensors or modules bound in the
    step's closure, its globals or the attributes of its modules, records again; so does one that
    finds other leaves that require or hold a gradient, or other entries in an array (up to 4,096)
    that Python reads and no op. Read at each call are the arrays and Tensors themselves: arguments,
    parameters, buffers, the state and the settings of optimizers, generators. What the step writes
    (`assign_`, `.grad`, what a layer keeps of its last call) is written at each call. What it
    returns has no graph.

    Refused, with the reason and the line in a CompileWarning and in `reasons`, is a step that takes
    numbers out of the graph, computes by NumPy with arrays (but for views, comparisons and
    `np.where`), uses hooks or a graph from outside, or changes what it reads (a hidden state, a
    counter, a KVCache). It then runs eagerly. So do calls within a trace, a watch or another
    observer.

    What is recorded again must give the same lines; else the step runs eagerly from then on.

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
