"""A user's own function that returns a loss: run under a trace, and told as text and data."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import minigrad as mg

from ..engine.errors import ArgumentError, GradientError
from ..engine.tensor import Tensor
from ..recording.record import Checks
from ..recording.trace import Trace
from ..views.data import trace_to_dict
from ..views.table import checks_table
from .explain import MOST_HEADS, filled
from .target import Target, guarded, surroundings

__all__ = ["Own", "run_own"]


@dataclass(frozen=True)
class Own:
    """One run of a user's function."""

    target: str
    trace: Trace
    checks: Checks
    unchecked: str  # why nothing could be checked, although something was declared
    loss: float
    inside: bool  # whether the function ran backward itself

    @property
    def tokens(self) -> None:
        return None

    @property
    def title(self) -> str:
        return self.target

    def succeeded(self) -> bool:
        """Whether no gradient that was measured is wrong."""
        return self.checks.first_wrong is None

    def record(self) -> dict[str, Any]:
        """The trace as plain data, with what the command knows besides under "explain"."""
        loss = self.loss if isfinite(self.loss) else str(self.loss)
        known = {"function": self.target, "loss": loss, "backward_inside": self.inside}
        return trace_to_dict(self.trace) | {"explain": known}

    def report(self, files: Sequence[str], width: int, *, ascii: bool, everything: bool) -> str:
        """The whole text; `files` are lines about what was written."""
        most = None if everything else MOST_HEADS
        attention = self.trace.attention()
        parts = [
            textwrap.fill(self._summary(), width),
            self.trace.table(width),
            self._checked(width, ascii),
            *([attention.text(width, ascii=ascii, most=most)] if attention else []),
            filled(files, width),
        ]
        return "\n\n".join(parts)

    def _summary(self) -> str:
        trace = self.trace
        owned = [entry for entry in trace.entries if entry.kind == "parameter"]
        steps = f"{_some(len(trace.forward_steps), 'step')} forward"
        back = f"{len(trace.backward_steps)} backward" + ", run inside it" * self.inside
        numbers = f"{_some(len(owned), 'parameter')} of {sum(e.size for e in owned):,} numbers"
        return f"{self.target}: loss {self.loss:.6g}; {steps}, {back}; {numbers}"

    def _checked(self, width: int, ascii: bool) -> str:
        if self.unchecked:
            return textwrap.fill(f"hand-derived steps: not checked: {self.unchecked}", width)
        if not self.checks:
            said = "hand-derived steps: nothing declared by what ran, so no gradient was checked"
            return textwrap.fill(said, width)
        return checks_table(self.checks, width, ascii=ascii)


def run_own(target: Target) -> Own:
    """Run the function, and backward from what it returns unless it did so itself.

    Raises: ArgumentError if it cannot be called, or returns no loss; MinigradError, with the
        traceback as a note, if it raises.
    """
    with surroundings(target), guarded(target):
        function = target.load()
        with mg.trace() as trace:
            loss = _loss(function(), target)
            inside = _reached(trace, loss)
            if not inside:
                _refuse_without_gradient(trace, loss, target)
                loss.backward()
        checks, unchecked = _checks(trace)
    value = float(loss.item()) + 0.0  # not −0
    return Own(str(target), trace, checks, unchecked, value, inside)


def _loss(returned: Any, target: Target) -> Tensor:
    if not isinstance(returned, Tensor):
        if hasattr(returned, "cr_await"):
            returned.close()  # a coroutine that no one will await
        what = "nothing" if returned is None else f"{_article(type(returned).__name__)}"
        raise ArgumentError(f"{target} returned {what}; a loss is needed: a Tensor of one entry")
    if returned.data.size != 1:
        raise ArgumentError(
            f"{target} returned a Tensor of shape {returned.shape}; a loss has one entry: return "
            "its mean or its sum"
        )
    return returned


def _reached(trace: Trace, loss: Tensor) -> bool:
    """Whether backward ran from this loss; of one without a graph, whether any ran."""
    known = trace._find(loss)
    if known is not None and trace[known].gradient is not None:
        return True
    return not loss.requires_grad and bool(trace.backward_steps)


def _refuse_without_gradient(trace: Trace, loss: Tensor, target: Target) -> None:
    if not loss.requires_grad:
        why = "nothing it was computed from has requires_grad=True, or it was detached"
    elif trace._find(loss) is None or not trace.forward_steps:
        why = "no op computed it while the function ran"
    else:
        return
    raise ArgumentError(f"the loss that {target} returned has no gradient: {why}")


def _checks(trace: Trace) -> tuple[Checks, str]:
    try:
        return trace.check(), ""
    except GradientError as error:
        return Checks(), str(error).removeprefix("check: ")


def _some(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"
