"""Attention that grows with n: its quadratic form, cost, masks of keys, contexts and decoding."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import minigrad as mg
from layers import (
    Decoder,
    DecoderBlock,
    KernelState,
    LanguageModel,
    LinearAttention,
    LinformerAttention,
    PerformerAttention,
    linear_attention,
    linformer_attention,
    orthogonal_features,
    padding_mask,
    performer_attention,
    positive_features,
)
from minigrad.errors import GradientError, ShapeError
from tests.compare import assert_same
from tests.layers.test_cache import decoded

B, N, M, D, H = 3, 71, 37, 12, 6  # N is more than two chunks, and no multiple of one
D_K, D_V = 5, 3
W = orthogonal_features(7, D_K, rng=3)
E, F = np.random.default_rng(5).normal(0, 11**-0.5, (2, 11, 600))


def performer(Q, K, V, **options):
    return performer_attention(Q, K, V, W, **options)


def linformer(Q, K, V, **options):
    m = K.shape[-2]
    return linformer_attention(Q, K, V, E[:, :m], F[:, :m], **options)


FUNCTIONS = {"linear": linear_attention, "performer": performer, "linformer": linformer}
CAUSAL = {
    "linear, causal": partial(linear_attention, is_causal=True),
    "performer, causal": partial(performer, is_causal=True),
}
KINDS = FUNCTIONS | CAUSAL
SUMS = ("linear", "performer")
LAYERS = {
    "linear": LinearAttention,
    "performer": lambda *a, **o: PerformerAttention(*a, n_features=5, **o),
    "linformer": lambda *a, **o: LinformerAttention(*a, seq_len=80, k=4, **o),
}


def drawn(rng, n=N, m=None):
    m = n if m is None else m
    return tuple(rng.normal(size=(B, *s)) for s in ((n, D_K), (m, D_K), (m, D_V)))


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
    expected = exact(Q, E[:, :17] @ K, F[:, :17] @ V)
    np.testing.assert_allclose(linformer(Q, K, V), expected)


FEATURES = {
    "linear": lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
    "performer": lambda x: positive_features(x / D_K**0.25, W),  # without constants for its range
}


@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, N])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FEATURES)
def test_a_kernel_equals_its_quadratic_form(rng, name, n, causal):
    Q, K, V = drawn(rng, n)
    phi = [FEATURES[name](x) for x in (Q, K)]
    found = FUNCTIONS[name](Q, K, V, is_causal=causal)
    np.testing.assert_allclose(found, quadratic(*phi, V, causal), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_performers_error_falls_as_one_over_the_root_of_its_features(rng, causal):
    Q, K, V = drawn(rng)
    Q, K = Q / 2, K / 2  # the estimate's variance grows exponentially with ‖q + k‖²
    truth = exact(Q, K, V, is_causal=causal)

    def error(m):
        draws = [orthogonal_features(m, D_K, rng) for _ in range(32)]
        found = np.array([performer_attention(Q, K, V, W, causal) for W in draws])
        return np.sqrt(np.mean((found - truth) ** 2))

    errors = [error(m) for m in (16, 64, 256, 1024)]
    for more, less in pairwise(errors):
        assert 1.4 < more / less < 2.8, errors  # 4 times the features: half the error


def test_orthogonal_features_are_orthogonal_in_blocks_and_gaussian_in_length():
    W = orthogonal_features(3 * D_K - 2, D_K, rng=0)
    for block in (W[:D_K], W[D_K : 2 * D_K], W[2 * D_K :]):
        gram = block @ block.T
        np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-12)
    many = orthogonal_features(50_000, D_K, rng=0)
    np.testing.assert_allclose(many.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(np.cov(many.T), np.eye(D_K), atol=0.03)


def test_performer_stays_finite_where_bare_features_vanish_or_overflow(rng):
    Q, K, V = drawn(rng)
    for size in (100.0, 1e-100):
        assert np.isfinite(performer(size * Q, size * K, V)).all()
    assert not positive_features(100 * K, W).any()
    with np.errstate(over="ignore"):
        assert np.isinf(positive_features(np.full((1, D_K), 50.0), np.full((1, D_K), 60.0))).any()


def test_the_constant_of_the_features_is_no_part_of_their_gradient(rng):
    """dφ/dx = φ (w − x) whatever c: it cancels in the attention that is made of them."""
    X = mg.tensor(rng.normal(size=(7, D_K)), requires_grad=True)
    g = rng.normal(size=(7, len(W)))
    for over in (None, -1, (-2, -1)):
        phi = positive_features(X, W, over)
        expected = np.einsum("nr,nrd->nd", g * phi.numpy(), W - X.numpy()[:, None])
        np.testing.assert_allclose(mg.grad(phi, X, g), expected, rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------- causality, gradients


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_through_chunks_agree_with_differences_along_a_direction(rng, name, masked):
    arrays = [x[0] for x in drawn(rng, 35)]  # more than one chunk of causal sums
    f = partial(KINDS[name], mask=np.arange(35) % 3 < 2) if masked else KINDS[name]
    directions = [rng.normal(size=x.shape) for x in arrays]
    leaves = [mg.tensor(x, requires_grad=True) for x in arrays]
    out = f(*leaves)
    u, h = rng.normal(size=out.shape), 1e-5
    pairs = zip(mg.grad(out, leaves, u), directions, strict=True)
    slope = sum((g * d).sum() for g, d in pairs)
    above, below = (
        f(*(x + k * d for x, d in zip(arrays, directions, strict=True))) for k in (h, -h)
    )
    np.testing.assert_allclose(slope, (u * (above - below)).sum() / (2 * h), rtol=1e-6)


# ---------------------------------------------------------------- cost


@pytest.mark.parametrize("name", KINDS)
def test_no_array_grows_faster_than_n_and_flops_double_with_it(rng, recorded, name):
    largest, flops = {}, {}
    for n in (128, 256, 512):
        _, record = recorded(KINDS[name], *(mg.tensor(x) for x in drawn(rng, n)))
        largest[n] = max(out.size for out in record.outputs)
        flops[n] = sum(record.flops.values())
    assert largest[512] < B * 512 * 64
    for n in (128, 256):
        np.testing.assert_allclose(flops[2 * n] / flops[n], 2, rtol=1e-3)
        assert largest[2 * n] == 2 * largest[n]


# ---------------------------------------------------------------- layers


@pytest.mark.parametrize("name", [*LAYERS, *CAUSAL])
def test_each_head_of_a_layer_is_its_function(rng, name):
    kind, *causal = name.split(", ")
    layer = LAYERS[kind](12, 3, rng=rng, **({"is_causal": True} if causal else {}))
    X = rng.normal(size=(B, 37, 12))
    function = {
        "linear": lambda *qkv: linear_attention(*qkv, is_causal=layer.causal),
        "performer": lambda *qkv: performer_attention(*qkv, layer.features, is_causal=layer.causal),
        "linformer": lambda *qkv: linformer_attention(
            *qkv, *(x.numpy()[:, :37] for x in (layer.E, layer.F))
        ),
    }[kind]
    W = {s: getattr(layer, f"W_{s}").numpy() for s in "QKVO"}
    heads = [function(*((X @ W[s])[..., 4 * h : 4 * h + 4] for s in "QKV")) for h in range(3)]
    expected = np.concatenate(heads, axis=-1) @ W["O"]
    np.testing.assert_allclose(layer(X).numpy(), expected, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- masks of keys


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_hidden_keys_are_as_if_they_were_not_there(rng, name, kind):
    Q, K, V = drawn(rng, m=M)
    lengths = np.array([M, 20, 1])
    mask = padding_mask(lengths, M)
    found = FUNCTIONS[name](Q, K, V, mask=mask if kind == "additive" else mask == 0)
    for b, length in enumerate(lengths):
        alone = FUNCTIONS[name](Q[b], K[b, :length], V[b, :length])
        np.testing.assert_allclose(found[b], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SUMS)
def test_hidden_keys_of_causal_attention_are_as_if_they_were_not_there(rng, name):
    Q, K, V = drawn(rng)
    kept = rng.random((B, N)) < 0.6
    found = FUNCTIONS[name](Q, K, V, is_causal=True, mask=kept[:, None])
    for b in range(B):
        here = np.flatnonzero(kept[b])
        alone = FUNCTIONS[name](*(x[b, here] for x in (Q, K, V)), is_causal=True)
        np.testing.assert_allclose(found[b, here], alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SUMS)
def test_a_number_in_the_mask_multiplies_its_keys_weight_by_e_to_it(rng, name):
    Q, K, _ = drawn(rng, 7, 5)
    M = rng.normal(size=5)
    found = FUNCTIONS[name](Q, K, np.eye(5)[None], mask=M)
    plain = FUNCTIONS[name](Q, K, np.eye(5)[None]) * np.exp(M)
    np.testing.assert_allclose(found, plain / plain.sum(axis=-1, keepdims=True), rtol=1e-10)


@pytest.mark.parametrize("name", KINDS)
def test_a_query_that_sees_no_key_gets_zeros_and_gives_no_gradient(rng, name):
    leaves = [mg.tensor(x, requires_grad=True) for x in drawn(rng, M)]
    hidden = padding_mask([M, 0, 20], M)
    out = KINDS[name](*leaves, mask=hidden)
    assert (out.numpy()[1] == 0).all()
    for gradient in mg.grad(out, leaves, rng.normal(size=out.shape)):
        assert np.isfinite(gradient).all()
        assert (gradient[1] == 0).all()
        assert (gradient[0] != 0).any()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n_kv_heads", [6, 2, 1])
def test_a_layer_with_padding_is_the_layer_without_it(rng, name, n_kv_heads):
    layer = LAYERS[name](D, H, n_kv_heads=n_kv_heads, use_bias=True, rng=rng)
    X, lengths = rng.normal(size=(B, N, D)), [N, 20, 3]
    whole = layer(X, padding_mask(lengths, N)).numpy()
    for b, length in enumerate(lengths):
        alone = layer(X[b : b + 1, :length]).numpy()
        np.testing.assert_allclose(whole[b : b + 1, :length], alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n_kv_heads", [2, 1])
def test_shared_heads_are_as_many_copies_of_them(rng, name, n_kv_heads):
    shared = LAYERS[name](D, H, n_kv_heads=n_kv_heads, rng=rng)
    full = LAYERS[name](D, H, rng=rng)
    state = shared.state_dict()
    for s in ("W_K", "W_V"):
        heads = state[s].reshape(D, n_kv_heads, 1, D // H)
        state[s] = np.broadcast_to(heads, (D, n_kv_heads, H // n_kv_heads, D // H)).reshape(D, D)
    full.load_state_dict(state)
    if name == "performer":
        full.redraw(0), shared.redraw(0)
    X = rng.normal(size=(B, N, D))
    mask = padding_mask([N, 20, 3], N)
    for given in ((), (mask,)):
        assert_same(shared(X, *given), full(X, *given), 1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_keys_and_values_may_come_from_a_context(rng, name):
    layer = LAYERS[name](D, H, n_kv_heads=2, d_context=11, rng=rng)
    X, Y = rng.normal(size=(B, N, D)), rng.normal(size=(B, M, 11))
    shuffled = layer(X, context=Y[:, rng.permutation(M)]).numpy()
    same = np.allclose(shuffled, layer(X, context=Y).numpy(), rtol=1e-9, atol=1e-11)
    assert same == (name != "linformer")  # which mixes them by their place
    hidden = layer(X, padding_mask([20] * B, M), context=Y).numpy()
    np.testing.assert_allclose(hidden, layer(X, context=Y[:, :20]).numpy(), rtol=1e-9, atol=1e-11)


# ---------------------------------------------------------------- decoding


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("n_kv_heads", [6, 2])
@pytest.mark.parametrize("sizes", [[1] * N, [35, 1, 35], [7, 33, 31]])
def test_decoding_by_sums_is_the_full_causal_pass(rng, name, n_kv_heads, sizes):
    layer = LAYERS[name](D, H, n_kv_heads=n_kv_heads, is_causal=True, use_bias=True, rng=rng)
    X, cache = rng.normal(size=(B, N, D)), layer.new_cache()
    found = decoded(layer, X, cache, sizes)
    np.testing.assert_allclose(found, layer(X).numpy(), rtol=1e-9, atol=1e-11)
    assert len(cache) == N


@pytest.mark.parametrize("name", SUMS)
def test_hidden_tokens_leave_no_trace_in_the_sums(rng, name):
    """Prompts padded at their start, with holes: what is decoded is that of each alone."""
    layer = LAYERS[name](D, H, is_causal=True, rng=rng)
    X, padded = rng.normal(size=(B, N, D)), np.array([0, 4, 60])
    mask = ((np.arange(N) >= padded[:, None]) & (np.arange(N) % 9 != 8))[:, None]
    found = decoded(layer, X, KernelState(), [50, *[1] * 21], mask)
    np.testing.assert_allclose(found, layer(X, mask).numpy(), rtol=1e-9, atol=1e-11)
    for b, start in enumerate(padded):
        alone = layer(X[b : b + 1, start:], mask[b : b + 1, :, start:]).numpy()
        np.testing.assert_allclose(found[b : b + 1, start:], alone, rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(found[b, :start], 0)  # it sees no key; there is no bias


@pytest.mark.parametrize("name", SUMS)
def test_a_decoded_token_costs_the_same_however_many_came_before(rng, recorded, name):
    layer, cache = LAYERS[name](D, H, is_causal=True, rng=rng), KernelState()
    X = rng.normal(size=(B, 200, D))
    with mg.no_grad():
        _, first = recorded(lambda x: layer(x, cache=cache), X[:, :1])
        _, second = recorded(lambda x: layer(x, cache=cache), X[:, 1:2])
        held = cache.nbytes
        layer(X[:, 2:199], cache=cache)
        _, last = recorded(lambda x: layer(x, cache=cache), X[:, 199:])
    assert second.flops == last.flops
    assert sum(first.flops.values()) <= sum(last.flops.values())
    r = 5 if name == "performer" else D // H
    assert cache.nbytes == held == B * H * r * (D // H + 1) * 8


def test_what_a_state_cannot_hold_is_refused(rng):
    layer, cache = LinearAttention(D, H, is_causal=True, rng=rng), KernelState()
    X = rng.normal(size=(B, 3, D))
    with pytest.raises(GradientError, match=r"KernelState: .* within mg.no_grad\(\)"):
        layer(X, cache=cache)
    with mg.no_grad():
        layer(X, cache=cache)
        with pytest.raises(ShapeError, match="KernelState: it holds sums"):
            layer(X[:1], cache=cache)
        cache.reset()
        np.testing.assert_array_equal(layer(X, cache=cache).numpy(), layer(X).numpy())


def test_a_language_model_of_linear_attention_decodes_by_sums(rng):
    """Any block's attention may be replaced; learned positions go on counting."""
    model = LanguageModel(13, D, H, 2, max_len=N, rng=rng)
    for block in model.decoder.blocks:
        block.attention = LinearAttention(D, H, is_causal=True, rng=rng)
    tokens, cache = rng.integers(0, 13, (B, 9)), model.new_cache()
    with mg.no_grad():
        steps = [model(tokens[:, t : t + 1], cache=cache).numpy() for t in range(9)]
    assert_same(np.concatenate(steps, axis=1), model(tokens), 1e-9)
    assert all(isinstance(own, KernelState) for own in cache)


def test_a_decoder_block_of_linear_attention_keeps_its_context(rng):
    decoder = Decoder(1, D, H, rng=rng)
    block = decoder.blocks[0]
    assert isinstance(block, DecoderBlock)
    block.attention = LinearAttention(D, H, is_causal=True, rng=rng)
    X, Y, cache = rng.normal(size=(B, 5, D)), rng.normal(size=(B, M, D)), decoder.new_cache()
    with mg.no_grad():
        steps = [decoder(X[:, t : t + 1], Y, cache=cache).numpy() for t in range(5)]
    whole = decoder(X, Y).numpy()
    np.testing.assert_allclose(np.concatenate(steps, axis=1), whole, rtol=1e-9, atol=1e-11)
    assert cache[0].of_context.made is not None
