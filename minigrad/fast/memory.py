"""Memory: C's allocator is told once to keep what is freed.

What a step frees would go back to the system, and for the next step each page would be mapped and
cleared anew: an array of a megabyte then takes ten times as long to write. glibc has two settings
for it (`man mallopt`): from which size on a block is a mapping of its own, and how much freed
memory may stay at the heap's end. They hold for the whole process, so they are set at the first
backward pass and not by `import minigrad`, where the C library is glibc; `MINIGRAD_MALLOPT=0` in
the environment leaves them as they are.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["keep_freed_memory"]

M_TRIM_THRESHOLD = -1  # of <malloc.h>
M_MMAP_THRESHOLD = -3
OWN_MAPPING = 32 << 20  # bytes from which a block is a mapping of its own: the most glibc allows
KEPT = 512 << 20  # freed bytes that may stay at the end of the heap


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed blocks for the next step; whether it did."""
    if os.environ.get("MINIGRAD_MALLOPT") == "0" or os.name != "posix":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    settings = {M_MMAP_THRESHOLD: OWN_MAPPING, M_TRIM_THRESHOLD: KEPT}
    return all([libc.mallopt(name, size) for name, size in settings.items()])
