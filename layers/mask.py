"""Masks: who may attend to whom.

A mask is boolean (True = may attend) or additive floats (0 / −inf), and is applied to the scores
before softmax: there e^−inf = 0 removes a key, and what is left of the row still sums to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad import mask_rules, masks
from minigrad.errors import ArgumentError, DTypeError, ShapeError, explained

from .arrays import Array, Mask, SameArray
from .module import as_array

__all__ = ["combined_mask", "create_causal_mask", "padding_mask"]


@explained
def create_causal_mask(seq_len: int, dtype: DTypeLike = np.float64) -> NDArray[np.floating]:
    """The additive mask by which position i sees positions j ≤ i:  0 there, −inf for j > i.

    Shapes: → (seq_len, seq_len)

    Raises: DTypeError unless seq_len is an integer, ArgumentError if it is below 0.

    >>> create_causal_mask(3)
    array([[  0., -inf, -inf],
           [  0.,   0., -inf],
           [  0.,   0.,   0.]])
    """
    n = _as_length("create_causal_mask", seq_len)
    causal = _additive(np.tri(n, dtype=bool), np.dtype(dtype))
    mg.mark_constant(causal)  # the same at every call
    return causal


@explained
def padding_mask(
    lengths_or_real: ArrayLike, seq_len: int | None = None, dtype: DTypeLike = np.float64
) -> NDArray[np.floating]:
    """The additive mask that hides padding as keys:  0 at real tokens, −inf at padded ones.

    Args:
        lengths_or_real: the lengths, integers (B,); or boolean (B, n), True = a real token.
        seq_len: n, for lengths; the longest one unless given.
    Shapes: → (B, 1, n)
    Raises: ShapeError or DTypeError for another array, or a seq_len that is no integer;
        ArgumentError for a length outside 0..n.

    >>> padding_mask([1, 3])
    array([[[  0., -inf, -inf]],
           [[  0.,   0.,   0.]]])
    """
    array = np.asanyarray(lengths_or_real)
    seq_len = None if seq_len is None else _as_length("padding_mask", seq_len)
    if array.dtype == np.bool_:
        real = array
        if real.ndim != 2 or seq_len not in (None, real.shape[1]):
            n = "n" if seq_len is None else seq_len
            raise ShapeError(f"padding_mask(real): real must be (B, {n}), got {real.shape}")
    else:
        real = np.arange(_checked_length(array, seq_len)) < array[:, None]
    return _additive(real[:, None, :], np.dtype(dtype))


@explained
def combined_mask(causal: ArrayLike, padding: ArrayLike) -> NDArray[np.floating]:
    """One additive mask from a causal and a padding mask, each boolean or additive: their sum.

    Shapes:  causal (n, n) or (B, n, n), padding (B, n) or (B, 1, n) → (B, n, n)
    Raises:  ShapeError if they do not fit together, or seem to be exchanged; DTypeError for an
        integer mask.

    >>> combined_mask(create_causal_mask(2), np.array([[True, True], [True, False]]))
    array([[[  0., -inf],
            [  0.,   0.]],
           [[  0., -inf],
            [  0., -inf]]])
    """
    first, second = np.asanyarray(causal), np.asanyarray(padding)
    keys = second[:, None, :] if second.ndim == 2 else second  # (B, 1, n): the same for every query
    n = first.shape[-1] if first.ndim else 0
    batches = {*first.shape[:-2], *keys.shape[:-2]} - {1}
    fits = first.ndim in (2, 3) and first.shape[-2] == n and keys.ndim == 3 and len(batches) < 2
    if not fits or keys.shape[1:] not in ((1, n), (n, n)):
        raise ShapeError(
            "combined_mask(causal, padding): causal must be (n, n) or (B, n, n), padding (B, n) or "
            f"(B, 1, n)\n  causal: {first.shape}\n  padding: {second.shape}"
        )
    exchanged = first.ndim == second.ndim == 2 and masks.is_of_pairs(second)
    if exchanged and not masks.is_of_pairs(first):
        raise ShapeError(
            "combined_mask(causal, padding): the second mask is one of queries and keys and the "
            f"first one is not, both {first.shape}; exchange them: combined_mask(second, first)"
        )
    kinds = [mask.dtype for mask in (first, second) if mask.dtype != np.bool_]
    dtype = np.result_type(*kinds) if kinds else np.dtype(np.float64)
    return np.asanyarray(_additive(first, dtype) + _additive(keys, dtype), dtype)


def padded_rows(
    rows: Sequence[NDArray[np.integer]],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of tokens as one array, filled up with zeros behind each, and their lengths."""
    lengths = np.array([len(row) for row in rows])
    padded = np.zeros((len(rows), lengths.max()), np.intp)
    padded[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate(rows)
    return padded, lengths


@overload
def with_head_axis(mask: None) -> None: ...
@overload
def with_head_axis(mask: SameArray) -> SameArray: ...
def with_head_axis(mask: SameArray | None) -> SameArray | None:
    """(B, n, n) → (B, 1, n, n), the same for every head; other masks, and None, as they are."""
    return mg.expand_dims(mask, 1) if mask is not None and np.ndim(mask) == 3 else mask


def entries_of(mask: Mask, n: int, m: int) -> Array:
    """The entries of a mask for n queries and m keys: of a rule, an array, a Tensor or a list."""
    if isinstance(mask, mask_rules.MaskRule):
        return mg.mark_constant(mask.array(n, m))
    return as_array(mask)


def fit_mask(mask: Array, shape: tuple[int, ...], Q: Array | None = None) -> Array:
    """The mask, with an axis for the heads if the scores have one; it broadcasts to their shape.

    Raises: ShapeError if it does not, with the shapes and the path of Q's scores.
    """
    if mask.shape == shape[-2:]:
        return mask
    if len(shape) == 4:
        mask = with_head_axis(mask)
    while mask.ndim > len(shape) and mask.shape[0] == 1:
        mask = mask[0]
    pairs = zip(mask.shape[::-1], shape[::-1], strict=False)
    if mask.ndim > len(shape) or any(m not in (1, n) for m, n in pairs):
        of_keys = len(shape) > 2 and mask.shape == (shape[0], shape[-1])  # one row a sequence
        remedy = "; write padding_mask(real), True at real tokens" if of_keys else ""
        raise ShapeError(
            "scaled_dot_product_attention(Q, K, V, mask): mask must broadcast to the scores"
            f"{remedy}\n"
            + f"  scores: {shape}   {_path_of_scores(Q)}".rstrip()
            + f"\n  mask: {mask.shape}"
        )
    return mask


def _path_of_scores(Q: Array | None) -> str:
    """The path that the scores of these queries will have; empty if Q is an array."""
    scope, slash, _ = getattr(Q, "path", "").rpartition("/")
    return f"{scope}{slash}S" if isinstance(Q, mg.Tensor) else ""


def with_visible(mask: Array | None, seen: Array | None, recorded: bool = False) -> Array | None:
    """The mask, which also hides the keys where `seen` is False; either may be None.

    recorded: they are joined as Tensors, so that `mg.compile` records it.
    """
    if mask is None or seen is None:
        return seen if mask is None else mask
    if recorded and not isinstance(mask, mg.Tensor):
        mask = mg.tensor(mask)
    M = mg.where(seen, _boolean_or_float(mask), False if mask.dtype == np.bool_ else -np.inf)
    return M.named("M") if recorded else M


def _additive(mask: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """0 where a boolean mask allows and −inf where it forbids; an additive mask as it is."""
    if _boolean_or_float(mask).dtype == np.bool_:
        if dtype.kind not in "fc":
            raise DTypeError(f"a mask to add needs floats, for 0 and -inf, got dtype={dtype}")
        return np.where(mask, 0.0, -np.inf).astype(dtype, copy=False)
    return mask


def _boolean_or_float(mask: SameArray) -> SameArray:
    """The mask, which is boolean or floats. Raises: DTypeError if it is not."""
    if mask.dtype.kind not in "bfc":
        raise DTypeError(
            f"a mask is boolean (True = may attend) or floats to add, got {mask.dtype}"
        )
    return mask


def _as_length(call: str, seq_len: SupportsIndex) -> int:
    """seq_len, an integer of at least 0."""
    try:
        n = index(seq_len)
    except TypeError:
        raise DTypeError(f"{call}: seq_len must be an integer, got {seq_len!r}") from None
    if n < 0:
        raise ArgumentError(f"{call}: seq_len must be at least 0, got {n}")
    return n


def _checked_length(lengths: NDArray[np.integer], seq_len: int | None) -> int:
    """The longest of the lengths, or seq_len, after a check of both."""
    if lengths.ndim != 1:
        raise ShapeError(f"padding_mask(lengths): lengths must be (B,), got {lengths.shape}")
    if lengths.dtype.kind not in "iu" and lengths.size:
        raise DTypeError(f"padding_mask(lengths): lengths must be integers, got {lengths.dtype}")
    n = int(lengths.max(initial=0)) if seq_len is None else seq_len
    if lengths.size and (lengths.min() < 0 or lengths.max() > n):
        raise ArgumentError(
            f"padding_mask(lengths): lengths must be 0 to {n}, got {lengths.tolist()}"
        )
    return n
