"""What calls allocate, by tracemalloc."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def weighing() -> Iterator[None]:
    """Count what is allocated inside, as `tracemalloc.get_traced_memory` says there.

    No garbage is collected inside: that of earlier tests would give its memory to the calls.
    """
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


def weigh(call: Callable[[], object]) -> tuple[int, int]:
    """The bytes that are allocated while its result is held, and those there were at most.

    What a first use imports and caches is counted too: call it once before.
    """
    with weighing():
        result = call()  # noqa: F841 (it is held)
        return tracemalloc.get_traced_memory()
