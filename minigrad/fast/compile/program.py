"""The program that is made of a tape: when it fits, what it runs, and whether it still holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from itertools import zip_longest
from operator import is_
from typing import Any

from .lines import TapeLine, signed
from .reach import frozen
from .source import ProgramText
from .tape import Tape

__all__ = ["Program"]

NO_LINE = TapeLine("nothing", None, ())


class Program:
    """What a tape comes to.

    Attributes:
        calls: how often it was called.  check_at: the call at which it is recorded again.
    """

    def __init__(self, step: Any, tape: Tape) -> None:
        self.step = step
        self.lines = tape.lines
        self.result = tape.result
        self.constants = tape.constants
        self.holders = [holder for holder in tape.reach.holders if holder.code]
        self._guard(tape)
        self.calls = 1
        self.check_at = 2

    def _guard(self, tape: Tape) -> None:
        """Write a function that lists what must be as it was: first what tells nothing of names."""
        things: dict[str, Any] = {}

        def bound(thing: Any) -> str:
            things[f"_{len(things)}"] = thing
            return f"_{len(things) - 1}"

        held = [(bound(leaf), h) for leaf, h in tape.held.items() if h is not None]
        reads = [f"{name}.grad is {'not ' * h}None" for name, h in held]
        others = bound({id(x): x for x in tape.reach.tensors})
        for x, value in tape.tensors.items():
            if value.path:  # it may go by another name too
                reads.append(f"{others}.get(id({value.path}))")
            else:
                name = bound(x)
                reads += [f"{name}.hooks or {name}.needs", f"{name}._data.dtype"]
        named = [holder.code.format(bound(holder.owner)) for holder in self.holders]
        self._state = eval(f"lambda args, kwargs: [{', '.join(reads + named)}]", things)
        self._found = self._state(tape.args, tape.kwargs)
        self._found[: len(held)] = [True] * len(held)
        self._own = slice(len(reads))

    def fits(self, args: Any, kwargs: Any) -> bool:
        """Whether a call with its key may run it: all is as it was when it was recorded."""
        state = self._state(args, kwargs)
        if len(state) == len(self._found) and all(map(is_, state, self._found)):
            return True
        own, found = (map(frozen, of[self._own]) for of in (state, self._found))
        if [*own] != [*found] or any(holder.changed() for holder in self.holders):
            return False
        self._found = state
        return True

    @cached_property
    def _written(self) -> tuple[str, Callable[[Any, Any], Any]]:
        """Its source, and what it runs."""
        name = getattr(self.step, "__name__", "step")
        name = name if name.isidentifier() else "step"
        written = ProgramText(self.lines, self.result, name, _parameters(self.step))
        space: dict[str, Any] = {}
        exec(compile(written.text, f"<compiled {name}>", "exec"), space)
        return written.text, space["build"](**written.names.objects)

    @property
    def source(self) -> str:
        return self._written[0]

    def run(self, args: Any, kwargs: Any) -> Any:
        return self._written[1](args, kwargs)

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
        for (_, first), (_, x) in zip(self.constants, tape.constants, strict=False):
            if (first.dtype, first.tobytes()) != (x.dtype, x.tobytes()):
                return f"call {self.calls} has another array where the first had {first!r:.60}"
        return None


def _parameters(step: Any) -> dict[str, str]:
    """What a step calls its arguments, by path."""
    try:
        names = [*inspect.signature(step).parameters]
    except (TypeError, ValueError):
        return {}
    known = {f"args[{i}]": name for i, name in enumerate(names)}
    return known | {f"kwargs[{name!r}]": name for name in names}
