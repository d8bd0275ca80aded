"""compile(step): a step replayed as straight-line NumPy.

The first call runs the step as it is and writes down what ran: every op, every backward rule, the
sums between them, the gradients it left and the updates it made, as one flat list of NumPy calls
(`record`). Dead and repeated calls are dropped and some are rearranged (`passes`); where it pays,
those that can be are run on parts of the rows, on two threads (`split`); what remains is written as
Python source, one line a call, with buffers allocated once (`source`). Later calls run that source
as long as nothing else the step depends on has changed (`state`, `guards`). Whenever the program
cannot be known to be right, the step just runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import Lock
from typing import Any

import numpy as np

from ...engine.context import current, listen
from ...engine.graph import caller
from ..threads import one_threaded_blas
from .effects import Changed
from .find_dependencies import Survey, survey
from .guards import _key, guard
from .passes import improve
from .record import Recorder
from .source import write
from .split import has_threads, split
from .watched import Watched, plain

__all__ = ["Compiled", "compile"]

_LIMIT = 8  # programs kept for one step; a step that needs more runs eagerly


class _Variant:
    """One recorded run: its guard, and the program, or why there is none."""

    def __init__(self, matches: Any, run: Any, source: str, reason: str | None) -> None:
        self.matches, self.run, self.source, self.reason = matches, run, source, reason


class Compiled:
    """A step that replays what it did. Call it as the step; made by `compile`.

    Attributes:
        source: the NumPy source of the latest recorded run, or a comment that says why the step
        runs eagerly.
        reasons: why runs could not be compiled, newest last.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.variants: list[_Variant] = []
        self.reasons: list[str] = []
        self.recordings = 0
        self._latest: _Variant | None = None
        update_wrapper(self, step)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for variant in self.variants:
            if variant.matches(args, kwargs):
                return variant.run(args, kwargs)
        if self.recordings >= _LIMIT or current().listeners:
            return self.step(*args, **kwargs)
        return self._record(args, kwargs)

    @property
    def source(self) -> str:
        return self._latest.source if self._latest is not None else "# not called yet\n"

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the step and write its program."""
        self.recordings += 1
        found = survey(self.step, args, kwargs)
        recorder = Recorder(found)
        recording = current().recording
        place = caller()
        with listen(recorder):
            watched = _watch(args), _watch(kwargs)
            result = self.step(*watched[0], **watched[1])
            result = recorder.finish(result)
        changing = _changes(found, survey(self.step, args, kwargs), recorder)
        run, source = None, ""
        if recorder.reason is None:
            try:
                improve(recorder.program)
                name = getattr(self.step, "__qualname__", type(self.step).__name__)
                parts = split(recorder.program)
                written = write(recorder.program, name, place, parts)
                run, source = written.build(), written.source
                whole = parts is None and not has_threads(recorder.program)
                run = self._alone(run if whole else _on_one_blas_thread(run))
            except Exception as error:  # the step itself ran: a fault of ours must not stop it
                recorder.reason = f"the program cannot be written: {error!r}"
        if recorder.reason is not None:
            run, source = None, f"# runs eagerly: {recorder.reason}\n"
            self.reasons.append(recorder.reason)
        matches = guard(found, recorder, changing, recording)
        variant = _Variant(matches, run or self._eagerly, source, recorder.reason)
        self.variants.insert(0, variant)
        self._latest = variant
        return result

    def _alone(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The buffers serve one call at a time: another, from another thread or from within, runs
        eagerly.
        """
        lock = Lock()

        def alone(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not lock.acquire(False):
                return self.step(*args, **kwargs)
            try:
                return run(args, kwargs)
            except Changed:  # nothing was written yet
                return self.step(*args, **kwargs)
            finally:
                lock.release()

        return alone

    def _eagerly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.step(*args, **kwargs)


def compile(step: Callable[..., Any]) -> Compiled:
    """A function that does what `step` does, replayed as NumPy source written once.

    step: any function of tensors, arrays, plain values and containers of these. It may call
    `backward()`, `assign_`, and `zero_grad()` and `step()` of an optimiser. Returns and `.grad` are
    those of the step, to rounding; returned tensors are leaves.

    Shapes, dtypes, flags, plain values and the objects the step reaches may change from call to
    call: it is then recorded anew, up to 8 times. The numbers in arrays may change freely. Steps of
    more than a millisecond run on two threads over single-threaded BLAS where they work row by row
    and are not many short ones, with BLAS's setting restored after each call. A step
    runs eagerly, as if it were not compiled, when it looks at numbers in Python (`item()`,
    `float(x)`, `if x > 0`), computes with arrays outside the ops, returns what still waits for a
    backward, has hooks, changes plain state, or while a trace listens; `compiled.reasons` says
    which and where. Not seen: a condition on numbers of an array that the step reaches by itself
    and reads with NumPy, and state outside Python objects (time, files).

    >>> import minigrad as mg
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


def _on_one_blas_thread(run: Callable[..., Any]) -> Callable[..., Any]:
    """BLAS's own threads keep spinning after a product, and would take a core from the parts."""

    def limited(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with one_threaded_blas:
            return run(args, kwargs)

    return limited


def _watch(item: Any) -> Any:
    """Array arguments as Watched views."""
    if item.__class__ is np.ndarray:
        return item.view(Watched)
    if item.__class__ in (tuple, list):
        return item.__class__(map(_watch, item))
    if item.__class__ is dict:
        return {key: _watch(value) for key, value in item.items()}
    return item


def _changes(before: Survey, after: Survey, recorder: Recorder) -> set[tuple[int, Any]]:
    """What the step changed in what it can reach: attributes set to its own arrays are kept,
    anything else refused.
    """
    changing: set[tuple[int, Any]] = set()
    then = {_key(e): e for e in before.entries if e.owner is not None}
    for entry in after.entries:
        old = then.get(_key(entry)) if entry.owner is not None else entry
        if old is not None and (old.value is entry.value or _equal(old, entry)):
            continue
        known = recorder.arrays.known(entry.value)
        if known is not None and isinstance(entry.owner, dict) and isinstance(entry.key, str):
            changing.add(_key(entry))
            entry.owner[entry.key] = plain(entry.value)
            recorder.program.keeps.append((entry.owner, entry.key, known))
        else:
            what = entry.key if isinstance(entry.key, str) else type(entry.owner).__name__
            recorder.refuse(f"the step changes {what}")
    return changing


def _equal(old: Any, new: Any) -> bool:
    return (
        old.kind == new.kind in ("plain", "length")
        and type(old.value) is type(new.value)
        and bool(old.value == new.value)
    )
