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
    LSTM,
    BatchNorm,
    Conv2d,
    Linear,
    MultiHeadAttention,
    SelfAttention,
    Sequential,
    TransformerBlock,
    causal,
    create_causal_mask,
    in_tiles,
    window,
)
from minigrad.errors import ArgumentError
from tests.compare import assert_same
from tests.compiled import assert_compiles
from tests.layers.kinds import OF_ARRAYS, OF_TOKENS, ROWS, WITH_CONTEXT, call, drawn, kinds

N = 7


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


@kinds(ROWS, WITH_CONTEXT, OF_TOKENS, OF_ARRAYS, without=("dropout", "tiles"))
def test_a_layer_compiled_as_if_its_arrays_were_large_gives_what_it_gives_eagerly(
    rng, name, as_if_large
):
    """As they are, small: tests/layers/test_every_kind.py."""
    layer, *inputs = drawn(rng, name)
    leaves = [x for x in inputs if isinstance(x, mg.Tensor)] + layer.parameters()
    step = training(partial(call, layer))
    assert_compiles(step, leaves, *[inputs] * 3, tolerance=1e-9)


def test_averages_of_a_batch_norm_move_as_they_do_eagerly(rng):
    eager, other = (
        Sequential(Conv2d(1, 4, 3, padding=1, rng=0), BatchNorm(4), mg.softplus) for _ in range(2)
    )
    compiled = mg.compile(training(other))
    for X in rng.normal(size=(5, 3, 1, 6, 7)):
        assert_same(compiled(X), training(eager)(X), 1e-12)
        assert_same(other.state_dict(), eager.state_dict(), 1e-12)
    assert not compiled.reasons


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
@pytest.mark.parametrize(("kind", "mask"), [(kind, mask) for kind in ATTENTION for mask in MASKS])
def test_attention_equals_eager(kind, mask):
    x = mg.tensor(draw(2, N, 6), requires_grad=True, name="X")
    layer = ATTENTION[kind](rng=0)
    model = partial(layer, mask=MASKS[mask])
    step = training(model, draw(2, N, 6, seed=1)[..., : layer.W_O.shape[1]])
    leaves = [x, *layer.parameters()]
    assert_compiles(step, leaves, *[(x,)] * 3, kept=lambda: [layer.attention_weights.copy()])


MASKED = {
    "causal": partial(MultiHeadAttention, 6, 2, mask=causal),
    "window": partial(MultiHeadAttention, 6, 2, mask=causal & window(3)),
    "tiles": partial(MultiHeadAttention, 6, 2, mask=causal, attend=in_tiles),
    "window of tiles": partial(MultiHeadAttention, 6, 2, mask=window(3), attend=in_tiles),
    "LSTM": partial(LSTM, 6, 4, 2, True),
    "LSTM step by step": partial(LSTM, 6, 4, method="steps"),
}


def with_states(layer):
    """A loss of all that a recurrent layer gives."""

    def model(X, mask):
        H, (h, c) = layer(X, mask=mask, return_state=True)
        return mg.sum(H * H) + mg.sum(h * c)

    return model


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize(
    ("kind", "additive"), [*((kind, False) for kind in MASKED), ("window", True), ("tiles", True)]
)
def test_a_mask_is_another_at_each_call(kind, additive):
    layer, x = MASKED[kind](rng=0), mg.tensor(draw(2, N, 6), requires_grad=True)
    seen = [np.arange(N) < np.array(n)[:, None] for n in ([4, 7], [7, 1], [2, 3])]
    if isinstance(layer, LSTM):
        model, masks = with_states(layer), seen
    else:
        model = lambda x, mask: layer(x, mask=mask)  # noqa: E731
        masks = [np.where(m, 0.0, -np.inf) if additive else m for m in (m[:, None] for m in seen)]
    assert_compiles(training(model), [x, *layer.parameters()], *((x, mask) for mask in masks))


@pytest.mark.parametrize("attend", [None, in_tiles])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_mask_with_nan_is_refused_at_a_later_call_too(wrong, attend):
    layer = MultiHeadAttention(6, 2, rng=0, attend=attend)
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
    block = TransformerBlock(6, 2, rng=0, dtype=dtype, activation=mg.gelu)
    x = mg.tensor(draw(2, size, 6, dtype=dtype), requires_grad=True, name="X")
    step = training(block, draw(2, size, 6, seed=1, dtype=dtype))
    run = assert_compiles(step, [x, *block.parameters()], *[(x,)] * 3, tolerance=tolerance)
    assert "_backward(" not in run.source  # no rule is called whole


def test_what_is_looked_up_in_an_array_is_looked_up_again():
    """argmax in a step: accuracy, and the largest entries."""
    model = Linear(5, 4, rng=0)

    def step(x, t):
        z = model(x)
        places = mg.argmax(z, axis=1)
        largest = mg.take_along_axis(z, places[:, None], 1)
        loss = mg.cross_entropy(z, t) + largest.sum()
        loss.backward()
        right = np.equal(mg.argmax(z, axis=1), t)
        return mg.add(right, places * loss.detach())

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


@pytest.mark.parametrize("norm", [lambda x, w: mg.layer_norm(x, w, w), mg.rms_norm])
def test_a_norm_before_dropout_is_compiled(norm, rng):
    """Its rule asks for a number, which a program that has drawn cannot check: it runs as one call
    on what the forward kept, of whose rows the forward was followed.
    """
    x, w = (mg.tensor(np.ones(s, np.float32), requires_grad=True) for s in ((32, 8, 24), 24))

    @mg.compile
    def step(scale):
        x.grad = w.grad = None
        loss = mg.sum(mg.dropout(norm(x * scale, w), 0.3, rng) ** 2)
        loss.backward()
        return loss

    for _ in range(5):  # compared with the eager step at the second and fourth
        step(rng.normal(size=(32, 8, 24)).astype(np.float32))
    assert step.reasons == []


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
