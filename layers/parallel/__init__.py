"""Layers and training on many ranks: each holds a part, and collectives join them.

    from layers.parallel import shard, gather     # mpiexec -n 2 python -m mpi4py script.py

split_layers  attention by heads, feed-forward by hidden entries, embedding and loss by tokens
ring          attention to a sequence that is spread over ranks
training      data parallel, gradients clipped, the optimizer's state split, checkpoints
cost          on paper: a step's time on p ranks
shard         an ordinary model as this rank's part of it, and back
"""

from .ring import RingAttention, ring_attention, ring_rows
from .shard import Whole, gather, shard
from .split_layers import (
    ColumnLinear,
    Parallel,
    PartDropout,
    RowLinear,
    SplitEmbedding,
    split_cross_entropy,
)
from .training import DataParallel, ShardedOptimizer, clip_grad_norm, grid, save

__all__ = [
    "ColumnLinear",
    "DataParallel",
    "Parallel",
    "PartDropout",
    "RingAttention",
    "RowLinear",
    "ShardedOptimizer",
    "SplitEmbedding",
    "Whole",
    "clip_grad_norm",
    "gather",
    "grid",
    "ring_attention",
    "ring_rows",
    "save",
    "shard",
    "split_cross_entropy",
]
