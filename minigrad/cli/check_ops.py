"""Each op's gradient against a numeric derivative, on every sample that its declaration gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

from ..check import Report, gradcheck
from ..engine.errors import GradcheckError
from ..engine.op import Call, Op
from ..engine.tensor import Tensor
from .check_result import CheckResult

__all__ = ["check_ops", "sample_call"]


def check_ops(ops: Iterable[Op], order: int, seed: int) -> Iterator[CheckResult]:
    """Check each op at first and, if `order` is 2, at second order; one result an op.

    Each sample runs as the op is declared, and as its overlay does it, however few its entries.

    >>> from minigrad import registry
    >>> next(check_ops([registry["tanh"]], order=1, seed=0)).ok
    True
    """
    for op in ops:
        result = CheckResult(op.name)
        for number, call in enumerate(op.samples(np.random.default_rng(seed)), 1):
            result.samples += 1
            sample = _Sample(op, call)
            for overlay in dict.fromkeys([None, op.overlay]) if sample.free else ():
                way = " by its overlay" if overlay is not None else ""
                with _running(op, overlay):
                    if overlay is not op.chosen(sample.inputs, sample.settings):
                        continue  # it is for other dtypes
                    where = f"sample {number}, {sample_call(op, call)}{way}"
                    _measure(result, where, sample, order, seed)
        if not result.measured and not result.failures:
            result.failures.append("no sample has a gradient to compare")
        yield result


@contextmanager
def _running(op: Op, overlay: Any) -> Iterator[None]:
    """Within, the op runs by this overlay, or as it is declared."""
    usual, above = op.overlay, getattr(overlay, "above", 0)
    try:
        op.overlay = overlay
        if overlay is not None:
            overlay.above = 0
        yield
    finally:
        op.overlay = usual
        if overlay is not None:
            overlay.above = above


def _measure(result: CheckResult, where: str, sample: _Sample, order: int, seed: int) -> None:
    """Compare one sample's gradients, up to the first order that disagrees."""
    for now in range(1, order + 1):
        try:
            report: Any = gradcheck(sample, sample.start, order=now, seed=seed)
        except GradcheckError as error:
            report = error.report
        except Exception as error:  # a broken rule may raise anything, and is what is looked for
            result.broke(f"{where}: order {now}", error)
            return
        result.method = report.method
        result.measured += report.entries
        result.note(report.error)
        if not report.ok:
            result.failures.append(f"{where}: {_disagreement(report, sample)}")
            return


def _disagreement(report: Report, sample: _Sample) -> str:
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
        self.op = op
        self.inputs, self.settings = op.bind(*call.args, **call.kwargs)
        self.free = [i for i, x in enumerate(self.inputs) if _is_float(x)]
        self.start = [self.inputs[i] for i in self.free]

    def label(self, number: int) -> str:
        """The name of the free input of this number."""
        i = self.free[number]
        return f"{self.op.inputs[0]}[{i}]" if self.op.variadic else self.op.inputs[i]

    def __call__(self, *tensors: Any) -> Any:
        inputs = dict(enumerate(self.inputs)) | dict(zip(self.free, tensors, strict=True))
        return Tensor.__apply__(self.op, tuple(inputs.values()), deepcopy(self.settings))


def sample_call(op: Op, call: Call) -> str:
    """A sample as it would be written, arrays by their shapes."""
    named = [f"{name}={_brief(value)}" for name, value in call.kwargs.items()]
    return f"{op.name}({', '.join([*map(_brief, call.args), *named])})"


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _brief(value: Any) -> str:
    """An argument in few words: an array by its shape."""
    if isinstance(value, np.ndarray):
        shape = "×".join(map(str, value.shape)) or "scalar"
        return shape if value.dtype.kind == "f" else f"{value.dtype} {shape}"
    if isinstance(value, list | tuple) and any(isinstance(x, np.ndarray) for x in value):
        return f"[{', '.join(map(_brief, value))}]"
    if isinstance(value, np.random.Generator):
        return "rng"
    text = value.__name__ if isinstance(value, type) else repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
