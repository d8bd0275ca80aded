"""What the best constant guess would cost, which a model must beat to have learned anything."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from typing import Any

import numpy as np

from .reading import Reading

__all__ = ["constant_guess", "entropy", "targets_of"]

MOST = 1 << 22  # entries of a model's result that are looked at


def targets_of(reading: Reading) -> Iterator[tuple[Any, Any]]:
    """Results of the model, each beside the array that an op of the loss holds it against."""
    trace = reading.trace
    for i in reversed(trace.forward_steps):  # the loss comes last
        edges = trace.into(trace.entries[i]) if i in reading.computed else []
        values = [trace.entries[edge.source] for edge in edges]
        out = [e for e in values if e.id in reading.computed and e.value is not None]
        targets = [e.value for e in values if e.op is None and e.id not in reading.computed]
        if len(out) == len(targets) == 1 and out[0].op and 0 < out[0].size <= MOST:
            if _are_classes(out[0].value, targets[0]) or _are_numbers(out[0].value, targets[0]):
                yield out[0].value, targets[0]


def constant_guess(reading: Reading) -> float | None:
    """The loss of the best constant guess for a step's targets; None where the loss is unknown.

        classes: H(p) + (K − 1) / 2n,  p the shares of K classes in n rows
        numbers: the variance of each column of the targets, mean over columns

    The second term is Miller's correction for few rows. What the loss is, is measured: the mean or
    a sum of −log softmax(out)[target], or of (out − target)², equals it.

    Source: Miller 1955, Note on the bias of information estimates.
    """
    for out, targets in targets_of(reading):
        measure = _of_numbers if targets.dtype.kind == "f" else _of_classes
        mean, guess = measure(out, targets)
        if (times := _multiple(reading.loss, mean, out)) is not None:
            return guess * times
    return None


def _multiple(loss: float, mean: float, out: Any) -> float | None:
    """How many times the mean the loss is: a sum over rows, over columns, over all; or half."""
    width = out.shape[-1] if out.ndim > 1 else 1
    counts = (1, out.size, out.size // width, width)
    known = (factor * count for factor in (1.0, 0.5) for count in counts)
    return next((times for times in known if isclose(loss, times * mean, rel_tol=1e-4)), None)


def _are_classes(out: Any, targets: Any) -> bool:
    if targets.dtype.kind not in "iu" or targets.shape != out.shape[:-1] or out.ndim < 2:
        return False
    return bool(targets.min() >= 0 and targets.max() < out.shape[-1])


def _are_numbers(out: Any, targets: Any) -> bool:
    if targets.dtype.kind != "f" or targets.shape != out.shape:
        return False
    return out.ndim > 0 and len(out) > 2


def _of_classes(out: Any, targets: Any) -> tuple[float, float]:
    """The mean cross-entropy of scores, and of the classes' own shares."""
    wide = out - out.max(axis=-1, keepdims=True)
    picked = np.take_along_axis(wide, targets[..., None], axis=-1)[..., 0]
    mean = float((np.log(np.exp(wide).sum(axis=-1)) - picked).mean())
    return mean, entropy(targets)


def entropy(classes: Any) -> float:
    """Of the shares of classes among some rows, with Miller's correction."""
    counts = np.unique(classes, return_counts=True)[1]
    p = counts / classes.size
    return float((len(p) - 1) / (2 * classes.size) - (p * np.log(p)).sum())


def _of_numbers(out: Any, targets: Any) -> tuple[float, float]:
    """The mean square of differences, and that from the mean of each column."""
    mean = float(np.square(out - targets).mean())
    return mean, float(np.var(targets, axis=0, ddof=1).mean())
