"""Masks of keys, contexts, shared heads and decoding, for attention that grows with n."""

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
)
from minigrad.errors import GradientError, ShapeError
from tests.compare import assert_same
from tests.layers.test_cache import decoded

B, N, M, D, H = 3, 41, 37, 12, 6
W, E = orthogonal_features(7, 5, rng=3), np.random.default_rng(5).normal(size=(2, 11, M))

FUNCTIONS = {
    "linear": linear_attention,
    "performer": lambda Q, K, V, **o: performer_attention(Q, K, V, W, **o),
    "linformer": lambda Q, K, V, **o: linformer_attention(
        Q, K, V, *(E[..., : K.shape[-2]]), **o
    ),
}  # fmt: skip
SUMS = ("linear", "performer")

LAYERS = {
    "linear": LinearAttention,
    "performer": lambda *a, **o: PerformerAttention(*a, n_features=5, **o),
    "linformer": lambda *a, **o: LinformerAttention(*a, seq_len=50, k=4, **o),
}


def drawn(rng, n=N, m=M):
    return rng.normal(size=(B, n, 5)), rng.normal(size=(B, m, 5)), rng.normal(size=(B, m, 3))


# ---------------------------------------------------------------- masks of keys


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_hidden_keys_are_as_if_they_were_not_there(rng, name, kind):
    Q, K, V = drawn(rng)
    lengths = np.array([M, 20, 1])
    mask = padding_mask(lengths, M)
    found = FUNCTIONS[name](Q, K, V, mask=mask if kind == "additive" else mask == 0)
    for b, length in enumerate(lengths):
        alone = FUNCTIONS[name](Q[b], K[b, :length], V[b, :length])
        np.testing.assert_allclose(found[b], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SUMS)
def test_hidden_keys_of_causal_attention_are_as_if_they_were_not_there(rng, name):
    Q, K, V = drawn(rng, N, N)
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


@pytest.mark.parametrize(
    ("name", "causal"), [*((name, False) for name in FUNCTIONS), *((name, True) for name in SUMS)]
)
def test_a_query_that_sees_no_key_gets_zeros_and_gives_no_gradient(rng, name, causal):
    leaves = [mg.tensor(x, requires_grad=True) for x in drawn(rng, M, M)]
    hidden = padding_mask([M, 0, 20], M)
    out = FUNCTIONS[name](*leaves, mask=hidden, **({"is_causal": True} if causal else {}))
    assert (out.numpy()[1] == 0).all()
    for gradient in mg.grad(out, leaves, rng.normal(size=out.shape)):
        assert np.isfinite(gradient).all()
        assert (gradient[1] == 0).all()
        assert (gradient[0] != 0).any()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_with_a_mask_agree_with_numeric_ones(rng, name):
    Q, K, V = (x[0] for x in drawn(rng, 3, 5))
    mask = np.array([True, True, False, True, False])
    assert mg.gradcheck(lambda *qkv: FUNCTIONS[name](*qkv, mask=mask), [Q, K, V], tolerance=1e-5)


# ---------------------------------------------------------------- layers


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
    out = layer(X, context=Y)
    assert out.shape == X.shape
    np.testing.assert_array_equal(layer(X[0], context=Y[0]).shape, X[0].shape)
    shuffled = layer(X, context=Y[:, rng.permutation(M)]).numpy()
    same = np.allclose(shuffled, out.numpy(), rtol=1e-9, atol=1e-11)
    assert same == (name != "linformer")  # which mixes them by their place
    hidden = layer(X, padding_mask([20] * B, M), context=Y).numpy()
    np.testing.assert_allclose(hidden, layer(X, context=Y[:, :20]).numpy(), rtol=1e-9, atol=1e-11)


# ---------------------------------------------------------------- decoding


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("n_kv_heads", [6, 2])
@pytest.mark.parametrize("sizes", [[1] * N, [35, 1, 5], [7, 33, 1]])
def test_decoding_by_sums_is_the_full_causal_pass(rng, name, n_kv_heads, sizes):
    layer = LAYERS[name](D, H, n_kv_heads=n_kv_heads, is_causal=True, use_bias=True, rng=rng)
    X, cache = rng.normal(size=(B, N, D)), layer.new_cache()
    found = decoded(layer, X, cache, sizes)
    np.testing.assert_allclose(found, layer(X).numpy(), rtol=1e-9, atol=1e-11)
    assert len(cache) == N


@pytest.mark.parametrize("name", SUMS)
def test_hidden_tokens_leave_no_trace_in_the_sums(rng, name):
    """Prompts padded at their start: what is decoded after them is that of each alone."""
    layer = LAYERS[name](D, H, is_causal=True, rng=rng)
    X, padded = rng.normal(size=(B, N, D)), np.array([0, 4, 30])
    mask = (np.arange(N) >= padded[:, None])[:, None]
    found = decoded(layer, X, KernelState(), [20, *[1] * 21], mask)
    np.testing.assert_allclose(found, layer(X, mask).numpy(), rtol=1e-9, atol=1e-11)
    for b, start in enumerate(padded):
        alone = layer(X[b : b + 1, start:]).numpy()
        np.testing.assert_allclose(found[b : b + 1, start:], alone, rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(found[b, :start], 0)  # it sees no key; there is no bias


@pytest.mark.parametrize("name", SUMS)
def test_a_decoded_token_costs_the_same_however_many_came_before(rng, hear, name):
    layer, cache = LAYERS[name](D, H, is_causal=True, rng=rng), KernelState()
    X = rng.normal(size=(B, 200, D))
    with mg.no_grad():
        _, first = hear(lambda x: layer(x, cache=cache), X[:, :1])
        _, second = hear(lambda x: layer(x, cache=cache), X[:, 1:2])
        held = cache.nbytes
        layer(X[:, 2:199], cache=cache)
        _, last = hear(lambda x: layer(x, cache=cache), X[:, 199:])
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
