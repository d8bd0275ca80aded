"""What keeps every number bit for bit: calls made once, and products and sums over leading axes as
those of one matrix.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from .program import SMALL, Program, Step, Value, contiguous, is_whole, nbytes, root
from .rewrite import Rewriting, draws

__all__ = ["collapsed", "seat", "tidy"]


def tidy(program: Program) -> None:
    """Make repeated calls once; run products and sums over leading axes as those of one matrix."""
    r = Rewriting(program)
    r.run(lambda step: _flattened(r, step))
    once = _Once(program)
    once.run(once.visit)


def seat(value: Value) -> Any:
    """Equal seats: the same entries in the same order, but for leading axes of length one."""
    shape, strides = value.shape, value.strides
    lead = next((i for i, n in enumerate(shape[:-2]) if n != 1), max(len(shape) - 2, 0))
    return id(anchor(value)), value.offset, shape[lead:], strides[lead:]


def anchor(value: Value) -> Value:
    """What a value is a view of: an input, or what a step has made, be it within a larger room."""
    while value.step is not None and value.step.kind == "view" and value.step.text != "joined":
        value = value.step.args[0]
    return value


class _Once(Rewriting):
    """Calls that were made before, on the same values, are not made again."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.seen: dict[Any, list[Value]] = {}

    def visit(self, step: Step) -> bool:
        if not step.outs:
            if step.kind in ("assign", "update"):
                self.seen.clear()
            return False
        if step.into is not None or draws(step) or step.text == "joined" or step.out.part:
            return False
        key = _key(step)
        if key is None:
            return False
        known = self.seen.get(key)
        if step.kind == "view":
            _name_after(anchor(step.out), step.out)
        if known is None and step.kind == "view":
            known = self._simpler(step)
        if known is None:
            self.seen[key] = step.outs
            return False
        for old, new in zip(step.outs, known, strict=True):
            self.replace(old, new)
        return True

    def _simpler(self, step: Step) -> list[Value] | None:
        """What a view of views is a view of, if it is all of it, or that with its last two axes
        exchanged.
        """
        out, base = step.out, step.out
        while base.step is not None and base.step.kind == "view" and base.step.text != "joined":
            base = base.step.args[0]
            if (base.shape, base.strides, base.offset) == (out.shape, out.strides, out.offset):
                return [base]
            turned = (_turned(base.shape), _turned(base.strides), base.offset)
            if turned == (out.shape, out.strides, out.offset) and base is not step.args[0]:
                return [self.transposed(base)]
        return None


def _name_after(base: Value, view: Value) -> None:
    """What has a symbol only in another shape, or turned, takes it from there."""
    if base.name or not view.name or base.kind != "step" or nbytes(base) != nbytes(view):
        return
    if is_whole(view):
        base.name = view.name
    elif _turned(view.strides) == contiguous(_turned(view.shape), view.dtype):
        base.name = f"{view.name}_T"


def _turned(axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*axes[:-2], *axes[:-3:-1])


def _key(step: Step) -> Any:
    """Equal keys: equal results. Views are told by where their entries lie."""
    out = step.out
    if step.kind == "view" and root(out).strides == contiguous(root(out).shape, out.dtype):
        return ("view", id(anchor(out)), out.shape, out.strides, out.offset)
    try:
        function = id(step.function) if step.kind.startswith("kernel") else 0
        key = (step.kind, step.text, function, _frozen(step.args), _frozen(step.kwargs))
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(item: Any) -> Any:
    """A key for nested arguments; numbers are told apart by type and sign."""
    if item.__class__ is Value:
        return ("value", id(item))
    if isinstance(item, tuple | list):
        return (item.__class__.__name__, *map(_frozen, item))
    if isinstance(item, dict):
        return tuple((k, _frozen(v)) for k, v in sorted(item.items()))
    if isinstance(item, slice):
        return ("slice", item.start, item.stop, item.step)
    if isinstance(item, np.ndarray):
        return ("array", id(item))
    written = isinstance(item, float | int | complex | str)
    return item.__class__.__name__, repr(item) if written else item


