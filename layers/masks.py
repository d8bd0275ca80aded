"""Masks to choose from: who may attend to whom, as a rule of positions or as an array.

A rule serves whole sequences, steps after a cache, and attention in tiles alike. What attention
does with a mask, masking.py says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, ShapeError

from .basic import Seed, check_sizes, generator
from .masking import MaskRule, Positions, entries

__all__ = [
    "causal",
    "combined_mask",
    "create_causal_mask",
    "global_tokens",
    "padding_mask",
    "random_tokens",
    "window",
]


def _not_later(i: Positions, j: Positions) -> Any:
    return j <= i


def _near(i: Positions, j: Positions, size: int, dilation: int) -> Any:
    return (abs(i - j) < size * dilation) & ((i - j) % dilation == 0)


def _of_tokens(i: Positions, j: Positions, *tokens: int) -> Any:
    return np.isin(i, tokens) | np.isin(j, tokens)


def _listed(i: Positions, j: Positions, n: int, table: bytes) -> Any:
    return np.frombuffer(table, np.bool_).reshape(n, n)[i, j]


# Each query sees its own key and those before.
causal = MaskRule(_not_later, "causal")


def window(size: int, dilation: int = 1) -> MaskRule:
    """Keys fewer than `size` tokens away, on both sides; or of each `dilation`-th token.

    Source: Beltagy et al. 2020, section 3.1, arXiv:2004.05150.

    >>> window(2)(2, np.arange(5)).astype(int)
    array([0, 1, 1, 1, 0])
    """
    check_sizes("window", size=size, dilation=dilation)
    return MaskRule(_near, f"window({size}, {dilation})", (size, dilation))


def global_tokens(*tokens: int) -> MaskRule:
    """Tokens that see all keys, and that all queries see: with `window(w) |`, Longformer's.

    Args: tokens: their positions, from 0.

    >>> global_tokens(0)(2, np.arange(3))
    array([ True, False, False])
    """
    if not tokens or not all(isinstance(at, int | np.integer) and at >= 0 for at in tokens):
        raise ArgumentError(f"global_tokens: give positions, integers from 0, got {tokens}")
    return MaskRule(_of_tokens, f"global_tokens{tokens}", tokens)


def random_tokens(seq_len: int, size: int, rng: Seed = None) -> MaskRule:
    """For each query `size` keys drawn at random: with window and global tokens, BigBird's.

    Source: Zaheer et al. 2020, section 2, arXiv:2007.14062.

    >>> rule = random_tokens(seq_len=7, size=2, rng=0)
    >>> int(rule(3, np.arange(7)).sum())
    2
    """
    check_sizes("random_tokens", seq_len=seq_len, size=size)
    order = generator(rng).random((seq_len, seq_len)).argsort(axis=-1)
    table = order.argsort(axis=-1) < size
    return MaskRule(_listed, f"random_tokens({seq_len}, {size})", (seq_len, table.tobytes()))


# ---------------------------------------------------------------- as arrays


def create_causal_mask(seq_len: int, dtype: DTypeLike = np.float64) -> NDArray[np.floating]:
    """The additive mask by which position i sees positions j ≤ i: 0 there, −inf for j > i.

    Shapes: → (seq_len, seq_len)

    >>> create_causal_mask(3)
    array([[  0., -inf, -inf],
           [  0.,   0., -inf],
           [  0.,   0.,   0.]])
    """
    check_sizes("create_causal_mask", seq_len=seq_len)
    return mg.mark_constant(_added("create_causal_mask", np.tri(seq_len, dtype=bool), dtype))


def padding_mask(
    lengths_or_real: ArrayLike, seq_len: int | None = None, dtype: DTypeLike = np.float64
) -> NDArray[np.floating]:
    """The additive mask that hides padding as keys: 0 at real tokens, −inf at padded ones.

    Args:   lengths_or_real: the lengths, integers (B,); or booleans (B, n), True at a real token.
            seq_len: n, for lengths; the longest one unless given.
    Shapes: → (B, 1, n)
    Raises: ShapeError for another array, ArgumentError for lengths that are not 0 to n.

    >>> padding_mask([1, 3])
    array([[[  0., -inf, -inf]],
           [[  0.,   0.,   0.]]])
    """
    real = np.asanyarray(lengths_or_real)
    if seq_len is not None:
        check_sizes("padding_mask", seq_len=seq_len)
    if real.dtype.kind in "iu" and real.ndim == 1:
        n = int(real.max(initial=0)) if seq_len is None else seq_len
        if real.min(initial=0) < 0 or real.max(initial=0) > n:
            raise ArgumentError(f"padding_mask(lengths): must be 0 to {n}, got {real.tolist()}")
        real = np.arange(n) < real[:, None]
    if real.dtype != np.bool_ or real.ndim != 2 or seq_len not in (None, real.shape[1]):
        raise ShapeError(
            f"padding_mask: must be lengths, integers (B,), or booleans (B, {seq_len or 'n'}), "
            f"True at real tokens, got {real.dtype} {real.shape}"
        )
    return _added("padding_mask", real[:, None, :], dtype)


def combined_mask(causal: ArrayLike | MaskRule, padding: ArrayLike) -> NDArray[np.floating]:
    """One additive mask from a causal one, or a rule, and a padding one: their sum.

    Shapes: causal (n, n), padding (B, n) or (B, 1, n) → (B, n, n)
    Raises: ShapeError if they do not fit together, or may be in the wrong order: both (n, n), and
        the first hides a query's own key or shows a later one. DTypeError or ArgumentError for what
        is no mask.

    >>> combined_mask(causal, np.array([[True, True], [True, False]]))
    array([[[  0., -inf],
            [  0.,   0.]],
           [[  0., -inf],
            [  0., -inf]]])
    """
    keys = np.asanyarray(padding)
    i = np.arange(np.shape(keys)[-1] if keys.ndim else 0)
    square = len(i), len(i)
    pairs: Any = mg.mask_add(0.0, entries(causal, i, i))  # of booleans 0 and −inf
    if keys.ndim == 2:
        if pairs.shape == keys.shape and not isinstance(causal, MaskRule) and not _is_causal(pairs):
            raise ShapeError(
                f"combined_mask(causal, padding): both are {square}, and the first is not causal; "
                "give the causal one first, or padding_mask(real), which is (B, 1, n)"
            )
        keys = keys[:, None, :]  # (B, 1, n)
    if keys.ndim != 3 or keys.shape[1] != 1 or pairs.shape[-2:] != square:
        raise ShapeError(
            "combined_mask(causal, padding): causal must be (n, n), padding (B, n) or (B, 1, n), "
            f"got\n  causal: {pairs.shape}\n  padding: {np.shape(padding)}"
        )
    return np.asarray(pairs + mg.mask_add(0.0, keys))


def _is_causal(pairs: NDArray[Any]) -> bool:
    """Whether each query sees its own key, and none that is later."""
    own = np.eye(len(pairs), dtype=bool)
    later = ~np.tri(len(pairs), dtype=bool)
    return not np.isneginf(pairs[own]).any() and np.isneginf(pairs[later]).all()


def _added(call: str, seen: NDArray[np.bool_], dtype: DTypeLike) -> NDArray[np.floating]:
    """0 where a key is seen, −inf elsewhere. Raises: DTypeError for a dtype that has no −inf."""
    if np.dtype(dtype).kind != "f":
        raise DTypeError(f"{call}: dtype must be one of floats, for −inf, got {np.dtype(dtype)}")
    return np.where(seen, 0.0, -np.inf).astype(dtype, copy=False)
