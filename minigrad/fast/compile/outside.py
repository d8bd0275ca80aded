"""What a step may change without binding any name anew: entries of arrays, random generators."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np

__all__ = ["Outside"]

LARGE = 2**26  # bytes: of larger arrays it is not noticed that a step writes into them


class Outside:
    """The arrays and generators that a step reaches by name, as they are before it runs."""

    def __init__(self, found: list[tuple[str, Any]]) -> None:
        self._found = [*found, ("random", random), ("np.random", np.random)]
        self._states = [_state_of(x) for _, x in self._found]

    def look(self, is_allowed: Callable[[Any], bool]) -> None:
        """Take some as they are now, for an op drew from them."""
        for i, (_, x) in enumerate(self._found):
            if is_allowed(x):
                self._states[i] = _state_of(x)

    def changed(self) -> str:
        """What is no longer as it was, by name."""
        pairs = zip(self._found, self._states, strict=True)
        return next((name for (name, x), state in pairs if _state_of(x) != state), "")


def _state_of(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return None if x.dtype.hasobject or x.nbytes > LARGE else crc32(x.tobytes())
    if isinstance(x, np.random.Generator):
        return pickle.dumps(x.bit_generator.state)
    return x.getstate() if hasattr(x, "getstate") else pickle.dumps(x.get_state())
