"""Attention that grows with n: against exact attention, its own quadratic form, and its cost."""

from itertools import pairwise

import numpy as np
import pytest

import minigrad as mg
from layers import (
    LinearAttention,
    LinformerAttention,
    MultiHeadAttention,
    PerformerAttention,
    linear_attention,
    linformer_attention,
    orthogonal_features,
    performer_attention,
    positive_features,
)

B, N, D, D_V = 2, 71, 5, 3  # N is more than two chunks, and no multiple of one

CAUSAL = {
    "linear": lambda Q, K, V: linear_attention(Q, K, V, is_causal=True),
    "performer": lambda Q, K, V: performer_attention(Q, K, V, features(), is_causal=True),
}


def features(m=7, d=D):
    return orthogonal_features(m, d, rng=3)


def mixtures(n, k=11):
    return np.random.default_rng(5).normal(0, k**-0.5, (2, k, n))


KINDS = {
    "linformer": lambda Q, K, V: linformer_attention(Q, K, V, *mixtures(K.shape[-2])),
    "linear, both ways": linear_attention,
    "performer, both ways": lambda Q, K, V: performer_attention(Q, K, V, features()),
    **CAUSAL,
}


def drawn(rng, n=N, m=None):
    m = n if m is None else m
    return rng.normal(size=(B, n, D)), rng.normal(size=(B, m, D)), rng.normal(size=(B, m, D_V))


def exact(Q, K, V, **options):
    return mg.scaled_dot_product_attention(Q, K, V, method="exact", **options)


def quadratic(Q_phi, K_phi, V, causal):
    """The n × n form: weights φ(q)·φ(k), later keys cut, rows divided by their sums."""
    P = Q_phi @ K_phi.swapaxes(-1, -2)
    P = np.tril(P) if causal else P
    return P @ V / P.sum(axis=-1, keepdims=True)


# ---------------------------------------------------------------- values


def test_linformer_is_exact_attention_to_mixed_keys_and_values(rng):
    Q, K, V = drawn(rng, n=13, m=17)
    E, F = mixtures(17)
    np.testing.assert_allclose(linformer_attention(Q, K, V, E, F), exact(Q, E @ K, F @ V))


