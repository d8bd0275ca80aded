"""One call of an op, as formulas ask about it: its settings, shapes, and the axes it goes over."""

from __future__ import annotations

import re
from ast import literal_eval
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..variants import Formulas, is_bare
from .indices import along, span
from .symbols import array_letters

if TYPE_CHECKING:
    from ...recording.record import Entry
    from ...recording.trace import Trace

__all__ = ["Call", "Said", "Unknown"]

Said: TypeAlias = "tuple[str, dict[str, str]]"  # a formula, and the rule for each input


class Unknown(Exception):
    """A setting that the record does not hold, or not as a value."""


@dataclass
class Call:
    """One call: what was declared, the settings, and the shapes."""

    trace: Trace
    entry: Entry
    made: Formulas

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [self.trace[edge.source].shape for edge in self.trace.into(self.entry)]

    @property
    def x(self) -> tuple[int, ...]:
        return self.shapes[0]

    @property
    def inputs(self) -> list[str]:
        return [edge.input for edge in self.trace.into(self.entry)]

    def text(self, name: str) -> str:
        """A setting as the record has it.

        Raises: Unknown if it does not.
        """
        missing = is_bare(self.entry) and name not in self.entry.settings
        if missing or name in self.inputs:  # an array is no text
            raise Unknown(name)
        return self.entry.settings.get(name, "None")

    def setting(self, name: str) -> Any:
        """A setting as it was, None without one."""
        text = re.sub(r"\bnp\.\w+\(([^()]*)\)", r"\1", self.text(name))
        try:
            return literal_eval(text)
        except (ValueError, SyntaxError):
            raise Unknown(name) from None

    def axes(self, name: str = "axis") -> list[int]:
        """The axes of x that a setting names; all without one."""
        axis, ndim = self.setting(name), len(self.x)
        named = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        return sorted(a % ndim for a in named) if ndim else []

    def parts(self, axis: int, sizes: list[int]) -> dict[str, str]:
        """For each input the rule that cuts its part out of the gradient."""
        rules, end = {}, 0
        for name, size in zip(self.inputs, sizes, strict=True):
            cut = along(axis, len(self.entry.shape), span(end, end + size))
            rules[name] = f"<g>[{cut}]"
            end += size
        return rules

    def over(self) -> tuple[str, str]:
        """The letters of the axes that the op goes over, and x with all of its letters."""
        letters = array_letters(len(self.x))
        over = ",".join(letters[k] for k in self.axes())
        return over, f"<x>_{{{','.join(letters)}}}" if letters else "<x>"

    def partly(self) -> str:
        """A subscript: over which axes, if not over all."""
        over, _ = self.over()
        return f"_{{{over}}}" if over and len(self.axes()) < len(self.x) else ""
