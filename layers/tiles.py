"""Attention in tiles, in the place of `attend`: the (n, m) scores are never whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

import minigrad as mg
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

    >>> from layers import MultiHeadAttention, causal
    >>> layer = MultiHeadAttention(6, 3, mask=causal, attend=in_tiles, rng=0)
    >>> layer(np.zeros((1, 5, 6))).shape, layer.attention_weights
    ((1, 5, 6), None)
    """
    if drop is not None:
        raise ArgumentError("in_tiles: dropout needs the weights, which tiles never hold")
    in_order = all(at.ndim == 1 and (np.diff(at) == 1).all() for at in (i, j))
    rules = [mask for mask in masks if isinstance(mask, MaskRule) and in_order]
    M = joined(i, j, *[mask for mask in masks if not (isinstance(mask, MaskRule) and in_order)])
    if M is not None:
        M = fit(M, (*Q.shape[:-1], K.shape[-2]))
    rule = _From(reduce(and_, rules), int(i[0]), int(j[0])) if rules else None
    O = mg.tiled_attention(Q, K, V, M, rule)
    return O.named("O"), None, M


@dataclass(frozen=True)
class _From:
    """A rule for queries and keys of which the first ones are at positions i and j."""

    rule: MaskRule
    i: int
    j: int

    @property
    def tex(self) -> str:
        return self.rule.tex

    def __call__(self, i: Positions, j: Positions) -> Any:
        return self.rule(i + self.i, j + self.j)
