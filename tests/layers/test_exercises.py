"""The texts' exercises, worked example, quick checks and printed numbers."""

from math import exp, sqrt

import numpy as np
import pytest

import minigrad as mg
from layers import (
    SelfAttention,
    arithmetic_intensity,
    combined_mask,
    count_flops,
    create_causal_mask,
    memory_by_array,
    padding_mask,
    roofline,
    scaled_dot_product_attention,
)

# ---------------------------------------------------------------- the worked example

Q = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
K = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]])
V = np.array([[[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]]])


def test_the_worked_example_step_by_step():
    O, A, S = scaled_dot_product_attention(Q, K, V, return_scores=True)
    np.testing.assert_allclose(S * sqrt(3), [[[1, 1], [0, 1]]], rtol=1e-15)
    np.testing.assert_allclose(S, [[[0.577, 0.577], [0.000, 0.577]]], atol=5e-4)
    np.testing.assert_allclose(A, [[[0.5, 0.5], [0.360, 0.640]]], atol=5e-4)
    np.testing.assert_allclose(O, [[[25.0, 35.0, 45.0], [29.2, 39.2, 49.2]]], atol=0.05)


def test_the_worked_example_to_the_last_digit():
    """The second row's weight on the second key is p = 1 / (1 + e^(−1/√3))."""
    p = 1 / (1 + exp(-1 / sqrt(3)))
    O, A = scaled_dot_product_attention(Q, K, V)
    np.testing.assert_allclose(A, [[[0.5, 0.5], [1 - p, p]]], rtol=1e-15)
    np.testing.assert_allclose(O[0, 1], [10 + 30 * p, 20 + 30 * p, 30 + 30 * p], rtol=1e-15)


def test_the_worked_examples_gradients_to_the_last_digit():
    """∂/∂S of Σ O: each row's values sum to 60 and 150, so ∂S = ±90 p (1 − p)."""
    q, k, v = (mg.tensor(x, requires_grad=True) for x in (Q, K, V))
    O, A = scaled_dot_product_attention(q, k, v)
    dQ, dK, dV = mg.grad(O, [q, k, v], np.ones(O.shape))
    p = A.numpy()[0, :, 1]
    dS = 90 * p * (1 - p) / sqrt(3)  # of the second key's raw score; the first's is its negative
    np.testing.assert_allclose(dQ[0], dS[:, None] * (K[0, 1] - K[0, 0]), rtol=1e-13)
    np.testing.assert_allclose(dK[0], [-dS @ Q[0], dS @ Q[0]], rtol=1e-13)
    np.testing.assert_allclose(dV[0], np.outer(A.numpy()[0].sum(axis=0), np.ones(3)), rtol=1e-14)


# ---------------------------------------------------------------- easy: the scores too


def test_returned_scores_are_scaled_not_masked_and_have_variance_one(rng):
    q, k = rng.normal(size=(2, 4, 200, 64))
    O, A, S = scaled_dot_product_attention(q, k, k, create_causal_mask(200), return_scores=True)
    assert S.shape == A.shape == (4, 200, 200)
    assert np.isfinite(S).all()
    np.testing.assert_allclose(S.var(), 1, atol=0.05)
    np.testing.assert_allclose(S.var(axis=-1).mean(), 1, atol=0.05)  # and so of each row
    np.testing.assert_allclose(S, q @ k.swapaxes(-1, -2) / 8, rtol=1e-12, atol=1e-14)
    both = scaled_dot_product_attention(q, k, k, create_causal_mask(200))
    assert len(both) == 2
    np.testing.assert_array_equal(both[0], O)


# ---------------------------------------------------------------- medium: both masks


