"""A compiled call gives the bits of the eager call: every op, layers, random programs, layouts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import (
    LSTM,
    BatchNorm,
    Conv2d,
    LanguageModel,
    MaxPool2d,
    RMSNorm,
    Sequential,
    TransformerBlock,
    causal,
)  # fmt: skip
from minigrad.engine.op import registry
from minigrad.fast.compile import lines, symbols
from minigrad.fast.limits import LIMITS
from minigrad.optim import Adam, clip_grad_norm
from tests.fast.compiled import leaf, same, world
from tests.random_programs import random_program

OPS = [name for name, op in registry.items() if op.kernel.__module__.startswith("minigrad.ops")]
LAYOUTS = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, -1)[..., ::2] if x.ndim else x,
    "turned": lambda x: x[::-1] if x.ndim else x,
}


def weighted(out: Any) -> Any:
    """A sum to go back from, whose gradients are not all the same."""
    weights = np.cos(np.arange(out.size)).reshape(out.shape).astype(out.dtype)
    return mg.sum(out * mg.mark_constant(weights))


@pytest.mark.parametrize("name", OPS)
def test_every_op_s_samples_have_the_eager_bits_with_every_overlay_taking_them(name, monkeypatch):
    op = registry[name]
    monkeypatch.setattr(op, "above", 0)
    monkeypatch.setattr(LIMITS, "one_tile_scores", 0)
    dtypes = itertools.cycle([np.float64, np.float32, np.float16])
    for call, dtype in zip(op.samples(np.random.default_rng(0)), dtypes, strict=False):
        inputs, settings = op.bound(call.args, call.kwargs)
        if any(isinstance(x, np.random.Generator) for x in settings):
            continue

        def make(inputs: Any = inputs, settings: Any = settings, dtype: Any = dtype) -> Any:
            xs = [
                mg.tensor(np.asfortranarray(x.astype(dtype)), requires_grad=True)
                if getattr(x, "dtype", np.dtype(int)).kind == "f"
                else x
                for x in inputs
            ]
            given = [xs] if op.variadic else xs

            def step() -> Any:
                out = op(*given, **dict(zip(op.settings, settings, strict=True)))
                loss = weighted(out)
                loss.backward()
                return out, loss

            return world(step, *[x for x in xs if isinstance(x, mg.Tensor)], given=lambda i: ())

        with np.errstate(all="ignore"):
            try:
                make().step()
            except mg.errors.MinigradError:  # no op for this dtype, or none that is learned
                continue
            same(make, calls=3)


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_a_random_program_of_arguments_has_the_eager_bits_in_any_dtype_and_layout(seed):
    program = random_program(seed)
    dtype = [np.float64, np.float32, np.float16][seed % 3]
    lay = [*LAYOUTS.values()][seed % 4]

    def make() -> Any:
        def step(*xs: Any) -> Any:
            leaves = [mg.tensor(x, requires_grad=True) for x in xs]
            loss = program.loss(leaves)
            loss.backward()
            return loss, *[x.grad for x in leaves if x.grad is not None]

        return world(step, given=lambda i: [lay(np.asarray(x * i, dtype)) for x in program.arrays])

    with np.errstate(all="ignore"):
        same(make, calls=4)


def of_layer(make_layer: Any, *shape: int, tokens: int = 0) -> Any:
    """A training step of a layer in float32, at a size where overlays run."""

    def make() -> Any:
        layer = make_layer(dtype=np.float32, rng=np.random.default_rng(5))
        optimizer = Adam(layer.parameters(), lr=1e-3)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = weighted(layer(x))
            loss.backward()
            clip_grad_norm(layer.parameters(), 1.0)
            optimizer.step()
            return loss

        def given(i: int) -> Any:
            rng = np.random.default_rng(i)
            if tokens:
                return (rng.integers(0, tokens, shape),)
            return (rng.normal(size=shape).astype(np.float32),)

        return world(step, given=given, seen=lambda: [*layer.state_dict().values()])

    return make


LAYERS = {
    "batch norm": of_layer(lambda dtype, rng: BatchNorm(3, dtype=dtype), 8, 3, 16, 16),
    "convolution": of_layer(
        lambda **k: Sequential(Conv2d(3, 8, 3, stride=2, **k), mg.relu, MaxPool2d(2)), 8, 3, 17, 17
    ),
    "lstm": of_layer(lambda **k: LSTM(16, 32, **k), 8, 20, 16),
    "block": of_layer(
        lambda **k: TransformerBlock(64, 4, mask=causal, norm=RMSNorm, dropout=0.1, **k), 4, 32, 64
    ),
    "gpt": of_layer(
        lambda **k: LanguageModel(13, 32, n_heads=4, n_layers=2, max_len=40, **k), 8, 40, tokens=13
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_training_a_layer_has_the_eager_bits_in_weights_and_state(name):
    same(LAYERS[name], calls=5)


# ---------------------------------------------------------------- planted faults


def a_wrong_call(patch: Any) -> None:
    """Where a kernel subtracts, the program multiplies."""
    ask = symbols.Sample.__array_ufunc__

    def wrong(self: Any, ufunc: Any, *given: Any, **settings: Any) -> Any:
        return ask(self, np.multiply if ufunc is np.subtract else ufunc, *given, **settings)

    patch.setattr(symbols.Sample, "__array_ufunc__", wrong)


def another_order(patch: Any) -> None:
    """What was broadcast is summed from its end."""
    reduce_to_edge = lines.reduce_to_edge

    def turned(part: Any, edge: Any, *of: Any) -> Any:
        return reduce_to_edge(part if part.shape == edge.shape else part[::-1], edge, *of)

    patch.setattr(lines, "reduce_to_edge", turned)


def no_proof(patch: Any) -> None:
    patch.setattr(symbols, "_agree", lambda *given: True)


@pytest.mark.parametrize(
    ("faults", "is_caught"),
    [((a_wrong_call,), True), ((a_wrong_call, no_proof), False), ((another_order,), False)],
)
def test_a_planted_fault_is_called_whole_or_has_other_bits(faults, is_caught, monkeypatch):
    for plant in faults:
        plant(monkeypatch)
    b = leaf(5)

    def step(x: Any) -> Any:
        loss = weighted(mg.tensor(x) - b * 3.0)
        loss.backward()
        return loss

    make = lambda: world(step, b, given=lambda i: (np.cos(np.arange(985.0)).reshape(197, 5),))  # noqa: E731
    if is_caught:
        assert "subtract(" in same(make).source
    else:
        with pytest.raises(AssertionError, match="call 3"):
            same(make)
