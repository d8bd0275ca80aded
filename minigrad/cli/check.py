"""`minigrad check`: every op, then both attention layers, one line each as it is done.

An op's gradient is held against a numeric derivative on every sample that its declaration gives,
and the formulas that it shows against its code; a layer's gradient against the formulas of
`layers.hand_derived`, step by step.
"""

from __future__ import annotations

import textwrap
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minigrad as mg

from ..check import gradcheck
from ..engine.errors import GradcheckError
from ..engine.op import Call, Op
from ..engine.plan import FasterKernel
from ..engine.tensor import Tensor
from ..layers import MultiHeadAttention, SelfAttention, create_causal_mask
from ..views.plain import one_line
from ..views.terminal import Paint, wide
from .catalogue import known_ops, sample_call
from .output import show
from .sentence import MULTI_HEAD, SELF_ATTENTION

__all__ = ["check_layers", "check_ops", "run"]

NAME_COLUMN, METHOD = "op or layer", 19
MOST_FAILURES = 3  # shown of one op
N = 5  # tokens


def run(arguments: Namespace) -> int:
    ops = known_ops(arguments.op)
    outcomes = list[CheckOutcome]()
    layers = iter(()) if arguments.op else check_layers(arguments.seed)
    lines = _Lines([op.name for op in ops], wide(None))
    show(lines.row(NAME_COLUMN, "method", "samples", "worst error", ""))
    for result in chain(check_ops(ops, arguments.order, arguments.seed), layers):
        outcomes.append(result)
        mark = lines.paint("good", "✓") if result.ok else lines.paint("alarm", "✗")
        worst = f"{result.worst:.1e}"
        show(lines.row(result.name, result.method, str(result.samples), worst, mark))
        for note in result.unread:
            show(lines.painted("dim", f"  {result.name}: {note}"))
    wrong = [result for result in outcomes if not result.ok]
    for line in chain.from_iterable(map(lines.failures, wrong)):
        show(line)
    n = len(outcomes) - len(ops)
    what = f"{len(ops)} op{'s' * (len(ops) != 1)}" + (f" and {n} layers" if n else "")
    if wrong:
        names = ", ".join(result.name for result in wrong)
        show(lines.painted("alarm", f"{len(wrong)} of {what} disagree: {names}"))
        return 1
    samples = sum(result.samples for result in outcomes)
    orders = "first and second order" if arguments.order == 2 else "first order"
    agree = "agrees" if len(outcomes) == 1 else "agree"
    summary = f"{what} {agree} on {samples} samples, {orders}, seed {arguments.seed}"
    show(lines.painted("good", summary))
    return 0


class _Lines:
    """The lines of the results, for a terminal of this width."""

    def __init__(self, names: Sequence[str], width: int) -> None:
        self.longest = max(len(name) for name in [*names, NAME_COLUMN])
        self.method = width >= self.longest + METHOD + 26
        self.width, self.paint = max(width, 20), Paint()

    def row(self, name: str, method: str, samples: str, worst: str, mark: str) -> str:
        how = f"{method:<{METHOD}}  " if self.method else ""
        return f"{name:<{self.longest}}  {how}{samples:>7}  {worst:>11}  {mark}"

    def failures(self, result: CheckOutcome) -> list[str]:
        """The first samples that disagree, and how many more there are."""
        shown = result.failures[:MOST_FAILURES]
        lines = [self.painted("alarm", f"✗ {result.name}: {failure}") for failure in shown]
        more = len(result.failures) - len(shown)
        return lines + [f"  {result.name}: {more} more of its samples disagree"] * bool(more)

    def painted(self, kind: str, text: str) -> str:
        lines = textwrap.wrap(text, self.width, subsequent_indent="  ", break_on_hyphens=False)
        return "\n".join(self.paint(kind, line) for line in lines)


# ---------------------------------------------------------------- ops


@dataclass
class CheckOutcome:
    """What the checks of one op or layer found; only what `measured` counts was compared."""

    name: str
    method: str = ""
    samples: int = 0
    measured: int = 0
    worst: float = 0.0  # relative error
    failures: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # formulas that could not be evaluated

    @property
    def ok(self) -> bool:
        """Whether something was measured and all of it agrees."""
        return self.measured > 0 and not self.failures

    def note(self, error: float) -> None:
        """Keep the largest error; NaN counts as infinite."""
        self.worst = max(self.worst, error) if error == error else float("inf")

    def broke(self, where: str, error: Exception) -> None:
        """Note what a broken rule raised: it may raise anything."""
        self.note(float("inf"))
        first = one_line((str(error).splitlines() or [""])[0])
        self.failures.append(f"{where}: {type(error).__name__}: {first}")


