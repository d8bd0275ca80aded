"""Beyond one process: collectives as ops, over MPI.

    mpiexec -n 2 python -m mpi4py script.py     # pip install "minigrad[mpi]"

Every rank runs the same program on its own part. A collective is an op like any other: it stands in
the graph with its formula and its rule. All ranks make the same collectives in the same order,
backward too. Where two differ, each rank raises a RankError; a rank that raises ends all of them.

What an op takes and gives is the same on every rank (alike), or each rank's own (apart). A loss
that is alike counts once, losses that are apart are added up:

    op                        takes, gives          its rule           in Megatron-LM
    all_reduce                apart → alike         copy_to_ranks      g
    copy_to_ranks             alike → apart         all_reduce         f
    all_gather                parts → whole, alike  split_to_ranks
    split_to_ranks            whole, alike → parts  all_gather
    all_gather(apart=True)    parts → whole, apart  reduce_scatter
    reduce_scatter            whole, apart → parts  all_gather(apart=True)
    broadcast                 root's → apart        reduce
    reduce                    apart → root's        broadcast
"""

from .collectives import *
from .ranks import *
