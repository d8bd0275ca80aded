"""`minigrad check`: every op, then both attention layers, one line each as it is done.

An op's samples are held against numeric derivatives at first and second order, each layer against
its steps derived by hand, with and without biases, under each kind of mask, batched or not.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

import minigrad as mg

from ..check import gradcheck
from ..engine.errors import GradcheckError
from ..engine.op import Call, Op
from ..engine.tensor import Tensor
from ..views.terminal import paint
from .catalogue import known_ops, sample_call

__all__ = ["check_layers", "check_op", "run"]

N, MOST_FAILURES = 5, 3


def run(arguments: Namespace) -> int:
    ops = known_ops(arguments.op)
    print("{:28}{:19}{:>8}{:>9}".format("op", "method", "samples", "worst"))
    wrong = count = 0
    for one in chain(map(check_op, ops), () if arguments.op else check_layers()):
        mark = paint("good", "✓") if one.ok else paint("alarm", "✗")
        print(f"{one.name:28}{one.method:19}{one.samples:8}{one.worst:9.0e}  {mark}", flush=True)
        for failure in one.failures[:MOST_FAILURES]:
            print(paint("alarm", f"  ✗ {failure}"))
        wrong, count = wrong + (not one.ok), count + 1
    print(f"{wrong} of {count} disagree" if wrong else f"all {count} agree")
    return int(wrong > 0)


@dataclass
class Outcome:
    """What the checks of one op or layer found."""

    name: str
    method: str = ""
    samples: int = 0
    measured: int = 0  # entries that were compared
    worst: float = 0.0  # relative error
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was measured, and all of it agrees."""
        return self.measured > 0 and not self.failures


def check_op(op: Op) -> Outcome:
    """Hold each sample of an op against numeric derivatives, at first and second order.

    >>> check_op(mg.registry["tanh"]).ok
    True
    """
    found = Outcome(op.name)
    for call in op.samples(np.random.default_rng(0)):
        found.samples += 1
        sample = _Sample(op, call)
        if not sample.start:
            continue
        try:
            report: Any = gradcheck(sample, sample.start, order=2)
        except GradcheckError as error:
            report = error.report
            if report.why:  # its inputs are empty, say
                continue
            found.failures.append(f"{sample_call(op, call)}: {report}")
        found.method = report.method
        found.measured += report.entries
        found.worst = max(found.worst, report.difference)
    if not found.measured and not found.failures:
        found.failures.append("no sample has a gradient to compare")
    return found


class _Sample:
    """A sample call as a function of its float arrays; all else is constant."""

    def __init__(self, op: Op, call: Call) -> None:
        self.op = op
        self.inputs, self.settings = op.bound(call.args, call.kwargs)
        floats = [isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in self.inputs]
        self.free = [i for i, is_float in enumerate(floats) if is_float]
        self.start = [self.inputs[i] for i in self.free]

    def __call__(self, *tensors: Tensor) -> Any:
        inputs = dict(enumerate(self.inputs)) | dict(zip(self.free, tensors, strict=True))
        return Tensor.__apply__(self.op, tuple(inputs.values()), deepcopy(self.settings))


def check_layers() -> Iterator[Outcome]:
    """Check both attention layers against their steps derived by hand."""
    import layers as L

    rng = np.random.default_rng(0)
    single = {f"biases {b}": L.SelfAttention(7, 3, 5, use_bias=b, rng=rng) for b in (True, False)}
    many = {f"biases {b}": L.MultiHeadAttention(12, 6, use_bias=b, rng=rng) for b in (True, False)}
    many["2 key-value heads"] = L.MultiHeadAttention(12, 6, 2, use_bias=True, rng=rng)
    nowhere = np.tri(N, dtype=bool)
    nowhere[1] = False  # a token that may attend to none
    masks = {"none": None, "causal": L.create_causal_mask(N), "one row forbids all": nowhere}
    masks["added"] = rng.normal(size=(N, N))
    for name, layers in (("self-attention", single), ("multi-head", many)):
        found = Outcome(name, "derived by hand")
        for kind, layer in layers.items():
            for parameter in layer.parameters():  # biases start at zero, which hides much
                parameter.assign_(rng.normal(size=parameter.shape))
            for shape in ((2, N, layer.d_model), (N, layer.d_model)):
                for mask_name, mask in masks.items():
                    leaf = mg.tensor(rng.normal(size=shape), requires_grad=True, name="X")
                    with mg.trace() as trace:
                        out = layer(leaf, mask)
                        out.backward(rng.normal(size=out.shape))
                    checks = trace.record.check()
                    found.samples += 1
                    found.measured += len(checks.measured)
                    found.worst = max(
                        [found.worst, *(c.difference or 0.0 for c in checks.measured)]
                    )
                    found.failures += [
                        f"{kind}, X {shape}, mask {mask_name}: step {c.number}, {c.title}, worst "
                        f"at {c.symbol}{list(c.index)}: engine {c.measured:.9g}, formula "
                        f"{c.expected:.9g}"
                        for c in checks.wrong
                    ]
        yield found
