"""How much memory some work needs at most, beyond what the process has before it.

Measured is the peak of the resident set (what the kernel gave the process, the whole of it: NumPy's
arrays, BLAS's buffers, other engines' memory). Where the kernel does not tell, it is tracemalloc's
peak, which sees the arrays of NumPy but nothing of other engines; the report says which.
"""

from __future__ import annotations

import ctypes
import gc
import tracemalloc
from collections.abc import Callable

__all__ = ["METHODS", "growth", "method"]

METHODS = {
    "resident": "the resident set's growth at its peak",
    "traced": "tracemalloc's peak, which sees NumPy's arrays only",
}


def method() -> str:
    """What `growth` reads here: one of METHODS."""
    try:
        with open("/proc/self/clear_refs", "w"):
            return "resident"
    except OSError:
        return "traced"


def growth(work: Callable[[], object]) -> float:
    """Bytes that this process takes at most while it works, beyond what it has."""
    gc.collect()
    if method() == "traced":
        tracemalloc.start()
        work()
        traced = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return traced
    _give_back()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _give_back() -> None:
    """Return freed memory to the kernel, or the step would take it from there unseen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _status(key: str) -> float:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(key))
    return int(line.split()[1]) * 1024
