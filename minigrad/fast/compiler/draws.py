"""The random generators that a step may reach, NumPy's and Python's, and where they stand."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

__all__ = ["GENERATORS", "generator_state", "set_generator_state", "shared_states"]

GENERATORS = (np.random.Generator, random.Random)


def generator_state(generator: Any) -> Any:
    """Where a generator stands."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state


def set_generator_state(generator: Any, state: Any) -> None:
    """Put a generator back to where it stood."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.bit_generator.state = state


def shared_states() -> Any:
    """Where the generators stand that everybody shares."""
    shared: Any = np.random.get_state(legacy=False)  # noqa: NPY002, it is only looked at
    return random.getstate(), shared["state"]["key"].tobytes(), shared["state"]["pos"]
