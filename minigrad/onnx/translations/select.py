"""Ops that pick entries, or put them elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import getitem, scatter_add, sort, take, take_along_axis
from ..graph import GraphValue
from ..run import NUMPY_OPS, mapped
from ..translation import Untranslatable, translation
from .shapes import HIGHEST_INDEX, LOWEST_INDEX


@translation(take)
def _(to, x, indices, axis):
    at = to.cast(to.value(indices), np.int64)
    x, axis = to.along(x, axis)
    return to.Gather(x, at, axis=axis)


@translation(take_along_axis)
def _(to, x, indices, axis):
    at = to.cast(to.value(indices), np.int64)
    if axis is None:
        return to.GatherElements(to.Reshape(x, [-1]), at, axis=0)
    axis = int(axis) % x.ndim
    own = [n for k, n in enumerate(x.shape) if k != axis]
    if own != [n for k, n in enumerate(at.shape) if k != axis]:
        one = to.Expand(at, to.sizes([1 if k == axis else n for k, n in enumerate(x.shape)]))
        shape = to.Shape(one, dtype=np.int64)
        before, after = to.Slice(shape, [0], [axis]), to.Slice(shape, [axis + 1], [HIGHEST_INDEX])
        x = to.Expand(x, to.Concat(before, [1], after, axis=0))
        at = one
    return to.GatherElements(x, at, axis=axis)


def _sorted(place):
    """The entries in ascending order (place 0), or their positions (1); the sort is stable."""

    def translated(to, x, axis):
        x, axis = to.along(x, axis)
        n = to.Gather(to.Shape(x, dtype=np.int64), [axis], axis=0)
        found = to.emit("TopK", x, n, outputs=2, axis=axis, largest=0, sorted=1)
        found[1].dtype = np.dtype(np.int64)
        return found[place]

    return translated


translation(sort)(_sorted(0))
translation(NUMPY_OPS["argsort"])(_sorted(1))


@translation(scatter_add)
def _(to, x, index, shape):
    if not isinstance(index, GraphValue):
        try:
            places = np.arange(np.prod(shape)).reshape(shape)[index]
        except (TypeError, IndexError):
            raise Untranslatable("adds entries where values or sizes say") from None
        zeros = to.constant(np.zeros(int(np.prod(shape)), x.dtype))
        entries = to.Reshape(x, [-1])
        at = to.constant(places.reshape(-1, 1))
        flat = to.ScatterND(zeros, at, to.Expand(entries, [places.size]), reduction="add")
        return to.Reshape(flat, [*shape])
    zeros = to.Expand(to.value(0, x.dtype), to.sizes(shape))
    at = to.Unsqueeze(to.cast(index, np.int64), [-1])
    return to.ScatterND(zeros, at, x, reduction="add")


# ---------------------------------------------------------------- getitem


@translation(getitem)
def _(to, x, index):
    parts = _spelled(x, index)
    arrays = [p for p in parts if _is_array(p)]
    if arrays:  # then integers are arrays too
        parts = [to.constant(np.asarray(p)) if isinstance(p, int) else p for p in parts]
    x, kept = _sliced(to, x, parts)
    if not arrays:
        return x
    if any(p is None for p in kept):
        raise Untranslatable("has None beside arrays of integers; use expand_dims after it")
    return _gathered(to, x, kept)


def _is_array(part):
    return isinstance(part, GraphValue | np.ndarray)


def _spelled(x, index):
    """An index for each axis, `...` as slices; arrays of booleans as the positions of True."""
    parts = [*index] if index.__class__ is tuple else [index]
    spread: list[Any] = []
    for part in parts:
        if part.__class__ is list:
            part = np.asarray(part)
        elif isinstance(part, GraphValue) and part.array is not None:
            part = part.array
        elif part.__class__ is slice:
            part = mapped(_end, part)
        if isinstance(part, np.ndarray) and part.dtype == bool:
            spread += [*part.nonzero()]
        elif isinstance(part, GraphValue) and part.dtype == bool:
            raise Untranslatable("has a shape that depends on values: a boolean array as index")
        else:
            spread.append(part)
    taken = sum(part is not None and part is not Ellipsis for part in spread)
    at = next((k for k, part in enumerate(spread) if part is Ellipsis), len(spread))
    return [*spread[:at], *[slice(None)] * (x.ndim - taken), *spread[at + 1 :]]


def _end(end):
    """Where a slice starts or ends, or its step."""
    if not isinstance(end, GraphValue):
        return end
    if end.array is None:
        raise Untranslatable("has a shape that depends on values: an array as a slice's end")
    return int(end.array)


def _sliced(to, x, parts):
    """x after the slices, integers and None of an index; and the rest of the index."""
    cuts: list[Any] = []  # (start, end, axis, step)
    gone: list[int] = []
    kept: list[Any] = []
    axis = 0
    for part in parts:
        if isinstance(part, slice) and part != slice(None):
            step = 1 if part.step is None else part.step
            if not isinstance(step, int):
                raise Untranslatable("takes steps that depend on the sizes")
            low, high = (0, HIGHEST_INDEX) if step > 0 else (HIGHEST_INDEX, LOWEST_INDEX)
            start = low if part.start is None else part.start
            cuts.append((start, high if part.stop is None else part.stop, axis, step))
        if part is None or isinstance(part, slice) or _is_array(part):
            kept.append(part)
        else:  # one position
            cuts.append((part, HIGHEST_INDEX if part == -1 else part + 1, axis, 1))
            gone.append(axis)
        axis += part is not None
    new = [k for k, part in enumerate(kept) if part is None]
    if cuts:
        x = to.Slice(x, *(to.sizes(numbers) for numbers in zip(*cuts, strict=True)))
    x = to.Squeeze(x, gone) if gone else x
    x = to.Unsqueeze(x, new) if new else x
    return (x if cuts or new else to.Identity(x)), kept


def _gathered(to, x, parts):
    """Entries at arrays of positions: their axes moved to the front, then one GatherND for all."""
    places = [k for k, p in enumerate(parts) if not isinstance(p, slice)]
    at = [to.cast(to.value(parts[k]), np.int64) for k in places]
    if len(at) == 1:
        return to.Gather(x, at[0], axis=places[0])
    ndim = max(len(p.shape) for p in at)
    whole = to.Mul(at[0], 0)
    for p in at[1:]:
        whole = to.Add(whole, to.Mul(p, 0))  # zeros, of the shape of all of them
    rest = [k for k in range(len(parts)) if k not in places]
    stacked = to.Concat(*(to.Unsqueeze(to.Add(p, whole), [-1]) for p in at), axis=-1)
    found = to.GatherND(to.Transpose(x, perm=[*places, *rest]), stacked)
    if places != [*range(places[0], places[-1] + 1)] or places[0] == 0:
        return found
    before = places[0]  # axes of the result that go before those of the positions
    order = [*range(ndim, ndim + before), *range(ndim), *range(ndim + before, ndim + len(rest))]
    return to.Transpose(found, perm=order)
