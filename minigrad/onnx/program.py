"""SizedProgram: a function's runs at several sizes as one, whose numbers are made of the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Shaped
from .positions import find_pattern
from .run import Constant, Made, RecordedCall, RecordedStep
from .sizes import Unfit, fit_number, fit_size

__all__ = ["SizedProgram", "check_alike"]


def check_alike(a: RecordedCall, b: RecordedCall) -> None:
    """Raise ArgumentError, naming op and line, unless two runs are made of the same steps."""
    for one, other in zip(a.steps, b.steps, strict=False):
        if _form(one) != _form(other):
            _refuse(a, b, f"{one.op.name} at {one.place}", f"{other.op.name} at {other.place}")
    if len(a.steps) != len(b.steps):
        _refuse(a, b, f"{len(a.steps)} ops", f"{len(b.steps)} ops")
    if [*a.outputs.items()] != [*b.outputs.items()]:
        _refuse(a, b, "to other outputs", "to these")


def _form(step: RecordedStep) -> Any:
    """The op, and which steps and inputs it uses."""

    def form(item: Any) -> Any:
        if isinstance(item, tuple | list):
            return [form(x) for x in item]
        return item if isinstance(item, Made) else type(item)

    return step.op, form(step.inputs), form(step.settings)


def _refuse(a: RecordedCall, b: RecordedCall, one: str, other: str) -> None:
    if a.sizes == b.sizes:
        raise ArgumentError(
            f"export_onnx: the function runs {one}, and {other} with inputs that hold other "
            "values; a choice by values has no place in a model: use where()"
        )
    raise ArgumentError(
        f"export_onnx: the function runs {one} with {_told(a.sizes)}, and {other} with "
        f"{_told(b.sizes)}; a loop over a size, or a choice by it, has no place in a model. "
        "Say in dynamic= which axes may change, or dynamic={} for none"
    )


class SizedProgram:
    """Runs made of the same steps, as one whose numbers are made of the sizes."""

    def __init__(self, runs: Sequence[RecordedCall]) -> None:
        self.sizes = [run.sizes for run in runs]
        self._patterns: dict[Any, Any] = {}

    def form(self, forms: list[Shaped]) -> Shaped:
        """Dtype and shape of an array, which has one form in each run."""
        if len({len(form.shape) for form in forms}) > 1:
            return Shaped((), forms[0].dtype)
        axes = zip(*(form.shape for form in forms), strict=True)
        return Shaped(tuple([self._number(list(lengths)) for lengths in axes]), forms[0].dtype)

    def _number(self, values: list[Any]) -> Any:
        if all(value == values[0] for value in values):
            return values[0]
        if isinstance(values[0], float):
            return fit_number(values, self.sizes) or Unfit(values)
        found = fit_size(values, self.sizes)
        return Unfit(values) if found is None else found

    def argument(self, items: list[Any], where: str) -> Any:
        """What stands in one place of all runs, as one: a Size, say, a GrowingArray, or Unfit.

        Raises: ArgumentError where no formula gives what differs, naming the op and its line.
        """
        first = items[0]
        if any(item.__class__ is not first.__class__ for item in items):
            raise ArgumentError(f"export_onnx: {where}, is given other arguments at other sizes")
        if isinstance(first, Constant):
            return self._constant(items, where)
        if isinstance(first, tuple | list):
            if any(len(item) != len(first) for item in items):
                raise ArgumentError(f"export_onnx: {where}, is given more at other sizes")
            parts = [self.argument(list(x), where) for x in zip(*items, strict=True)]
            return first.__class__(parts)
        if isinstance(first, slice):
            return slice(*self.argument([(x.start, x.stop, x.step) for x in items], where))
        if isinstance(first, int | float) and not isinstance(first, bool):
            self._check_only_sizes(items, where)
            return self._number(items)
        if any(item != first for item in items):
            if isinstance(first, Made):
                what = "uses other values at other sizes"
            else:
                what = f"is given {first!r} or {items[-1]!r}"
            raise ArgumentError(f"export_onnx: {where}, {what}; a choice has no place in a model")
        return first

    def _check_only_sizes(self, items: list[Any], where: str) -> None:
        """Raise unless runs of the same sizes agree, whatever their inputs hold."""
        for sizes, item in zip(self.sizes[1:], items[1:], strict=True):
            if sizes == self.sizes[0] and not _same(item, items[0]):
                raise ArgumentError(
                    f"export_onnx: {where}, is given numbers that depend on what the inputs hold "
                    "and would be frozen: they were computed outside of the ops, by Python or by a "
                    "NumPy function that is not followed. Compute them by ops of minigrad, or pass "
                    "them as an input"
                )

    def _constant(self, constants: list[Constant], where: str) -> Any:
        arrays = [constant.array for constant in constants]
        key = tuple(map(id, arrays))
        if key not in self._patterns:
            self._patterns[key] = self._found(constants, arrays, where)
        return self._patterns[key]

    def _found(self, constants: list[Constant], arrays: list[Any], where: str) -> Any:
        first = arrays[0]
        if all(_same(x, first) for x in arrays[1:]):
            return constants[0]
        self._check_only_sizes(arrays, where)
        arrays = [np.asarray(x) for x in arrays]
        if not any(x.ndim for x in arrays):
            return self._number([x.item() for x in arrays])
        shape = self.form([Shaped.of(x) for x in arrays]).shape
        pattern = None
        if len(shape) == first.ndim and not any(isinstance(n, Unfit) for n in shape):
            pattern = find_pattern(arrays, self.sizes, shape)
        if pattern is None:
            raise ArgumentError(
                f"export_onnx: {where}, is given an array that changes with the sizes, "
                f"{first.shape} with {_told(self.sizes[0])}, by no pattern that is known (rows, "
                "distances of positions, or a part of one array). Compute it by ops of minigrad, "
                "pass it as an input, or say in dynamic= which axes may change"
            )
        return pattern


def _same(x: Any, y: Any) -> bool:
    if x is y:
        return True
    if np.shape(x) != np.shape(y):
        return False
    return bool(np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind in "fc"))


def _told(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "these inputs"
