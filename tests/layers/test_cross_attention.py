"""Cross-attention: keys and values from a context, told apart from a mask; PyTorch."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    ContextCache,
    MultiHeadAttention,
    RMSNorm,
    Rotary,
    SelfAttention,
    from_torch,
    padding_mask,
)
from tests.compare import assert_same
from tests.layers.twins import filled

B, N, M, D, D_CONTEXT, H = 2, 7, 5, 12, 11, 3


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


@pytest.fixture
def context(rng):
    return rng.normal(size=(B, M, D_CONTEXT))


@pytest.fixture
def layer(rng):
    return MultiHeadAttention(D, H, use_bias=True, rng=rng, d_context=D_CONTEXT)


def test_the_second_argument_is_the_mask_whatever_it_holds(rng):
    """Floats of a context's shape are added to the scores, where they fit them."""
    layer, X = MultiHeadAttention(6, 2, rng=rng), rng.normal(size=(B, 6, 6))
    Y = rng.normal(size=(B, 6, 6))
    np.testing.assert_array_equal(layer(X, Y).numpy(), layer(X, Y[:, None]).numpy())
    assert np.abs(layer(X, context=Y).numpy() - layer(X, Y).numpy()).max() > 1e-3


def test_padded_context_is_as_if_it_were_not_there(layer, X, context):
    out = layer(X, padding_mask([M - 2, M - 2], M), context=context).numpy()
    assert_same(out, layer(X, context=context[:, : M - 2]), 1e-11)


def test_it_is_pytorchs(layer, rng, X, context):
    torch = pytest.importorskip("torch")
    for name in ("b_Q", "b_K", "b_V", "b_O"):
        setattr(layer, name, rng.normal(size=D))
    module = torch.nn.MultiheadAttention(D, H, kdim=D_CONTEXT, vdim=D_CONTEXT, batch_first=True)
    theirs = filled(module, layer)
    drawn = MultiHeadAttention(D, H, use_bias=True, rng=rng, d_context=D_CONTEXT)
    assert_same(from_torch(theirs, drawn).state_dict(), layer.state_dict(), 0)
    x, y = (torch.tensor(a, requires_grad=True) for a in (X, context))
    padded = np.arange(M) >= np.array([[M], [M - 2]])
    expected, A = theirs(x, y, y, key_padding_mask=torch.tensor(padded), average_attn_weights=False)
    inputs = [mg.tensor(a, requires_grad=True) for a in (X, context)]
    out = layer(inputs[0], padding_mask(~padded), context=inputs[1])
    np.testing.assert_allclose(out.numpy(), expected.detach(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.attention_weights, A.detach(), rtol=0, atol=1e-12)
    grad_output = rng.normal(size=out.shape)
    wanted = torch.autograd.grad(expected, (x, y), torch.tensor(grad_output))
    assert_same(mg.grad(out, inputs, grad_output), wanted, 1e-11)


@pytest.mark.parametrize("made", [
    lambda: SelfAttention(D, 5, 3, qk_norm=RMSNorm, position=Rotary(2), rng=0),
    lambda: MultiHeadAttention(D, H, 1, qk_norm=RMSNorm, position=Rotary(2), rng=0),
])  # fmt: skip
def test_a_cached_context_is_the_context(rng, made):
    """Its keys are kept normed and turned."""
    layer, X, Y = made(), rng.normal(size=(B, N, D)), rng.normal(size=(B, M, D))
    cache = ContextCache()
    with mg.no_grad():
        outs = [layer(X, context=Y, cache=cache).numpy() for _ in range(2)]
    for out in outs:
        np.testing.assert_array_equal(out, layer(X, context=Y).numpy())
