"""The steps of attention that are no one else's: scaling and masking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from ..engine.errors import ArgumentError, DTypeError
from ..engine.op import Call, call, op
from ..fast.memory import FEW, out_buffer
from .elementwise import broadcastable, each
from .samples import arrayed, floating

__all__ = ["check_mask", "mask_add", "scale"]


def _scale_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (2, 3, 5)), 0.5)
    yield call(np.asarray(1.5), 3)
    yield call(np.zeros((0, 3)), 0.5)


@op(
    tex=r"<factor>\, <x>",
    vjp_tex={"x": r"<factor>\, <g>"},
    flops=each(1),
    samples=_scale_samples,
)
def scale(x, factor):
    """The array times one number, as scores are scaled by 1/√d_k: y = factor · x.

    Raises: ArgumentError unless the factor is one number.

    >>> scale(np.array([2.0, 4.0]), 0.5)
    array([1., 2.])
    """
    if factor.__class__ is not float and np.ndim(factor) != 0:
        raise ArgumentError(f"factor must be one number, got shape {np.shape(factor)}")
    factor = float(factor)
    return np.multiply(x, factor, out_buffer(x, factor))


@scale.vjp("x")
def _(g, factor):
    factor = float(factor)
    return np.multiply(g, factor, out_buffer(g, factor))


def _mask_samples(rng: np.random.Generator) -> Iterator[Call]:
    scores = rng.uniform(-2, 2, (2, 3, 5, 5))
    yield call(scores, np.tril(np.ones((5, 5), bool)))
    yield call(scores, rng.uniform(-1, 1, (5, 5)))
    yield call(scores, rng.uniform(-1, 1, (2, 1, 1, 5)))
    yield call(np.zeros((0, 5)), np.ones(5, bool))


@op(
    tex=r"<scores> + <mask>",
    vjp_tex={"scores": r"<g>", "mask": r"<g>"},
    flops=each(1),
    samples=_mask_samples,
    requires=broadcastable,
)
def mask_add(scores, mask):
    """Scores with a mask added, before softmax: y = scores + mask.

    Args: mask: boolean (True = may attend) or floats to add (0 / -inf), broadcast against the
        scores.
    Raises: DTypeError for an integer mask, which could mean either; ArgumentError if it holds NaN
        or +inf.

    >>> mask_add(np.array([1.0, 2.0]), np.array([True, False]))
    array([  1., -inf])
    """
    scores, mask = floating(scores), arrayed(mask)
    kind = mask.dtype.kind
    if kind not in "bfc":
        raise DTypeError(
            f"a mask is boolean (True = may attend) or floats to add, got {mask.dtype}"
        )
    check_mask(mask)
    if kind == "b":
        mask = np.where(mask, *np.array([0, -np.inf], np.real(scores).dtype))
    total = np.add(scores, mask, out_buffer(scores, mask))
    same = total.dtype is scores.dtype or kind == "c"
    return total if same else total.astype(scores.dtype, copy=False)


def check_mask(mask: Any) -> None:
    """Raise ArgumentError if the mask holds NaN or +inf."""
    if mask.dtype.kind != "f":
        return
    watched = mask.__class__ is not ndarray and hasattr(mask, "asked")  # by compile
    if not (mask.asked(is_mask) if watched else is_mask(mask)):
        raise ArgumentError("mask holds NaN or +inf, use 0 and -inf (0 * -inf, for one, is NaN)")


def is_mask(x: Any) -> bool:
    """Whether an array holds neither NaN nor +inf: of either, NumPy makes the largest."""
    if 0 < x.size <= FEW:
        return bool(x.item(x.argmax()) < np.inf)  # in a third of the time
    return bool(np.maximum.reduce(x, axis=None, initial=-np.inf) < np.inf)


@mask_add.vjp("scores")
def _(g):
    return g


@mask_add.vjp("mask")
def _(g):
    return g
