"""A process beside the ranks, which outlives them and names the first that is gone without a word.

Each rank holds a line to it, which breaks when the rank is gone: mpiexec then kills the others
before they could say anything, and knows no ranks. A rank that is left alive is killed from here,
all are where nothing has travelled for a minute, and what MPI left in shared memory is removed.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .board import Board, wait_limit

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["watch"]

ABORT_SECONDS = 3.0  # seconds that mpiexec has to end the others
MPICH_FILES = "/dev/shm/mpich"  # where MPICH makes files of shared memory
NOTE_NAME = "minigrad-ranks"


def watch(board: Board, comm: Intracomm) -> socket.socket | None:
    """Start it on rank 0; returns this rank's line to it. Only Linux has what it needs."""
    if not hasattr(os, "pidfd_open"):
        return None
    ear, line = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    if comm.rank == 0:
        ear.bind("")  # to a name that the system chooses
        ear.listen(comm.size)
    name = comm.bcast(ear.getsockname())
    with warnings.catch_warnings():  # of threads: the child uses none
        warnings.simplefilter("ignore", DeprecationWarning)
        if comm.rank == 0 and os.fork() == 0:
            _live(board, ear)
    ear.close()
    line.connect(name)
    line.sendall(f"{comm.rank} {os.getpid()}\n".encode())
    os.register_at_fork(after_in_child=line.close)
    return line


def _live(board: Board, ear: socket.socket) -> None:
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        ear = socket.socket(fileno=os.dup2(ear.fileno(), 3))
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))  # what mpiexec waits for
        _outlive(board, ear)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _outlive(board: Board, ear: socket.socket) -> None:
    """Print which rank is gone or stuck, and where it was; then end the others.

    Nothing is printed once every rank has ended, or one has failed and printed why.
    """
    made = SharedFiles()
    made.find([os.getpid()])  # forked from a rank, it has mapped what ranks share
    broken = select.epoll()  # which keeps the order of what happens
    lines: dict[int, tuple[socket.socket, int, int]] = {}
    ear.settimeout(5)  # for one that is gone before it connects
    for _ in board.ranks:
        line = ear.accept()[0]
        rank, pid = map(int, line.makefile().readline().split())
        lines[line.fileno()] = line, rank, pid
        broken.register(line, select.EPOLLRDHUP)
    ear.close()  # all are connected
    pids = [pid for _, _, pid in lines.values()]
    processes = []
    for pid in pids:
        with suppress(ProcessLookupError):  # gone already: its line says so
            processes.append(os.pidfd_open(pid))
    limit, looks = wait_limit(), 0
    words: str | None = ""
    while lines and words == "":
        if looks < 5 or looks % 10 == 0:  # MPI makes them at its start, and for parts of the ranks
            made.find(pids)
        looks += 1
        found = broken.poll(1.0, maxevents=1)
        if not found:
            words = board.stuck(limit)
            continue
        [(file, _)] = found
        line, rank, pid = lines.pop(file)
        line.close()
        words = board.last_words(rank)
        if words:
            words = f"rank {rank} (process {pid}) is gone: killed, or left by os._exit; {words}\n"
    if words:
        os.write(2, words.encode())
    if words != "":
        made.find(pids)
        os.dup2(1, 2)
        _end(processes)
    for line, _, _ in lines.values():
        line.close()
    broken.close()
    made.remove()


def _end(processes: list[int]) -> None:
    """Wait until all have ended, some seconds at the most, and kill those that have not."""
    until = time.monotonic() + ABORT_SECONDS
    while time.monotonic() < until and len(select.select(processes, [], [], 0)[0]) < len(processes):
        time.sleep(0.05)
    for process in processes:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    select.select(processes, [], [], 1.0)


class SharedFiles:
    """The files of shared memory that MPI made for this run, which a killed run leaves behind.

    They are noted in a file, so that the next run removes them where nobody was left to.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.note = Path(tempfile.gettempdir()) / f"{NOTE_NAME}-{os.getuid()}-{os.getpid()}"
        for old in self.note.parent.glob(f"{NOTE_NAME}-{os.getuid()}-*"):
            if not Path(f"/proc/{old.name.rpartition('-')[2]}").exists():
                with suppress(FileNotFoundError):  # another run has just done it
                    self._unlink(old.read_text(encoding="utf-8").splitlines())
                    old.unlink()

    def find(self, pids: list[int]) -> None:
        """Note what these processes have mapped."""
        known = len(self.paths)
        for pid in pids:
            with suppress(OSError):  # it has ended
                maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
                words = (line.split() for line in maps.splitlines())
                self.paths |= {w[5] for w in words if len(w) == 6 and w[5].startswith(MPICH_FILES)}
        if len(self.paths) > known:
            self.note.write_text("\n".join(sorted(self.paths)), encoding="utf-8")

    def remove(self) -> None:
        """The run has ended."""
        self._unlink(self.paths)
        self.note.unlink(missing_ok=True)

    @staticmethod
    def _unlink(paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(OSError):
                if path.startswith(MPICH_FILES) and os.stat(path).st_uid == os.getuid():
                    os.unlink(path)
