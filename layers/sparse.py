"""Sparse patterns of attention, as boolean masks (True = may attend).

Each leaves a query a bounded number of keys, so what is left grows with n, not n². They work with
every layer; with `method="tiled"` the tiles that a mask closes are not computed at all. All are
(n, n), and raise ArgumentError for a size below 1. Source: Beltagy et al. 2020, section 3.1,
arXiv:2004.05150, and for BigBird: Zaheer et al. 2020, section 2 and appendix D, arXiv:2007.14062.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigrad import mask_rules
from minigrad.errors import ArgumentError, DTypeError, OutOfRangeError, explained

from .initialisers import Seed, generator
from .linear import check_sizes
from .renamed import renamed

__all__ = ["big_bird_mask", "dilated_mask", "global_mask", "sliding_window_mask"]


@renamed("causal")
@explained
def sliding_window_mask(seq_len: int, window: int, is_causal: bool = False) -> NDArray[np.bool_]:
    """Keys fewer than `window` tokens away; if is_causal, the query's own and those before.

    >>> sliding_window_mask(4, 2, is_causal=True).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    return dilated_mask(seq_len, window, 1, is_causal)


@renamed("causal")
@explained
def dilated_mask(
    seq_len: int, window: int, dilation: int, is_causal: bool = False
) -> NDArray[np.bool_]:
    """A sliding window with gaps: every `dilation`-th key, `window` of them to a side, itself too.

    >>> dilated_mask(5, 2, 2, is_causal=True).astype(int)
    array([[1, 0, 0, 0, 0],
           [0, 1, 0, 0, 0],
           [1, 0, 1, 0, 0],
           [0, 1, 0, 1, 0],
           [0, 0, 1, 0, 1]])
    """
    check_sizes("dilated_mask", seq_len=seq_len, window=window, dilation=dilation)
    near: mask_rules.MaskRule = mask_rules.Window(window, dilation)
    return (near & mask_rules.Causal() if is_causal else near).array(seq_len, seq_len)


@renamed("causal")
@explained
def global_mask(
    seq_len: int, window: int, global_tokens: ArrayLike, is_causal: bool = False
) -> NDArray[np.bool_]:
    """A sliding window, and some tokens that see all and are seen by all (Longformer).

    Args: global_tokens: their positions, or one position.
    Raises: OutOfRangeError for a token that is none; DTypeError for what is no integer.

    >>> global_mask(4, 1, global_tokens=[0]).astype(int)
    array([[1, 1, 1, 1],
           [1, 1, 0, 0],
           [1, 0, 1, 0],
           [1, 0, 0, 1]])
    """
    tokens = np.ravel(global_tokens)
    if tokens.size and tokens.dtype.kind not in "iu":
        raise DTypeError(f"global_mask: global_tokens must be integers, got {tokens.dtype}")
    tokens = tokens.astype(np.intp)
    if tokens.size and (tokens.min() < -seq_len or tokens.max() >= seq_len):
        raise OutOfRangeError(
            f"global_mask: global_tokens must lie in [{-seq_len}, {seq_len}), got {tokens.tolist()}"
        )
    check_sizes("global_mask", seq_len=seq_len, window=window)
    seen = mask_rules.Window(window) | mask_rules.Global(tuple((tokens % seq_len).tolist()))
    return (seen & mask_rules.Causal() if is_causal else seen).array(seq_len, seq_len)


@explained
def big_bird_mask(
    seq_len: int, block: int, n_global: int = 1, n_random: int = 1, rng: Seed = None
) -> NDArray[np.bool_]:
    """Blocks that see their neighbours, a few blocks at random, and global ones (BigBird).

    Args:
        block: tokens in a block; the last may be shorter.
        n_global: blocks at the start that see all and are seen by all.
        n_random: further blocks that each block sees, drawn without repetition.
        rng: a Generator, a seed, or None for fresh entropy.

    >>> big_bird_mask(5, block=1, n_global=1, n_random=0).astype(int)
    array([[1, 1, 1, 1, 1],
           [1, 1, 1, 0, 0],
           [1, 1, 1, 1, 0],
           [1, 0, 1, 1, 1],
           [1, 0, 0, 1, 1]])
    """
    check_sizes("big_bird_mask", seq_len=seq_len, block=block)
    for name, count in (("n_global", n_global), ("n_random", n_random)):
        if count < 0:
            raise ArgumentError(f"big_bird_mask: {name} must be at least 0, got {count}")
    blocks = -(-seq_len // block)
    seen = sliding_window_mask(blocks, 2)
    seen[:n_global] = seen[:, :n_global] = True
    rng = generator(rng)
    for row in seen:
        others = np.flatnonzero(~row)
        row[rng.permutation(others)[:n_random]] = True
    return np.kron(seen, np.ones((block, block), dtype=bool))[:seq_len, :seq_len]
