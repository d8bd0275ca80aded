"""Losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine.errors import DTypeError, OutOfRangeError, ShapeError
from ..engine.op import Call, as_array, call, cast_back, floating, op, widen_half
from .entry_losses import reduced, share
from .notation import letters
from .softmax import log_softmax, softmax

__all__ = ["cross_entropy", "nll_loss"]


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (3, 5)), np.array([0, 4, 2]))
    yield call(rng.uniform(-2, 2, (2, 3, 5)), rng.integers(0, 5, (2, 3)))
    yield call(rng.uniform(-2, 2, 5), np.array(3))
    yield call(rng.uniform(-2, 2, (3, 5)) * 800, np.array([0, 4, 2]))


def check_targets(logits: Any, targets: Any, empty: bool = False) -> None:
    """Raise unless each row of the logits has one target, a class; `empty` allows no rows."""
    if np.ndim(logits) < 1:
        raise ShapeError(
            f"logits need a last axis, one entry a class, got shape {np.shape(logits)}; "
            f"targets {targets.shape}"
        )
    if targets.shape != logits.shape[:-1]:
        remedy = ""
        if targets.shape == logits.shape:  # one-hot, or a distribution
            remedy = "; write targets.argmax(-1), or layers.cross_entropy_loss for distributions"
        elif targets.shape == (*logits.shape[:-1], 1):
            remedy = "; write targets[..., 0]"
        raise ShapeError(
            f"targets {targets.shape} must have logits' shape without its last axis, "
            f"{logits.shape[:-1]}{remedy}"
        )
    if targets.dtype.kind not in "iu":
        raise DTypeError(
            f"targets must be integers, got {targets.dtype}; write targets.astype(int)"
        )
    if targets.size == 0:
        if empty:
            return
        raise ShapeError("a mean over no rows; logits need at least one")
    lowest = targets.min()
    highest = targets.max()
    classes = logits.shape[-1]
    if lowest < 0 or highest >= classes:
        worst = lowest if lowest < 0 else highest
        raise OutOfRangeError(f"targets must lie in [0, {classes}), got {worst}")


@op(
    tex=r"-\operatorname{mean}_i \log \operatorname{softmax}(<logits>)_{i, t_i},"
    r" \quad t = <targets>",
    vjp_tex={
        "logits": lambda logits: (
            r"\tfrac1N <g> \odot (\operatorname{softmax}(<logits>)"
            rf" - \operatorname{{onehot}}(<targets>)), \quad N = {logits.size // logits.shape[-1]}"
        )
    },
    flops=lambda logits: 5 * np.size(logits),
    samples=_samples,
    invariance="a shift of all logits",
)
def cross_entropy(logits, targets):
    """Measures how little probability the scores give to the targets, averaged over rows.

        -mean_i log softmax(logits)_{i, t_i}.

    Shapes: logits (..., C), targets (...) of integers in [0, C) → ().
    Raises: ShapeError, DTypeError or OutOfRangeError where the targets do not fit; ShapeError
        without rows.

    >>> cross_entropy(np.zeros((2, 4)), np.array([1, 3])).round(4)
    np.float64(1.3863)
    """
    logits, targets = floating(logits), as_array(targets)
    check_targets(logits, targets)
    picked = np.take_along_axis(log_softmax(widen_half(logits)), targets[..., None], axis=-1)
    return cast_back(-np.mean(picked), logits)


@cross_entropy.vjp("logits")
def _(g, logits, targets):
    """Each row gets its softmax less one at the target, times the gradient over the row count."""
    targets = as_array(targets)
    one_hot = (np.arange(logits.shape[-1]) == targets[..., None]).astype(logits.dtype)
    return (softmax(logits) - one_hot) * (g / targets.size)


# ---------------------------------------------------------------- nll_loss


def _nll_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-3, 0, (3, 5)), np.array([0, 4, 2]))
    yield call(rng.uniform(-3, 0, (2, 5, 3)), rng.integers(0, 5, (2, 3)), axis=1)
    yield call(rng.uniform(-3, 0, (3, 5)), np.array([0, 4, 2]), reduction="sum")
    yield call(rng.uniform(-3, 0, (3, 5)), np.array([0, 4, 2]), reduction="none")
    yield call(np.zeros((0, 5)), np.zeros(0, int), reduction="sum")


def _nll_tex(targets, axis, reduction):
    if np.ndim(targets) == 0:
        names, row = "i", "i, t_i"
    else:
        known = letters(np.ndim(targets))
        names = ",".join(known)
        classes = axis % (len(known) + 1)
        row = ", ".join([*known[:classes], f"t_{{{names}}}", *known[classes:]])
    picked = rf"<log_probs>_{{{row}}}, \quad t = <targets>"
    signs = {"mean": rf"-\operatorname{{mean}}_{{{names}}} ", "sum": rf"-\sum_{{{names}}} "}
    return signs.get(reduction, "-") + picked


def _nll_vjp_tex(targets, axis, reduction):
    classes = axis % (np.ndim(targets) + 1)
    below = "" if classes == np.ndim(targets) else f"_{{{classes}}}"
    one_hot = rf"\operatorname{{onehot}}{below}(<targets>)"
    if reduction == "mean":
        return rf"-\tfrac1N <g> \odot {one_hot}, \quad N = {np.size(targets)}"
    if reduction == "sum":
        return rf"-<g> \odot {one_hot}"
    known = letters(np.ndim(targets))
    whole = ",".join([*known[:classes], "c", *known[classes:]])
    return rf"-<g>_{{{','.join(known)}}} \odot {one_hot}_{{{whole}}}"


@op(
    tex=_nll_tex,
    vjp_tex={"log_probs": _nll_vjp_tex},
    flops=lambda log_probs, targets: 2 * np.size(targets),
    samples=_nll_samples,
)
def nll_loss(log_probs, targets, axis=-1, reduction="mean"):
    """Takes the negative logarithm of each target's probability: -log p_{i, t_i}, mean over rows.

    Args: axis: where the classes are (PyTorch has them at 1, which is the last of two).
        reduction: "mean", "sum" or "none".
    Shapes: log_probs (..., C), targets (...) of integers in [0, C) → (), or as targets.
    Raises: as cross_entropy, which is nll_loss of log_softmax.

    >>> nll_loss(np.log([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 0])).round(4)
    np.float64(1.0397)
    """
    log_probs, targets = floating(log_probs), as_array(targets)
    check_targets(np.moveaxis(log_probs, axis, -1), targets, empty=reduction != "mean")
    picked = np.take_along_axis(log_probs, np.expand_dims(targets, axis), axis)
    return reduced(-np.squeeze(picked, axis), reduction)


@nll_loss.vjp("log_probs")
def _(g, log_probs_shape, targets, axis, reduction):
    """The gradient goes to the targets' entries alone, its sign turned, averaged as the loss is."""
    classes = np.arange(log_probs_shape[axis])
    one_hot = np.moveaxis(classes == as_array(targets)[..., None], -1, axis).astype(g.dtype)
    each = -share(as_array(targets), reduction) * g
    return one_hot * (np.expand_dims(each, axis) if reduction == "none" else each)
