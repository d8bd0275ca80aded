"""What a call allocates, by tracemalloc."""

import gc
import tracemalloc
from collections.abc import Callable


def weigh(call: Callable[[], object]) -> tuple[int, int]:
    """The bytes that are allocated while its result is held, and those there were at most.

    What a first use imports and caches is counted too: call it once before. No garbage is collected
    meanwhile: that of earlier tests would give its memory to the call.
    """
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        result = call()  # noqa: F841 (it is held)
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
