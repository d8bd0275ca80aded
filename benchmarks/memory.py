"""How much memory a step needs at most, and how that grows with the length of the sequence.

Measured is the peak of the resident set (what the kernel gave the process, the whole of it: NumPy's
arrays, BLAS's buffers, other engines' memory) in a fresh process, beyond what it was with the
inputs made. Where the kernel does not tell, it is tracemalloc's peak, which sees the arrays of
NumPy but nothing of other engines; the report says which.
"""

from __future__ import annotations

import ctypes
import gc
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING

from .cases import LENGTHS, Case

if TYPE_CHECKING:
    from .peers import Peer

__all__ = ["METHODS", "growth", "method", "peak"]

METHODS = {
    "resident": "the resident set's growth at its peak",
    "traced": "tracemalloc's peak, which sees NumPy's arrays only",
}


def method() -> str:
    """What `peak` reads here: one of METHODS."""
    try:
        with open("/proc/self/clear_refs", "w"):
            return "resident"
    except OSError:
        return "traced"


def peak(peer: Peer, case: Case, dtype: str) -> float:
    """Bytes, of making the step and taking it twice, arrays allocated beforehand included."""
    warm = LENGTHS[64]
    for _ in range(2):  # libraries, thread pools and their buffers come first
        peer.step(warm, warm.inputs(dtype))()
    inputs = case.inputs(dtype)

    def twice() -> None:
        step = peer.step(case, inputs)
        step(), step()

    return growth(twice)


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
