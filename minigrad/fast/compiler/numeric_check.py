"""Whether a kernel or rule gives on Symbols what it gave on arrays, to rounding.

Where it sums in another order, results differ by rounding of the terms; a sum that vanishes, as the
gradient of a bias of keys does, then differs by as much as it holds. How far the two may differ is
found by running error analysis: a sum adds the sizes of its terms, and sums, products and views of
its result carry them on. Whatever else is computed counts as exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .program import Step, Value, substitute
from .symbol import Symbol

__all__ = ["all_agree"]

BLOCK = 1 << 16  # entries that are compared at a time
ULPS = 64
_MOVES = {"view", "copy", "cast", "put", "at"}  # of what they are given nothing is computed


def all_agree(
    results: list[Any], wanted: tuple[Any, ...], steps: list[Step], given: dict[Value, Any]
) -> bool:
    """Whether all are Symbols, and those that are known hold what they should.

    steps: what the Symbols come from.  given: the arrays that these start from.
    """
    if not all(r.__class__ is Symbol for r in results):
        return False
    apart = [(r, w) for r, w in zip(results, wanted, strict=False) if not _agrees(r.a, w)]
    if not apart:
        return True
    if any(r.shape != w.shape or r.dtype != w.dtype or w.dtype.kind != "f" for r, w in apart):
        return False
    with np.errstate(all="ignore"):
        summed = _summed(steps, given)
        return all(_agrees(r.a, w, summed.get(r.value)) for r, w in apart)


def _agrees(found: Any, array: Any, summed: Any = None) -> bool:
    """Whether these are the same numbers, to rounding of them and of what was summed; block by
    block, to take little memory.
    """
    if found.shape != array.shape or found.dtype != array.dtype:
        return False
    if array.dtype.kind not in "fc":
        return np.array_equal(found, array)
    pairs = list(zip(_blocks(found), _blocks(array), strict=True))
    if all((a == b).all() for a, b in pairs):
        return True
    eps = ULPS * float(np.finfo(array.dtype).eps)
    more = [0.0] * len(pairs)
    if summed is not None:
        more = _blocks(np.where(np.isfinite(summed), summed, 0))
    with np.errstate(all="ignore"):
        top = max(np.abs(b[np.isfinite(b)]).max(initial=0.0) for _, b in pairs)
        return all(
            np.allclose(*pair, rtol=eps, atol=eps * (top + m), equal_nan=True)
            for pair, m in zip(pairs, more, strict=True)
        )


def _blocks(array: Any) -> list[Any]:
    flat = array.reshape(-1)
    return [flat[i : i + BLOCK] for i in range(0, flat.size, BLOCK)]


def _summed(steps: list[Step], given: dict[Value, Any]) -> dict[Value, Any]:
    """For each value that steps make, the sizes of all terms that were summed on the way to it."""
    arrays, sizes = dict(given), dict[Value, Any]()

    def array_of(item: Any) -> Any:
        if item.__class__ is not Value:
            return item
        return arrays[item] if item in arrays else item.what  # a constant

    for step in steps:
        if step.kind == "check":
            continue
        assert step.function is not None
        args, kwargs = substitute(step.args, array_of), substitute(step.kwargs, array_of)
        arrays[step.out] = step.function(*args, **kwargs)
        own = [sizes.get(x, 0.0) if x.__class__ is Value else 0.0 for x in step.args]
        sizes[step.out] = np.broadcast_to(_size(step, args, kwargs, own), step.out.shape)
    return sizes


def _size(step: Step, args: Any, kwargs: Any, own: list[Any]) -> Any:
    """The sizes of a step's result, from those of its arguments."""
    function: Any = step.function
    if step.kind in _MOVES and np.ndim(own[0]):
        return function(own[0], *args[1:], **kwargs)
    if step.text == "np.add.reduce":
        return function(np.abs(args[0]) + own[0], *args[1:], **kwargs)
    if step.text in ("np.add", "np.subtract"):
        return own[0] + own[1]
    if step.text == "np.negative":
        return own[0]
    if step.text == "np.divide":
        return own[0] / np.abs(args[1])
    if step.text == "np.multiply":
        return own[0] * np.abs(args[1]) + np.abs(args[0]) * own[1]
    if step.text == "np.matmul":
        a, b = np.abs(args[0]), np.abs(args[1])
        return np.matmul(a + own[0], b + own[1])
    return 0.0
