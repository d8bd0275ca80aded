"""Units of a value, one by one: what a few steps of a run keep of each.

A unit is a slice along one axis of a value. Which one, and which weights lead to it, is told by the
op's own rule: the gradient of a unit reaches the weights of that unit and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.op import Op
from ..functional import vjp
from .formulas import UNHEARD
from .measures import of_one

__all__ = ["Picture", "incoming", "picture_of", "some", "unit_axes", "weigh"]

MOST_UNITS, STRONGEST = 64, 5


@dataclass
class Picture:
    """A row at one step.

    Attributes: axis: of the units; units: which are kept; mean, zeros, gradient: of each unit, over
        the batch; weights: the path of what leads to the units; norm, strongest: of those weights,
        for each unit.
    """

    axis: int
    units: Any
    mean: Any = None
    zeros: Any = None
    gradient: Any = None
    weights: str = ""
    norm: Any = None
    strongest: Any = None  # their places and the weights there, in no order


def some(count: int, most: int) -> Any:
    """At most so many of 0 … count - 1, evenly.

    >>> some(5, 3)
    array([0, 2, 4])
    """
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(int)


def picture_of(data: Any, axis: int) -> Picture:
    """What is kept of a value: of each unit its mean and its share of zeros, over all else."""
    axis %= data.ndim
    units = some(data.shape[axis], MOST_UNITS)
    each = np.moveaxis(data, axis, -1)
    if len(units) < data.shape[axis]:
        each = each[..., units]
    flat = each.reshape(-1, len(units))
    made = Picture(axis, units)
    made.mean = np.add.reduce(flat, axis=0) / len(flat)
    made.zeros = np.add.reduce(flat == 0, axis=0) / len(flat)
    return made


def weigh(made: Picture, gradient: Any) -> None:
    each = np.moveaxis(gradient, made.axis, -1)
    if len(made.units) < each.shape[-1]:
        each = each[..., made.units]
    each = each.reshape(-1, len(made.units))
    made.gradient = np.sqrt(np.einsum("ij,ij->j", each, each) / len(each))


def incoming(weights: Any, axis: int, units: Any) -> tuple[Any, Any]:
    """Of the weights that lead to each unit: their norm, and the places and sizes of a few.

    Those are the strongest, in no order.
    """
    each = np.moveaxis(weights, axis, 0)
    each = (each[units] if len(units) < len(each) else each).reshape(len(units), -1)
    few = min(STRONGEST, each.shape[1])
    top = np.abs(each).argpartition(each.shape[1] - few, axis=1)[:, -few:]
    found = each[np.arange(len(units))[:, None], top]
    return np.sqrt(np.einsum("ij,ij->i", each, each)), (top, found)


def unit_axes(
    op: Op, inputs: Sequence[Any], settings: Sequence[Any], at: int
) -> tuple[int, int] | None:
    """Which axis of an op's output holds units, and which of its weights, input `at`, theirs.

    None where the gradient of one unit reaches the weights of others.

    >>> import minigrad as mg
    >>> from minigrad.ops import matmul
    >>> unit_axes(matmul, (np.ones((5, 3)), np.ones((3, 3))), (), 1)
    (1, 1)
    """
    plain = [getattr(x, "_data", x) for x in inputs]
    run = of_one(op, plain, settings, at)
    rng, weights = np.random.default_rng(0), plain[at]
    try:
        with UNHEARD, np.errstate(all="ignore"):
            shape = run(weights).shape
            for axis in range(len(shape) - 1, 0, -1):
                gradient = np.zeros(shape, weights.dtype)
                first = (slice(None),) * axis + (0,)
                gradient[first] = rng.normal(size=gradient[first].shape)
                reached = vjp(run, weights, gradient)[1] != 0
                for own in range(weights.ndim):
                    hit = reached.any(axis=tuple(i for i in range(weights.ndim) if i != own))
                    if len(hit) == shape[axis] and hit[0] and hit.sum() == 1:
                        return axis, own
    except Exception:  # not for such weights: then nothing is said of them
        return None
    return None
