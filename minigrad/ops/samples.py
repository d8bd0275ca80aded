"""Samples and costs that several ops share: shapes that broadcast, one entry, none, no axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..engine.op import Call, call

Rng: TypeAlias = "np.random.Generator"  # numpy.random loads slowly
Calls: TypeAlias = Iterator[Call]
Samples: TypeAlias = "Callable[[Rng], Calls]"


def away_from(kink: float, x: NDArray[np.float64], margin: float = 0.1) -> NDArray[np.float64]:
    """Move entries at least `margin` away from a kink, so that differences do not straddle it."""
    return np.asarray(x + np.where(x >= kink, margin, -margin))


def unary(low: float = -2.0, high: float = 2.0, kink: float | None = None) -> Samples:
    """Calls of one input drawn from [low, high], away from the kink if there is one."""

    def samples(rng: Rng) -> Calls:
        for shape in [(2, 3, 5), (7,), (), (0, 3), (1, 1)]:
            x = np.asarray(rng.uniform(low, high, shape))
            yield call(x if kink is None else away_from(kink, x))

    return samples


def pairs(low: float = -2.0, high: float = 2.0, gap: float = 0.0) -> Samples:
    """Calls of two inputs that broadcast; entries that are combined differ by a gap at least."""

    def samples(rng: Rng) -> Calls:
        every = ["3 5, 3 5", "2 3 5, 5", "3 1, 1 5", "5, 2 3 1", "3 5,", ",", "0 3, 3", "1, 0"]
        for shapes in every:
            a, b = (
                np.asarray(rng.uniform(low, high, tuple(map(int, shape.split()))))
                for shape in shapes.split(",")
            )
            if gap:  # a takes even multiples of it, b odd ones
                a = np.asarray(np.round(a / gap / 2) * gap * 2)
                b = np.asarray((np.floor(b / gap / 2) * 2 + 1) * gap)
            yield call(a, b)
        yield call(np.asarray(rng.uniform(low, high, (3,))), 1.5)

    return samples


def reductions(rng: Rng) -> Calls:
    """Calls of one input with axis and keepdims, all entries distinct."""
    x = rng.permutation(np.linspace(-2.0, 2.0, 30)).reshape(2, 3, 5)
    for keepdims in (False, True):
        for axis in (None, 0, -1, (0, 2), (1, -1, 0)):
            yield call(x, axis=axis, keepdims=keepdims)
    yield call(np.asarray(1.5))
    yield call(np.zeros((0, 3)), axis=1)


def of_shapes(*calls: tuple[Any, ...]) -> Samples:
    """Calls in which a shape, a list, stands for an array, and a list of tuples for several."""

    def samples(rng: Rng) -> Calls:
        def drawn(value: Any) -> Any:
            if not isinstance(value, list):
                return value
            if value and isinstance(value[0], tuple):
                return [drawn([*shape]) for shape in value]
            return np.asarray(rng.uniform(-1, 1, value))

        for values in calls:
            yield call(*map(drawn, values))

    return samples


# ---------------------------------------------------------------- what several ops cost


def each(cost: int) -> Callable[..., int]:
    """So many operations per entry of the result."""
    return lambda out: cost * np.size(out)


def each_of_x(cost: int) -> Callable[..., int]:
    """So many operations per entry of x."""
    return lambda x: cost * np.size(x)


no_flops = each(0)
