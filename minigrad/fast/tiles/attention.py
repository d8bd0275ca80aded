"""Attention in tiles, by both cores: for each block of queries, forward visits tiles of keys and
keeps the softmax's maximum and sum up to date (Milakov & Gimelshein 2018, arXiv:1805.02867).
Backward computes each tile's weights again from those two (Dao et al. 2022, arXiv:2205.14135), or
takes stored ones. mask_tiles.py finds the tiles, schedule.py divides them among threads, kernels.py
computes each. Few scores are left to the op's own kernel.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...engine.context import current
from ...ops.attention import leading, misfit, tiled_attention
from ..limits import LIMITS
from ..overlay import faster
from . import kernels
from .schedule import TileSchedule, on_threads

__all__: list[str] = []


def _has_many_scores(q: Any, k: Any, v: Any, mask: Any, rule: Any) -> bool:
    if misfit(q, k, v, mask) or np.result_type(q, k, v).char not in "fd":
        return False  # the op's own kernel says what does not fit
    scores = prod((*leading(q, k, v, mask), np.shape(q)[-2], np.shape(k)[-2]))
    return scores > LIMITS.one_tile_scores


@faster(
    tiled_attention,
    when=_has_many_scores,
    auxiliary=("schedule", "row_max", "row_sum", "weights"),
)
def in_tiles(q, k, v, mask=None, rule=None):
    schedule = TileSchedule(q, k, v, mask, rule)
    keep = LIMITS.weights_bytes if current().recording else 0  # of exp(S - rowmax), for backward
    out, *saved = on_threads(schedule, lambda threads: kernels.forward(schedule, threads, keep))
    return out.reshape(*schedule.shape, *out.shape[-2:]), schedule, *saved


@in_tiles.vjp("q", "k", "v")
def _(g, out, schedule, row_max, row_sum, weights, needed):
    g, out = (np.asarray(x).reshape(*schedule.lead, schedule.n, schedule.d_v) for x in (g, out))
    saved = kernels.Saved(out, row_max, row_sum, weights)
    return on_threads(schedule, lambda _: kernels.backward(schedule, g, saved, needed))
