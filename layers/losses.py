"""Cross-entropy with weights, smoothing and rows to ignore; and losses as layers, to put a model
together from: `MSELoss()(out, target)`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError, explained

from .arrays import Array
from .hand_derived_ops import cross_entropy_steps
from .module import Module, as_array

__all__ = [
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "L1Loss",
    "MSELoss",
    "cross_entropy_loss",
]


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
) -> Array:
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
    logits, targets = as_array(logits), as_array(targets)
    C = logits.shape[axis]
    L = mg.log_softmax(logits, axis=axis)  # (..., C, ...)
    w = np.ones(C, L.dtype) if weight is None else np.asarray(weight, L.dtype)
    if w.shape != (C,):
        raise ShapeError(f"cross_entropy_loss: weight must be ({C},), got {w.shape}")
    rows: Any = None
    counted: Any = 1.0
    if targets.dtype.kind in "fc":
        p = _distribution(targets, L, ignore_index)
    else:
        p = _one_hot(targets, L, axis, ignore_index)  # a row of zeros where ignored
        rows = (p * _along(w, axis, L.ndim)).sum()
        counted = p.sum(axis=axis, keepdims=True)
    if rows is not None and not label_smoothing:  # no 0 · −inf, where another class is impossible
        terms = mg.where(p > 0, L, 0.0)  # (..., C, ...)
        terms = terms if weight is None else mg.multiply(terms, _along(w, axis, L.ndim))
    else:
        if label_smoothing:
            p = mg.add(mg.multiply(p, 1 - label_smoothing), label_smoothing / C * counted)
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


def _one_hot(targets: Array, L: Array, axis: int, ignore_index: int | None) -> NDArray[np.floating]:
    """1 at each row's class, 0 elsewhere and in rows to ignore."""
    classes = targets.numpy() if isinstance(targets, mg.Tensor) else targets
    C, axis = L.shape[axis], axis % L.ndim
    shape = L.shape[:axis] + L.shape[axis + 1 :]
    if classes.shape != shape:
        raise ShapeError(
            f"cross_entropy_loss: targets must have the logits' shape without the classes, "
            f"{shape}, got {classes.shape}{_remedy(classes, L.shape, shape)}"
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
    hot = np.expand_dims(np.where(real, classes, -1), axis) == _along(np.arange(C), axis, L.ndim)
    return hot.astype(L.dtype)


def _remedy(targets: Array, full: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What to write for integers of another shape than the rows', where that is certain."""
    if targets.shape == full:
        return "; a distribution is floats: write targets.astype(float)"
    return "; write targets[..., 0]" if targets.shape == (*shape, 1) else ""


def _distribution(targets: Array, L: Array, ignore_index: int | None) -> Array:
    if targets.shape != L.shape:
        raise ShapeError(
            f"cross_entropy_loss: a target distribution must have the logits' shape {L.shape}, "
            f"got {targets.shape}; of classes write targets.astype(int)"
        )
    if ignore_index is not None:
        raise ArgumentError("cross_entropy_loss: ignore_index needs integer targets")
    return targets


def _along(w: Array, axis: int, ndim: int) -> Array:
    """(C,) as an array that broadcasts along the axis of the classes."""
    shape = [1] * ndim
    shape[axis] = -1
    return w.reshape(shape)


# ------------------------------------------------------------------ as layers


class _Loss(Module):
    """A function of outputs and targets with its settings.

    Raises: ArgumentError for a setting that the function has not.
    """

    function: ClassVar[Callable[..., Any]]

    def __init__(self, **settings: Any) -> None:
        known = [*signature(type(self).function).parameters][2:]
        if unknown := sorted(set(settings) - set(known)):
            call, names = type(self).__name__, ", ".join(known)
            raise ArgumentError(f"{call}: settings are {names}, got {', '.join(unknown)}")
        self.settings = settings

    def forward(self, x: mg.Tensor, target: Array | ArrayLike) -> mg.Tensor:
        return type(self).function(x, target, **self.settings)


class MSELoss(_Loss):
    """mg.mse_loss as a layer, with its settings.

    >>> import numpy as np
    >>> MSELoss(reduction="sum")(np.array([1.0, 2.0]), np.zeros(2)).item()
    5.0
    """

    function = mg.mse_loss


class L1Loss(_Loss):
    """mg.l1_loss as a layer, with its settings.

    >>> import numpy as np
    >>> L1Loss()(np.array([1.0, 2.0]), np.zeros(2)).item()
    1.5
    """

    function = mg.l1_loss


class HuberLoss(_Loss):
    """mg.huber_loss as a layer, with its settings.

    >>> import numpy as np
    >>> HuberLoss(delta=1.0)(np.array([3.0]), np.zeros(1)).item()
    2.5
    """

    function = mg.huber_loss


class CrossEntropyLoss(_Loss):
    """cross_entropy_loss as a layer, with its settings: weight, ignore_index, label_smoothing …

    >>> import numpy as np
    >>> round(CrossEntropyLoss()(np.zeros((1, 4)), np.array([1])).item(), 4)
    1.3863
    """

    function = cross_entropy_loss


class BCEWithLogitsLoss(_Loss):
    """mg.bce_with_logits as a layer, with its settings: reduction, pos_weight.

    >>> import numpy as np
    >>> round(BCEWithLogitsLoss()(np.zeros(2), np.ones(2)).item(), 4)
    0.6931
    """

    function = mg.bce_with_logits
