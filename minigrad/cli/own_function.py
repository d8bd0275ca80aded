"""A run of a user's own function that returns a loss, told as text and data."""

from __future__ import annotations

import textwrap
from typing import Any

import minigrad as mg

from ..engine.errors import ArgumentError
from ..engine.tensor import Tensor
from ..tracing import Trace
from ..views.table import checks_table
from .explanation import MOST_HEADS, Explanation
from .load_function import Target, users_code

__all__ = ["FunctionReport", "Target"]


class FunctionReport(Explanation):
    """One run of a user's function, and of backward from what it returns unless it did so itself.

    Raises: ArgumentError if it cannot be called, or returns no loss; MinigradError, with the
        traceback as a note, if it raises.
    """

    def __init__(self, target: Target) -> None:
        self.title = str(target)
        with users_code(target):
            function = target.load()
            with mg.trace(check="ops") as self.trace:
                loss = _checked_loss(function(), target)
                self.inside = _has_run(self.trace, loss)
                if not self.inside:
                    _refuse_without_gradient(self.trace, loss, target)
                    loss.backward()
            self.checks = self.trace.checked()
        self.loss = float(loss.item()) + 0.0  # not −0
        self.known = {"function": self.title, "loss": self.loss, "backward_inside": self.inside}

    def parts(self, width: int, ascii: bool, everything: bool) -> list[str]:
        found = [textwrap.fill(self._summary(), width), self.trace.table(width)]
        if self.checks:
            found.append(checks_table(self.checks, width, ascii=ascii))
        else:
            why = "nothing declared by what ran, so no gradient was checked"
            if skipped := self.checks.skipped:
                why = f"not checked: no backward ran through {skipped[0]} in this trace"
            found.append(textwrap.fill(f"hand-derived steps: {why}", width))
        if attention := self.trace.attention():
            most = None if everything else MOST_HEADS
            found.append(attention.text(width, ascii=ascii, most=most))
        return found

    def _summary(self) -> str:
        trace = self.trace
        owned = [entry for entry in trace.entries if entry.kind == "parameter"]
        steps = f"{_count(len(trace.forward_steps), 'step')} forward"
        back = f"{len(trace.backward_steps)} backward" + ", run inside it" * self.inside
        numbers = f"{_count(len(owned), 'parameter')} of {sum(e.size for e in owned):,} numbers"
        return f"{self.title}: loss {self.loss:.6g}; {steps}, {back}; {numbers}"


def _checked_loss(returned: Any, target: Target) -> Tensor:
    if not isinstance(returned, Tensor):
        if hasattr(returned, "cr_await"):
            returned.close()  # a coroutine that no one will await
        kind = type(returned).__name__
        article = "an" if kind[:1].lower() in "aeiou" else "a"
        what = "nothing" if returned is None else f"{article} {kind}"
        raise ArgumentError(f"{target} returned {what}; a loss is needed: a Tensor of one entry")
    if returned.size != 1:
        what = f"a Tensor of shape {returned.shape}; a loss has one entry"
        raise ArgumentError(f"{target} returned {what}: return its mean or its sum")
    return returned


def _has_run(trace: Trace, loss: Tensor) -> bool:
    """Whether backward ran from this loss; of one without a graph, whether any ran."""
    known = trace._find(loss)
    if known is not None and trace[known].gradient is not None:
        return True
    return not loss.requires_grad and bool(trace.backward_steps)


def _refuse_without_gradient(trace: Trace, loss: Tensor, target: Target) -> None:
    why = ""
    if not loss.requires_grad:
        why = "nothing it was computed from has requires_grad=True, or it was detached"
    elif trace._find(loss) is None or not trace.forward_steps:
        why = "no op computed it while the function ran"
    if why:
        raise ArgumentError(f"the loss that {target} returned has no gradient: {why}")


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"
