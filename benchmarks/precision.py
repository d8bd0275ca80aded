"""What float32 loses: the error of results and gradients beside PyTorch's, in units of eps.

Both are held against minigrad in float64. Sums over many rows are where it matters: added one after
the other, the error grows with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np

from .report import NONE, Report, number
from .single_ops import functional

__all__ = ["CASES", "errors", "measure_precision"]

ROWS, WIDTH = 100_000, 32
TALL, WIDE, ROW = (ROWS, WIDTH), (WIDTH, ROWS), (WIDTH,)
EPS = float(np.finfo(np.float32).eps)


# title: shapes of the inputs, how minigrad writes it, how PyTorch does
CASES: dict[str, tuple[Any, Callable[..., Any], Callable[..., Any]]] = {
    "sum, first axis": ((TALL,), lambda mg, x: mg.sum(x, 0), lambda t, x: x.sum(0)),
    "sum, last axis": ((WIDE,), lambda mg, x: mg.sum(x, -1), lambda t, x: x.sum(-1)),
    "sum of all": ((TALL,), lambda mg, x: mg.sum(x), lambda t, x: x.sum()),
    "mean, first axis": ((TALL,), lambda mg, x: mg.mean(x, 0), lambda t, x: x.mean(0)),
    "var, first axis": ((TALL,), lambda mg, x: mg.var(x, 0), lambda t, x: x.var(0, correction=0)),
    "var, last axis": ((WIDE,), lambda mg, x: mg.var(x, -1), lambda t, x: x.var(-1, correction=0)),
    "std, first axis": ((TALL,), lambda mg, x: mg.std(x, 0), lambda t, x: x.std(0, correction=0)),
    "norm": ((TALL,), lambda mg, x: mg.norm(x, axis=0), lambda t, x: x.norm(dim=0)),
    "cumsum, first axis": ((TALL,), lambda mg, x: mg.cumsum(x, 0), lambda t, x: x.cumsum(0)),
    "cumsum, last axis": ((WIDE,), lambda mg, x: mg.cumsum(x, -1), lambda t, x: x.cumsum(-1)),
    "add of a row": ((TALL, ROW), lambda mg, x, b: x + b, lambda t, x, b: x + b),
    "linear": (
        (TALL, (WIDTH, 8), (8,)),
        lambda mg, x, w, b: mg.linear(x, w, b),
        lambda t, x, w, b: x @ w + b,
    ),
    "logsumexp, first axis": (
        (TALL,), lambda mg, x: mg.logsumexp(x, 0), lambda t, x: t.logsumexp(x, 0)
    ),
    "softmax, first axis": ((TALL,), lambda mg, x: mg.softmax(x, 0), lambda t, x: t.softmax(x, 0)),
    "log_softmax, last axis": (
        (WIDE,), lambda mg, x: mg.log_softmax(x), lambda t, x: t.log_softmax(x, -1)
    ),
    "layer_norm": (
        (TALL, ROW, ROW),
        lambda mg, x, w, b: mg.layer_norm(x, w, b),
        lambda t, x, w, b: t.nn.functional.layer_norm(x, ROW, w, b),
    ),
    "batch_norm": (
        (TALL, ROW, ROW),
        lambda mg, x, w, b: mg.batch_norm(x, w, b),
        lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, training=True),
    ),
    "convolution": (
        ((400, 8, 16, 16), (8, 8, 3, 3), (8,)),
        lambda mg, x, w, b: mg.conv2d(x, w, b),
        functional("conv2d"),
    ),
    "gelu": ((TALL,), lambda mg, x: mg.gelu(x), functional("gelu")),
    "mean of squares": ((TALL,), lambda mg, x: mg.mean(x**2), lambda t, x: (x**2).mean()),
}  # fmt: skip


def errors(title: str) -> list[tuple[str, float, float]]:
    """For the result and each gradient: its name, minigrad's largest error and PyTorch's, in eps
    of the largest entry; NaN where there is no PyTorch.
    """
    import minigrad as mg

    shapes, ours, theirs = CASES[title]
    rng = np.random.default_rng(0)
    # a mean beside the spread, as activations have: sums of them grow
    arrays = [rng.normal(0.5, 1.0, shape).astype(np.float32) for shape in shapes]

    def taken(dtype: Any) -> list[Any]:
        leaves = [mg.tensor(a.astype(dtype), requires_grad=True) for a in arrays]
        out = ours(mg, *leaves)
        return [out.numpy(), *mg.grad(out, leaves, gradient(out.shape, dtype))]

    def gradient(shape: Any, dtype: Any) -> Any:
        return np.random.default_rng(1).normal(0.5, 1.0, shape).astype(np.float32).astype(dtype)

    exact, found = taken(np.float64), taken(np.float32)
    other: list[Any] = [np.nan] * len(exact)
    if find_spec("torch"):
        import torch

        leaves = [torch.from_numpy(a).requires_grad_() for a in arrays]
        out = theirs(torch, *leaves)
        out.backward(torch.from_numpy(np.asarray(gradient(out.shape, np.float32))))
        other = [out.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)]
    names = ["result", *(f"gradient {i + 1}" for i in range(len(arrays)))]
    return [
        (name, _error(x, right), _error(y, right))
        for name, right, x, y in zip(names, exact, found, other, strict=True)
    ]


def _error(found: Any, right: Any) -> float:
    largest = float(np.max(np.abs(right)))
    return float(np.max(np.abs(found - right))) / (EPS * largest) if largest else 0.0


def measure_precision(titles: Iterable[str] = tuple(CASES)) -> Report:
    """Table: the largest errors, forward and backward."""
    report = Report(
        f"What float32 loses over {ROWS:,} rows: the largest error, in eps of the largest entry",
        ["op", "", "minigrad", "PyTorch", "ratio"],
        data={},
    )
    for title in titles:
        for name, ours, theirs in errors(title):
            report.data[f"{title}: {name}"] = ours, theirs
            known = theirs == theirs
            ratio = number(ours / max(theirs, 0.5)) if known else NONE
            report.rows.append(
                [title, name, number(ours), number(theirs) if known else NONE, ratio]
            )
    report.notes = ["ratio: errors below half an eps count as half of one, which rounding costs."]
    return report
