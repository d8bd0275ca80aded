"""The derivation: a trace written out in Markdown, with LaTeX that GitHub renders.

story       what is told, in which order, what within what, and which blocks repeat
symbols     names, numbers and spaces as LaTeX
equations   the formulas of the run, with symbols in them
steps       what each step goes back through
step_text   a step as text; sizes: how large its gradients are, and what was measured
chapters    all of the steps, and the table at the end
opening     what is given; notation: what the signs in the formulas mean
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...engine.errors import GradientError
from ..render import write
from .chapters import Chapters
from .notation import notation
from .opening import Opening

if TYPE_CHECKING:
    from ...recording.record import Check
    from ...recording.trace import Trace

__all__ = ["derivation_text", "write_derivation"]


def write_derivation(trace: Trace, path: str | Path) -> Path:
    """Write the derivation of a trace to a file, whole or not at all."""
    path = Path(path)
    write(path, derivation_text(trace).encode(), "derivation")
    return path


def derivation_text(trace: Trace) -> str:
    """The derivation of a trace as Markdown; the same program gives the same text.

    A ✓ or ✗ is a difference that `trace.check()` measured in this run; without one, none stands.

    >>> import minigrad as mg
    >>> x = mg.tensor([3.0, 4.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> r"\\frac{\\partial L}{\\partial x}" in derivation_text(t)
    True
    """
    checks, unmeasured = _checks(trace)
    chapters = Chapters(trace, checks)
    opening = Opening(chapters.story, chapters.equations, checks)
    body = [*chapters.forward(), *chapters.backward(), *chapters.results()]
    signs = notation("\n".join(body), opening.conventions())
    parts = [*opening.text(len(chapters.steps), unmeasured), *signs, *body]
    return "\n\n".join(parts) + "\n"


def _checks(trace: Trace) -> tuple[list[Check], str]:
    """What was measured against hand-derived steps, and why not, if nothing could be."""
    if not trace.backward_steps:
        return [], ""
    try:
        return list(trace.check()), ""
    except GradientError as error:
        return [], str(error)