def _flattened(r: Rewriting, step: Step) -> bool:
    if step.kind == "matmul":
        return _flattened_product(r, step)
    if step.kind == "reduce" and _flattened_sum(r, step):
        return True
    return step.kind in ("elementwise", "reduce") and _without_ones(r, step)


def _without_ones(r: Rewriting, step: Step) -> bool:
    """What is done to a stack of one matrix, entry by entry or to its rows, on that matrix."""
    shape, settings = step.out.shape, step.kwargs
    k = next((i for i, n in enumerate(shape[:-2]) if n != 1), max(len(shape) - 2, 0))
    by_rows = step.kind == "elementwise" or (settings.get("axis") == -1 and "keepdims" in settings)
    if not k or not by_rows or step.into is not None:
        return False

    def without(item: Any) -> Any:
        if item.__class__ is not Value or len(item.shape) <= len(shape) - k:
            return item
        return r.view(item, "getitem", ((0,) * (k - len(shape) + len(item.shape)),))

    args = tuple(map(without, step.args))
    made = r.emit(step.kind, step.text, args, shape[k:], step.out.dtype, **settings)
    r.steps[-1].function = step.function
    r.replace(step.out, made)
    r.now[id(step.out)] = r.reshaped(made, shape)
    return True


def collapsed(r: Rewriting, value: Value) -> Value | None:
    """The value with its leading axes as one, None where that needs a copy."""
    *lead, last = value.shape
    if len(lead) < 2:
        return value if len(lead) == 1 else None
    if 0 in value.shape:
        return None
    axes = zip(lead, value.strides[:-1], strict=True)
    real = [(n, s) for n, s in axes if n != 1]
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(real)):
        return None
    return r.view(value, "reshape", ((prod(lead), last),))


def _flattened_product(r: Rewriting, step: Step) -> bool:
    """(..., n, k) @ (k, m) as one product of matrices; a stack of one as that one."""
    a, b = step.args
    if len(step.out.shape) < 3 or len(a.shape) < 2 or len(b.shape) < 2:
        return False
    apart = b.shape[-1] == 1 and a.shape[-2] * a.shape[-1] >= SMALL
    if len(b.shape) == 2 and not apart:
        first, second = collapsed(r, a), b
    elif set(a.shape[:-2]) | set(b.shape[:-2]) <= {1}:
        first, second = _only(r, a), _only(r, b)
    else:
        return False
    if first is None:
        return False
    shape = (first.shape[0], second.shape[1])
    made = r.emit("matmul", "np.matmul", (first, second), shape, step.out.dtype)
    r.replace(step.out, made)
    r.now[id(step.out)] = r.reshaped(made, step.out.shape)
    return True


def _only(r: Rewriting, value: Value) -> Value:
    """The one matrix of a stack of one."""
    k = len(value.shape) - 2
    return r.view(value, "getitem", ((0,) * k,)) if k else value


def _flattened_sum(r: Rewriting, step: Step) -> bool:
    """A sum over all axes but the last as one over the rows of a matrix."""
    (x,) = step.args
    axis, out, ndim = step.kwargs.get("axis"), step.out, len(x.shape)
    if set(step.kwargs) - {"axis", "keepdims"} or axis is None or ndim < 2:
        return False
    axes = (axis,) if isinstance(axis, int) else axis
    if sorted(a % ndim for a in axes) != list(range(ndim - 1)):
        return False
    if ndim == 2 and not step.kwargs.get("keepdims"):
        return False
    matrix = collapsed(r, x)
    if matrix is None:
        return False
    made = r.emit("reduce", step.text, (matrix,), (x.shape[-1],), out.dtype, axis=0)
    r.replace(out, made)
    r.now[id(out)] = r.reshaped(made, out.shape)
    return True
