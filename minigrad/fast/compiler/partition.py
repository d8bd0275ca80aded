"""Steps that run one after the other, each whole."""

from __future__ import annotations

from ...engine.op import registry
from .program import Program, ProgramStep, Value

__all__ = ["Unsplit", "has_threads"]


def has_threads(program: Program) -> bool:
    """Whether a kernel shares its work among threads of its own."""
    kernels = [step for step in program.steps if step.kind == "kernel" and step.op in registry]
    ops = [(registry[step.op], step.args) for step in kernels]
    return any(hasattr(op, "threaded") and op.threaded(*a[: len(op.inputs)]) for op, a in ops)


class Unsplit:
    """Steps that all run as they are.

    Attributes:
        units: how many rows there are.  count: in how many parts.
        phases: how many times the parts run.
        axes: the axis along which a value is cut, by its id; others are whole.
        local: values that live within the parts of one phase only, by the id of their root.
    """

    units = count = phases = 0

    def __init__(self) -> None:
        self.axes: dict[int, int] = {}
        self.local: set[int] = set()
        self._needs: dict[int, list[int | None]] = {}
        self._steps: dict[int, int] = {}  # the phase of a step, or that after which it runs whole

    def phase(self, step: ProgramStep) -> int:
        """The phase in whose parts a step runs, 0 for whole."""
        return self._steps[id(step)] if id(step) in self._needs else 0

    def order(self, step: ProgramStep) -> int:
        return 2 * self._steps.get(id(step), 0) - (id(step) in self._needs)

    def axis(self, value: Value) -> int | None:
        return self.axes.get(id(value))

    def needs(self, step: ProgramStep) -> list[int | None]:
        """The axis along which a step reads each value, None for whole."""
        return self._needs.get(id(step)) or [None] * len(step.reads)
