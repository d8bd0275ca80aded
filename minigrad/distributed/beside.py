"""A process beside the ranks, which outlives them and names the first that is gone without a word.

Each rank holds a line to it, which breaks when the rank is gone: mpiexec then kills the others
before they could say anything, and knows no ranks. A rank that is left alive is killed from here.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
import warnings
from contextlib import suppress
from typing import Any

from .board import Board

__all__ = ["watch"]

PATIENCE = 3.0  # seconds that mpiexec has to end the others


def watch(board: Board, comm: Any) -> Any:
    """Start it on rank 0; this rank's line to it. It needs Linux; elsewhere there is none."""
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
    finally:
        os._exit(0)


def _outlive(board: Board, ear: socket.socket) -> None:
    """Say which rank is gone, and its last words; then see that the others end.

    Nothing is said once every rank has ended, or one has failed and said why.
    """
    broken = select.epoll()  # which keeps the order of what happens
    lines: dict[int, tuple[socket.socket, int, int]] = {}
    ear.settimeout(5)  # for one that is gone before it connects
    for _ in board.ranks:
        line = ear.accept()[0]
        rank, pid = map(int, line.makefile().readline().split())
        lines[line.fileno()] = line, rank, pid
        broken.register(line, select.EPOLLRDHUP)
    processes = []
    for _, _, pid in lines.values():
        with suppress(ProcessLookupError):  # gone already: its line says so
            processes.append(os.pidfd_open(pid))
    words: str | None = ""
    while lines and words == "":
        [(file, _)] = broken.poll(maxevents=1)
        line, rank, pid = lines.pop(file)
        line.close()
        words = board.last_words(rank)
    if words:
        words = f"rank {rank} (process {pid}) is gone: killed, or left by os._exit; {words}\n"
        os.write(2, words.encode())
    if words != "":
        os.dup2(1, 2)
        time.sleep(PATIENCE)
        for process in processes:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
