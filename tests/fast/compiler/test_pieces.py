"""Layers beyond attention, compiled: values and every gradient are eager's, at each call."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from layers import (
    GRU,
    LSTM,
    RNN,
    AvgPool2d,
    BatchNorm,
    Conv1d,
    Conv2d,
    Flatten,
    GroupNorm,
    Linear,
    MaxPool2d,
    Sequential,
)
from tests.compiled import assert_compiles

B, T, D, H = 3, 5, 2, 4


def _draw(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def _masks(seed):
    return np.arange(T) < np.random.default_rng(seed).integers(1, T + 1, (B, 1))


MODELS = {
    f"{kind.__name__} {method}": (kind(D, H, 2, True, method=method, rng=0), (B, T, D))
    for kind in (RNN, GRU, LSTM)
    for method in ("fused", "steps")
} | {
    "classifier": (
        Sequential(LSTM(D, H, rng=0), lambda X: X[:, -1], Linear(H, 3, rng=1)), (B, T, D)
    ),
    "conv1d": (Conv1d(D, H, 3, padding="same", rng=0), (B, D, 9)),
    "conv2d": (Conv2d(4, 6, 3, stride=2, padding=1, groups=2, rng=0), (B, 4, 7, 5)),
    "cnn": (
        Sequential(
            Conv2d(1, 4, 3, padding=1, rng=0), BatchNorm(4), mg.relu, MaxPool2d(2),
            Conv2d(4, 6, 3, rng=1), GroupNorm(2, 6), mg.softplus, AvgPool2d(2), Flatten(),
            Linear(6, 3, rng=2),
        ),
        (B, 1, 8, 8),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_compiled_gives_what_it_gives_eagerly(name):
    model, shape = MODELS[name]

    def step(X):
        out = model(X)
        (out * out).sum().backward()
        return out

    assert_compiles(step, model.parameters(), *[(_draw(*shape, seed=n),) for n in range(3)])


@pytest.mark.parametrize("method", ["fused", "steps"])
def test_a_mask_is_another_at_each_call(method):
    model = LSTM(D, H, 2, True, method=method, rng=0)

    def step(X, mask):
        H_all, (h, c) = model(X, mask=mask, return_state=True)
        loss = (H_all * H_all).sum() + (h * c).sum()
        loss.backward()
        return loss

    assert_compiles(
        step, model.parameters(), *[(_draw(B, T, D, seed=n), _masks(n)) for n in range(3)]
    )


def test_what_is_looked_up_in_an_array_is_looked_up_again():
    """argmax and topk in a step: accuracy, and the largest entries."""
    model = Linear(5, 4, rng=0)

    def step(x, t):
        z = model(x)
        values, places = mg.topk(z, 2)
        loss = mg.cross_entropy(z, t) + values.sum()
        loss.backward()
        right = np.equal(mg.argmax(z, axis=1), t)
        return mg.add(right, places[:, 0] * loss.detach())

    draws = [np.random.default_rng(n) for n in range(3)]
    assert_compiles(
        step, model.parameters(), *[(d.normal(size=(6, 5)), d.integers(0, 4, 6)) for d in draws]
    )
