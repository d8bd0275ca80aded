"""SizedProgram: a function's runs at several sizes as one; numbers are formulas of the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from ..engine.errors import ArgumentError
from ..engine.op import Op, Shaped
from ..engine.types import Array, DType
from .positions import GrowingArray, find_pattern
from .run import Constant, RecordedCall, RecordedStep, Reference
from .sizes import Length, Number, Sizes, Unfit, fit_number, fit_size

__all__ = ["SizedForm", "SizedProgram", "check_same_steps"]


def check_same_steps(a: RecordedCall, b: RecordedCall) -> None:
    """Raise ArgumentError, naming op and line, unless two runs are made of the same steps."""
    for x, y in zip(a.steps, b.steps, strict=False):
        if _structure(x) != _structure(y):
            _refuse(a, b, f"{x.op.name} at {x.place}", f"{y.op.name} at {y.place}")
    if len(a.steps) != len(b.steps):
        _refuse(a, b, f"{len(a.steps)} ops", f"{len(b.steps)} ops")
    if [*a.outputs.items()] != [*b.outputs.items()]:
        _refuse(a, b, "to other outputs", "to these")


def _structure(step: RecordedStep) -> tuple[Op, object, object]:
    """The op, and which steps and inputs it uses."""

    def structure(item: object) -> object:
        if isinstance(item, tuple | list):
            return [structure(x) for x in item]
        return item if isinstance(item, Reference) else type(item)

    return step.op, structure(step.inputs), structure(step.settings)


def _refuse(a: RecordedCall, b: RecordedCall, of_a: str, of_b: str) -> NoReturn:
    """Raise ArgumentError: what each of two runs does where they differ."""
    if a.sizes == b.sizes:
        raise ArgumentError(
            f"export_onnx: the function runs {of_a}, and {of_b} with inputs that hold other "
            "values; a choice by values has no place in a model: use where()"
        )
    raise ArgumentError(
        f"export_onnx: the function runs {of_a} with {_listed(a.sizes)}, and {of_b} with "
        f"{_listed(b.sizes)}; a loop over a size, or a choice by it, has no place in a model. "
        "Say in dynamic= which axes may change, or dynamic={} for none"
    )


class SizedForm(NamedTuple):
    """Dtype of an array, and its shape, in which lengths may be formulas of the sizes."""

    shape: tuple[Length, ...]
    dtype: DType


class SizedProgram:
    """Runs of the same steps as one, in which numbers are formulas of the sizes."""

    def __init__(self, runs: Sequence[RecordedCall]) -> None:
        self.sizes = [run.sizes for run in runs]
        self._patterns: dict[tuple[int, ...], object] = {}

    def form(self, forms: list[Shaped]) -> SizedForm:
        """The form of an array, from those that it has in each run."""
        dtype = forms[0].dtype
        if len({len(form.shape) for form in forms}) > 1:
            return SizedForm((), dtype)
        axes = zip(*(form.shape for form in forms), strict=True)
        return SizedForm(tuple([self._length(list(lengths)) for lengths in axes]), dtype)

    def _length(self, values: list[int]) -> Length:
        found = fit_size(values, self.sizes)
        return Unfit(values) if found is None else found

    def _number(self, values: list[Any]) -> float | Number | Length:
        if all(_same(value, values[0]) for value in values):
            return values[0]
        if isinstance(values[0], float):
            return fit_number(values, self.sizes) or Unfit(values)
        return self._length(values)

    def argument(self, items: list[Any], where: str) -> Any:
        """An argument from its values in all runs: the same, a Size, a GrowingArray or Unfit, say.

        Raises: ArgumentError where no formula gives what differs, naming the op and its line.
        """
        first = items[0]
        if any(item.__class__ is not first.__class__ for item in items):
            raise ArgumentError(f"export_onnx: {where}, is given other arguments at other sizes")
        if isinstance(first, Constant):
            return self._constant(items, where)
        if isinstance(first, tuple | list):
            parts = [self.argument(list(x), where) for x in zip(*items, strict=True)]
            return first.__class__(parts)
        if isinstance(first, slice):
            return slice(*self.argument([(x.start, x.stop, x.step) for x in items], where))
        if isinstance(first, int | float) and not isinstance(first, bool):
            self._check_only_sizes(items, where)
            return self._number(items)
        if any(item != first for item in items):
            raise ArgumentError(
                f"export_onnx: {where}, is given {first!r} or {items[-1]!r}; a choice has no place "
                "in a model"
            )
        return first

    def _check_only_sizes(self, items: Sequence[ArrayLike], where: str) -> None:
        """Raise unless runs of the same sizes agree, whatever their inputs hold."""
        for sizes, item in zip(self.sizes[1:], items[1:], strict=True):
            if sizes == self.sizes[0] and not _same(item, items[0]):
                raise ArgumentError(
                    f"export_onnx: {where}, is given numbers that depend on what the inputs hold "
                    "and would be frozen: they were computed outside of the ops, by Python or by a "
                    "NumPy function that is not followed. Compute them by ops of minigrad, or pass "
                    "them as an input"
                )

    def _constant(self, constants: list[Constant], where: str) -> object:
        arrays = [constant.array for constant in constants]
        key = tuple(map(id, arrays))
        if key not in self._patterns:
            same = all(_same(x, arrays[0]) for x in arrays[1:])
            self._patterns[key] = constants[0] if same else self._pattern(arrays, where)
        return self._patterns[key]

    def _pattern(self, arrays: list[Array], where: str) -> GrowingArray | float | Number | Length:
        """What gives each of some arrays that differ, at its sizes."""
        self._check_only_sizes(arrays, where)
        arrays = [np.asarray(x) for x in arrays]
        if not any(x.ndim for x in arrays):
            return self._number([x.item() for x in arrays])
        shape = self.form([Shaped.of(x) for x in arrays]).shape
        known = tuple([n for n in shape if not isinstance(n, Unfit)])
        first = arrays[0]
        pattern = find_pattern(arrays, self.sizes, known) if len(known) == first.ndim else None
        if pattern is None:
            raise ArgumentError(
                f"export_onnx: {where}, is given an array that changes with the sizes, "
                f"{first.shape} with {_listed(self.sizes[0])}, by no pattern that is known (rows, "
                "distances of positions, or a part of one array). Compute it by ops of minigrad, "
                "pass it as an input, or say in dynamic= which axes may change"
            )
        return pattern


def _same(x: ArrayLike, y: ArrayLike) -> bool:
    if x is y:
        return True
    if np.shape(x) != np.shape(y):
        return False
    return bool(np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind in "fc"))


def _listed(sizes: Sizes) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "these inputs"
