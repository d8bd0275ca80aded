"""The exponential moving average of weights: steadier than the weights of any one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.tensor import Tensor
from ..engine.types import Array, StateDict
from .updates import checked_parameters, update

__all__ = ["MovingAverage"]


class MovingAverage:
    """a ← d a + (1 - d) w after each step, for every parameter w; a begins as w.

    Args: decay: d; the average looks back over some 1 / (1 - d) steps.
    Raises: as an optimizer does for its parameters; ArgumentError unless 0 ≤ decay < 1.
    Source: Polyak & Juditsky 1992.

    >>> import minigrad as mg
    >>> w = mg.tensor([0.0], requires_grad=True)
    >>> average = MovingAverage([w], decay=0.5)
    >>> w.assign_([8.0]) and average.step()
    >>> with average.weights():
    ...     print(w)
    tensor([4.], requires_grad=True)
    >>> print(w)
    tensor([8.], requires_grad=True)
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ArgumentError(f"MovingAverage: decay must lie in [0, 1), got {decay}")
        self.parameters = checked_parameters("MovingAverage(parameters)", parameters)
        self.decay = decay
        self._averages = [
            np.array(p._data, np.result_type(p.dtype, np.float32)) for p in self.parameters
        ]

    def step(self) -> None:
        """Add the present weights to the average; call it after `optimizer.step()`."""
        with update(self, partial(MovingAverage.step, self)):
            for average, p in zip(self._averages, self.parameters, strict=True):
                average *= self.decay
                average += (1 - self.decay) * p._data

    @contextmanager
    def weights(self) -> Iterator[None]:
        """Within, the parameters hold their averages: to evaluate, or to save the model."""
        present = [p._data.copy() for p in self.parameters]
        self._write(self._averages)
        try:
            yield
        finally:
            self._write(present)

    def _write(self, arrays: list[Array]) -> None:
        for p, array in zip(self.parameters, arrays, strict=True):
            p.assign_(array.astype(p.dtype, copy=False))

    def state_dict(self) -> StateDict:
        """Copies of the averages, by position."""
        return {str(i): average.copy() for i, average in enumerate(self._averages)}

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from what `state_dict` gave; all of it fits, or nothing is changed."""
        found = [np.array(state[key]) for key in sorted(state, key=lambda key: (len(key), key))]
        here, there = ([a.shape for a in arrays] for arrays in (self._averages, found))
        if here != there:
            raise ArgumentError(
                f"load_state_dict(state): MovingAverage has shapes {here}, the state {there}"
            )
        self._averages = found
