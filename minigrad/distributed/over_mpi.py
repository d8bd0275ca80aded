"""Ranks over MPI, by mpi4py: buffers are sent without a copy."""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..engine.errors import MissingDependencyError, RankError
from ..engine.types import Array
from .beside import watch
from .board import PAGE, Board, wait_limit, waiting
from .ranks import Ranks

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["MPIRanks", "world_of_mpi"]

T = TypeVar("T")

STARTED_BY = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")  # set by mpiexec


def world_of_mpi() -> Ranks | None:
    """All ranks, where mpiexec started this program; None where it did not."""
    started = max(int(os.environ.get(name, "0")) for name in STARTED_BY)
    if not started and "mpi4py" not in sys.modules:
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise MissingDependencyError(
            'several ranks need mpi4py and an MPI: pip install "minigrad[mpi]"'
        ) from error
    if started > 1 and MPI.COMM_WORLD.size == 1:
        raise RankError(
            f"mpiexec started {started} processes, but each sees one rank: this mpiexec belongs to "
            f"another MPI than mpi4py, which has {MPI.Get_library_version().splitlines()[0]!r}; "
            "run the mpiexec beside this Python"
        )
    if MPI.COMM_WORLD.size == 1:
        return None
    ranks = MPIRanks(MPI.COMM_WORLD)
    ranks.end_all_on_error()
    return ranks


class MPIRanks(Ranks):
    """One process's view of a communicator.

    Where its ranks share a machine they agree by a board in shared memory; else each sends a page
    to all, which does not show whether a rank is gone.
    """

    def __init__(
        self, comm: Intracomm, world: Board | None = None, shared: bool | None = None
    ) -> None:
        from mpi4py import MPI

        self.mpi = MPI
        self.comm = comm
        self.rank = comm.rank
        self.size = comm.size
        self.board: Board | None = None
        self._doing = ""  # without a board: the collective that was agreed on last
        whole = MPI.COMM_WORLD.group
        ranks = list(comm.group.Translate_ranks(None, whole))
        if world is None:  # without a board of all ranks they are numbered within the group
            ranks = [*range(comm.size)]
        if shared is None:
            near = comm.Split_type(MPI.COMM_TYPE_SHARED)
            shared = comm.allreduce(near.size == comm.size, MPI.LAND)
            near.Free()
        if shared:
            size = PAGE.itemsize * self.size * (self.rank == 0)
            self.window = MPI.Win.Allocate_shared(size, 1, comm=comm)
            self.window.Lock_all()
            pages = np.asarray(self.window.Shared_query(0)[0], np.uint8).view(PAGE)
            self.board = Board(pages, self.rank, ranks, world, self.window.Sync)
            pages[self.rank] = np.zeros((), PAGE)
            comm.Barrier()

    def _run(self, name: str, *arguments: Any) -> None:
        """A collective of MPI. It has an end: with a board, the process beside the ranks looks."""
        if self.board:
            with self.board.sending():
                getattr(self.comm, name.capitalize())(*arguments)
        else:
            request = getattr(self.comm, f"I{name}")(*arguments)
            self._wait(request.Test, name)

    def _wait(self, is_done: Callable[[], bool], name: str) -> None:
        """Until a request is done. Raises: RankError after the limit."""
        limit = wait_limit()
        for waited in waiting(is_done):
            if waited > limit:
                raise RankError(
                    f"rank {self.rank} waits in {self._doing or name}, of {self.size} ranks on "
                    f"several machines; nothing of the others for {limit:g} s (MINIGRAD_WAIT): one "
                    "is gone, stopped or does something else"
                )

    def end_all_on_error(self) -> None:
        """An error on this rank ends all of them, with its reason; so does `os._exit`, never 0."""
        before, world = sys.excepthook, self.mpi.COMM_WORLD
        leave, process = os._exit, os.getpid()
        os._exit = lambda status: leave(status or int(os.getpid() == process))

        def ended(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            before(kind, error, trace)
            reason = f"{kind.__name__}: {error}".partition("\n")[0]
            said = f"rank {self.rank} of {self.size} ends all: {reason}"
            print(said, file=sys.stderr, flush=True)
            if self.board:
                self.board.end(reason)
            time.sleep(0.2)  # what was printed may still be on its way to mpiexec
            world.Abort(1)

        sys.excepthook = ended
        if self.board:
            atexit.register(self.board.end)
            self.line = watch(self.board, self.comm)

    def agree(self, text: str, place: str) -> None:
        if self.board:
            self.board.agree(text, place)
            return
        self._doing = f"{text} at {place}"
        own = np.array(f"{text}\n    at {place}".encode(), "S1024")
        pages = [page.decode(errors="replace") for page in self.all_gather(own).tolist()]
        if len({page.partition("\n")[0] for page in pages}) > 1:
            lines = [f"rank {rank}: {page}" for rank, page in enumerate(pages)]
            raise RankError("\n  ".join(["ranks disagree on a collective:", *lines]))

    def all_reduce(self, x: Array) -> Array:
        wide = _summable(x)
        out = np.empty_like(wide)
        self._run("allreduce", wide, out)
        return out.astype(x.dtype, copy=False)

    def all_gather(self, x: Array) -> Array:
        out = np.empty((self.size, *x.shape), x.dtype)
        self._run("allgather", _bytes(x), _bytes(out))
        return out

    def reduce_scatter(self, x: Array) -> Array:
        wide = _summable(x)
        out = np.empty(x.shape[1:], wide.dtype)
        self._run("reduce_scatter_block", wide, out)
        return out.astype(x.dtype, copy=False)

    def broadcast(self, x: Array, root: int) -> Array:
        out = x.copy() if self.rank == root else np.empty_like(x)
        self._run("bcast", _bytes(out), root)
        return out

    def shift(self, x: Array, by: int) -> Array:
        out = np.empty_like(x)
        to, source = (self.rank + by) % self.size, (self.rank - by) % self.size
        if self.board:
            with self.board.sending():
                self.comm.Sendrecv(_bytes(x), to, 0, _bytes(out), source, 0)
        else:
            requests = self.comm.Isend(_bytes(x), to), self.comm.Irecv(_bytes(out), source)
            self._wait(lambda: self.mpi.Request.Testall(requests), "ring_shift")
        return out

    def collect(self, value: T) -> list[T]:
        self.agree("collect", "what every rank says of itself")
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        lengths = self.all_gather(np.array([own.size]))[:, 0]
        rows = self.all_gather(np.pad(own, (0, int(lengths.max()) - own.size)))
        return [pickle.loads(row[:n].tobytes()) for row, n in zip(rows, lengths, strict=True)]

    def split(self, color: int) -> Ranks:
        self.agree("split", "")
        world = self.board.world if self.board else None
        with self.board.sending() if self.board else nullcontext():
            part: Any = self.comm.Split(color, self.rank)
        return MPIRanks(part, world)


def _bytes(x: Array) -> Array:
    """An array's memory as bytes: MPI, which only moves them, need not know the dtype."""
    return x.reshape(-1).view(np.uint8)


def _summable(x: Array) -> Array:
    """An array of a dtype that MPI can add: of float16 in float32, of booleans in integers."""
    wide = {"e": np.float32, "?": np.int32}.get(x.dtype.char)
    return x if wide is None else x.astype(wide)
