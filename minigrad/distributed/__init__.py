"""Beyond one process: collectives as ops, over MPI or between threads.

    mpiexec -n 2 python -m mpi4py script.py     # pip install "minigrad[mpi]"

Every rank runs the same program on its own part. A collective is an op like any other: it stands in
the graph with its formula and its rule, and the bytes that it sends are counted. All ranks make the
same collectives in the same order, backward too; where they do not, each raises a RankError that
names ranks, calls and lines.

What an op takes and gives is the same on every rank (alike), or each rank's own (apart); a loss
that is alike counts once, losses that are apart are added up:

    op                takes, gives          its rule           in Megatron-LM
    all_reduce        apart → alike         copy_to_ranks      g
    copy_to_ranks     alike → apart         all_reduce         f
    all_gather        parts → whole, alike  split_to_ranks
    split_to_ranks    whole, alike → parts  all_gather
    all_gather_apart  parts → whole, apart  reduce_scatter
    reduce_scatter    whole, apart → parts  all_gather_apart
    broadcast         root's → apart        reduce
    reduce            apart → root's        broadcast
    ring_shift        apart → apart         ring_shift the other way

`run(2, function)` runs a function on ranks that are threads, where MPI is missing. A rank of which
nothing comes is given up after MINIGRAD_WAIT seconds (an environment variable; 60).
"""

from __future__ import annotations

from functools import cache

from .collectives import (
    Collective,
    all_gather,
    all_gather_apart,
    all_reduce,
    broadcast,
    copy_to_ranks,
    gather,
    reduce,
    reduce_scatter,
    ring_shift,
    scatter,
    split_to_ranks,
)
from .over_mpi import world_of_mpi
from .ranks import WORLD, Ranks
from .threads import ThreadGroup, ThreadRanks, run

__all__ = [
    "Collective",
    "Ranks",
    "all_gather",
    "all_gather_apart",
    "all_reduce",
    "broadcast",
    "copy_to_ranks",
    "gather",
    "reduce",
    "reduce_scatter",
    "ring_shift",
    "run",
    "scatter",
    "split_to_ranks",
    "world",
]


def world() -> Ranks:
    """All ranks of this program: those that mpiexec started, those of `run`, or one alone.

    >>> world().size
    1
    """
    return WORLD.get() or _of_process()


@cache
def _of_process() -> Ranks:
    return world_of_mpi() or ThreadRanks(ThreadGroup([0]), 0)