def check_ops(ops: Iterable[Op], order: int, seed: int) -> Iterator[CheckOutcome]:
    """Check each op at first and, if `order` is 2, at second order; one result an op.

    Each sample runs as the op is declared, and as its overlay does it, however few its entries.

    >>> from minigrad import registry
    >>> next(check_ops([registry["tanh"]], order=1, seed=0)).ok
    True
    """
    for op in ops:
        result = CheckOutcome(op.name)
        for number, call in enumerate(op.samples(np.random.default_rng(seed)), 1):
            result.samples += 1
            sample = _Sample(op, call)
            for overlay in dict.fromkeys([None, op.overlay]) if sample.free else ():
                way = " by its overlay" if overlay is not None else ""
                with _running(op, overlay):
                    if overlay is op.chosen(sample.inputs, sample.settings):  # it takes this dtype
                        where = f"sample {number}, {sample_call(op, call)}{way}"
                        _measure_op(result, where, sample, order, seed)
        if not result.measured and not result.failures:
            result.failures.append("no sample has a gradient to compare")
        yield result


@contextmanager
def _running(op: Op, overlay: FasterKernel | None) -> Iterator[None]:
    """Within this block the op runs by this overlay; with None, as it is declared."""
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


def _measure_op(result: CheckOutcome, where: str, sample: _Sample, order: int, seed: int) -> None:
    """Compare one sample's gradients, up to the first order that disagrees."""
    for now in range(1, order + 1):
        try:
            report: Any = gradcheck(sample, sample.start, order=now, seed=seed)
        except GradcheckError as error:
            report = error.report
        except Exception as error:
            result.broke(f"{where}: order {now}", error)
            return
        result.method = report.method or result.method
        result.measured += report.entries
        result.note(report.difference)
        if not report.ok and not report.why:
            result.failures.append(
                f"{where}: order {now}, worst at {sample.named(report.where)}: engine "
                f"{report.measured:.9g}, numeric {report.expected:.9g}, relative error "
                f"{report.difference:.1e}"
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

    def __call__(self, *tensors: Tensor) -> Any:
        inputs = dict(enumerate(self.inputs)) | dict(zip(self.free, tensors, strict=True))
        return Tensor.__apply__(self.op, tuple(inputs.values()), deepcopy(self.settings))


# ---------------------------------------------------------------- layers


def check_layers(seed: int) -> Iterator[CheckOutcome]:
    """Check each layer with and without biases, under each kind of mask, batched or not.

    >>> [result.ok for result in check_layers(seed=0)]
    [True, True]
    """
    rng = np.random.default_rng(seed)
    single = {f"biases {b}": SelfAttention(7, 3, 5, use_bias=b, rng=rng) for b in (True, False)}
    many = {f"biases {b}": MultiHeadAttention(12, 6, use_bias=b, rng=rng) for b in (True, False)}
    many["2 key-value heads"] = MultiHeadAttention(12, 6, n_kv_heads=2, use_bias=True, rng=rng)
    nowhere = np.tri(N, dtype=bool)
    nowhere[1] = False  # a token that may attend to none
    for name, layers in ((SELF_ATTENTION, single), (MULTI_HEAD, many)):
        result = CheckOutcome(name, "hand-derived")
        for kind, layer in layers.items():
            for parameter in layer.parameters():  # biases start at zero, which hides much
                parameter.assign_(rng.normal(size=parameter.shape))
            masks = {"none": None, "causal": create_causal_mask(N)}
            masks |= {"boolean, one row forbids all": nowhere, "additive": rng.normal(size=(N, N))}
            for shape in ((2, N, layer.d_model), (N, layer.d_model)):
                for mask_name, mask in masks.items():
                    where = f"{kind}, X {'×'.join(map(str, shape))}, mask {mask_name}"
                    _measure_layer(result, where, layer, rng.normal(size=shape), mask, rng)
        yield result


def _measure_layer(
    result: CheckOutcome,
    where: str,
    layer: SelfAttention | MultiHeadAttention,
    X: NDArray[Any],
    mask: NDArray[Any] | None,
    rng: np.random.Generator,
) -> None:
    result.samples += 1
    leaf = mg.tensor(X, requires_grad=True, name="X")
    try:
        with mg.trace() as trace:
            out = layer(leaf, mask)
            out.backward(rng.normal(size=out.shape))
        checks = trace.check()
    except Exception as error:
        result.broke(where, error)
        return
    result.measured += len(checks.measured)
    for check in checks.measured:
        result.note(check.difference or 0.0)
    if (wrong := checks.first_wrong) is not None:
        result.failures.append(
            f"{where}: step {wrong.number}, {wrong.title}, worst at "
            f"{wrong.symbol}{list(wrong.index)}: engine {wrong.measured:.9g}, formula "
            f"{wrong.expected:.9g}, relative error {wrong.difference:.1e}"
        )
