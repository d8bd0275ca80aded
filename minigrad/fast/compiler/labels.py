"""How each kind of step may be cut into rows: a table of labels.

As in einsum, the axes of what a step reads and of what it makes bear labels. Axes of one label may
be cut alike: what the step makes of some rows is then those rows of the result, or, if the result
lacks the label, what these rows add to it. None is the label of an axis that cannot be cut.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from .program import Step, Value, looked_at

__all__ = ["Labels", "labels_of"]

Axes = tuple[Any, ...]


class Labels(NamedTuple):
    """The labels of every value that a step reads, in order, and of its result; and whether a
    label that the result lacks is summed over.
    """

    read: list[Axes]
    made: Axes
    sums: bool = False


def labels_of(step: Step) -> Labels | None:
    """None for a step that runs whole."""
    if any(not v.shape for v in step.reads()) and step.kind != "elementwise":
        return None
    rule = _RULES.get(step.text) or _RULES.get(step.kind)
    return rule(step) if rule is not None else None


def _aligned(value: Value, out: Value) -> Axes:
    """Axes counted from the last one; one that is repeated has no label."""
    axes = range(-len(value.shape), 0)
    return tuple([i if value.shape[i] == out.shape[i] else None for i in axes])


def _elementwise(step: Step) -> Labels:
    return Labels([_aligned(v, step.out) for v in step.reads()], _aligned(step.out, step.out))


def _reduce(step: Step) -> Labels:
    axis, ndim = step.kwargs.get("axis"), len(step.args[0].shape)
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    gone = {a % ndim for a in axes}
    keeps = step.kwargs.get("keepdims", False)
    made = [None if i in gone else i for i in range(ndim) if keeps or i not in gone]
    sums = step.text == "np.add.reduce" and "initial" not in step.kwargs
    return Labels([tuple(range(ndim))], tuple(made), sums)


def _matmul(step: Step) -> Labels:
    a, b = step.args
    n, m = ("n",) * (len(a.shape) > 1), ("m",) * (len(b.shape) > 1)

    def stack(value: Value, last: int) -> Axes:
        both = _aligned(value, step.out)[:-2] if n and m else ()
        return both or (None,) * (len(value.shape) - last)

    read = [(*stack(a, len(n) + 1), *n, "k"), (*stack(b, len(m) + 1), "k", *m)]
    return Labels(read, (*stack(step.out, len(n + m)), *n, *m), sums=True)


def _reshape(step: Step) -> Labels:
    """Axes with as many entries before them are cut into the same blocks."""

    def blocks(shape: tuple[int, ...]) -> Axes:
        before = accumulate((1, *shape), mul)
        return tuple([at if n > 1 else None for n, at in zip(shape, before, strict=False)])

    return Labels([blocks(step.args[0].shape)], blocks(step.out.shape))


def _view(step: Step) -> Labels:
    shape = step.args[0].shape
    return Labels([tuple(range(len(shape)))], _axes(shape, lambda x: looked_at(step, x)))


def _axes(shape: tuple[int, ...], look: Callable[[Any], Any]) -> Axes:
    """For each axis of a view, the axis that it is all of: its stride tells which."""
    strides = [10**9 + 7 + 2 * i for i in range(len(shape))]
    seen = look(np.lib.stride_tricks.as_strided(np.empty(0, np.uint8), shape, strides))
    known = dict(zip(strides, shape, strict=True))
    pairs = zip(seen.strides, seen.shape, strict=True)
    return tuple([strides.index(s) if known.get(s) == n else None for s, n in pairs])


def _take(step: Step) -> Labels | None:
    x, indices = step.args[:2]
    axis = step.kwargs.get("axis")
    if not isinstance(axis, int) or indices.__class__ is not Value or x.__class__ is not Value:
        return None
    axis %= len(x.shape)
    named = tuple(("index", i) for i in range(len(indices.shape)))
    whole = tuple(None if i == axis else i for i in range(len(x.shape)))
    return Labels([whole, named], (*whole[:axis], *named, *whole[axis + 1 :]))


_RULES: dict[str, Callable[[Step], Labels | None]] = {
    "elementwise": _elementwise,
    "np.where": lambda step: _elementwise(step) if len(step.args) == 3 else None,
    "reduce": _reduce,
    "matmul": _matmul,
    "copy": _reshape,
    "np.take": _take,
    "reshape": _reshape,
    "broadcast_to": _elementwise,
    "cut": lambda step: None,
    "view": _view,
}
