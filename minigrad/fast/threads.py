"""A few Python threads over single-threaded BLAS; NumPy lets them run at once while it computes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from threading import Lock
from typing import Any, TypeVar

__all__ = ["run", "slices"]

Item = TypeVar("Item")


@cache
def _blas() -> Any:
    """The BLAS libraries that are loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "minigrad")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)

_busy = Lock()  # held by the call that has the other cores


def run(work: Callable[[Item], object], items: Sequence[Item]) -> None:
    """Call `work(item)` for every item, in order, on as many threads as BLAS has.

    Meanwhile BLAS has one, a setting of the whole process. So one call has helpers at a time; what
    another thread asks for, or the work itself, is done on the thread that asks. The first
    exception stops the others after the item they are at, and is raised here.
    """
    if not _busy.acquire(blocking=False):
        for item in items:
            work(item)
        return
    try:
        threads = [library.num_threads for library in _blas().lib_controllers]
        with _blas().limit(limits=1):
            _share(work, items, min(max(threads, default=1), len(items)))
    finally:
        _busy.release()


def _share(work: Callable[[Item], object], items: Sequence[Item], threads: int) -> None:
    """See `run`; in the caller's context (np.errstate, say) on every thread."""
    left = iter([*items])  # which gives each item to one thread
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            for item in left:
                if failures:
                    return
                work(item)
        except BaseException as error:
            failures.append(error)

    helpers = [_pool().submit(copy_context().run, serve) for _ in range(threads - 1)]
    serve()
    for helper in helpers:
        if not helper.cancel():  # it began
            helper.result()
    if failures:
        raise failures[0]


def slices(length: int, step: int) -> list[slice]:
    """An axis in parts of so many entries, of which the last may have fewer.

    >>> slices(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return [slice(i, min(i + step, length)) for i in range(0, length, step)]
