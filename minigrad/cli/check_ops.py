"""Each op's gradient against a numeric derivative, on every sample that its declaration gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from ..check import Report, gradcheck
from ..engine.errors import GradcheckError
from ..engine.op import Call, Op
from .outcome import Outcome

__all__ = ["ops_checked"]


def ops_checked(ops: Iterable[Op], order: int, seed: int) -> Iterator[Outcome]:
    """Check each op at first and, if `order` is 2, at second order; one outcome an op.

    >>> from minigrad import registry
    >>> next(ops_checked([registry["tanh"]], order=1, seed=0)).ok
    True
    """
    for op in ops:
        outcome = Outcome(op.name)
        for number, call in enumerate(op.samples(np.random.default_rng(seed)), 1):
            outcome.samples += 1
            sample = _Sample(op, call)
            if sample.free:
                _measure(outcome, f"sample {number}, {sample}", sample, order, seed)
        if not outcome.measured and not outcome.failures:
            outcome.failures.append("no sample has a gradient to compare")
        yield outcome


def _measure(outcome: Outcome, where: str, sample: _Sample, order: int, seed: int) -> None:
    """Compare one sample's gradients, up to the first order that disagrees."""
    for now in range(1, order + 1):
        try:
            report: Any = gradcheck(sample, sample.start, order=now, seed=seed)
        except GradcheckError as error:
            report = error.report
        except Exception as error:  # a broken rule may raise anything, and is what is looked for
            outcome.broke(f"{where}: order {now}", error)
            return
        outcome.method = report.method
        outcome.measured += report.entries
        outcome.note(report.error)
        if not report.ok:
            outcome.failures.append(f"{where}: {_said(report, sample)}")
            return


def _said(report: Report, sample: _Sample) -> str:
    """The worst entry in the op's own names, and both values."""
    number, _, index = report.entry.removeprefix("inputs[").partition("]")
    place = sample.label(int(number)) + index if number.isdigit() else report.entry
    return (
        f"order {report.order}, worst at {place}: engine {report.engine:.9g}, "
        f"numeric {report.numeric:.9g}, relative error {report.error:.1e}"
    )


class _Sample:
    """A sample call as a function of its float arrays; all else is constant."""

    def __init__(self, op: Op, call: Call) -> None:
        self.op, self.call = op, call
        self.slots: list[tuple[Any, Any]] = [*enumerate(call.args), *call.kwargs.items()]
        found: dict[
            tuple[Any, ...], Any
        ] = {}  # where: (argument,) or (argument, position in its list)
        for slot, value in self.slots:
            if self._parameter(slot) in op.inputs:
                within = enumerate(value) if isinstance(value, list | tuple) else ()
                found |= {(slot, i): x for i, x in within if _floats(x)}
                found |= {(slot,): value} if _floats(value) else {}
        self.free, self.start = list(found), list(found.values())

    def _parameter(self, slot: Any) -> str:
        names = list(self.op.signature.parameters)
        return (
            slot if isinstance(slot, str) else names[min(slot, len(names) - 1)]
        )  # the rest: *operands

    def label(self, number: int) -> str:
        slot, *inner = self.free[number]
        return self._parameter(slot) + "".join(f"[{i}]" for i in inner)

    def __call__(self, *tensors: Any) -> Any:
        args, kwargs = list(deepcopy(self.call.args)), deepcopy(self.call.kwargs)
        for (slot, *inner), tensor in zip(self.free, tensors, strict=True):
            holder: Any = kwargs if isinstance(slot, str) else args
            if inner:
                holder[slot] = list(holder[slot])
                holder, slot = holder[slot], inner[0]
            holder[slot] = tensor
        return self.op(*args, **kwargs)

    def __str__(self) -> str:
        shown = (f"{slot}=" * isinstance(slot, str) + _brief(value) for slot, value in self.slots)
        return f"{self.op.name}({', '.join(shown)})"


def _floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _brief(value: Any) -> str:
    """An argument in few words: an array by its shape."""
    if isinstance(value, np.ndarray):
        shape = "×".join(map(str, value.shape)) or "scalar"
        return shape if value.dtype.kind == "f" else f"{value.dtype} {shape}"
    if isinstance(value, list | tuple) and any(isinstance(x, np.ndarray) for x in value):
        return f"[{', '.join(_brief(x) for x in value)}]"
    if isinstance(value, np.random.Generator):
        return "rng"
    said = value.__name__ if isinstance(value, type) else repr(value)
    return said if len(said) <= 40 else said[:39] + "…"
