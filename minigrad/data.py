"""Batches of training data: shuffled epochs over arrays or any sequence, resumable in the middle.

for x, y in batches(X, Y, batch_size=64, rng=rng): ...      one epoch; the next `for` is another
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .engine.errors import ArgumentError, DTypeError, GradientError, ShapeError
from .engine.op import Array, refuse_foreign
from .engine.tensor import Tensor

__all__ = ["batches"]

Examples: TypeAlias = "Tensor | Array | Sequence[Any]"


class batches:
    """Examples in batches, in a new order in each epoch.

    Each `for` over it is one epoch; `len` counts its batches. The state can be saved in the middle
    of an epoch: after loading, the next `for` runs the rest of it.

    Args:
        sequences: arrays, or sequences of anything, all of one length.
            One gives single batches, several give tuples.
            Numbers and arrays of one shape are stacked; other things stay in a list.
        rng: draws the order; without it examples come as they lie.
        drop_last: leave out the last batch where it has fewer than `batch_size`.
    Attributes:
        epoch: how many epochs were finished.
        position: how many examples of the present one were handed out.
    Raises: ArgumentError, DTypeError, ShapeError for what does not fit, as where there is no batch;
        GradientError for a Tensor whose gradient would be lost.

    >>> X, Y = np.arange(10).reshape(5, 2), ["a", "b", "c", "d", "e"]
    >>> for x, y in batches(X, Y, batch_size=2):
    ...     print(x.tolist(), y)
    [[0, 1], [2, 3]] ['a', 'b']
    [[4, 5], [6, 7]] ['c', 'd']
    [[8, 9]] ['e']
    """

    def __init__(
        self,
        *sequences: Examples,
        batch_size: int,
        rng: np.random.Generator | None = None,
        drop_last: bool = False,
    ) -> None:
        for x in sequences:
            if isinstance(x, Mapping) or not hasattr(x, "__len__"):
                kind = type(x).__name__
                raise DTypeError(f"batches: a {kind} has no positions; write a list of it")
            refuse_foreign("batches", x)
            if isinstance(x, Tensor) and x.requires_grad:
                raise GradientError("batches: no gradient comes back; write x.detach()")
        lengths = [len(x) for x in sequences]
        if len(set(lengths)) != 1:
            raise ShapeError(f"batches(*sequences): all must be of one length, got {lengths}")
        if not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise ArgumentError(
                f"batches: batch_size must be an integer from 1 on, got {batch_size}"
            )
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise DTypeError(
                f"batches: rng must be a Generator, got {rng}; np.random.default_rng(0)"
            )
        self.sequences = [_by_position(x) for x in sequences]
        self.batch_size = batch_size
        self.rng = rng
        self.drop_last = drop_last
        self.size = lengths[0]
        if len(self) == 0:
            raise ArgumentError(f"batches: {self.size} examples make no batch of {batch_size}")
        self.epoch = 0
        self.position = 0
        self._order: NDArray[np.intp] | None = None  # of the present epoch
        self._resumed = False

    def __len__(self) -> int:
        if self.drop_last:
            return self.size // self.batch_size
        return -(-self.size // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        order = None
        position = 0
        if self._resumed:
            order = self._order
            position = self.position
            self._resumed = False
        if order is None:
            order = np.arange(self.size) if self.rng is None else self.rng.permutation(self.size)
        end = len(self) * self.batch_size if self.drop_last else self.size
        while position < end:
            chosen = order[position : position + self.batch_size]
            position += len(chosen)
            self._order = order  # of the loop that went on last
            self.position = position
            batch = tuple(_taken(sequence, chosen) for sequence in self.sequences)
            yield batch[0] if len(batch) == 1 else batch
        self.epoch += 1
        self.position = 0
        self._order = None

    def state_dict(self) -> dict[str, Any]:
        """Epoch, position, the order of the present epoch, and the generator's state."""
        return {
            "size": self.size,
            "epoch": self.epoch,
            "position": self.position,
            "order": deepcopy(self._order),
            "rng": None if self.rng is None else deepcopy(self.rng.bit_generator.state),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Raises: ArgumentError for data of another length, or where only one of the two shuffles.
        """
        if state["size"] != self.size or (state["rng"] is None) != (self.rng is None):
            raise ArgumentError(
                f"load_state_dict(state): {self.size} examples and rng={self.rng} here, "
                f"{state['size']} and {state['rng']} in the state"
            )
        if self.rng is not None:
            self.rng.bit_generator.state = state["rng"]
        self.epoch = state["epoch"]
        self.position = state["position"]
        self._order = deepcopy(state["order"])
        self._resumed = self._order is not None


def _by_position(examples: Examples) -> Examples:
    """Examples that an integer picks by position; a column of a table picks by its labels."""
    if isinstance(examples, Tensor):
        return examples.numpy()
    return np.asarray(examples) if hasattr(examples, "__array__") else examples


def _taken(examples: Examples, chosen: NDArray[np.intp]) -> Array | list[object]:
    if isinstance(examples, np.ndarray):
        return examples[chosen]
    items = [examples[int(i)] for i in chosen]
    try:
        array = np.asarray(items)
    except ValueError:  # of different shapes
        return items
    return array if array.dtype.kind in "biufc" else items
