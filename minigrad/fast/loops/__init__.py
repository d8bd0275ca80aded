"""Loops compiled by numba, where it is installed: `pip install 'minigrad[fast]'`.

formulas  the loops, each as its formula
overlays  how the arrays of ops, and of Adam, come to them

numba is imported when such an op, or Adam, first meets a large array, which takes a third of a
second; a loop is compiled when it first runs in a dtype, which takes half a second to four, and
kept on disk for later processes, which load it in a hundredth. It runs on the caller's thread,
without the GIL and without numba's own threads, which would spin beside those of BLAS. Without
numba, or with MINIGRAD_LOOPS=0 in the environment, ops run as they do otherwise.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from os import environ
from typing import Any
from warnings import warn

from ...engine.op import FASTER, Array
from ...ops.activations import gelu
from ...ops.convolution import max_pool
from ...ops.norms import layer_norm, rms_norm
from ...ops.recurrent import lstm
from ..limits import LIMITS
from ..overlay import overlays_of

__all__ = ["HAS_LOOPS", "IS_WANTED", "load"]

HAS_LOOPS = gelu, layer_norm, rms_norm, max_pool, lstm
IS_WANTED = environ.get("MINIGRAD_LOOPS") != "0" and find_spec("numba") is not None


@cache
def load() -> Any:
    """Declare the overlays by loops, if numba can be used; else say once why not, and give None."""
    try:
        return import_module(".overlays", __package__)
    except Exception as error:  # of numba or what it stands on: a cache that cannot be written, say
        warn(
            f"minigrad runs without compiled loops, for numba fails: {error}. Mend that, "
            "or set MINIGRAD_LOOPS=0 in the environment to do without",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def adam(w: Array, *others: Any) -> bool:
    """Adam's step of large arrays by its loop."""
    overlays = load() if w.size > LIMITS.small_entries else None
    return overlays is not None and overlays.adam(w, *others)


if IS_WANTED:
    for op in HAS_LOOPS:
        overlays_of(op).load = load
    FASTER["adam"] = adam