@pytest.mark.parametrize("as_boolean", [True, False])
def test_a_padded_causal_batch_gives_what_each_sequence_gives_alone(rng, as_boolean):
    layer, lengths = SelfAttention(5, 2, 3, rng=rng), [3, 7, 1, 5]
    X, g = rng.normal(size=(2, 4, 7, 5))
    real = np.arange(7) < np.array(lengths)[:, None]
    g[~real] = 0
    mask = (
        combined_mask(np.tri(7, dtype=bool), real)
        if as_boolean
        else combined_mask(create_causal_mask(7), padding_mask(lengths))
    )
    assert mask.shape == (4, 7, 7)
    out = layer.forward(X, mask).numpy()
    dX = layer.backward(g)
    together = [p.grad for p in layer.parameters()]
    alone = [np.zeros(p.shape) for p in layer.parameters()]
    for b, n in enumerate(lengths):
        single = layer.forward(X[b, :n], create_causal_mask(n))
        np.testing.assert_allclose(out[b, :n], single.numpy(), rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(dX[b, :n], layer.backward(g[b, :n]), rtol=1e-10, atol=1e-13)
        np.testing.assert_array_equal(dX[b, n:], np.zeros((7 - n, 5)))
        alone = [total + p.grad for total, p in zip(alone, layer.parameters(), strict=True)]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- hard: one key at a time


def online_attention(q, k, v, mask=None):
    """Attention with the keys taken one at a time: no array of n × n, a running softmax instead.

    For each query it keeps m, the largest score so far, total = Σ e^(s − m) and o = Σ e^(s − m) v.
    A new score s moves the maximum to m', and what is kept shrinks by e^(m − m').
    Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
    """
    m = np.full(q.shape[:-1], -np.inf)
    total, o = np.zeros(q.shape[:-1]), np.zeros((*q.shape[:-1], v.shape[-1]))
    for j in range(k.shape[-2]):
        s = np.einsum("...nd,...d->...n", q, k[..., j, :]) / sqrt(q.shape[-1])
        s = s if mask is None else s + mask[..., j]
        top = np.maximum(m, s)
        base = np.where(np.isneginf(top), 0, top)  # nothing allowed so far
        shrink, weight = np.exp(m - base), np.exp(s - base)
        total = total * shrink + weight
        o = o * shrink[..., None] + weight[..., None] * v[..., j, None, :]
        m = top
    return o / np.where(total == 0, 1, total)[..., None]


@pytest.mark.parametrize("masked", ["no", "causal", "padding", "a fully masked row"])
@pytest.mark.parametrize("lead", [(2,), (2, 3)])
def test_online_softmax_one_key_at_a_time_equals_the_standard_one(rng, masked, lead):
    q, k, v = (rng.normal(size=(*lead, 13, d)) for d in (5, 5, 7))
    nowhere = create_causal_mask(13)
    nowhere[2] = -np.inf
    mask = {
        "no": None,
        "causal": create_causal_mask(13),
        "padding": padding_mask([11], 13)[0],
        "a fully masked row": nowhere,
    }[masked]
    O, _ = scaled_dot_product_attention(q, k, v, mask)
    np.testing.assert_allclose(online_attention(q, k, v, mask), O, rtol=1e-12, atol=1e-14)


def test_online_softmax_does_not_overflow_when_the_largest_score_comes_last():
    q, k = np.ones((1, 1, 1)), np.array([[[-1000.0], [0.0], [1000.0]]])
    v = np.array([[[2.0], [3.0], [5.0]]])
    np.testing.assert_array_equal(online_attention(q, k, v), [[[5.0]]])
    np.testing.assert_array_equal(online_attention(q, k[:, ::-1], v[:, ::-1]), [[[5.0]]])


# ---------------------------------------------------------------- quick checks and printed numbers


def test_quick_check_3_the_output_of_4_128_512_is_4_128_512(rng, hear):
    layer, X = SelfAttention(512, 64, 64, rng=rng, dtype=np.float32), np.zeros((4, 128, 512))
    out, heard = hear(layer, X)
    assert heard.symbols["O"].shape == (4, 128, 64)
    assert out.shape == (4, 128, 512)


def test_quick_check_4_the_gradient_of_X_has_three_terms(rng, hear):
    """Each of Q, K and V sends its own contribution back to X, and dX is their sum."""
    layer = SelfAttention(5, 2, 3, use_bias=False, rng=rng)
    X = mg.tensor(rng.normal(size=(2, 7, 5)), requires_grad=True)
    sent = []

    class Contributions(mg.Listener):
        def backward(self, node, gradient, contributions, seconds):
            sent.extend(c for e, c in zip(node.edges, contributions, strict=True) if e is X)

    out = layer(X)
    with mg.listen(Contributions()):
        out.backward(rng.normal(size=out.shape))
    assert len(sent) == 3
    np.testing.assert_allclose(X.grad, sum(sent), rtol=1e-13, atol=1e-15)


def test_the_saturation_example_as_printed_and_where_its_second_half_does_not_add_up():
    """Unscaled, [0.06, 0.00, 0.94, 0.00] is right; scaled, the text prints [0.28, 0.06, 0.4, 0.1].

    That sums to 0.84; the softmax of its scores is [0.38, 0.03, 0.54, 0.05]. The point stands.
    """
    unscaled = mg.softmax(np.array([12.3, -8.7, 15.1, -3.2]))
    np.testing.assert_allclose(unscaled, [0.06, 0.00, 0.94, 0.00], atol=5e-3)
    scaled = mg.softmax(np.array([1.54, -1.09, 1.89, -0.40]))
    np.testing.assert_allclose(scaled, [0.38, 0.03, 0.54, 0.05], atol=5e-3)


def test_the_printed_costs_of_4096_tokens():
    """64 MiB of attention matrix a head, 4 · 10⁹ operations, 61 a byte: memory-bound on an A100.

    One text says about 63 operations a byte, the other 61; their formula gives 61.4.
    """
    assert memory_by_array(1, 4096, 64, 64)["attention matrix"] == 64 * 2**20
    assert 32 * memory_by_array(1, 4096, 64, 64)["attention matrix"] == 2 * 2**30
    core = count_flops(1, 4096, 64, 64, 64) - 8 * 4096 * 64 * 64
    assert core == 4 * 4096**2 * 64 + 5 * 4096**2
    assert 4e9 < core < 5e9
    assert round(arithmetic_intensity(4096, 64)) == 61
    assert roofline(arithmetic_intensity(4096, 64)) == "memory-bound"


@pytest.mark.parametrize(
    ("n", "bytes_"), [(128, 2**16), (512, 2**20), (2048, 2**24), (4096, 2**26), (8192, 2**28)]
)
def test_the_table_of_attention_matrices(n, bytes_):
    assert memory_by_array(1, n, 64, 64)["attention matrix"] == bytes_


def test_attention_patterns_the_texts_show(rng):
    """Diagonal, vertical stripe and lower triangle, each from scores made for it."""
    n = 5
    eye, V = 20 * np.eye(n), np.eye(n)
    _, diagonal = scaled_dot_product_attention(eye, np.eye(n), V)
    np.testing.assert_allclose(diagonal, np.eye(n), atol=1e-3)
    stripe = np.zeros((n, n))
    stripe[1] = 20
    _, vertical = scaled_dot_product_attention(np.ones((n, n)), stripe, V)
    np.testing.assert_allclose(vertical, np.tile(np.eye(n)[1], (n, 1)), atol=1e-3)
    _, causal = scaled_dot_product_attention(rng.normal(size=(n, n)), V, V, create_causal_mask(n))
    np.testing.assert_array_equal(causal > 0, np.tri(n, dtype=bool))
