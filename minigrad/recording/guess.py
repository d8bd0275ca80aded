"""What the best constant guess would cost, which a model must beat to have learned anything."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose

import numpy as np

from ..engine.types import Array
from .trace import TraceRecord

__all__ = ["constant_guess", "entropy", "targets_of"]

MOST_RESULT_ENTRIES = 1 << 22  # larger results of a model are passed over


def targets_of(trace: TraceRecord, computed: set[int]) -> Iterator[tuple[int, int, int]]:
    """Where the loss compares the model's result with targets: a step, and its two arguments.

    Arguments are counted with an op's inputs first and then its settings.
    """
    for k in reversed(range(len(trace.forward_steps))):  # the loss comes last
        entry = trace.entries[trace.forward_steps[k]]
        call = trace.call_of(entry) if entry.id in computed else None
        if call is None or call.op.variadic:
            continue
        values = [(e.input, trace.entries[e.source]) for e in trace.into(entry)]
        out = [(n, e.value) for n, e in values if e.id in computed and e.op]
        given = [(n, e.value) for n, e in values if e.op is None and e.id not in computed]
        if len(out) != 1 or len(given) != 1 or out[0][1] is None or given[0][1] is None:
            continue
        (name, result), (other, targets) = out[0], given[0]
        if 0 < result.size <= MOST_RESULT_ENTRIES and (
            _are_classes(result, targets) or _are_numbers(result, targets)
        ):
            names = [*call.op.inputs, *call.op.settings]
            yield k, names.index(name), names.index(other)


def constant_guess(out: Array, targets: Array, loss: float) -> float | None:
    """The loss of the best constant guess for a step's targets; None where the loss is unknown.

        classes: H(p) + (K − 1) / 2n,  p the shares of K classes in n rows
        numbers: the variance of each column of the targets, mean over columns

    The second term is Miller's correction for few rows. What the loss is, is measured: the mean or
    a sum of −log softmax(out)[target], or of (out − target)², equals it.

    Source: Miller 1955, Note on the bias of information estimates.
    """
    with np.errstate(all="ignore"):
        measure = _of_numbers if targets.dtype.kind == "f" else _of_classes
        mean, guess = measure(out, targets)
        times = _multiple(loss, mean, out)
    return None if times is None else guess * times


def _multiple(loss: float, mean: float, out: Array) -> float | None:
    """How many times the mean the loss is: a sum over rows, over columns, over all; or half."""
    width = out.shape[-1] if out.ndim > 1 else 1
    counts = (1, out.size, out.size // width, width)
    known = (factor * count for factor in (1.0, 0.5) for count in counts)
    return next((times for times in known if isclose(loss, times * mean, rel_tol=1e-4)), None)


def _are_classes(out: Array, targets: Array) -> bool:
    whole = targets.dtype.kind in "iu" and targets.size > 0
    if not whole or targets.shape != out.shape[:-1] or out.ndim < 2:
        return False
    return bool(targets.min() >= 0 and targets.max() < out.shape[-1])


def _are_numbers(out: Array, targets: Array) -> bool:
    alike = targets.dtype.kind == "f" and targets.shape == out.shape
    return alike and out.ndim > 0 and len(out) > 2


def _of_classes(out: Array, targets: Array) -> tuple[float, float]:
    """The mean cross-entropy of scores, and of the classes' own shares."""
    wide = out - out.max(axis=-1, keepdims=True)
    picked = np.take_along_axis(wide, targets[..., None], axis=-1)[..., 0]
    mean = float((np.log(np.exp(wide).sum(axis=-1)) - picked).mean())
    return mean, entropy(targets)


def entropy(classes: Array) -> float:
    """Of the shares of classes among some rows, with Miller's correction."""
    counts = np.unique(classes, return_counts=True)[1]
    p = counts / classes.size
    return float((len(p) - 1) / (2 * classes.size) - (p * np.log(p)).sum())


def _of_numbers(out: Array, targets: Array) -> tuple[float, float]:
    """The mean square of differences, and that from the mean of each column."""
    mean = float(np.square(out - targets).mean())
    return mean, float(np.var(targets, axis=0, ddof=1).mean())
