"""The derivation: a trace written out in Markdown, with LaTeX that GitHub renders.

plan        which steps there are, in which order, and which blocks repeat
symbols     names, numbers and spaces as LaTeX
equations   the formulas of the run, with symbols in them
step_text   a step as text, with the sizes of its gradients and what was measured
sections    what is given, all of the steps, and the table at the end
markdown    formulas and names as Markdown, and what the signs in them mean
"""

from __future__ import annotations

from pathlib import Path

from ...recording.trace import TraceRecord
from ...saving import write
from .markdown import notation
from .sections import Sections

__all__ = ["derivation_text", "write_derivation"]


def write_derivation(trace: TraceRecord, path: str | Path) -> Path:
    """Write the derivation of a trace to a file, whole or not at all."""
    return write(path, derivation_text(trace), "derivation")


def derivation_text(trace: TraceRecord) -> str:
    """The derivation of a trace as Markdown; the same program gives the same text.

    A ✓ or ✗ is a difference that `trace.check()` measured in this run; what was not measured has
    neither.

    >>> import minigrad as mg
    >>> x = mg.tensor([3.0, 4.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> r"\\frac{\\partial L}{\\partial x}" in derivation_text(t)
    True
    """
    sections = Sections(trace, trace.checked())
    body = [*sections.forward(), *sections.backward(), *sections.results()]
    signs = notation("\n".join(body), sections.conventions())
    return "\n\n".join([*sections.opening(), *signs, *body]) + "\n"
