"""A mask, added to scores before softmax: who may attend to whom."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, DTypeError
from ..engine.op import op
from .arithmetic import broadcastable
from .samples import each, of_shapes

__all__ = ["mask_add"]


def check_mask(mask: Any) -> None:
    """Raise an error that names the remedy unless this is a mask: booleans, or floats to add."""
    if mask.dtype.kind not in "bfc":
        raise DTypeError(
            f"a mask is boolean (True = may attend) or floats to add, got {mask.dtype}"
        )
    if mask.dtype.kind != "f":
        return
    largest = np.maximum.reduce(mask, axis=None, initial=-np.inf)
    if largest <= 0:  # as it is for all but a few masks
        return
    if not largest < np.inf:  # of NaN and anything, NumPy makes NaN
        raise ArgumentError("mask holds NaN or +inf, use 0 and -inf (0 * -inf, for one, is NaN)")
    if np.all((mask == 0) | (mask == 1) | np.isneginf(mask)):
        raise ArgumentError(
            "a float mask is added, so 0 and 1 hide nothing; "
            "use a boolean mask (mask == 1), or 0 and -inf"
        )


@op(
    tex="<scores> + <mask>",
    vjp_tex={"scores": "<g>", "mask": "<g>"},
    flops=each(1),
    samples=of_shapes(
        ([2, 3, 5, 5], np.tri(5, dtype=bool)),
        ([2, 3, 5, 5], [5, 5]),
        ([2, 3, 5, 5], [2, 1, 1, 5]),
        ([0, 5], np.ones(5, bool)),
    ),
    requires=broadcastable,
)
def mask_add(scores, mask):
    """Adds a mask to scores before softmax: y = scores + mask.

    Args: mask: boolean (True = may attend) or floats to add (0 / -inf), broadcast against the
        scores.
    Raises: DTypeError for an integer mask, which could mean either; ArgumentError if it holds NaN
        or +inf, or, beside -inf, floats that are all 0 or 1, which were meant as booleans.

    >>> mask_add(np.array([1.0, 2.0]), np.array([True, False]))
    array([  1., -inf])
    """
    mask = mask if hasattr(mask, "dtype") else np.asarray(mask)
    if mask.dtype == np.bool_:
        return np.where(mask, scores, -np.inf)
    check_mask(mask)
    narrow = getattr(scores, "dtype", mask.dtype)
    if mask.dtype != narrow and mask.dtype.kind == narrow.kind == "f":
        with np.errstate(over="ignore"):  # -1e9 is -inf to float16, and means it
            mask = mask.astype(narrow)  # a wider mask would make wider scores
    return scores + mask


@mask_add.vjp("scores")
@mask_add.vjp("mask")
def _(g):
    """The gradient passes unchanged to the scores and to the mask."""
    return g
