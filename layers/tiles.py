"""Attention in tiles, in the place of `attend`: the (n, m) scores are never whole."""

from __future__ import annotations

from functools import lru_cache, reduce
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad import mask_rules
from minigrad.errors import ArgumentError

from .masks import Mask, MaskRule, Positions, fit, joined

__all__ = ["in_tiles"]


def in_tiles(
    Q: Any, K: Any, V: Any, i: Positions, j: Positions, *masks: Mask | None, drop: Any = None
) -> tuple[Any, None, Any]:
    """softmax(Q Kᵀ / √d_k + M) V as one node, whose memory grows with n; there are no weights.

        MultiHeadAttention(d_model, n_heads, mask=causal, attend=in_tiles)

    A rule is evaluated tile by tile, at the tokens' positions; tiles in which no key is seen are
    skipped.

    Raises: ArgumentError with dropout, which needs the weights.
    Source: Dao et al. 2022, arXiv:2205.14135.
    """
    if drop is not None:
        raise ArgumentError("in_tiles: dropout needs the weights, which tiles never hold")
    in_order = all(at.ndim == 1 and (np.diff(at) == 1).all() for at in (i, j))
    rules = [mask for mask in masks if isinstance(mask, MaskRule) and in_order]
    M = joined(i, j, *[mask for mask in masks if not (isinstance(mask, MaskRule) and in_order)])
    if M is not None:
        M = fit(M, (*Q.shape[:-1], K.shape[-2]))
    rule = _of_blocks(reduce(and_, rules), i[0], j[0]) if rules else None
    O = mg.scaled_dot_product_attention(Q, K, V, M, rule=rule, method="tiled")
    return O.named("O"), None, M


class _Blocks(mask_rules.MaskRule):
    """A rule as the tiles ask for it, block by block."""

    relative = False

    def __init__(self, rule: MaskRule, i: int, j: int) -> None:
        self.rule = rule
        self.i, self.j = i, j  # the first positions
        self.known: dict[tuple[int, ...], Any] = {}

    def entries(self, rows: slice, keys: slice) -> NDArray[np.bool_]:
        i = self.i + np.arange(rows.start, rows.stop)
        j = self.j + np.arange(keys.start, keys.stop)
        return np.asarray(self.rule(i[:, None], j))

    def within(self, rows: slice, keys: slice) -> Any:
        block = rows.start, rows.stop, keys.start, keys.stop
        if block not in self.known:
            seen = self.entries(rows, keys)
            self.known[block] = bool(seen.all()) or (self if seen.any() else False)
        return self.known[block]


_of_blocks = lru_cache(_Blocks)  # equal rules must be the same one, for tiles keep their plan
