"""Batches of training data: shuffled epochs over arrays or any sequence, resumable in the middle.

for x, y in batches(X, Y, batch_size=64, rng=rng): ...      one epoch; the next `for` is another
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .engine.arguments import refuse_masked
from .engine.errors import ArgumentError, DTypeError, ShapeError
from .engine.refusals import explained
from .engine.tensor import Tensor, TensorOrArray
from .engine.types import Array, StateDict
from .lazy_imports import missing_name

__all__ = ["Batches", "batches", "pad_sequences"]

Examples: TypeAlias = "TensorOrArray | Sequence[Any]"


@explained
def batches(
    *sequences: Examples,
    batch_size: int,
    rng: np.random.Generator | None = None,
    drop_last: bool = False,
    pad: float | None = None,
) -> Batches:
    """Examples in batches, in a new order in each epoch.

    Args:
        sequences: arrays, or sequences of anything, all of one length. One gives single batches,
            several give tuples. Numbers and arrays of one shape are stacked; other things stay in a
            list.
        rng: draws the order; without it examples come as they lie.
        drop_last: leave out the last batch where it has fewer than `batch_size`.
        pad: sequences of different lengths are filled up with this at their ends, to the longest
            of their batch.
    Raises: ArgumentError, ShapeError for what does not fit; ShapeError for ragged examples without
        `pad`.

    >>> X, Y = np.arange(10).reshape(5, 2), ["a", "b", "c", "d", "e"]
    >>> for x, y in batches(X, Y, batch_size=2):
    ...     print(x.tolist(), y)
    [[0, 1], [2, 3]] ['a', 'b']
    [[4, 5], [6, 7]] ['c', 'd']
    [[8, 9]] ['e']
    """
    return Batches(sequences, batch_size, rng, drop_last, pad)


@dataclass(eq=False, repr=False)
class Batches:
    """What `batches` gives. Each `for` over it is one epoch; `len` counts its batches.

    Its state can be saved in the middle of an epoch: after loading, the next `for` runs the rest of
    that epoch.

    Attributes:
        epoch: how many epochs were finished.
        position: how many examples of the present one were handed out.
    """

    sequences: Sequence[Examples]
    batch_size: int
    rng: np.random.Generator | None
    drop_last: bool
    pad: float | None

    def __post_init__(self) -> None:
        if not self.sequences:
            raise ArgumentError("batches(*sequences): got none")
        if any(isinstance(x, int | float | np.number) for x in self.sequences):
            raise ArgumentError("batches(*sequences): a number among them; write batch_size=64")
        if not isinstance(self.batch_size, int | np.integer) or self.batch_size < 1:
            raise ArgumentError(
                f"batches: batch_size must be an integer from 1 on, got {self.batch_size!r}"
            )
        if self.rng is not None and not isinstance(self.rng, np.random.Generator):
            raise DTypeError(
                f"batches: rng must be a Generator, got {self.rng!r}; np.random.default_rng(0)"
            )
        refuse_masked("batches(*sequences)", *self.sequences)
        self.sequences = [_by_position(x) for x in self.sequences]
        lengths = [len(x) for x in self.sequences]
        if len(set(lengths)) > 1:
            raise ShapeError(f"batches(*sequences): all must be of one length, got {lengths}")
        self.size = lengths[0]
        self.epoch = self.position = 0
        self._order: NDArray[np.intp] | None = None  # of the present epoch
        self._resumed = False

    def __len__(self) -> int:
        whole, rest = divmod(self.size, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        resumed, self._resumed = self._resumed, False
        order = self._order if resumed else None
        position = self.position if resumed else 0
        if order is None:
            order = self._draw()
        end = len(self) * self.batch_size if self.drop_last else self.size
        while position < end:
            chosen = order[position : position + self.batch_size]
            position += len(chosen)
            self._order, self.position = order, position  # of the loop that went on last
            found = tuple(self._batch(sequence, chosen) for sequence in self.sequences)
            yield found[0] if len(found) == 1 else found
        self.epoch += 1
        self.position, self._order = 0, None

    def _draw(self) -> NDArray[np.intp]:
        return np.arange(self.size) if self.rng is None else self.rng.permutation(self.size)

    def _batch(self, sequence: Examples, chosen: NDArray[np.intp]) -> Array | list[object]:
        if isinstance(sequence, np.ndarray):
            return sequence[chosen]
        examples = [sequence[int(i)] for i in chosen]
        try:
            arrays = [np.asarray(example) for example in examples]
        except ValueError:  # lists that make no array
            return examples
        if not all(array.dtype.kind in "biufc" for array in arrays):
            return examples
        if len({array.shape for array in arrays}) == 1:
            return np.stack(arrays)
        if self.pad is None:
            shapes = sorted({array.shape for array in arrays})
            raise ShapeError(f"batches: examples have shapes {shapes}; give pad= to fill them up")
        return pad_sequences(arrays, self.pad)

    # ------------------------------------------------------------------ saving and loading

    def state_dict(self) -> StateDict:
        """Epoch, position, the order of the present epoch, and the generator's state."""
        return {
            "size": self.size,
            "epoch": self.epoch,
            "position": self.position,
            "order": None if self._order is None else self._order.copy(),
            "rng": None if self.rng is None else deepcopy(self.rng.bit_generator.state),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from what `state_dict` gave.

        Raises: ArgumentError for data of another length, or where only one of the two shuffles.
        """
        if state["size"] != self.size:
            raise ArgumentError(
                f"load_state_dict(state): batches of {self.size} examples, the state of "
                f"{state['size']}"
            )
        if (state["rng"] is None) != (self.rng is None):
            raise ArgumentError("load_state_dict(state): only one of batches and state has an rng")
        if self.rng is not None:
            self.rng.bit_generator.state = state["rng"]
        self.epoch, self.position = state["epoch"], state["position"]
        self._order = None if state["order"] is None else np.array(state["order"])
        self._resumed = self._order is not None


def _by_position(examples: Examples) -> Examples:
    """Examples that an integer picks by position; a column of a table picks by its labels."""
    if isinstance(examples, Tensor):
        return examples.numpy()
    to_numpy = getattr(examples, "to_numpy", None)
    return examples if to_numpy is None else to_numpy()


@explained
def pad_sequences(sequences: Sequence[ArrayLike], value: float = 0) -> Array:
    """Sequences of different lengths as one array, filled up with `value` at their ends.

    Raises: ShapeError unless they differ in their first axis alone.

    >>> pad_sequences([[1, 2, 3], [4]], value=-1)
    array([[ 1,  2,  3],
           [ 4, -1, -1]])
    """
    arrays = [np.asarray(sequence) for sequence in sequences]
    if any(array.ndim == 0 for array in arrays) or len({a.shape[1:] for a in arrays}) > 1:
        shapes = [array.shape for array in arrays]
        raise ShapeError(f"pad_sequences: only the first axis may differ, got shapes {shapes}")
    longest = max((len(array) for array in arrays), default=0)
    rest = arrays[0].shape[1:] if arrays else ()
    dtype = np.result_type(*arrays) if arrays else np.dtype(float)
    if dtype.kind in "biu" and not float(value).is_integer():  # integers would cut it off
        dtype = np.result_type(dtype, np.float64)
    padded = np.full((len(arrays), longest, *rest), value, dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)
