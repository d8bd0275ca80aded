"""What the best constant guess would cost, which a model must beat to have learned anything."""

from __future__ import annotations

from math import isclose
from typing import Any

import numpy as np

from .reading import Reading

__all__ = ["constant_guess"]

MOST = 1 << 22  # entries of a model's result that are looked at


def constant_guess(reading: Reading) -> float | None:
    """The loss of the best constant guess for a step's targets; None where the loss is unknown.

        classes: H(p) + (K − 1) / 2n,  p the shares of K classes in n rows
        numbers: the variance of each column of the targets, mean over columns

    The second term is Miller's correction for few rows. What the loss is, is measured: the mean or
    a sum of −log softmax(out)[target], or of (out − target)², equals it.

    Source: Miller 1955, Note on the bias of information estimates.
    """
    trace, loss = reading.trace, reading.loss
    for i in trace.forward_steps:
        edges = trace.into(trace.entries[i]) if i in reading.computed else []
        values = [trace.entries[edge.source] for edge in edges]
        out = [e.value for e in values if e.id in reading.computed and e.value is not None]
        targets = [e.value for e in values if e.op is None and e.id not in reading.computed]
        if len(out) != 1 or len(targets) != 1 or not 0 < out[0].size <= MOST:
            continue
        for measure in (_of_classes, _of_numbers):
            found = measure(out[0], targets[0])
            if found is not None and (times := _multiple(loss, found[0], out[0])) is not None:
                return found[1] * times
    return None


def _multiple(loss: float, mean: float, out: Any) -> float | None:
    """How many times the mean the loss is: a sum over rows, over columns, over all; or half."""
    width = out.shape[-1] if out.ndim > 1 else 1
    counts = (1, out.size, out.size // width, width)
    known = (factor * count for factor in (1.0, 0.5) for count in counts)
    return next((times for times in known if isclose(loss, times * mean, rel_tol=1e-4)), None)


def _of_classes(out: Any, targets: Any) -> tuple[float, float] | None:
    """The mean cross-entropy of scores, and of the classes' own shares."""
    if targets.dtype.kind not in "iu" or targets.shape != out.shape[:-1] or out.ndim < 2:
        return None
    if targets.min() < 0 or targets.max() >= out.shape[-1]:
        return None
    wide = out - out.max(axis=-1, keepdims=True)
    picked = np.take_along_axis(wide, targets[..., None], axis=-1)[..., 0]
    mean = float((np.log(np.exp(wide).sum(axis=-1)) - picked).mean())
    counts = np.bincount(targets.ravel())
    p = counts[counts > 0] / targets.size
    return mean, float(-(p * np.log(p)).sum()) + (len(p) - 1) / (2 * targets.size)


def _of_numbers(out: Any, targets: Any) -> tuple[float, float] | None:
    """The mean square of differences, and that from the mean of each column."""
    if targets.dtype.kind != "f" or targets.shape != out.shape or out.ndim < 1 or len(out) < 3:
        return None
    mean = float(np.square(out - targets).mean())
    return mean, float(np.var(targets, axis=0, ddof=1).mean())
