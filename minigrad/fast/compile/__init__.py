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

What calls do stands here, in this order:

    call 1: `Compiled.__call__` makes a key of its arguments and finds no program; `_record`
    call 2: the key's program fits; `_record_again` runs the step and compares (`difference`)
    call 3, and most that follow: the program fits (`Program.fits`), and `Program.written` runs

What is recorded, and how it is written:

    step → Tape (tape.py): the step runs, on arrays that tell what is done with them (watched.py)
           and becomes TapeLines of Values, each an op, a rule or an effect (lines.py)
         → Bindings (bindings.py): what the step reads by name, which must be as it was
         → ProgramText (source.py): Statements (statements.py), with kernels and rules taken apart
           into NumPy calls (symbols.py) → Python
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cached_property, update_wrapper
from itertools import zip_longest
from operator import is_
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from ...engine.context import current
from ...engine.errors import CompileWarning
from ...engine.tensor import Tensor
from .bindings import frozen
from .lines import TapeLine, signed
from .source import ProgramText
from .tape import Tape

__all__ = ["Compiled", "compile"]

P = ParamSpec("P")
R = TypeVar("R")

MOST = 16  # programs that are kept
FIRST_CHECK = 2  # call 2 is recorded again, and so are 16, 128 and so on
CHECKS_APART = 8
NO_LINE = TapeLine(None, (), op="nothing")


class Compiled(Generic[P, R]):
    """What `compile` returns: call it as the step.

    Attributes:
        source: Python of the program that ran last.
        reasons: why the step runs eagerly, if it does.
        recordings: how many programs were made.
    """

    def __init__(self, step: Callable[P, R]) -> None:
        self.step = step
        self.name = getattr(step, "__name__", type(step).__name__)
        self.reasons: list[str] = []
        self.recordings = 0
        self._programs: dict[Any, list[Program]] = {}
        self._last: Program | None = None
        self._replays = 0
        update_wrapper(self, step, updated=())

    def __get__(self, holder: Any, owner: type) -> Any:
        return self if holder is None else MethodType(self, holder)

    @property
    def source(self) -> str:
        if self._last is None:
            return f"# runs eagerly: {self.reasons[0]}\n" if self.reasons else ""
        return self._last.written[0]

    # ------------------------------------------------------------------ what a call does

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        around = current()
        if self.reasons or around.observers:
            return self.step(*args, **kwargs)
        given = *args, kwargs
        form: list[Any] = [around.recording]
        tensors: dict[int, int] = {}
        _add_to_key(given, form, tensors)
        key = tuple(form)
        for program in self._programs.get(key, ()):
            if program.fits(tensors):
                break
        else:
            return self._record(key, given)
        self._last = program
        program.calls += 1
        if program.calls == program.check_at:
            return self._record_again(program, given)
        self._replays += 1
        return program.written[1](given)

    # ------------------------------------------------------------------ how a call is recorded

    def _record(self, key: Any, given: Any) -> Any:
        """Run the step, and make a program of it."""
        tape = Tape(self.step, given)
        result = tape.run(self.step, given)
        if tape.refusal:
            self._refuse(*tape.refusal)
        else:
            self._add(Program(self.name, key, tape))
        return result

    def _record_again(self, program: Program, given: Any) -> Any:
        """Run the step, and compare that with its program."""
        tape = Tape(self.step, given)
        result = tape.run(self.step, given)
        program.check_at *= CHECKS_APART
        if tape.refusal:
            self._refuse(*tape.refusal)
        elif difference := program.difference(tape):
            self._refuse(difference, "pass what changes as an argument")
        return result

    def _add(self, program: Program) -> None:
        before = self._last
        self._last = program
        self.recordings += 1
        if self.recordings % MOST == 0:
            self._programs.clear()
        self._programs.setdefault(program.key, []).insert(0, program)
        if before is not None and self.recordings > 2 * MOST and self._replays < MOST // 2:
            self._refuse(
                f"{self.recordings} calls differed from those before, and {self._replays} did not: "
                f"in the last one {program.news(before)}",
                "pass what changes as arrays",
            )

    def _refuse(self, reason: str, remedy: str) -> None:
        self.reasons.append(reason)
        self._programs.clear()
        self._last = None
        text = f"mg.compile: {self.name} runs eagerly: {reason}\n  {remedy}"
        warnings.warn(text, CompileWarning, stacklevel=4)


