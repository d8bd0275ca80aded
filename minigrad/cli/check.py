"""`minigrad check`: each op's samples beside numeric derivatives, at first and second order."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

import minigrad as mg

from ..engine.op import Array, Call, Op
from ..views.terminal import paint
from .catalogue import known_ops, sample_call

__all__ = ["check_op", "run"]


def run(arguments: Namespace) -> int:
    print("{:28}{:19}{:>8}{:>9}".format("op", "method", "samples", "worst"))
    agree = list[bool]()
    for op in known_ops(arguments.op):
        x = check_op(op)
        mark = paint("good", "✓") if x.ok else paint("alarm", "✗")
        print(f"{op.name:28}{x.method:19}{x.samples:8}{x.worst:9.0e}  {mark}", flush=True)
        for failure in x.failures[:3]:
            print(paint("alarm", f"  ✗ {failure}"))
        agree.append(x.ok)
    wrong = agree.count(False)
    print(f"{wrong} of {len(agree)} disagree" if wrong else f"all {len(agree)} agree")
    return int(wrong > 0)


@dataclass
class Outcome:
    """What the checks of one op gave; `worst` is a relative error."""

    method: str = ""
    samples: int = 0
    worst: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was measured, and all of it agrees."""
        return bool(self.method) and not self.failures


def check_op(op: Op) -> Outcome:
    """Hold each sample of an op against numeric derivatives, at first and second order.

    >>> check_op(mg.registry["tanh"]).ok
    True
    """
    outcome = Outcome()
    for call in op.samples(np.random.default_rng(0)):
        outcome.samples += 1
        f, start = _differentiable(op, call)
        if not any(x.size for x in start):
            continue
        try:
            report: Any = mg.gradcheck(f, start, order=2)
        except mg.errors.GradcheckError as error:
            report = error.report
            outcome.failures.append(f"{sample_call(op, call)}: {report}")
        outcome.method = report.method
        outcome.worst = max(outcome.worst, report.difference)
    return outcome


def _differentiable(op: Op, call: Call) -> tuple[Callable[..., Any], list[Array]]:
    """A sample call as a function of its float arrays, all else constant; and these."""
    inputs, settings = op.bound(call.args, call.kwargs)
    is_free = [isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in inputs]

    def f(*tensors: mg.Tensor) -> Any:
        free = iter(tensors)
        values = [next(free) if is_it else x for x, is_it in zip(inputs, is_free, strict=True)]
        return mg.Tensor.__apply__(op, tuple(values), deepcopy(settings))

    return f, [*compress(inputs, is_free)]
