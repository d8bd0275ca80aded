"""Self-attention: closed forms, masks, stability, cost, and what its comparisons notice."""

import tracemalloc

import numpy as np
import pytest

import minigrad as mg
from layers import (
    SelfAttention,
    count_flops,
    create_causal_mask,
    scaled_dot_product_attention,
    softmax_backward,
)
from tests.compare import assert_same

B, N, D_MODEL, D_K, D_V = 2, 7, 5, 3, 11
BIASES = ["b_Q", "b_K", "b_V", "b_O"]
WEIGHTS = ["W_Q", "W_K", "W_V", "W_O"]


@pytest.fixture
def layer(rng):
    """A layer whose biases are not zero, so that they matter."""
    layer = SelfAttention(D_MODEL, D_K, D_V, rng=rng)
    for name in BIASES:
        setattr(layer, name, rng.normal(size=getattr(layer, name).shape))
    return layer


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D_MODEL))


# ---------------------------------------------------------------- closed forms


def test_two_tokens_by_hand():
    """X = W = I, d_k = 2: each token scores 1/√2 with itself and 0 with the other."""
    layer = SelfAttention(2, 2, 2, use_bias=False)
    for name in WEIGHTS:
        setattr(layer, name, np.eye(2))
    out = layer(np.eye(2)[None])
    own = np.e ** (1 / np.sqrt(2)) / (np.e ** (1 / np.sqrt(2)) + 1)
    expected = [[[own, 1 - own], [1 - own, own]]]
    np.testing.assert_allclose(layer.attention_weights, expected, rtol=1e-15)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-15)


def test_without_the_output_projection_the_layer_gives_O_itself(rng, X, check_against_hand):
    """softmax(Q Kᵀ / √d_k) V, (B, n, d_v): no W_O, no b_O, and the steps by hand begin with V."""
    layer = SelfAttention(D_MODEL, D_K, D_V, rng=rng, project_out=False)
    assert [name for name, _ in layer.named_parameters()] == [
        "W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V"
    ]  # fmt: skip
    mask = create_causal_mask(N)
    out = layer(X, mask)
    Q, K, V = (X @ getattr(layer, f"W_{s}").numpy() for s in "QKV")
    assert_same(out, scaled_dot_product_attention(Q, K, V, mask)[0])
    assert out.shape == (B, N, D_V)
    assert {"W_V", "X", "A"} < check_against_hand(layer, X, mask)
    with mg.trace() as t:
        layer(mg.tensor(X, requires_grad=True), mask).sum().backward()
    assert t.check().ok
    products = [e for e in t.entries if e.op in ("linear", "matmul", "softmax")]
    biases = sum(e.size for e in t.entries if e.op == "linear")
    flops = count_flops(B, N, D_MODEL, D_K, D_V, project_out=False)
    assert flops == sum(e.flops for e in products) - biases


# ---------------------------------------------------------------- the core on its own


def test_on_arrays_attention_is_numpy_and_on_tensors_it_is_recorded(rng):
    Q, K, V = (rng.normal(size=(B, N, d)) for d in (D_K, D_K, D_V))
    O, A = scaled_dot_product_attention(Q, K, V)
    assert type(O) is type(A) is np.ndarray
    recorded, _ = scaled_dot_product_attention(mg.tensor(Q, requires_grad=True), K, V)
    assert recorded.name == "O"
    np.testing.assert_array_equal(recorded.numpy(), O)


@pytest.mark.parametrize("lead", [(), (B,), (B, 13)])
def test_keys_may_be_more_or_fewer_than_queries(rng, lead):
    Q, K, V = (rng.normal(size=(*lead, n, d)) for n, d in ((N, D_K), (17, D_K), (17, D_V)))
    allowed = rng.random((N, 17)) < 0.5
    O, A = scaled_dot_product_attention(Q, K, V, allowed)
    assert O.shape == (*lead, N, D_V)
    np.testing.assert_array_equal(A != 0, np.broadcast_to(allowed, A.shape))


def test_softmax_backward_of_two_entries_by_hand():
    """A = (p, 1 − p): ∂S₀ = p (1 − p) (g₀ − g₁), and ∂S₁ its negative."""
    g, A = np.array([5.0, 2.0]), np.array([0.25, 0.75])
    np.testing.assert_allclose(softmax_backward(g, A), [0.1875 * 3, -0.1875 * 3], rtol=1e-15)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_backward_along_any_axis_is_the_engines(rng, axis):
    S, g = rng.normal(size=(2, 2, 3, 5))
    leaf = mg.tensor(S, requires_grad=True)
    found = softmax_backward(g, mg.softmax(S, axis=axis), axis=axis)
    np.testing.assert_allclose(mg.grad(mg.softmax(leaf, axis=axis), leaf, g), found, rtol=1e-13)


# ---------------------------------------------------------------- numerical stability


def test_attention_over_no_tokens_is_empty(layer):
    assert layer.forward(np.zeros((B, 0, D_MODEL))).shape == (B, 0, D_MODEL)
    assert layer.backward(np.zeros((B, 0, D_MODEL))).shape == (B, 0, D_MODEL)
    assert not layer.grad_W_Q.any()


# ---------------------------------------------------------------- the hand-derived steps


def test_the_comparison_notices_a_gradient_wrong_by_one_part_in_a_thousand(
    layer, X, check_against_hand, plant
):
    plant("softmax", "x", lambda gradient: 1.001 * gradient)
    with pytest.raises(AssertionError):
        check_against_hand(layer, X)


# ---------------------------------------------------------------- numeric, and PyTorch


@pytest.mark.needs_fast("it empties the memory that is used again")
def test_scores_are_let_go_of_once_the_next_are_there():
    """Of S_raw, S, S_masked and A there are two at a time, and in the end A, which is saved."""
    from minigrad.fast.memory import release

    n = 512
    layer, mask = SelfAttention(D_MODEL, D_K, D_V, rng=0), create_causal_mask(n)
    X = mg.tensor(np.ones((1, n, D_MODEL)), requires_grad=True)
    layer(X, mask=mask).sum().backward()  # what is kept from call to call is there
    release()
    tracemalloc.start()
    out = layer(X, mask=mask)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert out.shape == X.shape
    assert peak < 2.5 * mask.nbytes
    assert held < 2.5 * mask.nbytes  # A, and memory that lies idle
