"""A recording of a step, and the program that is made of it: when it fits, and what it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import is_
from time import perf_counter
from typing import Any

import numpy as np

from ...engine.tensor import Tensor
from .arguments import Watching, leaves_of
from .reach import PLAIN_KINDS, Reach, frozen, owner_of
from .source import ProgramText
from .tape import Refused, Tape, TapeLine, signed

__all__ = ["Program", "Recording"]

SHARE = 0.02  # of the time may go into recording again


class Recording:
    """One run of a step under a tape.

    Attributes:
        args, kwargs: what the step is called with; what it does with arrays among them is noticed.
        returned: its result, with what a program gives in place of arrays and Tensors.
    """

    def __init__(self, step: Any, args: Any, kwargs: Any) -> None:
        self.step = step
        given = [*leaves_of(args, "args"), *leaves_of(kwargs, "kwargs")]
        known = (*PLAIN_KINDS, np.ndarray, Tensor)
        self.reach = Reach(step, [(path, x) for path, x in given if not isinstance(x, known)])
        arrays = [(path, x) for path, x in given if isinstance(x, np.ndarray)]
        self.reach.others += arrays
        self.tape = Tape(self.reach)
        self.tensors = [(path, x) for path, x in given if isinstance(x, Tensor)]
        tensors = [*self.reach.tensors, *(x for _, x in self.tensors)]
        taken = {*self.reach.names, *(id(owner_of(x._data)) for x in tensors)}
        self.watching = Watching(self.tape, taken)
        self.args = self.watching.of(args)
        self.kwargs = self.watching.of(kwargs)
        self.tape.begin([*leaves_of(self.args, "args"), *leaves_of(self.kwargs, "kwargs")])
        self.returned: Any = None

    def end(self) -> None:
        """The step is over, or has failed: all is as it is without a tape."""
        self.tape.end()
        if changed := self.watching.end():
            self.tape.refuse(f"the step changes {changed}", "return the new one")

    def finish(self, result: Any) -> Any:
        """The step's result as a later call gives it."""
        if self.tape.reason is None:
            try:
                self.returned = self.tape.returned(result)
                self.tape.keep()
            except Refused as error:
                self.tape.refuse(str(error), error.remedy)
        return self._plain(result)

    def _plain(self, x: Any) -> Any:
        if x.__class__ is dict:
            return dict(zip(x, self._plain([*x.values()]), strict=True))
        if x.__class__ in (tuple, list):
            parts = [*map(self._plain, x)]
            return x if all(map(is_, parts, x)) else x.__class__(parts)
        if isinstance(x, Tensor) and x.node is not None and self.tape.reason is None:
            return x.detach()
        return self.watching.own(x)


class Program:
    """What a recording comes to.

    Attributes:
        calls: how often it was called.  check_at: the call at which it is recorded again.
        time_at: the call that is timed, to see how rarely that has to be.
    """

    def __init__(self, recording: Recording) -> None:
        self.step = recording.step
        self.lines = recording.tape.lines
        self.returned = recording.returned
        self.constants = recording.tape.constants
        self.places = recording.reach.places
        self._state, self._found, self._own = _guard(recording)
        self.calls = 1
        self.check_at = 2
        self.time_at = 4
        self._extra = 0.0
        self._source = ""
        self._run: Callable[[Any, Any], Any] | None = None

    def fits(self, args: Any, kwargs: Any) -> bool:
        """Whether a call with its key may run it: all is as it was when it was recorded."""
        state = self._state(args, kwargs)
        if len(state) == len(self._found) and all(map(is_, state, self._found)):
            return True
        own = slice(self._own)
        if [*map(frozen, state[own])] != [*map(frozen, self._found[own])]:
            return False
        if any(place.changed() for place in self.places):
            return False
        self._found = state
        return True

    @property
    def source(self) -> str:
        if self._run is None:
            self._write()
        return self._source

    def _write(self) -> Callable[[Any, Any], Any]:
        name = getattr(self.step, "__name__", "step")
        name = name if name.isidentifier() else "step"
        written = ProgramText(self.lines, self.returned, name, _parameters(self.step))
        space: dict[str, Any] = {}
        exec(compile(written.text, f"<compiled {name}>", "exec"), space)
        run: Callable[[Any, Any], Any] = space["build"](**written.objects)
        self._run = run
        self._source = written.text
        return run

    def run(self, args: Any, kwargs: Any) -> Any:
        return (self._run or self._write())(args, kwargs)

    def timed(self, args: Any, kwargs: Any) -> Any:
        start = perf_counter()
        result = self.run(args, kwargs)
        seconds = perf_counter() - start
        extra = max(0.0, self._extra - seconds)
        self.check_at = self.calls + max(self.calls, int(extra / (SHARE * seconds)))
        return result

    def checked(self, seconds: float) -> None:
        """It was recorded again, which took so long, and is the same."""
        self._extra = seconds
        self.time_at = self.calls + 2

    def difference(self, other: Recording) -> str | None:
        """How another recording differs; None if it does not."""
        old, new = (
            [line for line in lines if line.kind != "keep"]
            for lines in (self.lines, other.tape.lines)
        )
        for before, now in zip(old, new, strict=False):
            if before.signature() != now.signature():
                return f"call {self.calls} runs {now} where the first ran {before}"
        if len(old) != len(new):
            longer: list[TapeLine] = max(old, new, key=len)
            what = "does not run" if longer is old else "runs also"
            return f"call {self.calls} {what} {longer[min(len(old), len(new))]}"
        if signed(self.returned) != signed(other.returned):
            return f"call {self.calls} returns other plain values than the first"
        for (_, array), (_, other_array) in zip(self.constants, other.tape.constants, strict=True):
            if (array.dtype, array.tobytes()) != (other_array.dtype, other_array.tobytes()):
                return f"call {self.calls} has another array where the first had {array!r:.60}"
        return None


def _guard(recording: Recording) -> tuple[Callable[[Any, Any], list[Any]], list[Any], int]:
    """A function, written for this step, that lists all that must be as it was; that list; and how
    many of it are no names' that lead somewhere.
    """
    things: dict[str, Any] = {}

    def bound(thing: Any) -> str:
        things[f"_{len(things)}"] = thing
        return f"_{len(things) - 1}"

    tape = recording.tape
    held = [(bound(leaf), h) for leaf, h in tape.held.values() if h is not None]
    true = [f"{name}.grad is {'not ' * h}None" for name, h in held]
    true += [f"{bound(x)}.tobytes() == {bound(x.tobytes())}" for x in tape.unchanging()]
    reads = [*true]
    for name in map(bound, tape.leaves.values()):
        reads += [f"{name}.needs", f"{name}.hooks", f"{name}._data.dtype"]
    if recording.tensors:  # arguments may go by other names too
        others = bound({id(x): x for x in tape.reach.tensors})
        reads += [f"{others}.get(id({path}))" for path, _ in recording.tensors]
    named = [place.code.format(bound(place.owner)) for place in tape.reach.places]
    text = f"lambda args, kwargs: [{', '.join(filter(None, reads + named))}]"
    state = eval(text, things)
    found = state(recording.args, recording.kwargs)
    return state, [True] * len(true) + found[len(true) :], len(reads)


def _parameters(step: Any) -> dict[str, str]:
    """What a step calls its arguments, by path."""
    try:
        names = [*inspect.signature(step).parameters]
    except (TypeError, ValueError):
        return {}
    known = {f"args[{i}]": name for i, name in enumerate(names)}
    return known | {f"kwargs[{name!r}]": name for name in names}
