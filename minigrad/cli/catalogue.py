"""`minigrad ops` and `minigrad check`: every op with what it declares, and whether it is right."""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

import minigrad as mg

from ..engine.declaration import Call
from ..engine.errors import GradcheckError
from ..engine.op import Op, registry
from ..record.record import show
from ..views.maths import plain
from ..views.terminal import paint
from ..views.words import shaped
from . import UsageError

__all__ = ["check", "ops"]


def known_ops(names: Sequence[str]) -> list[Op]:
    """The ops of these names, or all. Raises: UsageError for a name that is none's."""
    for name in names:
        if name not in registry:
            raise UsageError(f"no op is named {name!r}; `minigrad ops` lists all")
    return [registry[name] for name in dict.fromkeys(names or registry)]


def samples_of(op: Op) -> list[Call]:
    return [*op.samples(np.random.default_rng(0))]


def sample_call(op: Op, call: Call) -> str:
    """A sample as it would be written, arrays by their shapes."""
    named = [f"{name}={_brief(value)}" for name, value in call.kwargs.items()]
    return f"{op.name}({', '.join([*map(_brief, call.args), *named])})"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return shaped(value.shape)
    if isinstance(value, list):
        return f"[{', '.join(map(_brief, value))}]"
    return show(value)


# ---------------------------------------------------------------- what it declares


def ops(arguments: Namespace) -> None:
    """List the ops with their formulas."""
    for op in known_ops(arguments.names):
        print(*_lines(op), sep="\n")
    print("out is the result, g its gradient ∂L/∂out")


def _lines(op: Op) -> Iterator[str]:
    """Signature, claim, and the formulas of its first sample."""
    call = samples_of(op)[0]
    inputs, settings = op.bound(call.args, call.kwargs)
    forward, rules = op.formulas(inputs, settings, op(*call.args, **call.kwargs))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in op.signature.parameters.values()]
    yield paint("bold", f"{op.name}{inspect.Signature(bare)}")
    yield "  " + " ".join(str(op.__doc__).partition("\n\n")[0].split())
    yield f"    out = {plain(forward)}"
    for name, tex in rules.items():
        yield f"    ∂L/∂{name} = {plain(tex)}"
    yield f"    as in {sample_call(op, call)}\n"


# ---------------------------------------------------------------- whether it is right


def check(arguments: Namespace) -> int:
    """Check the gradients of every op, at first and second order; status 1 if one is wrong."""
    ops = known_ops(arguments.names)
    print("{:28}{:19}{:>8}{:>9}".format("op", "method", "samples", "worst"))
    wrong = [op for op in ops if not _agrees(op)]
    print(f"{len(wrong)} of {len(ops)} disagree" if wrong else f"all {len(ops)} agree")
    return 1 if wrong else 0


def _agrees(op: Op) -> bool:
    """Whether something was compared, and all of it agrees; prints a line, and what is wrong."""
    calls = samples_of(op)
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
    except GradcheckError as error:
        return error.report
