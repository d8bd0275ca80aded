"""Layers, compiled: values and every gradient are eager's, at each call, and names cannot write
code.
"""

from __future__ import annotations

import ast
from functools import partial

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
    MultiHeadAttention,
    SelfAttention,
    Sequential,
    TransformerBlock,
    create_causal_mask,
    scaled_dot_product_attention,
)
from minigrad.errors import ArgumentError
from tests.compiled import assert_compiles

N = 7
B, T, D, H = 3, 5, 2, 4


def draw(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def training(model, weight=None):
    """A step: what a model does, and a gradient sent back, this one or of the sum of squares."""

    def step(*inputs):
        out = model(*inputs)
        if weight is None:
            (out * out).sum().backward()
        else:
            out.backward(weight)
        return out

    return step


# ---------------------------------------------------------------- attention

MASKS = {
    "none": None,
    "causal": create_causal_mask(N),
    "boolean": np.tri(N, dtype=bool),
    "a row that may attend nowhere": np.tri(N, dtype=bool) & (np.arange(N) > 0)[:, None],
    "padding": np.arange(N) < np.array([[[4]], [[7]]]),
}
ATTENTION = {
    "self": partial(SelfAttention, 6, 2, 3),
    "multi": partial(MultiHeadAttention, 6, 2),
    "grouped": partial(MultiHeadAttention, 6, 2, 1),
}


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ATTENTION)
def test_attention_equals_eager(kind, bias, mask):
    x = mg.tensor(draw(2, N, 6), requires_grad=True, name="X")
    layer = ATTENTION[kind](use_bias=bias, rng=0, method="exact")
    step = training(lambda x: layer(x, mask=mask), draw(2, N, 6, seed=1)[..., : layer.W_O.shape[1]])
    leaves = [x, *layer.parameters()]
    assert_compiles(step, leaves, *[(x,)] * 3, kept=lambda: [layer.attention_weights.copy()])


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("visible", [{"is_causal": True}, {"is_causal": True, "window": 3}])
@pytest.mark.parametrize("method", ["exact", "tiled"])
@pytest.mark.parametrize("additive", [False, True])
def test_a_layer_that_limits_what_is_seen_takes_another_mask_at_each_call(
    visible, method, additive
):
    layer = MultiHeadAttention(6, 2, rng=0, method=method, **visible)
    x = mg.tensor(draw(2, N, 6), requires_grad=True)
    seen = [np.arange(N) < np.array(n)[:, None, None] for n in ([4, 7], [7, 1], [2, 3])]
    masks = [np.where(m, 0.0, -np.inf) if additive else m for m in seen]
    assert_compiles(training(layer), [x, *layer.parameters()], *((x, mask) for mask in masks))


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("heads", [(), (3,)], ids=["one head", "three"])
@pytest.mark.parametrize("masked", [False, True])
def test_causal_attention_without_a_layer_is_compiled_for_each_offset(heads, masked):
    Q, K, V = (mg.tensor(draw(2, *heads, N, 4, seed=k), requires_grad=True) for k in range(3))

    def step(mask, offset):
        O, A = scaled_dot_product_attention(Q, K, V, mask, is_causal=True, offset=offset)
        (O * O).sum().backward()
        return A

    masks = [draw(2, N, N, seed=k) > -0.8 if masked else None for k in range(4)]
    assert_compiles(step, [Q, K, V], *zip(masks, (0, 0, 2, 2), strict=True), programs=2)


@pytest.mark.parametrize("method", ["exact", "tiled"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_mask_with_nan_is_refused_at_a_later_call_too(wrong, method):
    layer = SelfAttention(6, 2, 3, rng=0, method=method)
    x, mask = mg.tensor(np.ones((2, N, 6))), create_causal_mask(N)
    step = mg.compile(training(layer))
    step(x, mask.copy())
    step(x, mask.copy())
    assert not step.reasons
    mask[2, 1] = wrong
    with pytest.raises(ArgumentError, match=r"mask holds NaN or \+inf"):
        step(x, mask.copy())


@pytest.mark.parametrize("size", [7, 211])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 2e-3), ("f8", 1e-10)])
def test_a_block_is_followed_into_every_rule_of_its_backward(dtype, tolerance, size):
    block = TransformerBlock(6, 2, rng=0, dtype=dtype, activation="gelu")
    x = mg.tensor(draw(2, size, 6, dtype=dtype), requires_grad=True, name="X")
    step = training(block, draw(2, size, 6, seed=1, dtype=dtype))
    run = assert_compiles(step, [x, *block.parameters()], *[(x,)] * 3, tolerance=tolerance)
    assert "_backward(" not in run.source  # no rule is called whole


# ---------------------------------------------------------------- other layers

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
    calls = [(draw(*shape, seed=n),) for n in range(3)]
    assert_compiles(training(model), model.parameters(), *calls)


@pytest.mark.parametrize("method", ["fused", "steps"])
def test_a_mask_is_another_at_each_call(method):
    model = LSTM(D, H, 2, True, method=method, rng=0)

    def step(X, mask):
        H_all, (h, c) = model(X, mask=mask, return_state=True)
        loss = (H_all * H_all).sum() + (h * c).sum()
        loss.backward()
        return loss

    lengths = [np.random.default_rng(n).integers(1, T + 1, (B, 1)) for n in range(3)]
    calls = [(draw(B, T, D, seed=n), np.arange(T) < length) for n, length in enumerate(lengths)]
    assert_compiles(step, model.parameters(), *calls)


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

    targets = [np.random.default_rng(n).integers(0, 4, 6) for n in range(3)]
    calls = [(draw(6, 5, seed=n), t) for n, t in enumerate(targets)]
    assert_compiles(step, model.parameters(), *calls)


# ---------------------------------------------------------------- rules and names


def test_a_wrong_rule_is_wrong_the_same_way(plant):
    """Compiled code is made of the engine's own rules: a fault in one shows in both."""
    plant("tanh", "x", lambda gradient: gradient * 3)
    x = mg.tensor([0.5], requires_grad=True)
    assert_compiles(training(mg.tanh), [x], (x,), (x,))
    np.testing.assert_allclose(mg.grad(mg.tanh(x).sum(), x), 3 * (1 - np.tanh(x.data) ** 2))


def test_names_cannot_write_code():
    """Generated source is made of identifiers, whatever tensors are called."""
    evil = "x\n    import os #'); raise SystemExit"
    w = mg.tensor([1.0, 2.0], requires_grad=True, name=evil)

    def step(x):
        with mg.scope(evil):
            loss = mg.sum((w * x).named(evil))
        loss.backward()
        return loss

    run = assert_compiles(step, [w], (np.ones(2),), (np.ones(2),))
    nodes = list(ast.walk(ast.parse(run.source)))
    assert not any(isinstance(node, ast.Import | ast.Raise) for node in nodes)
