"""Samples and costs that several ops share: shapes that broadcast, one entry, none, no axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ..engine.declaration import Call, call

Rng: TypeAlias = "np.random.Generator"  # numpy.random loads slowly
Calls: TypeAlias = Iterator[Call]
Samples: TypeAlias = "Callable[[Rng], Calls]"


def of_shapes(*calls: tuple[Any, ...], low: float = -1.0, high: float = 1.0) -> Samples:
    """Calls in which a shape, a list, stands for an array, and a list of tuples for several."""

    def samples(rng: Rng) -> Calls:
        def drawn(value: Any) -> Any:
            if not isinstance(value, list):
                return value
            if value and isinstance(value[0], tuple):
                return [drawn([*shape]) for shape in value]
            return np.asarray(rng.uniform(low, high, value))

        for values in calls:
            yield call(*map(drawn, values))

    return samples


def unary(low: float = -2.0, high: float = 2.0) -> Samples:
    """Calls of one input drawn from [low, high]."""
    return of_shapes(
        ([2, 3, 5],), ([7],), ([],), ([0, 3],), ([1, 1],), ([3, 1, 2],), low=low, high=high
    )


def pairs(low: float = -2.0, high: float = 2.0) -> Samples:
    """Calls of two inputs that broadcast."""
    return of_shapes(
        ([3, 5], [3, 5]), ([2, 3, 5], [5]), ([3, 1], [1, 5]), ([5], [2, 3, 1]), ([3, 5], []),
        ([], []), ([0, 3], [3]), ([1], [0]), ([3], 1.5), low=low, high=high,
    )  # fmt: skip


def reductions(rng: Rng) -> Calls:
    """Calls of one input with axis and keepdims, all entries distinct."""
    x = rng.permutation(np.linspace(-2.0, 2.0, 30)).reshape(2, 3, 5)
    for keepdims in (False, True):
        for axis in (None, 0, -1, (0, 2), (1, -1, 0)):
            yield call(x, axis=axis, keepdims=keepdims)
    yield call(np.asarray(1.5))
    yield call(np.zeros((0, 3)), axis=1)


# ---------------------------------------------------------------- what several ops cost


def each(cost: int) -> Callable[..., int]:
    """So many operations per entry of the result."""
    return lambda out: cost * np.size(out)


def each_of_x(cost: int) -> Callable[..., int]:
    """So many operations per entry of x."""
    return lambda x: cost * np.size(x)


no_flops = each(0)
