"""The steps of attention that are no one else's: scaling and masking."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Call, as_array, call, cast_back, floating, op
from .arithmetic import broadcastable
from .functions import elementwise
from .masks import check_mask
from .samples import each

__all__ = ["mask_add", "scale"]


def _scale_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (2, 3, 5)), 0.5)
    yield call(np.asarray(1.5), 3)
    yield call(np.zeros((0, 3)), 0.5)


@elementwise(r"<factor>\, <x>", r"<factor>\, <g>", 1, samples=_scale_samples)
def scale(x, factor):
    """Multiplies every entry by one number: y = factor · x, as attention's scores by 1/√d_k.

    Raises: ArgumentError unless the factor is one number.

    >>> scale(np.array([2.0, 4.0]), 0.5)
    array([1., 2.])
    """
    if factor.__class__ is not float and np.ndim(factor) != 0:
        raise ArgumentError(f"factor must be one number, got shape {np.shape(factor)}")
    return np.multiply(x, float(factor))


@scale.vjp("x")
def _(g, factor):
    """The gradient is multiplied by the same number."""
    return g * float(factor)


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
    """Adds a mask to scores before softmax: y = scores + mask.

    Args: mask: boolean (True = may attend) or floats to add (0 / -inf), broadcast against the
        scores.
    Raises: DTypeError for an integer mask, which could mean either; ArgumentError if it holds NaN
        or +inf, or floats that are all 0 or 1, which were meant as booleans.

    >>> mask_add(np.array([1.0, 2.0]), np.array([True, False]))
    array([  1., -inf])
    """
    scores, mask = floating(scores), as_array(mask)
    check_mask(mask)
    total = scores + in_dtype_of(scores, mask)
    return total if mask.dtype.kind == "c" else cast_back(total, scores)


def in_dtype_of(scores, mask):
    """What is added to the scores, in their dtype: a wider mask would make wider scores."""
    dtype = np.real(scores).dtype if scores.dtype.kind == "c" else scores.dtype
    if mask.dtype.kind == "b":
        return np.where(mask, *np.array([0, -np.inf], dtype))
    if mask.dtype.kind != "f" or mask.dtype == dtype:
        return mask
    with np.errstate(over="ignore"):  # -1e9 is -inf to float16, and means it
        return mask.astype(dtype)


@mask_add.vjp("scores")
@mask_add.vjp("mask")
def _(g):
    """The gradient passes unchanged to the scores and to the mask."""
    return g
