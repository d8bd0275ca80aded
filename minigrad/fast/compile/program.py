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
from .reach import PLAIN_KINDS, Reach, frozen
from .source import ProgramText
from .tape import Refused, Returned, Tape

__all__ = ["Program", "Recording"]

SHARE = 0.02  # of the time may go into recording again


class Recording:
    """One run of a step under a tape.

    Attributes: args, kwargs: what the step is called with, arrays so that NumPy on them is noticed.
    """

    def __init__(self, step: Any, args: Any, kwargs: Any) -> None:
        self.step = step
        watching = Watching()
        self.args = watching.of(args)
        self.kwargs = watching.of(kwargs)
        given = [*leaves_of(self.args, "args"), *leaves_of(self.kwargs, "kwargs")]
        objects = [
            (path, x) for path, x in given if not isinstance(x, (*PLAIN_KINDS, np.ndarray, Tensor))
        ]
        self.reach = Reach(step, objects)
        arrays = [(path, x) for path, x in given if isinstance(x, np.ndarray | Tensor)]
        self.tape = Tape(arrays, self.reach)
        self.watching = watching
        watching.begin(self.tape)
        self.result: Any = None

    def end(self) -> None:
        """The step is over, or has failed: nothing is noticed any more."""
        self.tape.close()
        self.watching.end()

    def finish(self, result: Any) -> Any:
        """The step's result as it is without the tape."""
        tape = self.tape
        if tape.reason is None:
            try:
                tape.keep()
                self.result = tape.returned(result)
                changed = self.watching.changed()
                if changed:
                    raise Refused(f"the step changes {changed}", "return the new one")
            except Refused as error:
                tape.refuse(str(error), error.remedy)
        self.watching.give_back()
        self.reach.look()
        result = self.watching.plain(result)
        return result if tape.reason else _without_graph(self.result, result)


class Program:
    """What a recording comes to.

    Attributes:
        calls: how often it was called.  check_at: the call at which it is recorded again.
        time_at: the call that is timed, to see how rarely that has to be.
    """

    def __init__(self, recording: Recording) -> None:
        tape = recording.tape
        self.recording: Recording | None = recording
        self.step = recording.step
        self.reach = recording.reach
        self.signature = [line.signature() for line in tape.lines if line.kind != "keep"]
        self.result = _signed(recording.result)
        self.lines = [str(line) for line in tape.lines if line.kind != "keep"]
        self.constants = [array for _, array in tape.constants]
        self._found: list[Any] = []
        self._state = self._guard(tape)
        self._forms = self._forms_of(self._all((), {}))
        self.calls = 1
        self.check_at = 2
        self.time_at = 4
        self._extra = 0.0
        self._source = ""
        self._run: Callable[[Any, Any], Any] | None = None

    def fits(self, args: Any, kwargs: Any) -> bool:
        """Whether a call with its key may run it: all is as it was when it was recorded."""
        state = self._state(args, kwargs)
        if state is None:
            return False
        if len(state) == len(self._found) and all(map(is_, state, self._found)):
            return True
        if self._forms_of(self._all(args, kwargs)) != self._forms:
            return False
        self._found = state
        return True

    def _forms_of(self, state: list[Any]) -> list[Any]:
        """What must be equal: of leaves' entries, which come last, the shape and the dtype."""
        named = len(state) - self._leaves
        forms = [(x.shape, x.dtype) for x in state[named:]]
        return [*map(frozen, state[:named]), *forms]

    def _guard(self, tape: Tape) -> Callable[[Any, Any], list[Any] | None]:
        """What lists all that must be as it was, in one function that is written for this step;
        None where a leaf holds a gradient and did not, or an argument lies otherwise.
        """
        things: dict[str, Any] = {}

        def bound(thing: Any) -> str:
            things[f"_{len(things)}"] = thing
            return f"_{len(things) - 1}"

        names = [bound(leaf) for leaf in tape.leaves.values()]
        own = [f"{name}.needs" for name in names] + [f"{name}._data" for name in names]
        owners = [bound(place.owner) for place in self.reach.places]
        texts = []
        for quick in (True, False):
            pairs = zip(self.reach.places, owners, strict=True)
            reads = [place.written(owner, quick) for place, owner in pairs]
            texts.append(f"[{', '.join(filter(None, [*reads, *own]))}]")
        conditions = [f"{bound(w)}.grad is {'not ' * h}None" for w, h in tape.held.values()]
        conditions += [f"{path}.strides == {strides}" for path, strides in tape.strides]
        conditions += [f"{path} is {bound(x)}" for path, x in tape.same_objects]
        ids = bound({*map(id, self.reach.tensors())})
        conditions += [f"id({path}) not in {ids}" for path in tape.other_objects]
        self._leaves = len(names)
        self._found = eval(texts[0], things)
        self._all: Callable[[Any, Any], list[Any]] = eval(
            f"lambda args, kwargs: {texts[1]}", things
        )
        if conditions:
            texts[0] += f" if {' and '.join(conditions)} else None"
        return eval(f"lambda args, kwargs: {texts[0]}", things)

    @property
    def source(self) -> str:
        if self.recording is not None:
            self._write(self.recording)
        return self._source

    def _write(self, recording: Recording) -> None:
        name = getattr(self.step, "__name__", "step")
        name = name if name.isidentifier() else "step"
        source = ProgramText(recording.tape.lines, recording.result, name, _parameters(self.step))
        space: dict[str, Any] = {}
        exec(compile(source.text, f"<compiled {name}>", "exec"), space)
        self._run = space["build"](**source.objects)
        self._source = source.text
        self.recording = None

    def run(self, args: Any, kwargs: Any) -> Any:
        if self._run is None and self.recording is not None:
            self._write(self.recording)
        return self._run(args, kwargs)  # type: ignore[misc]

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

    def difference(self, other: Recording) -> tuple[str | None, str]:
        """How another recording differs, and what to do about it; None if it does not."""
        lines = [line for line in other.tape.lines if line.kind != "keep"]
        remedy = "pass what changes to the step as an argument"
        for i, line in enumerate(lines):
            if i >= len(self.signature) or line.signature() != self.signature[i]:
                before = self.lines[i] if i < len(self.lines) else "nothing"
                return f"call {self.calls} runs {line} where the first ran {before}", remedy
        if len(lines) < len(self.lines):
            return f"call {self.calls} does not run {self.lines[len(lines)]}", remedy
        if _signed(other.result) != self.result:
            return f"call {self.calls} returns other plain values than the first", remedy
        for old, (_, new) in zip(self.constants, other.tape.constants, strict=True):
            if old.dtype != new.dtype or old.tobytes() != new.tobytes():
                return (
                    f"call {self.calls} has another array where the first had {old!r:.60}",
                    remedy,
                )
        return None, ""


def _signed(x: Any) -> Any:
    """What must be the same of a result."""
    if x.__class__ is Returned:
        return x.how, x.value.key
    if x.__class__ in (tuple, list):
        return (x.__class__, *map(_signed, x))
    return (*x, *map(_signed, x.values())) if x.__class__ is dict else frozen(x)


def _without_graph(returned: Any, x: Any) -> Any:
    """A result as later calls give it."""
    if returned.__class__ in (tuple, list):
        return x.__class__([_without_graph(*pair) for pair in zip(returned, x, strict=True)])
    if returned.__class__ is dict:
        return {k: _without_graph(part, x[k]) for k, part in returned.items()}
    return x.detach() if isinstance(returned, Returned) and returned.how == "tensor" else x


def _parameters(step: Any) -> tuple[str, ...]:
    """The names of a step's positional parameters."""
    try:
        found = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple([p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
