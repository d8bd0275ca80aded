"""A few Python threads over single-threaded BLAS; NumPy lets them run at once while it computes.

What is changed for a call is put back after it, also when it fails, also when several threads call
at once.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextvars import copy_context
from functools import cache, partial
from math import prod
from queue import Empty, SimpleQueue
from threading import Lock, Thread, get_ident, local
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from ..engine.op import Array
from .limits import LIMITS

__all__ = ["Scratch", "in_slices", "is_inside", "one_threaded_blas", "run"]


# ---------------------------------------------------------------- BLAS on one thread


@cache
def _blas() -> Any:
    """The BLAS libraries that threadpoolctl finds loaded; None without it."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    found = ThreadpoolController().select(user_api="blas")
    return found if len(found) else None


def _take_control(blas: Any) -> None:
    """From 3.7 on, threadpoolctl lets one thread only change a limit and ignores all others."""
    for library in blas.lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


class _OneThreadedBlas:
    """Within, BLAS computes on the thread that calls it. Entering says how many threads it had.

    BLAS's setting is one for the process, so the first one in changes it and the last one out
    restores it. An exception that a signal raises anywhere in here (KeyboardInterrupt) leaves
    things as they were before, or as they are after: who is within is a list, and the setting
    follows from it.
    """

    def __init__(self) -> None:
        self._lock, self._threads = Lock(), 1
        self._within: list[int] = []  # the ids of the threads that are, once for each time
        self._before: list[tuple[Any, int]] = []  # each library, and how many threads it had

    def __enter__(self) -> int:
        times = self._times()
        try:
            with self._lock:
                self._within.append(get_ident())
                self._settle()
            return self._threads
        except BaseException:
            self._leave(times)
            raise

    def __exit__(self, *exception: object) -> None:
        times = None
        try:
            times = self._times() - 1
            self._leave(times)
        except BaseException:  # it may have come at any point of the above: once more
            self._leave(self._times() - 1 if times is None else times)
            raise

    def _times(self) -> int:
        """How many times this thread is within."""
        return self._within.count(get_ident())

    def _leave(self, times: int) -> None:
        """Let this thread be within no more than so many times."""
        with self._lock:
            if self._times() > times:
                self._within.remove(get_ident())
            self._settle()

    def _settle(self) -> None:
        """Limit BLAS if anybody is within, or restore it; it may be half done before."""
        if self._within and not self._before and (blas := _blas()) is not None:
            before = [(library, library.num_threads) for library in blas.lib_controllers]
            self._threads = max(threads for _, threads in before)
            self._before = before
            _take_control(blas)
            for library, _ in before:
                library.set_num_threads(1)
        elif self._before and not self._within:
            _take_control(_blas())
            for library, threads in self._before:
                library.set_num_threads(threads)
            _take_control(_blas())  # which no thread has now: whoever comes next takes it
            self._before = []

    def forget(self) -> None:
        """In a forked child: the threads that were within are not there to leave."""
        self._lock, self._within = Lock(), []
        self._settle()


one_threaded_blas = _OneThreadedBlas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_threaded_blas.forget)


# ---------------------------------------------------------------- memory that is used again


class Scratch:
    """Memory for the intermediate arrays of one thread at work, used again from item to item."""

    def __init__(self) -> None:
        self._memory: dict[Hashable, Array] = {}

    def array(self, name: Hashable, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array with arbitrary entries; the next one of this name takes its place."""
        size = prod(shape) * np.dtype(dtype).itemsize
        memory = self._memory.get(name)
        if memory is None or memory.nbytes < size:
            memory = self._memory[name] = np.empty((size,), np.uint8)
        return np.ndarray(shape, dtype, buffer=memory)


# ---------------------------------------------------------------- the threads

Item = TypeVar("Item")


def run(work: Callable[[Item, Scratch], object], items: Iterable[Item], threads: int) -> None:
    """Call `work(item, scratch)` for every item, in order, on so many threads with the caller's.

    The first exception stops the others after the item they are at, and is raised here.
    """
    waiting = deque(items)
    failures: list[BaseException] = []
    ends: list[Lock] = []

    def serve() -> None:
        outside, _here.inside = is_inside(), True
        try:
            scratch = Scratch()
            for item in _taken_from(waiting):
                if failures:
                    return
                work(item, scratch)
        except BaseException as error:
            failures.append(error)
        finally:
            _here.inside = outside

    try:
        _start(serve, min(threads, len(waiting)) - 1, ends)
        serve()
    except BaseException as error:  # a signal's
        failures.append(error)
    while ends:
        try:
            with ends[-1]:  # free once the helper is done
                pass
            ends.pop()
        except KeyboardInterrupt as error:
            failures.append(error)
    if failures:
        raise failures[0]


_here = local()


def is_inside() -> bool:
    """Whether this thread is at work for `run`, whose other threads have the other cores."""
    return getattr(_here, "inside", False)


def _taken_from(waiting: deque[Item]) -> Iterator[Item]:
    """The items that are left; a deque gives each to one thread only."""
    while True:
        try:
            item = waiting.popleft()
        except IndexError:
            return
        yield item


def _start(serve: Callable[[], None], count: int, ends: list[Lock]) -> None:
    """So many helpers at work in the caller's context (np.errstate, say), or as many as there can
    be; for each, one more end: a lock that it releases when it is done.
    """
    for _ in range(count):
        end = Lock()
        end.acquire()
        job = partial(copy_context().run, serve)
        try:
            _helper().jobs.put((job, end))
        except RuntimeError:  # no more threads, or the interpreter is ending
            break
        ends.append(end)


def _helper() -> _Helper:
    """One that waits, or a new one."""
    try:
        return _free.pop()
    except IndexError:
        return _Helper()


class _Helper(Thread):
    """A thread that does one job after another, and ends when none has come for a while.

    To wake one takes a third of the time that starting one does.
    """

    PATIENCE = 0.05  # seconds; one that slept longer tends to wake on the core of its caller

    def __init__(self) -> None:
        super().__init__(name="minigrad", daemon=True)
        self.jobs: SimpleQueue[tuple[Callable[[], object], Lock]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            try:
                job, end = self.jobs.get(timeout=self.PATIENCE)
            except Empty:
                try:
                    _free.remove(self)
                except ValueError:  # someone has just taken it: a job will come
                    continue
                return
            job()
            del job  # which holds the arrays that it worked on
            _free.append(self)
            end.release()
            del end


_free: deque[_Helper] = deque()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free.clear)


def in_slices(work: Callable[[slice], object], length: int, entries: int) -> None:
    """Call `work(part)` for slices of an axis that fit the cache, on as many threads as BLAS has.

    entries: how many there are, in all, of the largest array; a few are done at once.

    >>> in_slices(print, 3, 6)
    slice(0, 3, None)
    """
    count = -(-entries // LIMITS.block_entries)
    step = max(1, -(-length // max(1, count)))
    parts = [slice(i, min(i + step, length)) for i in range(0, length, step)]
    if entries <= LIMITS.cached_entries or len(parts) == 1 or is_inside():
        for part in parts:
            work(part)
        return
    with one_threaded_blas as threads:
        run(lambda part, _: work(part), parts, threads)
