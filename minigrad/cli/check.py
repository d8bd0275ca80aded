"""`minigrad check`: each op's samples beside numeric derivatives, at first and second order."""

from __future__ import annotations

from argparse import Namespace
from copy import deepcopy
from typing import Any

import numpy as np

import minigrad as mg

from ..engine.declaration import Call
from ..engine.op import Op
from ..views.terminal import paint
from .catalogue import known_ops, sample_call

__all__ = ["run"]


def run(arguments: Namespace) -> int:
    ops = known_ops(arguments.names)
    print("{:28}{:19}{:>8}{:>9}".format("op", "method", "samples", "worst"))
    wrong = [op for op in ops if not _agrees(op)]
    print(f"{len(wrong)} of {len(ops)} disagree" if wrong else f"all {len(ops)} agree")
    return 1 if wrong else 0


def _agrees(op: Op) -> bool:
    """Whether something was compared, and all of it agrees; prints a line, and what is wrong."""
    calls = [*op.samples(np.random.default_rng(0))]
    method = ""
    worst = 0.0
    failures = []
    for call in calls:
        report = _compared(op, call)
        if report is None:
            continue
        method = report.method
        worst = max(worst, report.difference)
        if not report.ok:
            failures.append(f"{sample_call(op, call)}: {report}")
    agrees = bool(method) and not failures
    mark = paint("good", "✓") if agrees else paint("alarm", "✗")
    print(f"{op.name:28}{method:19}{len(calls):8}{worst:9.0e}  {mark}", flush=True)
    for failure in failures[:3]:
        print(paint("alarm", f"  ✗ {failure}"))
    return agrees


def _compared(op: Op, call: Call) -> Any:
    """What `mg.gradcheck` reports of a sample; None if it holds no floats."""
    inputs, settings = op.bound(call.args, call.kwargs)
    arrays = [np.asarray(x) for x in inputs if x is not None]
    if not any(array.size for array in arrays if array.dtype.kind == "f"):
        return None

    def f(*tensors: mg.Tensor) -> Any:
        others = iter(tensors)
        values = [x if x is None else next(others) for x in inputs]
        return mg.Tensor.__apply__(op, tuple(values), deepcopy(settings))

    try:
        return mg.gradcheck(f, arrays, order=2)
    except mg.errors.GradcheckError as error:
        return error.report
