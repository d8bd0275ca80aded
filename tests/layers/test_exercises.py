"""The texts' exercises, worked example, quick checks and printed numbers."""

from math import exp, sqrt

import numpy as np
import pytest

import minigrad as mg
from layers import (
    SelfAttention,
    arithmetic_intensity,
    count_flops,
    create_causal_mask,
    memory_by_array,
    online_softmax_attention,
    padding_mask,
    roofline,
    scaled_dot_product_attention,
)
from tests.compare import assert_same

# ---------------------------------------------------------------- one key at a time


@pytest.mark.parametrize("kind", ["none", "causal", "padding", "a rule", "nobody sees a thing"])
def test_online_softmax_goes_over_keys_one_by_one_and_is_attention(rng, kind):
    """Scores that grow with the key, so that the running maximum changes; gradients too."""
    q, k, v = (mg.tensor(rng.normal(size=(2, 5, d)), requires_grad=True) for d in (3, 3, 7))
    k.data *= np.arange(1, 6)[:, None]
    mask = {
        "causal": create_causal_mask(5),
        "padding": padding_mask([2, 5]),
        "a rule": mg.mask_rules.Window(2),
        "nobody sees a thing": np.zeros((1, 1, 5), bool),
    }.get(kind)
    ours = online_softmax_attention(q, k, v, mask)
    theirs, _ = scaled_dot_product_attention(q, k, v, mask)
    assert_same(ours, theirs)
    assert_same(online_softmax_attention(q.numpy(), k.numpy(), v.numpy(), mask), theirs)
    g = rng.normal(size=ours.shape)
    assert_same(mg.grad(ours, [q, k, v], g), mg.grad(theirs, [q, k, v], g))


def test_what_a_forward_keeps_grows_as_the_square_of_the_tokens():
    """Of B = 2 sequences: A, n² entries each, and else what grows with n."""

    def kept(n):
        layer, X = SelfAttention(5, 3, 7, rng=0), mg.tensor(np.ones((2, n, 5)), requires_grad=True)
        with mg.trace() as t:
            layer(X)
        return sum(entry.saved_bytes for entry in t.entries)

    for n in (16, 32, 64):
        assert kept(2 * n) - 2 * kept(n) + kept(0) == 8 * 2 * 2 * n**2


# ---------------------------------------------------------------- the worked example

Q = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
K = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]])
V = np.array([[[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]]])


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


# ---------------------------------------------------------------- quick checks and printed numbers


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
