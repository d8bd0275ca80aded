"""Layers, compiled: values and gradients are eager's, and the source reads as a person would write
it.
"""

from __future__ import annotations

import ast

import numpy as np
import pytest

import minigrad as mg
from layers import (
    MultiHeadAttention,
    SelfAttention,
    TransformerBlock,
    create_causal_mask,
    scaled_dot_product_attention,
)
from minigrad.errors import ArgumentError
from tests.compiled import assert_compiles

N = 7
MASKS = {
    "none": None,
    "causal": create_causal_mask(N),
    "boolean": np.tri(N, dtype=bool),
    "a row that may attend nowhere": np.tri(N, dtype=bool) & (np.arange(N) > 0)[:, None],
    "padding": np.arange(N) < np.array([[[4]], [[7]]]),
}


def _layer(kind, bias, dtype=np.float64):
    if kind == "self":
        return SelfAttention(6, 2, 3, use_bias=bias, rng=0, dtype=dtype, method="exact")
    kv_heads = {"multi": None, "grouped": 1}[kind]
    return MultiHeadAttention(6, 2, kv_heads, use_bias=bias, rng=0, dtype=dtype, method="exact")


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["self", "multi", "grouped"])
def test_attention_equals_eager(kind, bias, mask):
    rng = np.random.default_rng(0)
    x = mg.tensor(rng.normal(size=(2, N, 6)), requires_grad=True, name="X")
    weight, layer = rng.normal(size=(2, N, 6)), _layer(kind, bias)

    def step(x):
        out = layer(x, mask=mask)
        out.backward(weight)
        return out

    leaves = [x, *layer.parameters()]
    assert_compiles(step, leaves, *[(x,)] * 3, kept=lambda: [layer.attention_weights.copy()])


@pytest.mark.parametrize("size", [7, 211])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 2e-3), ("f8", 1e-10)])
def test_a_block_is_followed_into_every_rule_of_its_backward(dtype, tolerance, size):
    rng = np.random.default_rng(0)
    block = TransformerBlock(6, 2, rng=0, dtype=dtype, activation="gelu")
    x = mg.tensor(rng.normal(size=(2, size, 6)).astype(dtype), requires_grad=True, name="X")
    weight = rng.normal(size=x.shape).astype(dtype)

    def step(x):
        out = block(x)
        out.backward(weight)
        return out

    leaves = [x, *block.parameters()]
    run = assert_compiles(step, leaves, *[(x,)] * 3, tolerance=tolerance)
    assert "_backward(" not in run.source  # no rule is called whole


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("visible", [{"is_causal": True}, {"is_causal": True, "window": 3}])
@pytest.mark.parametrize("method", ["exact", "tiled"])
@pytest.mark.parametrize("additive", [False, True])
def test_a_layer_that_limits_what_is_seen_takes_another_mask_at_each_call(
    visible, method, additive
):
    layer = MultiHeadAttention(6, 2, rng=0, method=method, **visible)

    def step(x, mask):
        out = layer(x, mask=mask)
        (out * out).sum().backward()
        return out

    rng = np.random.default_rng(0)
    x = mg.tensor(rng.normal(size=(2, N, 6)), requires_grad=True)
    seen = [np.arange(N) < np.array(n)[:, None, None] for n in ([4, 7], [7, 1], [2, 3])]
    masks = [np.where(m, 0.0, -np.inf) if additive else m for m in seen]
    assert_compiles(step, [x, *layer.parameters()], *((x, mask) for mask in masks))


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("heads", [(), (3,)], ids=["one head", "three"])
@pytest.mark.parametrize("masked", [False, True])
def test_causal_attention_without_a_layer_is_compiled_for_each_offset(heads, masked):
    rng, at = np.random.default_rng(0), {"offset": 0}
    Q, K, V = (mg.tensor(rng.normal(size=(2, *heads, N, 4)), requires_grad=True) for _ in "QKV")

    def step(mask):
        O, A = scaled_dot_product_attention(Q, K, V, mask, is_causal=True, **at)
        (O * O).sum().backward()
        return A

    run = mg.compile(step)
    for at["offset"] in (0, 0, 2, 2):
        mask = rng.random((2, N, N)) > 0.2 if masked else None
        results = []
        for f in (step, run):
            Q.grad = K.grad = V.grad = None
            results.append([f(mask).numpy(), Q.grad, K.grad, V.grad])
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12)
    assert (run.recordings, run.reasons) == (2, [])


@pytest.mark.parametrize("method", ["exact", "tiled"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_mask_with_nan_is_refused_at_a_later_call_too(wrong, method):
    layer = SelfAttention(6, 2, 3, rng=0, method=method)
    x, mask = mg.tensor(np.ones((2, N, 6))), create_causal_mask(N)

    @mg.compile
    def step(x, mask):
        out = layer(x, mask=mask)
        out.sum().backward()
        return out

    step(x, mask.copy())
    step(x, mask.copy())
    assert not step.reasons
    mask[2, 1] = wrong
    with pytest.raises(ArgumentError, match=r"mask holds NaN or \+inf"):
        step(x, mask.copy())


WEIGHT = np.ones((1, N, 6))


def test_a_wrong_rule_is_wrong_the_same_way(plant):
    """Compiled code is made of the engine's own rules: a fault in one shows in both."""
    plant("tanh", "x", lambda gradient: gradient * 3)
    x = mg.tensor([0.5], requires_grad=True)

    def step(x):
        y = mg.tanh(x).sum()
        y.backward()
        return y

    for run in (step, *[mg.compile(step)] * 2):
        x.grad = None
        run(x)
        np.testing.assert_allclose(x.grad, [3 * (1 - np.tanh(0.5) ** 2)])


def test_names_cannot_write_code():
    """Generated source is made of identifiers, whatever tensors are called."""
    evil = "x\n    import os #'); raise SystemExit"
    w = mg.tensor([1.0, 2.0], requires_grad=True, name=evil)

    @mg.compile
    def step(x):
        with mg.scope(evil):
            loss = mg.sum((w * x).named(evil))
        loss.backward()
        return loss

    for _ in range(2):
        step(np.ones(2))
    assert not step.reasons
    nodes = list(ast.walk(ast.parse(step.source)))
    assert not any(isinstance(node, ast.Import | ast.Raise) for node in nodes)
