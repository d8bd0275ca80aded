"""Where an axis goes: from what a step reads to what it makes, and back."""

from __future__ import annotations

from math import prod
from typing import Any

from .program import Step

__all__ = ["backward", "forward", "indexed", "sources", "through_reshape"]

Shape = tuple[int, ...]


def through_reshape(shape: Shape, axis: int, other: Shape, units: int) -> int | None:
    """The axis of `other` along which it is cut into the same blocks as `shape` along `axis`."""
    before = prod(shape[:axis])
    for k, n in enumerate(other):
        if n > 1 and prod(other[:k]) == before:
            return k if n % units == 0 else None
    return None


def forward(step: Step, axis: int, units: int) -> int | None:
    """The axis of a view that is this axis of its source, None if it is cut or lost."""
    source, out = step.args[0].shape, step.out.shape
    if step.text == "reshape":
        return through_reshape(source, axis, out, units)
    if step.text in ("joined", "broadcast_to"):
        return axis + len(out) - len(source)
    known = sources(step)
    return known.index(axis) if known is not None and axis in known else None


def backward(step: Step, axis: int, units: int) -> int | None:
    """The axis of a view's source that is this axis of the view."""
    source, out = step.args[0].shape, step.out.shape
    if step.text == "reshape":
        return through_reshape(out, axis, source, units)
    if step.text in ("joined", "broadcast_to"):
        found = axis - len(out) + len(source)
        return found if found >= 0 and source[found] == out[axis] else None
    known = sources(step)
    return known[axis] if known is not None else None


def sources(step: Step) -> Any:
    """For each axis of a view, the axis of the source that it is, whole; None for others."""
    source, out = step.args[0].shape, step.out.shape
    axes: list[Any] = list(range(len(source)))
    arguments = [*step.args[1:], *step.kwargs.values()]
    if step.text == "swapaxes":
        i, j = (a % len(axes) for a in arguments)
        axes[i], axes[j] = axes[j], axes[i]
        return axes
    if step.text == "transpose":
        order = arguments[0] if arguments and arguments[0] is not None else axes[::-1]
        return [a % len(axes) for a in order]
    if step.text == "squeeze":
        return _squeezed(axes, source, arguments[0] if arguments else None)
    if step.text == "expand_dims":
        added = arguments[0] if isinstance(arguments[0], tuple) else (arguments[0],)
        places = {a % len(out) for a in added}
        rest = iter(axes)
        return [None if i in places else next(rest) for i in range(len(out))]
    if step.text == "getitem":
        return indexed(arguments[0], source)
    return None


def _squeezed(axes: list[Any], source: Shape, axis: Any) -> list[Any]:
    if axis is None:
        return [a for a in axes if source[a] != 1]
    dropped = {a % len(source) for a in (axis if isinstance(axis, tuple) else (axis,))}
    return [a for a in axes if a not in dropped]


def indexed(index: Any, source: Shape) -> list[Any]:
    """Which axes a basic index leaves whole."""
    parts = list(index) if isinstance(index, tuple) else [index]
    taken = sum(1 for p in parts if p is not None and p is not Ellipsis)
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    at = parts.index(Ellipsis)
    parts[at : at + 1] = [slice(None)] * (len(source) - taken)
    axes: list[Any] = []
    k = 0
    for part in parts:
        if part is None:
            axes.append(None)
            continue
        if isinstance(part, slice):
            axes.append(k if part.indices(source[k]) == (0, source[k], 1) else None)
        k += 1
    return axes
