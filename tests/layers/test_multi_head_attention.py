"""Multi-head attention: closed forms, per-head equivalence, groups, the seven steps, PyTorch."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    MultiHeadAttention,
    create_causal_mask,
)
from tests.compare import assert_same
from tests.layers.test_attention import mask_of
from tests.layers.twins import assert_same_gradients, filled

B, N, H, D_K = 2, 7, 3, 5
D_MODEL = H * D_K
WEIGHTS, BIASES = ["W_Q", "W_K", "W_V", "W_O"], ["b_Q", "b_K", "b_V", "b_O"]


def biased(layer, rng):
    """The layer with biases that are not zero, so that they matter."""
    for name in BIASES:
        if getattr(layer, name) is not None:
            setattr(layer, name, rng.normal(size=getattr(layer, name).shape))
    return layer


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D_MODEL))


# ---------------------------------------------------------------- closed forms


def test_two_tokens_in_two_heads_by_hand():
    """W = I and d_k = 1: head i scores token a with token b as the product of their entries i."""
    layer = MultiHeadAttention(2, 2)
    for name in WEIGHTS:
        setattr(layer, name, np.eye(2))
    X = np.array([[[1.0, 2.0], [0.0, -1.0]]])
    out = layer(X)
    e = np.exp
    head_0 = np.array([[e(1) / (e(1) + 1), 1 / (e(1) + 1)], [0.5, 0.5]])
    head_1 = np.array([
        [e(4) / (e(4) + e(-2)), e(-2) / (e(4) + e(-2))],
        [e(-2) / (e(-2) + e(1)), e(1) / (e(-2) + e(1))],
    ])  # fmt: skip
    np.testing.assert_allclose(layer.attention_weights, [[head_0, head_1]], rtol=1e-14)
    expected = np.stack([head_0 @ [1.0, 0.0], head_1 @ [2.0, -1.0]], axis=-1)[None]
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-14)


# ---------------------------------------------------------------- numeric, and PyTorch


@pytest.mark.parametrize("kind", ["none", "causal", "causal, boolean", "padding"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_outputs_and_gradients_equal_those_of_pytorchs_layer(rng, X, kind, use_bias):
    torch = pytest.importorskip("torch")
    layer = biased(MultiHeadAttention(D_MODEL, H, use_bias=use_bias, rng=rng), rng)
    mask, g = mask_of(kind), rng.normal(size=X.shape)
    out = layer.forward(X, mask)
    dX = layer.backward(g)

    theirs = filled(torch.nn.MultiheadAttention(D_MODEL, H, bias=use_bias, batch_first=True), layer)
    x = torch.tensor(X, requires_grad=True)
    hidden = None  # PyTorch's boolean masks say where not to look, and it wants one for each head
    if mask is not None:
        allowed = mask if mask.dtype == bool else mask == 0
        allowed = np.broadcast_to(allowed if allowed.ndim == 2 else allowed[:, None], (B, H, N, N))
        hidden = torch.tensor(~allowed.reshape(B * H, N, N))
    o, a = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    o.backward(torch.tensor(g))

    pairs = ((out, o), (layer.attention_weights, a), (dX, x.grad))
    for found, expected in pairs:
        assert_same(found, expected, 1e-9)
    assert_same_gradients(layer, theirs)


@pytest.mark.parametrize("n_kv_heads", [6, 3, 2, 1])
def test_grouped_attention_equals_pytorchs(rng, hear, n_kv_heads):
    torch = pytest.importorskip("torch")
    layer, X = MultiHeadAttention(12, 6, n_kv_heads, rng=rng), rng.normal(size=(B, N, 12))
    _, heard = hear(layer, X, create_causal_mask(N))
    Q, K, V, O = (heard.symbols[name] for name in "QKVO")
    g = rng.normal(size=O.shape)
    q, k, v = (torch.tensor(x.numpy(), requires_grad=True) for x in (Q, K, V))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    o.backward(torch.tensor(g))
    np.testing.assert_allclose(O.numpy(), o.detach().numpy(), rtol=1e-10, atol=1e-13)
    assert_same(mg.grad(O, [Q, K, V], g), [theirs.grad for theirs in (q, k, v)], 1e-9)