@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, N])
@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_equals_its_quadratic_form(rng, n, causal):
    Q, K, V = drawn(rng, n)
    phi = [np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (Q, K)]
    found = linear_attention(Q, K, V, causal)
    np.testing.assert_allclose(found, quadratic(*phi, V, causal), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("n", [1, 33, N])
@pytest.mark.parametrize("causal", [False, True])
def test_performer_equals_its_quadratic_form(rng, n, causal):
    """Its own features, without the constants that keep them in range."""
    Q, K, V = drawn(rng, n)
    phi = [positive_features(x / D**0.25, features()) for x in (Q, K)]
    found = performer_attention(Q, K, V, features(), causal)
    np.testing.assert_allclose(found, quadratic(*phi, V, causal), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_performers_error_falls_as_one_over_the_root_of_its_features(rng, causal):
    Q, K, V = drawn(rng)
    Q, K = Q / 2, K / 2  # the estimate's variance grows exponentially with ‖q + k‖²
    truth = exact(Q, K, V, is_causal=causal)

    def error(m):
        draws = [orthogonal_features(m, D, rng) for _ in range(8)]
        found = np.array([performer_attention(Q, K, V, W, causal) for W in draws])
        return np.sqrt(np.mean((found - truth) ** 2))

    errors = [error(m) for m in (16, 64, 256, 1024)]
    for more, less in pairwise(errors):
        assert 1.4 < more / less < 2.8, errors  # 4 times the features: half the error


def test_orthogonal_features_are_orthogonal_in_blocks_and_gaussian_in_length():
    W = orthogonal_features(3 * D - 2, D, rng=0)
    for block in (W[:D], W[D : 2 * D], W[2 * D :]):
        gram = block @ block.T
        np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-12)
    many = orthogonal_features(50_000, D, rng=0)
    np.testing.assert_allclose(many.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(np.cov(many.T), np.eye(D), atol=0.03)


def test_performer_stays_finite_where_bare_features_vanish_or_overflow(rng):
    Q, K, V = drawn(rng)
    for size in (100.0, 1e-100):
        assert np.isfinite(performer_attention(size * Q, size * K, V, features())).all()
    assert not positive_features(100 * K, features()).any()
    with np.errstate(over="ignore"):
        assert np.isinf(positive_features(np.full((1, D), 50.0), np.full((1, D), 60.0))).any()


def test_the_constant_of_the_features_is_no_part_of_their_gradient(rng):
    """dφ/dx = φ (w − x) whatever c: it cancels in the attention that is made of them."""
    X, W = mg.tensor(rng.normal(size=(7, D)), requires_grad=True), features()
    g = rng.normal(size=(7, len(W)))
    for over in (None, -1, (-2, -1)):
        phi = positive_features(X, W, over)
        expected = np.einsum("nr,nrd->nd", g * phi.numpy(), W - X.numpy()[:, None])
        np.testing.assert_allclose(mg.grad(phi, X, g), expected, rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------- causality, gradients


@pytest.mark.parametrize("name", KINDS)
def test_gradients_through_chunks_agree_with_differences_along_a_direction(rng, name):
    arrays = [x[0] for x in drawn(rng, 35)]  # more than one chunk of causal sums
    directions = [rng.normal(size=x.shape) for x in arrays]
    leaves = [mg.tensor(x, requires_grad=True) for x in arrays]
    out = KINDS[name](*leaves)
    u, h = rng.normal(size=out.shape), 1e-5
    pairs = zip(mg.grad(out, leaves, u), directions, strict=True)
    slope = sum((g * d).sum() for g, d in pairs)
    above, below = (
        KINDS[name](*(x + k * d for x, d in zip(arrays, directions, strict=True))) for k in (h, -h)
    )
    np.testing.assert_allclose(slope, (u * (above - below)).sum() / (2 * h), rtol=1e-6)


# ---------------------------------------------------------------- cost


@pytest.mark.parametrize("name", KINDS)
def test_no_array_grows_faster_than_n_and_flops_double_with_it(rng, hear, name):
    largest, flops = {}, {}
    for n in (128, 256, 512):
        _, heard = hear(KINDS[name], *(mg.tensor(x) for x in drawn(rng, n)))
        largest[n] = max(out.size for out in heard.outputs)
        flops[n] = sum(heard.flops.values())
    assert largest[512] < B * 512 * 64
    for n in (128, 256):
        np.testing.assert_allclose(flops[2 * n] / flops[n], 2, rtol=1e-3)
        assert largest[2 * n] == 2 * largest[n]


# ---------------------------------------------------------------- layers

LAYERS = {
    "linear": lambda **o: LinearAttention(12, 3, **o),
    "linear, causal": lambda **o: LinearAttention(12, 3, is_causal=True, **o),
    "performer": lambda **o: PerformerAttention(12, 3, 5, **o),
    "performer, causal": lambda **o: PerformerAttention(12, 3, 5, is_causal=True, **o),
    "linformer": lambda **o: LinformerAttention(12, 3, 70, 5, **o),
}


def test_a_linformer_layer_that_mixes_nothing_is_multi_head_attention(rng):
    plain = MultiHeadAttention(12, 3, use_bias=True, rng=rng)
    layer = LinformerAttention(12, 3, seq_len=7, k=7, use_bias=True)
    layer.load_state_dict(plain.state_dict() | {"E": np.eye(7), "F": np.eye(7)})
    X = rng.normal(size=(B, 7, 12))
    np.testing.assert_allclose(layer(X).numpy(), plain(X).numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", LAYERS)
def test_each_head_of_a_layer_is_its_function(rng, name):
    layer = LAYERS[name](rng=rng)
    X = rng.normal(size=(B, 37, 12))
    function = {
        "linear": lambda *qkv: linear_attention(*qkv, is_causal=layer.causal),
        "performer": lambda *qkv: performer_attention(*qkv, layer.features, is_causal=layer.causal),
        "linformer": lambda *qkv: linformer_attention(
            *qkv, *(x.numpy()[:, :37] for x in (layer.E, layer.F))
        ),
    }[name.split(",")[0]]
    W = {s: getattr(layer, f"W_{s}").numpy() for s in "QKVO"}
    heads = [function(*((X @ W[s])[..., 4 * h : 4 * h + 4] for s in "QKV")) for h in range(3)]
    expected = np.concatenate(heads, axis=-1) @ W["O"]
    np.testing.assert_allclose(layer(X).numpy(), expected, rtol=1e-10, atol=1e-12)
