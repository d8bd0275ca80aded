"""A function that returns a loss, run and recorded, with other values in the place of some.

Ops are counted as they run, and a change says by this number what it is of:
the result of op number k, one of its settings, or one of its inputs.
A leaf is the input of the op that uses it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg

from ..engine.context import observe
from ..engine.errors import ArgumentError, GradientError
from ..engine.observer import Observer
from ..engine.op import array_of
from ..engine.tensor import Tensor
from ..record.record import Entry
from ..tracing import Trace

__all__ = ["Edit", "LossFunction", "Run", "run_loss", "tokens_of"]


class LossFunction(NamedTuple):
    """What is to run. Attributes: tokens: names of positions."""

    function: Callable[..., Any]
    title: str
    tokens: list[str] | None = None


def tokens_of(function: Callable[..., Any]) -> list[str] | None:
    """The names of positions that a function has as its attribute."""
    return [*map(str, getattr(function, "tokens", None) or ())] or None


EVERY = slice(None)


class Edit(NamedTuple):
    """One change of a run.

    Attributes:
        op: its number.  of: the name of an input or a setting; empty for its result.
        value: what takes its place.  part: which entries of the flattened array are meant.
        cut: whether zeros take the place of the input, in this op alone.
    """

    op: int
    of: str = ""
    value: Any = 0.0
    part: slice = EVERY
    cut: bool = False


class Run(Observer):
    """A run with changes: its record, and how the next one is changed.

    It observes after the trace, which so records what changes make.

    Attributes:
        numbers: by entry, the number of the op that made it; −1 for what a change put there.
        gradients: that leaves held before.
    """

    def __init__(self, record: Trace, edits: Iterable[Edit]) -> None:
        self.record = record
        self.edits = [*edits]
        self.numbers: dict[int, int] = {}
        self.gradients: dict[Tensor, Any] = {}
        self._count = 0
        self._busy = False
        self._instead: dict[int, tuple[Any, Any]] = {}  # of a leaf: it, and what takes its place

    def edit(self, entry: Entry, value: Any = 0.0, part: slice = EVERY) -> Edit:
        """The change that puts a value in an entry's place.

        Raises: ArgumentError for what a change put there, or what no op uses.
        """
        if entry.op:
            return Edit(self.numbers[entry.id], value=value, part=part)
        uses = entry.uses
        if not uses or self.numbers.get(entry.id) == -1:
            why = "was put there by a change: undo that one" if uses else "is used by no op"
            raise ArgumentError(f"{entry.label} {why}")
        return Edit(self.numbers[uses[0].target], uses[0].input, value, part)

    # ------------------------------------------------------------------ while it runs

    def _here(self) -> list[Edit]:
        return [] if self._busy else [edit for edit in self.edits if edit.op == self._count]

    def _now(self, x: Any) -> Any:
        return self._instead.get(id(x), (x, x))[1]

    def before(self, op: Any, inputs: Any, settings: Any) -> Any:
        """Other inputs, where leaves were changed or an edge was cut."""
        by_name = {op.input_name(i): x for i, x in enumerate(inputs)}
        edits = [edit for edit in self._here() if edit.of in by_name]
        for edit in edits:
            leaf = by_name[edit.of]
            if not edit.cut:
                self._instead[id(leaf)] = leaf, _changed_leaf(self._now(leaf), edit)
        by_name = {name: self._now(x) for name, x in by_name.items()}
        for edit in edits:
            if edit.cut:
                by_name[edit.of] = np.zeros_like(array_of(by_name[edit.of]))
        return tuple(by_name.values()) if edits or self._instead else None

    def made(self, op: Any, inputs: Any, settings: Any, result: Tensor, seconds: float) -> Any:
        """Another result, where it or a setting was changed."""
        if self._busy:
            return None
        edits = self._here()
        other = result
        first = len(self.record.entries) - 1
        self._busy = True
        try:
            for edit in edits:
                if edit.of in op.settings:
                    changed = dict(zip(op.settings, settings, strict=True)) | {edit.of: edit.value}
                    other = op(*inputs, **changed)
                elif not edit.of:
                    other = _with_entry(other, edit)
        finally:
            self._busy = False
        for entry in self.record.entries[first:]:
            self.numbers[entry.id] = self._count if entry.op else -1
        self._count += 1
        return None if other is result else other

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        self.gradients.setdefault(leaf, None if leaf.grad is None else leaf.grad.copy())


def _with_entry(tensor: Tensor, edit: Edit) -> Tensor:
    """A tensor with a constant in the place of one entry, or of all."""
    where = np.zeros(tensor.size, bool)
    where[edit.part] = True
    return mg.where(where.reshape(tensor.shape), np.full(tensor.shape, edit.value), tensor)


def _changed_leaf(leaf: Any, edit: Edit) -> Any:
    """A leaf or an array with another value; it keeps its name, and whether it wants a gradient."""
    array = np.array(array_of(leaf), order="C")
    array.reshape(-1)[edit.part] = np.ravel(edit.value)
    if not isinstance(leaf, Tensor):
        return array
    changed = mg.tensor(array, requires_grad=leaf.requires_grad, name=leaf.name)
    if mg.is_marked_parameter(leaf):
        mg.mark_parameter(changed)
    return changed


def run_loss(
    source: LossFunction, arguments: Mapping[str, Any] = {}, edits: Iterable[Edit] = ()
) -> Run:
    """Run a function, and backward from what it returns unless it did so itself.

    It is a trial, which leaves no gradients behind.

    Raises: ArgumentError if it returns no loss; whatever it raises.
    """
    run = Run(Trace(), edits)
    with run.record, observe(run):
        loss = source.function(**arguments)
        if not isinstance(loss, Tensor) or loss.size != 1:
            kind = f"shape {loss.shape}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ArgumentError(
                f"{source.title} must return its loss, a Tensor with one entry; got {kind}"
            )
        if not run.record.backward:
            if not loss.requires_grad:
                raise GradientError(
                    f"{source.title}: nothing that the loss is computed from requires a gradient"
                )
            loss.backward()
    for leaf, gradient in run.gradients.items():
        leaf.grad = gradient
    return run
