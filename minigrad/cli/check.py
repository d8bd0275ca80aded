"""`minigrad check`: every op, then both attention layers, one line each as it is done.

An op's samples are held against numeric derivatives at first and second order, each layer against
its steps derived by hand, with and without biases, under each kind of mask, batched or not.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, compress, product
from typing import Any

import numpy as np

import minigrad as mg

from ..engine.op import Array, Call, Op
from ..record.finish import check
from ..views import words
from ..views.terminal import paint
from .catalogue import known_ops, sample_call
from .sources import LAYERS

__all__ = ["check_layers", "check_op", "run"]

N = 5  # positions


def run(arguments: Namespace) -> int:
    ops = known_ops(arguments.op)
    print("{:28}{:19}{:>8}{:>9}".format("op", "method", "samples", "worst"))
    wrong = count = 0
    for one in chain(map(check_op, ops), () if arguments.op else check_layers()):
        mark = paint("good", "✓") if one.ok else paint("alarm", "✗")
        print(f"{one.name:28}{one.method:19}{one.samples:8}{one.worst:9.0e}  {mark}", flush=True)
        for failure in one.failures[:3]:
            print(paint("alarm", f"  ✗ {failure}"))
        wrong, count = wrong + (not one.ok), count + 1
    print(f"{wrong} of {count} disagree" if wrong else f"all {count} agree")
    return int(wrong > 0)


@dataclass
class Outcome:
    """What the checks of one op or layer found; `worst` is a relative error."""

    name: str
    method: str = "nothing to compare"
    samples: int = 0
    worst: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was measured, and all of it agrees."""
        return self.method != Outcome.method and not self.failures


def check_op(op: Op) -> Outcome:
    """Hold each sample of an op against numeric derivatives, at first and second order.

    >>> check_op(mg.registry["tanh"]).ok
    True
    """
    found = Outcome(op.name)
    for call in op.samples(np.random.default_rng(0)):
        found.samples += 1
        f, start = _differentiable(op, call)
        if not any(x.size for x in start):
            continue
        try:
            report: Any = mg.gradcheck(f, start, order=2)
        except mg.errors.GradcheckError as error:
            report = error.report
            found.failures.append(f"{sample_call(op, call)}: {report}")
        found.method, found.worst = report.method, max(found.worst, report.difference)
    return found


def _differentiable(op: Op, call: Call) -> tuple[Callable[..., Any], list[Array]]:
    """A sample call as a function of its float arrays, all else constant; and these."""
    inputs, settings = op.bound(call.args, call.kwargs)
    is_free = [isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in inputs]

    def f(*tensors: mg.Tensor) -> Any:
        free = iter(tensors)
        given = [next(free) if is_it else x for x, is_it in zip(inputs, is_free, strict=True)]
        return mg.Tensor.__apply__(op, tuple(given), deepcopy(settings))

    return f, [*compress(inputs, is_free)]


def check_layers() -> Iterator[Outcome]:
    """Check both attention layers against their steps derived by hand."""
    import layers as L

    rng = np.random.default_rng(0)
    nowhere = np.tri(N, dtype=bool)
    nowhere[1] = False  # a token that may attend to none
    masks = {"none": None, "causal": L.create_causal_mask(N), "one row forbids all": nowhere}
    masks["added"] = rng.normal(size=(N, N))
    kinds = (6, True), (6, False), (2, True)
    many: list[Any] = [L.MultiHeadAttention(12, 6, n, use_bias=bias, rng=rng) for n, bias in kinds]
    single: list[Any] = [L.SelfAttention(7, 3, 5, use_bias=bias, rng=rng) for bias in (True, False)]
    for name, layers in zip(LAYERS, (many, single), strict=True):
        found = Outcome(name)
        for parameter in (p for layer in layers for p in layer.parameters()):
            parameter.assign_(rng.normal(size=parameter.shape))  # biases of zero hide much
        for layer, batch, mask in product(layers, [(2, N), (N,)], masks):
            X = rng.normal(size=(*batch, layer.d_model))
            with mg.trace() as trace:
                out = layer(mg.tensor(X, requires_grad=True, name="X"), masks[mask])
                out.backward(rng.normal(size=out.shape))
            checks = check(trace)
            found.samples += 1
            found.method = "derived by hand" if checks.measured else found.method
            found.worst = max([found.worst, *(c.difference or 0.0 for c in checks.measured)])
            case = f"{', '.join(layer.state_dict())}, X {X.shape}, mask {mask}"
            wrong = [verdict.said for verdict in words.verdicts(checks) if verdict.ok is False]
            found.failures += [f"{case}: {said}" for said in wrong]
        yield found
