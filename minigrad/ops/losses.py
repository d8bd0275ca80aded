"""Losses: of two arrays entry by entry, averaged; and of scores and their classes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..engine.declaration import call
from ..engine.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from ..engine.op import op
from ..engine.tensor import SameArray, TensorOrArray
from .activations import sigmoid, softplus
from .arithmetic import multiply, scale, subtract
from .composed_errors import composed
from .dtypes import as_array, cast_back, floating, widen_half
from .functions import abs, clip
from .notation import Formula
from .reduce import mean
from .samples import each_of_x, of_shapes
from .softmax import below_top, softmax

__all__ = ["bce_with_logits", "cross_entropy", "huber_loss", "l1_loss", "mse_loss"]


def averaged(terms):
    """The mean of all terms.  Raises: ShapeError where there are none."""
    if terms.size == 0:
        raise ShapeError("a mean over nothing: there must be at least one entry")
    return cast_back(widen_half(terms).sum() / terms.size, terms)


def check_alike(x, target):
    """Both as arrays of floats. Raises: ShapeError unless they are of one shape."""
    x = floating(x)
    target = floating(target)
    if x.shape != target.shape:
        raise ShapeError(f"both must have one shape, got {x.shape} and {target.shape}")
    return x, target


PAIRS = of_shapes(([3, 5], [3, 5]), ([], []))


@op(
    tex=r"\operatorname{mean}((<x> - <target>)^{\circ 2})",
    vjp_tex={
        "x": lambda x: rf"\tfrac{{2}}{{{x.size}}} <g> \odot (<x> - <target>)",
        "target": lambda x: rf"\tfrac{{2}}{{{x.size}}} <g> \odot (<target> - <x>)",
    },
    flops=each_of_x(3),
    samples=PAIRS,
)
def mse_loss(x, target):
    """Averages the squared differences from the target: mean (x - t)².

    Raises: ShapeError unless both have one shape.

    >>> mse_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(2.0)
    """
    x, target = check_alike(x, target)
    return averaged((x - target) ** 2)


@mse_loss.vjp("x")
def _(g, x, target):
    """The gradient is multiplied by twice the difference from the target, averaged alike."""
    return 2 / np.size(x) * g * (x - target)


@mse_loss.vjp("target")
def _(g, x, target):
    """The gradient is that of the input with its sign turned, as only the difference counts."""
    return 2 / np.size(x) * g * (target - x)


@op(
    tex=r"\operatorname{mean}(\log(1 + e^{<x>}) - <target> \odot <x>)",
    vjp_tex={
        "x": lambda x: rf"\tfrac{{1}}{{{x.size}}} <g> \odot (\sigma(<x>) - <target>)",
        "target": lambda x: rf"-\tfrac{{1}}{{{x.size}}} <g> \odot <x>",
    },
    flops=each_of_x(7),
    samples=PAIRS,
)
def bce_with_logits(x, target):
    """Averages how wrong scores of yes or no are: mean of -t log σ(x) - (1 - t) log(1 - σ(x)).

    Args: target: t, the probability of yes.  Raises: ShapeError unless both have one shape.

    >>> bce_with_logits(np.array([0.0, 800.0]), np.array([1.0, 1.0])).round(4)
    np.float64(0.3466)
    """
    x, target = check_alike(x, target)
    return averaged(softplus(x) - x * target)


@bce_with_logits.vjp("x")
def _(g, x, target):
    """The gradient is multiplied by the probability less the target, averaged as the loss is."""
    return 1 / np.size(x) * g * (sigmoid(x) - target)


@bce_with_logits.vjp("target")
def _(g, x):
    """The gradient is multiplied by the score with its sign turned, averaged as the loss is."""
    return -1 / np.size(x) * g * x


# ---------------------------------------------------------------- composed of other ops


def _difference(x: SameArray, target: TensorOrArray) -> SameArray:
    """x - t in floats: integers without a sign would wrap.  Raises: as `check_alike`."""
    return subtract(*check_alike(x, target))


@composed
def l1_loss(x: SameArray, target: TensorOrArray) -> SameArray:
    """The mean of how far apart entries are: |x - t|. Where both are equal the gradient is 0.

    >>> l1_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(1.0)
    """
    return mean(abs(_difference(x, target)))


@composed
def huber_loss(x: SameArray, target: TensorOrArray, *, delta: float = 1.0) -> SameArray:
    """The mean of (x - t)² / 2 up to a difference of δ, then of δ (|x - t| - δ/2).

    Raises: ArgumentError unless δ > 0.
    Source: Huber 1964, https://doi.org/10.1214/aoms/1177703732.

    >>> huber_loss(np.array([0.5, 3.0]), np.zeros(2))
    np.float64(1.3125)
    """
    if not delta > 0:
        raise ArgumentError(f"delta must be above 0, got {delta}")
    away = _difference(x, target)
    near = clip(away, -delta, delta)
    return mean(multiply(near, subtract(away, scale(near, 0.5))))


# ---------------------------------------------------------------- classes


def wanted(logits, targets, ignore_index, label_smoothing):
    """The probabilities p that the logits should give, and how many rows count.

    Booleans, where p is 1 at one class of each row that counts; zeros in a row that is ignored.
    Raises: ShapeError, DTypeError, OutOfRangeError or ArgumentError where the targets do not fit.
    """
    targets = as_array(targets)
    classes = logits.shape[-1]
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing must lie in [0, 1], got {label_smoothing}")
    if targets.shape == logits.shape and targets.dtype.kind == "f":
        p = targets.astype(logits.dtype, copy=False)
        counted = np.ones((*targets.shape[:-1], 1))
    else:
        counted = check_classes(logits, targets, ignore_index)[..., None]
        p = np.zeros(logits.shape, np.bool_)
        np.put_along_axis(p, np.where(counted, targets[..., None], 0), counted, -1)
    if not counted.any():
        raise ShapeError("a mean over no rows; at least one must count")
    if label_smoothing:
        p = ((1 - label_smoothing) * p + label_smoothing / classes * counted).astype(logits.dtype)
    return p, np.count_nonzero(counted)


def check_classes(logits, targets, ignore_index):
    """Which rows count, of targets that are classes."""
    if targets.shape != logits.shape[:-1]:
        remedy = "; write targets[..., 0]" if targets.shape == (*logits.shape[:-1], 1) else ""
        if targets.shape == logits.shape:
            remedy = "; write targets.argmax(-1), or targets.astype(float) for probabilities"
        raise ShapeError(
            f"targets {targets.shape} must have logits' shape without its last axis, "
            f"{logits.shape[:-1]}{remedy}"
        )
    if targets.dtype.kind not in "iu":
        is_text = targets.dtype.kind in "US"
        ours = "np.unique(targets, return_inverse=True)[1]" if is_text else "targets.astype(int)"
        raise DTypeError(f"targets must be integers, got {targets.dtype}; write {ours}")
    counted = np.ones(targets.shape, bool) if ignore_index is None else targets != ignore_index
    classes = logits.shape[-1]
    outside = targets[counted & ((targets < 0) | (targets >= classes))]
    if outside.size:
        raise OutOfRangeError(f"targets must lie in [0, {classes}), got {outside[0]}")
    return counted


def _with_targets(formula: str) -> Formula:
    """A formula, and what p and N in it are."""

    def tex(logits: Any, targets: Any, ignore_index: Any, label_smoothing: float) -> str:
        has_classes = np.shape(targets) != logits.shape
        p = r"\operatorname{onehot}(<targets>)" if has_classes else "<targets>"
        *rows, C = logits.shape
        N = str(prod(rows))
        if label_smoothing:
            p = rf"((1 - <label_smoothing>) {p} + \tfrac{{1}}{{{C}}} <label_smoothing>)"
        if ignore_index is not None:
            counts = r"[<targets> \ne <ignore_index>]"
            p = rf"{p} \odot \operatorname{{column}}({counts})"
            N = rf"\operatorname{{sum}}({counts})"
        return rf"{formula}, \quad p = {p}, \quad N = {N}"

    return tex


def cross_entropy_samples(rng):
    """Classes, smoothed ones, ignored ones, one class, and probabilities."""
    logits = rng.normal(size=(2, 3, 5))
    classes = np.arange(6).reshape(2, 3) % 5
    yield call(logits[0], classes[1])
    yield call(logits, classes, label_smoothing=0.3)
    yield call(logits, classes - 1, ignore_index=-1)
    yield call(logits[0, 0], np.array(3))
    yield call(logits[0], np.tri(3, 5, 1) / [[2], [3], [4]])


@op(
    tex=_with_targets(
        r"-\tfrac1N \operatorname{sum}(p \odot \log \operatorname{softmax}(<logits>))"
    ),
    vjp_tex={
        "logits": _with_targets(
            r"\tfrac1N <g> \odot (s \odot \operatorname{rowsum}(p) - p),"
            r" \quad s = \operatorname{softmax}(<logits>)"
        )
    },
    flops=lambda logits: 5 * np.size(logits),
    samples=cross_entropy_samples,
    auxiliary=("p", "rows"),
)
def cross_entropy(logits, targets, *, ignore_index=None, label_smoothing=0.0):
    """Measures how little probability the scores give to the targets, averaged over rows.

        -1/N Σ_i Σ_c p_ic log softmax(logits)_ic, where p is 1 at the target and 0 elsewhere.

    Args: targets: classes, or probabilities p of logits' shape; constants. ignore_index: of rows
        that do not count. label_smoothing: the share of p that is spread evenly over all classes.
        Weights of classes are two lines, which the error of `weight=` writes.
    Shapes: logits (..., C), targets (...) of integers in [0, C), or (..., C) of floats → ().
    Raises: ShapeError, DTypeError, OutOfRangeError or ArgumentError where the targets do not fit;
        ShapeError where no row counts.

    >>> cross_entropy(np.zeros((2, 4)), np.array([1, 3])).round(4)
    np.float64(1.3863)
    """
    logits = floating(logits)
    if logits.ndim < 1:
        raise ShapeError("logits need a last axis, one entry a class, got shape ()")
    p, rows = wanted(logits, targets, ignore_index, label_smoothing)
    less, log_total = below_top(widen_half(logits), -1)
    taken = p if p.dtype == np.bool_ else p != 0  # no 0 times -inf
    terms = less[taken] - np.broadcast_to(log_total, p.shape)[taken]
    if taken is not p:
        terms *= p[taken]
    return cast_back(-np.sum(terms) / rows, logits), p, rows


@cross_entropy.vjp("logits")
def _(g, logits, p, rows, ignore_index):
    """Each row gets its softmax less one at the target, times the gradient over the row count."""
    weights = softmax(logits)
    if ignore_index is not None or p.dtype != np.bool_:
        weights = weights * p.sum(axis=-1, keepdims=True)  # which is 0 in a row that is ignored
    weights -= p
    weights *= widen_half(g) / rows
    return weights
