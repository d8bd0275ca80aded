"""Functions of each entry by itself, a block at a time: intermediate results stay in cache.

The op's own kernel and rules run on slices of the arrays in memory order, on both cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from .limits import LIMITS
from .memory import empty_as
from .overlay import Overlay
from .threads import in_slices

__all__ = ["blocked", "by_blocks"]


def by_blocks(*overlays: Overlay) -> None:
    """Let kernels and rules of entrywise ops take large arrays block by block."""
    for overlay in overlays:
        overlay.flat = blocked(overlay.flat)
        for name, rule in (overlay.of.rules | overlay.rules).items():
            overlay.rules[name] = rule._replace(function=blocked(rule.function))


def blocked(function: Callable[..., Any]) -> Callable[..., Any]:
    """An entrywise function on a block of entries at a time; `out=` takes its result.

    Every block gets arrays of one entry, numbers and settings as they are.
    """

    def on_blocks(*given: Any, out: ndarray | None = None) -> Any:
        # as plain arrays, none of a subclass
        given = tuple([np.asarray(x) if isinstance(x, ndarray) else x for x in given])
        arrays = [x for x in given if x.__class__ is ndarray]
        large = [x for x in arrays if x.size > 1]
        if not large or large[0].nbytes < LIMITS.large_bytes:
            return _written(function(*given), out)
        if any(x.ndim > large[0].ndim for x in arrays):  # the result has more axes too
            return _written(function(*given), out)
        like, targets = large[0], [] if out is None else [out]
        flat = {id(x): _in_memory_order(x, like) for x in (*large, *targets)}
        if any(x is None for x in flat.values()):
            return _written(function(*given), out)

        def on(part: slice) -> Any:
            return function(*[flat[id(x)][part] if id(x) in flat else x for x in given])

        if out is not None:
            entries = flat[id(out)]
            in_slices(lambda part: entries.__setitem__(part, on(part)), like.size, like.size)
            return out
        return _gathered(on, like.size, like.size, lambda x: empty_as(like, like.shape, x.dtype))

    return on_blocks


def _gathered(
    on: Callable[[slice], Any],
    count: int,
    entries: int,
    make: Callable[[Any], Any] | None = None,
) -> Any:
    """The results of `on` for slices of so many rows, one array or several, each joined to one.

    entries: how many there are in all.  make: an array for the whole of a result of no rows.
    """
    nothing = on(slice(0, 0))
    several = nothing.__class__ is tuple
    results = nothing if several else (nothing,)
    made = [make(x) if make else np.empty((count, *x.shape[1:]), x.dtype) for x in results]
    rows = [_in_memory_order(x, x) if make else x for x in made]

    def work(part: slice) -> None:
        found = on(part)
        for x, y in zip(rows, found if several else (found,), strict=True):
            x[part] = y

    in_slices(work, count, entries)
    return tuple(made) if several else made[0]


def _written(found: Any, out: ndarray | None) -> Any:
    if out is None:
        return found
    out[...] = found
    return out


def _in_memory_order(x: Any, like: Any) -> Any:
    """A view of all entries in the memory order of `like`; None if there is none."""
    if x.shape != like.shape:
        return None
    if x.flags.c_contiguous and like.flags.c_contiguous:
        return x.reshape(-1)
    order = np.argsort([-abs(step) for step in like.strides], kind="stable")
    turned = x.transpose(order)
    return turned.reshape(-1) if turned.flags.c_contiguous else None
