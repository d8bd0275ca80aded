"""Random programs: a list of steps, each of which picks values that were made before it.

So values are reused, broadcast and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from minigrad.errors import MinigradError

__all__ = ["Program", "random_program"]

STEPS = 14
SHAPES = [(3, 5), (5,), (1, 5), (3, 1), (2, 3, 5), (), (2, 1, 5), (5, 5), (2, 5, 3)]

CALLS = [
    lambda f, x, y: f.tanh(x),
    lambda f, x, y: f.relu(x),
    lambda f, x, y: f.exp(f.tanh(x)),
    lambda f, x, y: f.log(x * x + 1),
    lambda f, x, y: f.gelu(x, approximate="tanh"),
    lambda f, x, y: 3 - x**2,
    lambda f, x, y: 1 / (2 + f.sigmoid(-x)),
    lambda f, x, y: 0.7 * x + x.detach(),
    lambda f, x, y: f.add(x, y),
    lambda f, x, y: f.subtract(x, y),
    lambda f, x, y: f.multiply(x, y),
    lambda f, x, y: f.maximum(x, y),
    lambda f, x, y: x / (1.5 + f.sigmoid(y)),
    lambda f, x, y: f.where(x - y > 0, x, 2 * y),
    lambda f, x, y: f.matmul(x, y),
    lambda f, x, y: f.matmul(x, y.mT),
    lambda f, x, y: f.softmax(f.scale(f.matmul(x, y.mT), 0.3), -1) @ y,
    lambda f, x, y: x.mT @ x / 5 + y.sum(),
]


def _along_axes(rng: np.random.Generator, x: mg.Tensor) -> list[Callable[..., Any]]:
    """Calls whose settings depend on the shape."""
    axis, keep = int(rng.integers(-x.ndim, x.ndim)), bool(rng.integers(2))
    order = tuple(int(i) for i in rng.permutation(x.ndim))
    chosen = rng.integers(-x.shape[axis], x.shape[axis], 3)
    row = int(rng.integers(-x.shape[0], x.shape[0]))
    rows = [int(i) for i in rng.integers(-x.shape[0], x.shape[0], 4)]
    inside = rng.uniform(size=x.shape) < 0.7
    return [
        lambda f, x, y: f.sum(x, axis, keep),
        lambda f, x, y: f.mean(x, tuple(range(x.ndim)), keep),
        lambda f, x, y: f.max(x, axis, keep),
        lambda f, x, y: f.softmax(x, axis),
        lambda f, x, y: f.logsumexp(x, axis),
        lambda f, x, y: f.layer_norm(x, None, None),
        lambda f, x, y: f.cumsum(x, axis),
        lambda f, x, y: f.take(x, chosen, axis),
        lambda f, x, y: f.concatenate((x, 2 * x), axis),
        lambda f, x, y: f.stack((x, x * x), axis),
        lambda f, x, y: f.split(x, [1], axis)[0],
        lambda f, x, y: f.transpose(x, order),
        lambda f, x, y: f.reshape(x, x.shape[::-1]),
        lambda f, x, y: x[row],
        lambda f, x, y: x[..., 1:],
        lambda f, x, y: x[None],
        lambda f, x, y: x[rows],
        lambda f, x, y: x[inside],
        lambda f, x, y: f.squeeze(x),
        lambda f, x, y: f.broadcast_to(x, (2, *x.shape)),
    ]


class Program(NamedTuple):
    """Arrays to start from, and steps: a call, and the positions of the two values it may take."""

    arrays: list[np.ndarray]
    steps: list[tuple[Callable[..., Any], int, int]]

    def loss(self, tensors: Sequence[Any], functions: Any = mg) -> Any:
        """A fixed weighting of every value that it makes, by minigrad's functions or others."""
        values = list(tensors)
        for call, i, j in self.steps:
            values.append(call(functions, values[i], values[j]))
        loss = 0
        for n, value in enumerate(values):
            loss = loss + (value * value).mean() * (0.1 + n % 3)
        return loss


def random_program(seed: int) -> Program:
    """The program of this number."""
    rng = np.random.default_rng(seed)
    shapes = rng.integers(len(SHAPES), size=rng.integers(2, 5))
    arrays = [rng.uniform(-2, 2, SHAPES[i]) for i in shapes]
    values, steps = [mg.tensor(x) for x in arrays], []
    while len(steps) < STEPS:
        i, j = (int(k) for k in rng.integers(len(values), size=2))
        x, y = values[i], values[j]
        calls = _along_axes(rng, x) if 0 < x.ndim < 4 and rng.integers(2) else CALLS
        call = calls[rng.integers(len(calls))]
        try:
            result = call(mg, x, y)
        except MinigradError:  # shapes that do not go together
            continue
        if 0 < result.size < 400 and result.ndim < 5 and np.abs(result.data).max() < 1e3:
            values.append(result)
            steps.append((call, i, j))
    return Program(arrays, steps)
