"""The texts' pitfalls: each mistake is made, shown to be wrong, and the layer shown to avoid it."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    MultiHeadAttention,
    SelfAttention,
    create_causal_mask,
    scaled_dot_product_attention,
    split_heads,
)
from minigrad.errors import ArgumentError

B, N, D_K = 3, 7, 5


def naive_softmax(S):
    E = np.exp(S)
    return E / E.sum(axis=-1, keepdims=True)


def test_T_of_a_stack_of_equal_axes_fits_and_is_wrong(rng):
    """With B = n = d_k nothing warns: which is why the sizes in these tests are distinct."""
    Q, K, V = rng.normal(size=(3, 5, 5, 5))
    wrong = mg.softmax(Q @ K.T / np.sqrt(5)) @ V
    right, _ = scaled_dot_product_attention(Q, K, V)
    assert wrong.shape == right.shape
    assert np.abs(wrong - right).max() > 0.1


def test_without_the_scale_weights_saturate_and_their_gradient_vanishes(rng):
    """d_k = 512: the largest weight of a row is above 0.9 on average, below 0.5 with the scale."""
    Q, K = rng.normal(size=(2, 2, 11, 512))
    _, scaled = scaled_dot_product_attention(Q, K, K)
    unscaled = mg.softmax(Q @ K.swapaxes(-1, -2))
    assert unscaled.max(axis=-1).mean() > 0.9
    assert scaled.max(axis=-1).mean() < 0.5
    slope = [np.mean(A * (1 - A)) for A in (unscaled, scaled)]  # the diagonal of softmax's Jacobian
    assert slope[0] < slope[1] / 4


def test_the_scale_is_that_of_one_heads_width_not_of_the_models(rng):
    """With d_model in place of d_k the variance is 1/h."""
    layer, X = MultiHeadAttention(512, 8), rng.normal(size=(1, 100, 512))
    layer.W_Q = layer.W_K = np.eye(512)  # queries and keys of unit variance, from independent rows
    q = split_heads(X, 8)
    S = (q @ q.swapaxes(-1, -2))[..., ~np.eye(100, dtype=bool)]
    np.testing.assert_allclose((S / np.sqrt(512)).var(), 1 / 8, rtol=0.1)
    np.testing.assert_allclose((S / np.sqrt(64)).var(), 1, rtol=0.1)
    layer(X)
    right = mg.softmax(q @ q.swapaxes(-1, -2) / np.sqrt(64))
    np.testing.assert_allclose(layer.attention_weights, right, rtol=1e-10)


def test_a_mask_after_softmax_lets_later_tokens_show_through(rng):
    """Times 0, later tokens still stand in the denominator: the past depends on the future."""
    Q, K, V = rng.normal(size=(3, 1, N, D_K))
    later = K.copy()
    later[:, -1] += 3
    wrong = [mg.softmax(Q @ k.swapaxes(-1, -2)) * np.tri(N) @ V for k in (K, later)]
    right = [scaled_dot_product_attention(Q, k, V, create_causal_mask(N))[0] for k in (K, later)]
    assert np.abs(wrong[0] - wrong[1])[:, :-1].max() > 1e-3
    np.testing.assert_array_equal(right[0][:, :-1], right[1][:, :-1])


@pytest.mark.parametrize(("dtype", "score"), [(np.float32, 89.0), (np.float64, 710.0)])
def test_softmax_without_the_maximum_overflows_to_nan(dtype, score):
    S = np.array([[score, 0.0, -score]], dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(naive_softmax(S)).any()
    np.testing.assert_allclose(mg.softmax(S), [[1.0, 0.0, 0.0]], atol=1e-30)
    np.testing.assert_allclose(naive_softmax(S / score), mg.softmax(S / score), rtol=1e-6)


def test_ones_times_minus_infinity_is_no_mask_but_nan():
    """np.triu(np.ones((n, n)), k=1) * -np.inf, as one text has it: 0 · −inf is NaN."""
    with np.errstate(invalid="ignore"):
        wrong = np.triu(np.ones((N, N)), k=1) * -np.inf
    assert np.isnan(wrong).sum() == N * (N + 1) // 2
    assert not np.isnan(create_causal_mask(N)).any()
    with pytest.raises(ArgumentError, match=r"holds NaN or \+inf, use 0 and -inf"):
        SelfAttention(5, 2, 3)(np.zeros((B, N, 5)), wrong)


def test_reshaping_straight_to_heads_mixes_tokens(rng):
    """view(B, h, n, d) without the transpose: it fits, but a head is then whole tokens."""
    x = rng.normal(size=(B, N, 3 * D_K))
    wrong, right = x.reshape(B, 3, N, D_K), split_heads(x, 3)
    assert wrong.shape == right.shape
    assert np.abs(wrong - right).max() > 0.1
    np.testing.assert_array_equal(right[:, 0], x[..., :D_K])
    np.testing.assert_array_equal(wrong[:, 0, :3], x[:, 0].reshape(B, 3, D_K))  # token 0 alone
