"""Ranks: the processes that mpiexec started, and what they send each other."""

from __future__ import annotations

import os
import sys
import zlib
from functools import cache
from time import sleep
from traceback import format_exception
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.errors import MissingDependencyError, RankError
from ..engine.op import Array

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["Ranks", "world"]

STARTED_BY = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")  # set by mpiexec


class Ranks:
    """A group of p processes, seen by one of them: collectives on whole arrays in C order.

    Attributes: rank: which of them this is.  size: how many there are.
    """

    def __init__(self, comm: Intracomm | None = None) -> None:
        self.comm: Any = comm
        self.rank = 0 if comm is None else comm.rank
        self.size = 1 if comm is None else comm.size

    def agree(self, text: str) -> None:
        """Return once every rank is about to do this. Raises: RankError on all, unless they are."""
        if self.size > 1:
            own = np.array([zlib.crc32(text.encode())])
            every = np.empty(self.size, np.int64)
            self.comm.Allgather(own, every)
            if (every != own).any():
                texts = enumerate(self.comm.allgather(text))
                raise RankError(
                    "every rank must make the same collectives in the same order, backward too"
                    + "".join(f"\n  rank {rank}: {text}" for rank, text in texts)
                )

    def split(self, color: int) -> Ranks:
        """The group of those ranks that give this color, in the same order."""
        if self.comm is None:
            return self
        self.agree("split")
        return Ranks(self.comm.Split(color, self.rank))

    def all_reduce(self, x: Array) -> Array:
        """The sum over all ranks, the same bits on each."""
        if self.comm is None:
            return x.copy()
        wide = _summable(x)
        out = np.empty_like(wide)
        self.comm.Allreduce(wide, out)
        return out.astype(x.dtype, copy=False)

    def all_gather(self, x: Array) -> Array:
        """(p, *x.shape)"""
        if self.comm is None:
            return x[None].copy()
        out = np.empty((self.size, *x.shape), x.dtype)
        self.comm.Allgather(_bytes(x), _bytes(out))
        return out

    def reduce_scatter(self, x: Array) -> Array:
        """Of x (p, ...) the sum over ranks of part r, on rank r."""
        if self.comm is None:
            return x[0].copy()
        wide = _summable(x)
        out = np.empty(x.shape[1:], wide.dtype)
        self.comm.Reduce_scatter_block(wide, out)
        return out.astype(x.dtype, copy=False)

    def broadcast(self, x: Array, root: int) -> Array:
        """The root's array, on every rank."""
        out = x.copy()
        if self.comm is not None:
            self.comm.Bcast(_bytes(out), root)
        return out

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    def __deepcopy__(self, memo: dict[int, object]) -> Ranks:
        return self  # whoever copies a model stays in the same group


@cache
def world() -> Ranks:
    """All ranks of this program: those that mpiexec started, or one alone.

    >>> world()
    <rank 0 of 1>
    """
    started = max(int(os.environ.get(name, "0")) for name in STARTED_BY)
    if not started and "mpi4py" not in sys.modules:
        return Ranks()
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingDependencyError(
            'several ranks need mpi4py and an MPI: pip install "minigrad[mpi]"'
        ) from error
    if started > 1 and MPI.COMM_WORLD.size == 1:
        raise RankError(
            f"mpiexec started {started} processes, but each sees one rank: it belongs to another "
            "MPI than mpi4py; run the mpiexec beside this Python"
        )
    if MPI.COMM_WORLD.size == 1:
        return Ranks()
    _end_all_on_error(MPI.COMM_WORLD)
    return Ranks(MPI.COMM_WORLD)


def _end_all_on_error(comm: Intracomm) -> None:
    """An error that nothing catches on this rank ends all, which would wait for it for ever."""

    def ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stderr.write(f"rank {comm.rank} of {comm.size} ends all ranks:\n")
        sys.stderr.write("".join(format_exception(kind, error, trace)))
        sys.stderr.flush()
        sleep(0.2)  # what was printed may still be on its way to mpiexec
        comm.Abort(1)

    sys.excepthook = ended


def _bytes(x: Array) -> Array:
    """An array's memory as bytes: MPI, which only moves them, need not know the dtype."""
    return x.reshape(-1).view(np.uint8)


def _summable(x: Array) -> Array:
    """An array of a dtype that MPI can add: of float16 in float32, of booleans in integers."""
    wide = {"e": np.float32, "?": np.int32}.get(x.dtype.char)
    return x if wide is None else x.astype(wide)