def _add_to_key(given: Iterable[Any], key: list[Any], tensors: dict[int, int]) -> None:
    """Add what calls that one program serves have in common of arguments; and ids of Tensors."""
    for x in given:
        kind = x.__class__
        if kind is np.ndarray:
            key += (x.shape, x.strides, x.dtype)
        elif kind is Tensor:
            which = tensors.setdefault(id(x), len(tensors))  # the same one may come twice
            array = x._data
            key += (which, array.shape, array.strides, array.dtype)
            key += (x.needs, x.hooks is None, x.grad is None)
        elif kind is tuple or kind is list:
            key += (kind, len(x))
            _add_to_key(x, key, tensors)
        elif kind is dict:
            key += (kind, *x)
            _add_to_key(x.values(), key, tensors)
        else:
            key.append(frozen(x))


class Program:
    """What a tape comes to: lines, and when they may run.

    Attributes:
        key: of the calls that it may serve.
        calls: how often it was called.  check_at: the call at which it is recorded again.
        lines, result: what runs, and what it returns.  keeps: lines of what layers keep.
        tensors: those that it reads beside its arguments, each with what must be as it was: its
            array, whether it needs a gradient, its hooks, and whether it holds a gradient when the
            step begins (None: the step clears it before it adds to it, or never asks).
        names: of Tensors and arrays that have one, by id.  named: those among the arguments.
    """

    def __init__(self, name: str, key: Any, tape: Tape) -> None:
        self.name = name if name.isidentifier() else "step"
        self.key = key
        self.lines = [*tape.lines]
        self.keeps = tape.keeps
        self.result = tape.result
        self.calls = 1
        self.check_at = FIRST_CHECK
        self.bindings = [binding for binding in tape.bindings.all if binding.looks]
        self.looks = [look for binding in self.bindings for look in binding.looks]
        self._state: list[Any] = []  # what they told when it last fitted
        tensors = [x for x in tape.tensors if x not in tape.arguments]
        self.tensors = [(x, x._data, x.needs, x.hooks, tape.held.get(x)) for x in tensors]
        self.names = tape.bindings.names
        self.named = [id(x) for x in tape.arguments if id(x) in self.names]

    def fits(self, tensors: dict[int, int]) -> bool:
        """Whether a call with its key may run it: all is as it was when it was recorded.

        Args: tensors: ids of those among the arguments.
        """
        for x, array, needs, hooks, held in self.tensors:
            if x._data is not array or x.needs != needs or x.hooks is not hooks:
                return False
            if held is not None and (x.grad is not None) != held:
                return False
        if tensors and [x for x in tensors if x in self.names] != self.named:
            return False
        state: list[Any] = []
        for look in self.looks:
            state += look()
        if len(state) != len(self._state) or not all(map(is_, state, self._state)):
            if any(binding.changed() for binding in self.bindings):
                return False
            self._state = state
        return True

    @cached_property
    def written(self) -> tuple[str, Callable[[Any], Any]]:
        """Its source, and what it runs."""
        program = ProgramText([*self.lines, *self.keeps], self.result, self.name)
        space: dict[str, Any] = {}
        exec(program.text, space)
        return program.text, space["build"](**program.names.objects)

    # ------------------------------------------------------------------ how others differ

    def difference(self, tape: Tape) -> str | None:
        """How another recording differs; None if it does not."""
        for before, now in zip_longest(self.lines, tape.lines, fillvalue=NO_LINE):
            if signed(before) != signed(now):
                return f"call {self.calls} runs {now} where the first ran {before}"
        if signed(self.result) != signed(tape.result):
            return f"call {self.calls} returns other plain values than the first"
        return None

    def news(self, before: Program) -> str:
        """In what it differs from a program that did not fit."""
        for was, now in zip_longest(before.key, self.key):
            if was != now:
                return f"{now} came where {was} was"
        for binding in before.bindings:
            for name in binding.changed():
                return f"{binding.called(name)} is another than before"
        return "a Tensor is another, or it holds a gradient"


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
    counter, a KVCache; lists and dicts among its arguments, of which a call that is recorded is
    handed copies). It then runs eagerly. So do calls within a trace, a watch or another
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
