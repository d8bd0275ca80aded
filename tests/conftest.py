"""What every test may use: a seeded generator, and a way to call an op by its inputs and settings."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from minigrad.op import Op


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20150914)


@pytest.fixture
def invoke() -> Callable[..., Any]:
    """Call an op with its inputs and its settings, wherever its signature wants them."""

    def run(op: Op, inputs: Any, settings: Any) -> Any:
        values = dict(zip(op.settings, deepcopy(settings), strict=True))
        values |= {op.inputs[0]: inputs} if op.many else dict(zip(op.inputs, inputs, strict=True))
        positional: list[Any] = []
        for name, parameter in op.signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += values[name]
            else:
                positional.append(values[name])
        return op(*positional)

    return run
