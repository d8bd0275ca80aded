"""What can be run, a function that returns a loss; a run of it within a trace; and what differs
between a run and the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.tensor import Tensor
from ..engine.types import Array
from ..tracing import Trace
from .addresses import keys_of
from .values import Argument

__all__ = ["Run", "Source", "alike", "differences", "moved", "run_loss"]


@dataclass
class Source:
    """A function that returns a loss, and what is known of it besides.

    Attributes:
        load: runs the module of the function, and returns it.
        title: one line that says what it is.
        tokens: names of the positions, a list for each text.
        facts: what the title leaves unsaid, said beside the loss.
        known: what trace.json holds besides the record, as plain data.
        around: a context of the run, which explains errors of the user's own code.
        python: statements that define the function, as a program of one's own would have them.
        name: what they call it.
    """

    load: Callable[[], Callable[..., Tensor]]
    title: str
    tokens: list[list[str]] | None = None
    facts: list[str] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    python: str = ""
    name: str = "run"


@dataclass
class Run:
    """One run of a function and its backward, recorded, with every step checked.

    Attributes:
        loss: what the function returned, as a number.
        inside: whether the function ran backward itself.
        place: the entry of the loss in the record.
    """

    trace: Trace
    loss: float
    inside: bool
    place: int | None
    arguments: dict[str, Argument] = field(default_factory=dict)


def run_loss(
    function: Callable[..., Tensor],
    title: str,
    arguments: dict[str, Argument] | None = None,
    around: Iterable[AbstractContextManager[object]] = (),
) -> Run:
    """Run the function, and backward from what it returns unless it did so itself.

    Args: title: how errors call it.  around: what the run is within, from the outermost in.
    Raises: ArgumentError if it returns no loss, or one without a gradient; whatever it raises.
    """
    given = arguments or {}
    with ExitStack() as stack:
        for one in around:
            stack.enter_context(one)
        with Trace(check="ops") as trace:
            loss = _checked_loss(function(**given), title)
            place, inside = trace._find(loss), _has_run(trace, loss)
            if not inside:
                _refuse_without_gradient(trace, loss, title)
                loss.backward()
    return Run(trace, float(loss.item()) + 0.0, inside, place, given)  # not −0


def _checked_loss(returned: object, title: str) -> Tensor:
    if not isinstance(returned, Tensor):
        if isinstance(returned, Coroutine):
            returned.close()  # no one will await it
        kind = type(returned).__name__
        article = "an" if kind[:1].lower() in "aeiou" else "a"
        what = "nothing" if returned is None else f"{article} {kind}"
        raise ArgumentError(f"{title} returned {what}; a loss is needed: a Tensor of one entry")
    if returned.size != 1:
        what = f"a Tensor of shape {returned.shape}; a loss has one entry"
        raise ArgumentError(f"{title} returned {what}: return its mean or its sum")
    return returned


def _has_run(trace: Trace, loss: Tensor) -> bool:
    """Whether backward ran from this loss; of one without a graph, whether any ran."""
    known = trace._find(loss)
    if known is not None and trace[known].gradient is not None:
        return True
    return not loss.requires_grad and bool(trace.backward_steps)


def _refuse_without_gradient(trace: Trace, loss: Tensor, title: str) -> None:
    why = ""
    if not loss.requires_grad:
        why = "nothing it was computed from has requires_grad=True, or it was detached"
    elif trace._find(loss) is None or not trace.forward_steps:
        why = "no op computed it while the function ran"
    if why:
        raise ArgumentError(f"the loss that {title} returned has no gradient: {why}")


# ---------------------------------------------------------------- two runs


def alike(before: Run, run: Run) -> bool:
    """Whether both have the same graph."""
    return _form(before) == _form(run)


def moved(before: Run, run: Run) -> dict[int, int]:
    """Which entry of the run each entry of the one before is."""
    if alike(before, run):
        return {entry.id: entry.id for entry in run.trace.entries}
    now = {key: i for i, key in keys_of(run.trace).items()}
    return {i: now[key] for i, key in keys_of(before.trace).items() if key in now}


def differences(before: Run, run: Run) -> dict[int, list[float | None]]:
    """By how much each value and gradient differs, relative to its size before."""
    found = {}
    for then, now in moved(before, run).items():
        other, entry = before.trace.entries[then], run.trace.entries[now]
        if other.shape == entry.shape:
            noise = {other.state, entry.state} <= {"zero", "cancels", "none"}
            gradient = 0.0 if noise else _gap(other.gradient, entry.gradient)
            pair = [_gap(other.value, entry.value), gradient]
            if any(pair):
                found[entry.id] = pair
    return found


def _form(run: Run) -> tuple[object, ...]:
    trace = run.trace
    entries = [(e.kind, e.op, e.path, e.shape, e.gradient is None) for e in trace.entries]
    edges = [(e.source, e.target, e.input, e.contribution is None) for e in trace.edges]
    return entries, edges, trace.forward_steps, trace.backward_steps


def _gap(old: Array | None, new: Array | None) -> float | None:
    """‖new − old‖ / ‖old‖ over finite entries; None if either is missing, 0 if they are equal."""
    if old is None or new is None or old.dtype.kind not in "fiub":
        return None
    if np.array_equal(old, new, equal_nan=old.dtype.kind == "f"):
        return 0.0
    before, after = np.asarray(old, float), np.asarray(new, float)
    both = np.isfinite(before) & np.isfinite(after)
    size = float(np.linalg.norm(before[both]))
    gap = float(np.linalg.norm(after[both] - before[both]))
    return gap / size if size and gap else 1.0
