"""What a mask means: who may attend to whom. All functions that take a mask check it here.

A mask is boolean (True = may attend) or floats to add to the scores (0 / -inf). Two mistakes are
found by its entries: a square mask of each sequence's keys in the place of one of queries and keys,
and one in which True means blocked.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import ArgumentError, DTypeError, MaskWarning, ShapeError
from ..engine.op import Call, call, op
from ..engine.tensor import Operand, Tensor, TensorOrArray
from ..engine.writes import writes
from .arithmetic import broadcastable
from .dtypes import as_array, cast_back, floating
from .samples import each

__all__ = ["mask_add"]

BLOCKED = -746.0  # from here down, exp(M) is 0 in float64 too
SMALL = 1 << 12  # so many entries of a mask are read anew at each call
# Large masks without an entry above 0, by the id of the array that owns their memory.
_hiding: dict[int, tuple[object, object]] = {}
_warned: dict[Any, int] = {}  # where a warning was given, so that each line gives it once


def check_mask(mask: TensorOrArray) -> None:
    """Raise an error that names the remedy unless this is a mask: booleans, or floats to add."""
    if mask.dtype.kind not in "bfc":
        raise DTypeError(
            f"a mask is boolean (True = may attend) or floats to add, got {mask.dtype}"
        )
    if mask.dtype.kind != "f":
        return
    guard = getattr(mask, "guard", None)  # compile's arrays record the question for later calls
    if hides_only(mask) if guard is None else guard(hides_only):
        return  # as it is for all but a few masks
    if not np.max(mask) < np.inf:  # of NaN and anything, NumPy makes NaN
        raise ArgumentError("mask holds NaN or +inf, use 0 and -inf (0 * -inf, for one, is NaN)")
    if np.all((mask == 0) | (mask == 1)):
        raise ArgumentError(
            "a float mask is added, so 0 and 1 hide nothing; "
            "use a boolean mask (mask == 1), or 0 and -inf"
        )


def hides_only(mask: TensorOrArray) -> bool:
    """Whether no entry is above 0. A large array is read once, until `assign_` writes to it.

    >>> hides_only(np.array([0.0, -np.inf])), hides_only(np.array([0.0, 1.0]))
    (True, False)
    """
    if mask.size <= SMALL or type(mask) is not np.ndarray:
        return bool(np.maximum.reduce(mask, axis=None, initial=-np.inf) <= 0)
    owner = writes.owner(mask)
    key, place = id(owner), mask.__array_interface__["data"][0]
    part = place, mask.shape, mask.strides, writes.when(mask)
    known = _hiding.get(key)
    if known is not None and known[1] == part:
        return True
    holds = bool(np.maximum.reduce(mask, axis=None, initial=-np.inf) <= 0)
    if holds:
        gone = weakref.ref(owner, lambda _: _hiding.pop(key, None))
        _hiding[key] = gone, part
    return holds


def check_meaning(call: str, mask: Operand | None, lead: tuple[int, ...], n: int, m: int) -> None:
    """Refuse a mask (n, m) that could be (B, m), and warn of one in which True means blocked.

    Args:   lead: the axes of the queries before (n, d_k), of which the first is the batch.
    Raises: ShapeError where there are as many sequences as queries, unless `is_of_pairs`.
    Warns:  MaskWarning for a mask by which no query sees its own key, as one of PyTorch's
            convention (True = blocked) has it: once for each line that calls.
    """
    entries = _entries(mask)
    if entries is None or entries.shape[-2:] != (n, m):
        return
    if entries.ndim == 2 and lead and lead[0] == n > 1 and not is_of_pairs(entries):
        raise ShapeError(
            f"{call}: mask {entries.shape} may be one of each sequence's keys, (B, m), or one of "
            f"queries and keys, (n, m), for there are {n} sequences of {n} queries; "
            "pass padding_mask(mask) for the first, mask[None] for the second"
        )
    if n != m or n < 2:
        return
    first = entries.item(0)  # the first query's own key, which most masks leave open
    if not (first if first.__class__ is bool else first > BLOCKED) and _blocks_itself(entries):
        frame = _users_frame()
        warnings.warn_explicit(
            f"by the mask {entries.shape} no query sees its own key; True means may attend here "
            "(and floats are added: 0 or -inf), so pass ~mask if True meant blocked",
            MaskWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            registry=_warned,
        )


def is_of_pairs(mask: NDArray[Any]) -> bool:
    """Whether a mask (n, m) for n sequences must be one of queries and keys, not of padding.

    It is if all rows are equal, for then both mean the same; if floats between 0 and -inf are
    added; or if every query sees its own key and either no later one, or keys with a gap before and
    behind them, for padding is at one end.

    >>> is_of_pairs(np.tri(3, dtype=bool)), is_of_pairs(np.tri(3, dtype=bool)[::-1])
    (True, False)
    """
    if mask.dtype.kind == "f" and ((mask < 0) & (mask > BLOCKED)).any():
        return True
    seen = _is_open(mask)
    if (seen == seen[:1]).all():
        return True
    if seen.shape[0] != seen.shape[1] or not seen.diagonal().all():
        return False
    closed_at_the_end = (seen[:, 1:] <= seen[:, :-1]).all()
    closed_at_the_start = (seen[:, 1:] >= seen[:, :-1]).all()
    return not np.triu(seen, 1).any() or not (closed_at_the_end or closed_at_the_start)


def _users_frame() -> FrameType:
    """The frame that called a layer or an op."""
    frame = sys._getframe(2)
    while (frame.f_globals.get("__package__") or "").split(".")[0] in ("minigrad", "layers"):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return frame


def _entries(mask: Operand | None) -> NDArray[Any] | None:
    """The entries of an array or a Tensor, read without notifying listeners; else None."""
    array = mask._data if isinstance(mask, Tensor) else mask
    if array.__class__ is np.ndarray:
        return array
    array = np.asarray(array) if isinstance(array, list | tuple) else array
    return np.ndarray.view(array, np.ndarray) if isinstance(array, np.ndarray) else None


def _is_open(entries: NDArray[Any]) -> NDArray[np.bool_]:
    return entries if entries.dtype == np.bool_ else entries > BLOCKED


def _blocks_itself(mask: NDArray[Any]) -> bool:
    """Whether no query sees its own key, though keys are seen."""
    seen = _is_open(mask)
    return not seen.diagonal(axis1=-2, axis2=-1).any() and bool(seen.any())


# ---------------------------------------------------------------- a mask is added to scores


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
