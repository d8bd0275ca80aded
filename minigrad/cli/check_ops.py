"""Each op's gradient against a numeric derivative, on every sample that its declaration gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..check import gradcheck
from ..engine.errors import GradcheckError
from ..engine.op import Call, Op
from ..engine.tensor import Tensor
from ..views.plain import one_line
from .declared import sample_call

__all__ = ["CheckResult", "check_ops"]


@dataclass
class CheckResult:
    """What the checks of one op or layer found; only what `measured` counts was compared."""

    name: str
    method: str = ""
    samples: int = 0
    measured: int = 0
    worst: float = 0.0  # relative error
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was measured and all of it agrees."""
        return self.measured > 0 and not self.failures

    def note(self, error: float) -> None:
        """Keep the largest error; NaN counts as infinite."""
        self.worst = max(self.worst, error) if error == error else float("inf")

    def broke(self, where: str, error: Exception) -> None:
        """A broken rule may raise anything, and is what is looked for."""
        self.note(float("inf"))
        first = one_line((str(error).splitlines() or [""])[0])
        self.failures.append(f"{where}: {type(error).__name__}: {first}")


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
                    if overlay is op.chosen(sample.inputs, sample.settings):  # it takes this dtype
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
        except Exception as error:
            result.broke(f"{where}: order {now}", error)
            return
        result.method = report.method
        result.measured += report.entries
        result.note(report.error)
        if not report.ok:
            result.failures.append(
                f"{where}: order {now}, worst at {sample.named(report.entry)}: engine "
                f"{report.engine:.9g}, numeric {report.numeric:.9g}, relative error "
                f"{report.error:.1e}"
            )
            return


class _Sample:
    """A sample call as a function of its float arrays; all else is constant."""

    def __init__(self, op: Op, call: Call) -> None:
        self.op = op
        self.inputs, self.settings = op.bind(*call.args, **call.kwargs)
        floats = (isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in self.inputs)
        self.free = [i for i, is_float in enumerate(floats) if is_float]
        self.start = [self.inputs[i] for i in self.free]

    def named(self, entry: str) -> str:
        """`inputs[0][1, 2]` in the op's own names."""
        number, _, index = entry.removeprefix("inputs[").partition("]")
        if not number.isdigit():
            return entry
        i = self.free[int(number)]
        name = f"{self.op.inputs[0]}[{i}]" if self.op.variadic else self.op.inputs[i]
        return name + index

    def __call__(self, *tensors: Any) -> Any:
        inputs = dict(enumerate(self.inputs)) | dict(zip(self.free, tensors, strict=True))
        return Tensor.__apply__(self.op, tuple(inputs.values()), deepcopy(self.settings))
