"""Functions of each entry by itself, a block at a time: intermediate results stay in cache.

The op's own kernel and rules run on pieces of the arrays as they lie in memory, on both cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ..engine.op import Op
from ..engine.plan import Rule
from .limits import LIMITS
from .memory import empty, empty_as
from .threads import in_slices

__all__ = ["blocked", "by_blocks", "by_rows", "gathered", "run_by_blocks"]


def by_blocks(*ops: Op) -> None:
    """Let ops of entries run by blocks on large arrays: their overlay if they have one."""
    for op in ops:
        overlay = op.fast
        kernel, rules = (op.kernel, {}) if op.overlay is None else (overlay.kernel, overlay.rules)
        if op.overlay is None:
            overlay(above=LIMITS.small_entries)(op.kernel)
        overlay.kernel = blocked(kernel)
        overlay.forward = op.flat(overlay.kernel)
        for name, rule in (op.rules | rules).items():
            overlay.rules[name] = Rule(rule.inputs, blocked(rule.function), rule.needs)


def blocked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose result's entries each depend on those at their place alone, on a
    block of entries at a time; `out=` says where its result goes.
    """

    def by_blocks(*given: Any, out: Any = None) -> Any:
        return run_by_blocks(function, *given, out=out)

    return by_blocks


def run_by_blocks(function: Callable[..., Any], *given: Any, out: Any = None) -> Any:
    """function(*given). Arrays of one entry, numbers and settings are given as they are to every
    block.
    """
    given = tuple([np.asarray(x) if isinstance(x, ndarray) else x for x in given])  # no subclass
    large = [x for x in given if x.__class__ is ndarray and x.size > 1]
    like = large[0] if large else None
    flat = {id(x): _in_memory_order(x, like) for x in large if like is not None}
    aligned = all(x is not None for x in flat.values())
    if like is None or like.nbytes < LIMITS.reuse_bytes or not aligned:
        return _written(function(*given), out)

    def on(own: slice) -> Any:
        return function(*[flat[id(x)][own] if id(x) in flat else x for x in given])

    if out is not None:
        if (entries := _in_memory_order(out, like)) is None:
            return _written(function(*given), out)
        in_slices(lambda own: entries.__setitem__(own, on(own)), like.size, like.size)
        return out
    return gathered(on, like.size, like.size, lambda x: empty_as(like, like.shape, x.dtype))


def gathered(
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
    made = [make(x) if make else empty((count, *x.shape[1:]), x.dtype) for x in results]
    rows = [_in_memory_order(x, x) if make else x for x in made]

    def work(own: slice) -> None:
        found = on(own)
        for x, y in zip(rows, found if several else (found,), strict=True):
            x[own] = y

    in_slices(work, count, entries)
    return tuple(made) if several else made[0]


def _written(found: Any, out: Any) -> Any:
    if out is None:
        return found
    out[...] = found
    return out


def _in_memory_order(x: Any, like: Any) -> Any:
    """All entries in the order in which those of `like` lie, a view; None if there is none."""
    if x.shape != like.shape:
        return None
    if x.flags.c_contiguous and like.flags.c_contiguous:
        return x.reshape(-1)
    order = np.argsort([-abs(step) for step in like.strides], kind="stable")
    turned = x.transpose(order)
    return turned.reshape(-1) if turned.flags.c_contiguous else None


# ---------------------------------------------------------------- along the last axis


def by_rows(*ops: Op) -> None:
    """Let ops along one axis run a few rows at a time, where it is the last of several."""
    for op in ops:
        op.fast(above=LIMITS.small_entries, when=_along_rows, auxiliary=op.auxiliary)(op.kernel)
        overlay, names = op.fast, op.inputs + op.settings
        overlay.forward = overlay.kernel = _rowwise(op.flat(op.kernel), names)
        for name, rule in op.rules.items():
            function = _rowwise(rule.function, ("g", *rule.needs))
            overlay.rules[name] = Rule(rule.inputs, function, rule.needs)


def _along_rows(x: Any, axis: Any = None, *_: Any) -> bool:
    return x.ndim > 1 and axis.__class__ is int and axis in (-1, x.ndim - 1)


def _rowwise(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    """The function on slices of its arrays' first axis; shapes it is given are cut as they are."""

    def rowwise(*given: Any) -> Any:
        if any(x.__class__ is not ndarray for x in given if hasattr(x, "dtype")):
            return function(*given)

        def on(own: slice) -> Any:
            cut: list[Any] = []
            for name, x in zip(names, given, strict=False):
                if x.__class__ is ndarray:
                    cut.append(x[own])
                else:
                    shape = name.endswith("_shape")
                    cut.append((own.stop - own.start, *x[1:]) if shape else x)
            return function(*cut)

        large = max((x for x in given if x.__class__ is ndarray), key=lambda x: x.size)
        return gathered(on, len(large), large.size)

    return rowwise
