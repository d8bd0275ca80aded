"""Cross-entropy with everything that libraries let one ask of it, built from log_softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError, explained

from .arrays import Array
from .hand_derived_ops import cross_entropy_steps

__all__ = ["cross_entropy_loss"]


@explained
def cross_entropy_loss(
    logits: Array,
    targets: ArrayLike,
    *,
    axis: int = -1,
    weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Any:
    """−Σ_c p_c w_c log softmax(logits)_c, where p is the target: a class, or a distribution.

    `mg.cross_entropy` is the plain case: classes along the last axis, mean over rows.

    Args:
        targets: integers, of logits' shape without the classes; or floats, of logits' shape.
        axis: where the classes are (PyTorch and ONNX have them at 1).
        weight: w, one for each class; 1 unless given.
        ignore_index: targets of this class count nothing; only with integers.
        label_smoothing: ε, to take (1 − ε) p + ε / C for p.
        reduction: "none"; "sum"; or "mean", over rows, each weighed as its target class is: NaN,
            with a gradient of 0, where no row counts.
    Raises:  ShapeError, DTypeError or OutOfRangeError where the targets do not fit; ArgumentError
             for a setting out of its range.

    >>> logits = np.log([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]])
    >>> cross_entropy_loss(logits, np.array([0, 2]), reduction="none") / np.log(2)
    array([1., 3.])
    >>> float(cross_entropy_loss(logits, np.array([0, -1]), ignore_index=-1) / np.log(2))
    1.0
    """
    if reduction not in ("none", "sum", "mean"):
        raise ArgumentError(
            f'cross_entropy_loss: reduction must be "none", "sum" or "mean", got {reduction!r}'
        )
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(
            f"cross_entropy_loss: label_smoothing must lie in [0, 1], got {label_smoothing}"
        )
    logits = logits if isinstance(logits, mg.Tensor) else np.asanyarray(logits)
    targets = targets if isinstance(targets, mg.Tensor) else np.asanyarray(targets)
    C = logits.shape[axis]
    w = np.ones(C, logits.dtype) if weight is None else np.asarray(weight, logits.dtype)
    if w.shape != (C,):
        raise ShapeError(f"cross_entropy_loss: weight must be ({C},), got {w.shape}")
    L = mg.log_softmax(logits, axis=axis)  # (..., C, ...)
    if targets.dtype.kind in "fc":
        p, rows = _distribution(targets, L, ignore_index), None
    else:
        p = _one_hot(targets, L, axis, ignore_index)  # a row of zeros where ignored
        counted = p.sum(axis=axis, keepdims=True)
        rows = (p * _along(w, axis, L.ndim)).sum()
        p = (1 - label_smoothing) * p + label_smoothing / C * counted
    if rows is None and label_smoothing:
        p = mg.add(mg.multiply(p, 1 - label_smoothing), label_smoothing / C)
    terms = mg.multiply(L, mg.multiply(p, _along(w, axis, L.ndim)))  # (..., C, ...)
    losses = mg.negative(mg.sum(terms, axis=axis))  # (...)
    loss = losses if reduction == "none" else mg.sum(losses)
    if reduction == "mean":
        rows = max(losses.size, 1) if rows is None else rows
        loss = mg.divide(loss, rows) if rows else mg.add(loss, np.nan)
    mg.expect_gradients(
        cross_entropy_steps,
        logits=logits,
        targets=targets,
        axis=axis,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
        first=L,
        out=loss,
    )
    return loss


def _one_hot(targets: Any, L: Any, axis: int, ignore_index: int | None) -> Any:
    """1 at each row's class, 0 elsewhere and in rows to ignore."""
    classes = targets.numpy() if isinstance(targets, mg.Tensor) else targets
    C, axis = L.shape[axis], axis % L.ndim
    shape = L.shape[:axis] + L.shape[axis + 1 :]
    if classes.shape != shape:
        raise ShapeError(
            f"cross_entropy_loss: targets must have the logits' shape without the classes, "
            f"{shape}, got {classes.shape}"
        )
    if classes.dtype.kind not in "iu":
        raise DTypeError(
            f"cross_entropy_loss: targets must be integers or floats, got {classes.dtype}"
        )
    real = np.ones(shape, bool) if ignore_index is None else classes != ignore_index
    wrong = real & ((classes < 0) | (classes >= C))
    if wrong.any():
        raise OutOfRangeError(
            f"cross_entropy_loss: targets must lie in [0, {C}), got {classes[wrong][0]}"
        )
    hot = np.arange(C) == np.where(real, classes, -1)[..., None]
    return np.moveaxis(hot, -1, axis).astype(L.dtype)


def _distribution(targets: Any, L: Any, ignore_index: int | None) -> Any:
    if targets.shape != L.shape:
        raise ShapeError(
            f"cross_entropy_loss: a target distribution must have the logits' shape {L.shape}, "
            f"got {targets.shape}"
        )
    if ignore_index is not None:
        raise ArgumentError("cross_entropy_loss: ignore_index needs integer targets")
    return targets


def _along(w: Any, axis: int, ndim: int) -> Any:
    """(C,) as an array that broadcasts along the axis of the classes."""
    shape = [1] * ndim
    shape[axis] = -1
    return w.reshape(shape)
