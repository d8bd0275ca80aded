"""compile(step): a step replayed as straight-line NumPy.

Five files show how it works. The first call runs the step as it is (here). Every op, every backward
rule, the gradients and the updates are recorded (`record`) as the NumPy calls that they make
(`symbol`), in one flat list; calls whose results nobody reads are dropped (`program`). The rest is
written as Python source, one line for each call (`source`).

The other files say whether a program fits a call (`dependencies`, `cache_entry`), what each array
and `.grad` of the run is in the program (`values`), which arrays share memory and what they are
called (`buffers`, `terms`), which steps run on two threads, each on its part of the rows
(`partition`), and whether calls 2, 4, 8, ... give what the eager step gives (`audit`, `compare`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial, update_wrapper
from inspect import signature
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from ...engine.context import current
from ...engine.errors import CompileWarning
from ...engine.followed import Followed
from ...engine.listener import listen
from ...engine.types import Arguments, Kernel
from ...engine.writes import SourceLocation, caller
from ..threads import one_threaded_blas
from .audit import Audit
from .cache_entry import CacheEntry, CallArguments, FollowedArguments, small_bytes
from .dependencies import Dependencies
from .partition import Unsplit, has_threads
from .program import KeptAttribute, drop_dead
from .record import ProgramRecorder
from .source import GuardFailed, write

__all__ = ["Compiled", "compile"]

warned: set[Hashable] = set()  # functions, and the kinds of warnings that were shown of them
_LIMIT = 8  # programs kept for one step; a step that needs more runs eagerly


P = ParamSpec("P")
R = TypeVar("R")


class Compiled(Generic[P, R]):
    """A step that replays what it did. Call it as the step; made by `compile`.

    Attributes:
        source: the NumPy source of the latest recorded run, or a comment that says why the step
            runs eagerly.
        reasons: why runs could not be compiled, newest last.
        recordings: how many runs were recorded.
        rounding: where the latest audited call differed from the eager one by rounding alone; "" if
            none has. Such a step stays compiled.
    """

    def __init__(self, step: Callable[P, R]) -> None:
        self.step = step
        self.variants: list[CacheEntry] = []
        self.reasons: list[str] = []
        self.recordings = self.calls = 0
        self.rounding = ""
        self._by_key: dict[Hashable, list[CacheEntry]] = {}
        self._kinds: set[str] = set()  # of reasons
        self._distrusted = False
        self._name = getattr(step, "__qualname__", type(step).__name__)
        update_wrapper(self, step, updated=())
        more = getattr(step, "__dict__", {})  # of an object, names of ours may be among them
        vars(self).update({name: x for name, x in more.items() if not hasattr(self, name)})

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._distrusted or current().listeners:
            return self.step(*args, **kwargs)
        self.calls += 1
        call = CallArguments(args, kwargs)
        for variant in self._by_key.get(call.key, ()):
            if variant.fits(call.arrays):
                try:
                    return self._replay(variant, call)
                except GuardFailed:  # nothing was written yet
                    continue
        if self.recordings < _LIMIT:
            return self._record(call)
        self._run_eagerly(
            f"{_LIMIT} programs were recorded and none fits, {self._unlike()}",
            "keep what changes from call to call in arrays or Tensors",
        )
        return self.step(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method of a class, the step takes the instance as its first argument."""
        return self if instance is None else MethodType(self, instance)

    def audit(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """A call that runs both ways and compares; what the step returns.

        Warns: CompileWarning if the two differ: what does, by how much, and the likely reason.
        """
        if self._distrusted or current().listeners:
            return self.step(*args, **kwargs)
        call = CallArguments(args, kwargs)
        for _ in range(2):
            for variant in self._by_key.get(call.key, ()):
                if variant.run is not None and variant.fits(call.arrays):
                    with suppress(GuardFailed):
                        return self._audit(variant, call)
            result = self(*args, **kwargs)  # which records it
        return result

    @property
    def source(self) -> str:
        return self.variants[0].source if self.variants else "# not called yet\n"

    def __repr__(self) -> str:
        ready = sum(variant.run is not None for variant in self.variants)
        state = f"{ready} program{'s' * (ready != 1)}, {self.calls} calls"
        if self._distrusted or (self.reasons and not ready):
            state = f"runs eagerly: {self.reasons[-1]}"
        elif self.reasons:
            state += f"; runs eagerly at times: {self.reasons[-1]}"
        elif self.rounding:
            state += f"; {self.rounding}"
        return f"<compiled {self._name}: {state if self.calls else 'not called yet'}>"

    def _repr_html_(self) -> str:
        """For a notebook: what it is, and the program folded below."""
        from html import escape

        return (
            f"<details><summary><code>{escape(repr(self))}</code></summary>"
            f"<pre>{escape(self.source)}</pre></details>"
        )

    # ------------------------------------------------------------------ one call

    def _replay(self, variant: CacheEntry, call: CallArguments) -> Any:
        """Run a program; another call, from another thread or from within, runs eagerly."""
        if variant.run is None or not variant.lock.acquire(False):
            return self.step(*call.args, **call.kwargs)
        try:
            variant.calls += 1
            count = self.calls if variant.has_effects else variant.calls
            if count & (count - 1) == 0 or variant.has_unaudited_values(call):
                return self._audit(variant, call)
            try:
                return variant.run(call.args, call.kwargs)
            except GuardFailed:
                raise
            except Exception as error:  # nothing was written yet; the step's own error says more
                if variant.has_effects:
                    raise  # of those that ran, none may run again
                result = self.step(*call.args, **call.kwargs)
                self._distrust(f"the program failed where the step does not: {error!r}", "")
                return result
        finally:
            variant.lock.release()

    def _audit(self, variant: CacheEntry, call: CallArguments) -> Any:
        audit = Audit(self.step, variant, call)
        try:
            return audit.run()
        finally:
            variant.note_news(call)
            if audit.rounding:
                self.rounding = f"call {self.calls} differs by rounding in {audit.rounding}"
            if audit.finding:
                self._distrust(
                    f"call {self.calls} differs from the step run eagerly in {audit.finding}",
                    f"likely {audit.cause}; pass it as an argument",
                )

    def _distrust(self, reason: str, remedy: str) -> None:
        """Run eagerly from now on."""
        self._distrusted = True
        self._run_eagerly(reason, remedy)

    def _run_eagerly(self, reason: str, remedy: str) -> None:
        """Say that and why the step runs eagerly. A warning says so once for each kind of reason
        and each function that a program defines, however often that is made anew and compiled.
        """
        kind = re.sub(r"\d[\d.e+-]*", "", reason)
        if kind not in self._kinds:  # there may be another number at each call
            self._kinds.add(kind)
            self.reasons.append(reason)
        defined = getattr(self.step, "__code__", type(self.step))
        if (defined, kind) not in warned:
            warned.add((defined, kind))
            remedy = f"\n  {remedy}" if remedy else ""
            text = f"mg.compile: {self._name} runs eagerly: {reason}{remedy}"
            place = caller()
            warnings.warn_explicit(text, CompileWarning, place.file, place.line)

    def _unlike(self) -> str:
        """What keeps the latest program from being used."""
        latest = self.variants[0]
        for holder, name, before, now in latest.found.changes():
            called = latest.found.called(holder, name)
            return f"as {called} was {before!r:.40} and is {now!r:.40}"
        return "as the arguments are of other shapes, dtypes or plain values"

    # ------------------------------------------------------------------ the first call

    def _record(self, call: CallArguments) -> Any:
        """Run the step and write its program."""
        followed = FollowedArguments(_named(self.step, call.args), call)
        found = Dependencies(self.step, followed.others)
        samples = [small_bytes(x) for x in call.arrays]
        recorder, place = ProgramRecorder(found, followed.arrays, followed.originals), caller()
        try:
            with listen(recorder):
                result = self.step(*followed.args, **followed.kwargs)
                result = recorder.finish(result)
        finally:
            for changed in followed.return_changes(recorder.as_eagerly):
                recorder.refuse(f"the step changes {changed}", "return the new one")
            recorder.gradients.release()
        self.recordings += 1
        _note_changes(found, recorder)
        variant = CacheEntry(found, recorder, call, samples)
        recorder.clear()
        if variant.reason is None:
            self._write(variant, place)
        if variant.reason is not None:
            variant.source = f"# runs eagerly: {variant.reason}\n"
        self.variants.insert(0, variant)
        self._by_key.setdefault(call.key, []).insert(0, variant)
        if variant.reason is not None:
            self._run_eagerly(variant.reason, variant.remedy)
        return result

    def _write(self, variant: CacheEntry, place: SourceLocation) -> None:
        program = variant.program
        try:
            drop_dead(program)
            partition = Unsplit()
            build, source = write(program, self._name, place, partition)
            whole = not has_threads(program)
            variant.write(build if whole else partial(_on_one_blas_thread, build), source)
        except Exception as error:  # the step itself ran: a fault of ours must not stop it
            variant.reason = f"the program cannot be written: {error!r}"


def compile(step: Callable[P, R]) -> Compiled[P, R]:
    """A function that does what `step` does, replayed as NumPy source written once.

    A step is a function of:

    - its arguments: arrays and Tensors by what they hold, also within tuples, lists, dicts,
      namedtuples and dataclasses; plain values by equality, other objects by identity;
    - the Tensors, Modules and optimizers it uses, as they are at each call: values, attributes,
      `train()` and `eval()`, replaced parameters, grown lists, `lr`, `requires_grad`;
    - the builtin values, functions and classes that its closure and its globals name, and what
      containers hold; of one with more than 1,000 entries only how many they are;
    - random draws through a Generator that is given to an op.

    All else is frozen at the first call. It may call `backward()`, `assign_`, and what optimizers
    and schedules offer; returned tensors are leaves. Calls 2, 4, 8, 16 … run both ways and compare,
    and so does one that finds an array of the closure or the globals changed (of a large one it
    looks at some entries). Where they differ, or a step cannot be compiled, it runs eagerly: a
    CompileWarning says why.

    Returns: a `Compiled`, called as the step: `.source`, `.reasons`, `.audit(*args)`.

    >>> import minigrad as mg
    >>> import numpy as np
    >>> w = mg.tensor([1.0, 2.0], requires_grad=True, name="w")
    >>> @mg.compile
    ... def step(x):
    ...     loss = mg.sum(w * x).named("loss")
    ...     loss.backward()
    ...     return loss
    >>> step(np.array([3.0, 4.0])).item(), step(np.array([5.0, 6.0])).item()
    (11.0, 17.0)
    >>> w.grad
    array([ 8., 10.])
    """
    return Compiled(step)


def _on_one_blas_thread(build: Callable[[], Kernel]) -> Kernel:
    """BLAS's own threads keep spinning after a product, and would take a core from the parts."""
    run = build()

    def limited(args: Arguments, kwargs: dict[str, Any]) -> Any:
        with one_threaded_blas:
            return run(args, kwargs)

    return limited


def _named(step: Callable[..., object], args: Arguments) -> list[str]:
    """What the step calls each of its arguments."""
    with suppress(TypeError, ValueError):
        return [*signature(step).parameters, *[""] * len(args)][: len(args)]
    return [""] * len(args)


def _note_changes(found: Dependencies, recorder: ProgramRecorder) -> None:
    """What the step changed in what it reaches: attributes set to arrays of the program are set by
    it, anything else is refused.
    """
    for holder, name, before, now in list(found.changes()):
        value, state = recorder.values.known(now), holder.state
        was_read = recorder.values.known(getattr(before, "_data", before)) is not None
        if value is not None and not was_read and state is not None and name in state:
            holder.changing.add(name)
            kept = KeptAttribute(state, name, recorder.returned(now), name in found.words)
            state[name] = recorder.as_eagerly(now)
            recorder.program.keeps.append(kept)
        else:
            remedy = "pass it as an argument, or return the new one"
            recorder.refuse(f"the step changes {found.called(holder, name)}", remedy)
            if isinstance(now, Followed) and isinstance(holder.container, list | dict):
                holder.container[name] = recorder.as_eagerly(now)
    found.note()
