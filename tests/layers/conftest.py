"""What the layers' tests share: a seeded generator, and gradients derived by hand."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import pytest

import minigrad as mg


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20170612)


class CallRecord(mg.Listener):
    """The operations that a layer runs, and the steps that it says its gradients must equal."""

    def __init__(self) -> None:
        self.steps: Any = None
        self.symbols: dict[str, Any] = {}
        self.flops: dict[str, int] = {}
        self.outputs: list[mg.Tensor] = []

    def expect_gradients(self, steps: Callable[..., Any], symbols: dict[str, Any]) -> None:
        named = {output.name: output for output in self.outputs if output.name}
        given = {s: named[v] if isinstance(v, str) else v for s, v in symbols.items()}
        self.steps, self.symbols = steps, named | given

    def forward(self, op: Any, inputs: Any, settings: Any, output: Any, seconds: float) -> None:
        self.outputs.append(output)
        count = op.count_flops(inputs, settings, output)
        self.flops[op.name] = self.flops.get(op.name, 0) + count


@pytest.fixture
def recorded() -> Callable[..., tuple[Any, CallRecord]]:
    """Run a layer; return its output and a record of the call."""

    def run(layer: Any, *args: Any, **kwargs: Any) -> tuple[Any, CallRecord]:
        record = CallRecord()
        with mg.listen(record):
            out = layer(*args, **kwargs)
        return out, record

    return run


@pytest.fixture
def check_against_hand(rng, recorded) -> Callable[..., set[str]]:
    """Compare the engine's gradient of each symbol with the hand-derived one; return the symbols.

    Two arrays agree if their largest difference is within the tolerance of their largest entry.
    """

    def check(layer: Any, X: Any, mask: Any = None, tolerance: float = 1e-14) -> set[str]:
        out, record = recorded(layer, X, mask)
        grad_output = rng.normal(size=out.shape).astype(out.dtype)
        known = {
            name: value.numpy() if isinstance(value, mg.Tensor) else value
            for name, value in record.symbols.items()
            if name in signature(record.steps).parameters
        }
        by_hand: dict[str, Any] = {}
        for step in record.steps(**known, grad_output=grad_output):
            by_hand |= step.gradients
        found = mg.grad(out, [record.symbols[name] for name in by_hand], grad_output)
        for (name, expected), gradient in zip(by_hand.items(), found, strict=True):
            assert gradient.shape == expected.shape == record.symbols[name].shape, name
            assert gradient.dtype == layer.dtype, name
            # A bias's gradient is a sum that may cancel (∂b_K is zero): its terms are the measure.
            terms = {"b_O": grad_output} | {f"b_{s}": by_hand[s] for s in "QKV"}
            size = np.abs(terms.get(name, expected)).max(initial=0)
            np.testing.assert_allclose(
                gradient, expected, rtol=0, atol=tolerance * size, err_msg=name
            )
        return set(by_hand)

    return check
