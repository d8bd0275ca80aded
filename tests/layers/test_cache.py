"""Decoding token by token is the full causal pass, and costs what one row of it costs."""

import numpy as np
import pytest

import layers as L
import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError
from tests.compare import assert_same
from tests.layers.counting import products_of

B, N, D, H = 2, 11, 12, 3

VARIANTS = {
    "plain": {},
    "grouped": {"n_kv_heads": 1},
    "rotary": {"position": L.Rotary(4)},
    "rotary, grouped, normed": {"position": L.Rotary(4), "n_kv_heads": 1, "qk_norm": L.RMSNorm},
    "rotary interleaved, in part": {"position": L.Rotary(2, pairing="interleaved")},
    "ALiBi": {"position": L.ALiBi(H)},
    "T5": {"position": L.T5Bias(H, 8, 11, bidirectional=False)},
    "Shaw": {"position": L.RelativePosition(4, 3, d_v=5), "d_v": 5},
    "soft-cap": {"softcap": 0.7},
    "narrow values": {"d_v": 5},
    "window": {"window": 4},
    "window and rotary": {"window": 3, "position": L.Rotary(4)},
    "window of one": {"window": 1},
    "window longer than the text": {"window": 50},
}


def layer_of(rng, name):
    layer = L.MultiHeadAttention(D, H, is_causal=True, use_bias=True, rng=rng, **VARIANTS[name])
    for parameter in layer.parameters():
        parameter.assign_(rng.normal(size=parameter.shape))
    return layer


def decoded(layer, X, cache, sizes, mask=None):
    """The outputs of chunks of these sizes, one after another."""
    ends = np.cumsum(sizes)
    with mg.no_grad():
        parts = []
        for new in (slice(end - size, end) for size, end in zip(sizes, ends, strict=True)):
            hidden = None if mask is None else mask[..., new]
            parts.append(layer(X[..., new, :], hidden, cache=cache).numpy())
    return np.concatenate(parts, axis=-2)


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


@pytest.mark.parametrize("sizes", [[1] * N, [N], [5, 1, 1, 1, 3], [1, 7, 3]], ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_decoding_in_chunks_is_the_full_causal_pass(rng, X, name, sizes):
    layer = layer_of(rng, name)
    cache = L.KVCache(window=layer.window)
    found, whole = decoded(layer, X, cache, sizes), layer(X).numpy()
    np.testing.assert_allclose(found, whole, rtol=1e-10, atol=1e-12 * np.abs(whole).max())
    assert len(cache) == N


def test_one_head_and_an_unbatched_sequence_have_caches_too(rng, X):
    layer = L.SelfAttention(D, 5, 7, is_causal=True, rng=rng)
    assert_same(decoded(layer, X, L.KVCache(), [3, 1, 7]), layer(X), 1e-10)
    layer = L.MultiHeadAttention(D, H, is_causal=True, rng=rng)
    assert_same(decoded(layer, X[0], L.KVCache(), [1] * N), layer(X[0]), 1e-10)


# ---------------------------------------------------------------- cost


def flops_of_tokens(layer, X, cache):
    return [products_of(layer, X[:, t : t + 1], cache=cache) for t in range(X.shape[1])]


def test_a_tokens_flops_grow_by_a_constant_for_every_token_before_it(rng, X):
    """Projections, and 2 B h (d_k + d_v) for every key: O(n) a token, not O(n²)."""
    projections = (2 * D + 1) * B * (D + 4 + 4 + D)
    expected = [projections + 2 * B * H * (4 + 4) * (t + 1) for t in range(N)]
    assert flops_of_tokens(layer_of(rng, "grouped"), X, L.KVCache()) == expected
    window = flops_of_tokens(layer_of(rng, "window"), X, L.KVCache(window=4))
    assert window[:4] == sorted(set(window[:4]))
    assert set(window[3:]) == {window[3]}


def test_the_store_doubles_so_that_n_tokens_move_it_about_log_n_times(rng):
    cache, capacities = L.KVCache(), []
    for t in range(1000):
        cache.append(np.full((1, 2, 1, 3), t), np.full((1, 2, 1, 5), -t))
        capacities.append(cache.capacity)
    assert sorted(set(capacities)) == [2**k for k in range(11)]
    np.testing.assert_array_equal(cache.keys[0, 1, :, 2], np.arange(1000))
    np.testing.assert_array_equal(cache.values[0, 0, :, 4], -np.arange(1000))


def test_a_windows_store_stays_within_a_few_windows(rng):
    cache = L.KVCache(window=7)
    for t in range(1000):
        keys, _ = cache.append(np.full((1, 2, 1, 3), t), np.zeros((1, 2, 1, 3)))
        np.testing.assert_array_equal(keys[0, 0, :, 0], np.arange(max(0, t - 6), t + 1))
        assert cache.start == max(0, t - 6)
    assert cache.capacity <= 4 * 7


# ---------------------------------------------------------------- rows of different lengths


@pytest.mark.parametrize("name", ["plain", "rotary, grouped, normed", "ALiBi", "window", "Shaw"])
def test_rows_of_different_lengths_decode_as_each_would_alone(rng, X, name):
    layer = layer_of(rng, name)
    cache, lengths = L.KVCache(window=layer.window), np.array([2, 5])
    with mg.no_grad():
        prompt = layer(X[:, :5], cache=cache).numpy()
        cache.crop(lengths)
        for step in range(4):
            at = lengths + step
            new = np.stack([X[b, at[b]] for b in range(B)])[:, None]
            out = layer(new, cache=cache).numpy()
            for b in range(B):
                alone = layer(X[b, : at[b] + 1]).numpy()
                np.testing.assert_allclose(out[b, 0], alone[-1], rtol=1e-9, atol=1e-10)
                assert_same(prompt[b, : lengths[b]], alone[: lengths[b]], 1e-9)
    np.testing.assert_array_equal(cache.lengths, lengths + 4)


def test_a_short_rows_empty_places_are_hidden_even_without_a_causal_mask(rng, X):
    layer, cache = L.MultiHeadAttention(D, H, rng=rng), L.KVCache()
    with mg.no_grad():
        layer(X[:, :5], cache=cache)
        cache.crop([2, 5])
        layer(X[:, 5:6], cache=cache)
    A = layer.attention_weights
    np.testing.assert_array_equal(A[0, :, 0, 3:], 0)
    assert (A[1] > 0).all()


# ---------------------------------------------------------------- crop, reset, errors


def test_reset_forgets_everything(rng, X):
    layer, cache = layer_of(rng, "plain"), L.KVCache()
    with mg.no_grad():
        first = layer(X, cache=cache).numpy()
        cache.reset()
        assert (len(cache), cache.capacity, cache.nbytes) == (0, 0, 0)
        np.testing.assert_array_equal(layer(X, cache=cache).numpy(), first)


def test_what_does_not_fit_a_cache_is_refused(rng, X):
    layer, cache = layer_of(rng, "plain"), L.KVCache()
    with mg.no_grad():
        layer(X, cache=cache)
        with pytest.raises(ShapeError, match="it holds 2 rows, got 1"):
            layer(X[:1], cache=cache)
        with pytest.raises(ArgumentError, match="goes with no context= and no positions="):
            layer(X, cache=cache, positions=np.arange(N))
    with pytest.raises(ArgumentError, match=r"must lie in \[0, \[11, 11\]\], got \[12, 12\]"):
        cache.crop(12)
    for window in (None, 4):
        wide = L.MultiHeadAttention(D, H, rng=rng, is_causal=True, window=window)
        with pytest.raises(ArgumentError, match=rf"make it with KVCache\(window={window}\)"):
            wide(X, cache=L.KVCache(window=3))
    cache.at = np.array([[10], [10]])
    with pytest.raises(ArgumentError, match="a cache with `at` takes no mask rule"), mg.no_grad():
        layer(X[:, :1], mg.mask_rules.Window(3), cache=cache)


@pytest.mark.parametrize("heads", [1, 3])
def test_a_store_of_fixed_size_is_cropped_of_one_sequence_too(rng, X, heads):
    layer = (
        L.SelfAttention(D, 5, 7, rng=rng, is_causal=True) if heads == 1 else layer_of(rng, "plain")
    )
    cache = L.KVCache(max_len=N)
    with mg.no_grad():
        layer(X[0, :5], cache=cache)
        cache.crop(3)
        found = layer(X[0, 3:6], cache=cache)
    np.testing.assert_allclose(found.numpy(), layer(X[0, :6]).numpy()[3:], rtol=1e-9, atol=1e-10)


def test_a_window_is_cropped_as_far_as_the_next_token_sees(rng, X):
    layer, cache = layer_of(rng, "window"), L.KVCache(window=4)
    decoded(layer, X[:, :10], cache, [1] * 10)
    with pytest.raises(ArgumentError, match=r"lengths must lie in \[9, \[10, 10\]\], got \[8, 8\]"):
        cache.crop(8)
    cache.crop(9)
    again = decoded(layer, X[:, 9:], cache, [1, 1])
    np.testing.assert_allclose(again, layer(X).numpy()[:, 9:], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("method", ["exact", "auto"])
def test_a_mask_rule_holds_after_a_cache_in_every_row(rng, X, ragged, window, method):
    rule = mg.mask_rules.Window(3) | mg.mask_rules.Global((0, 7))
    layer = L.MultiHeadAttention(D, H, rng=rng, is_causal=True, window=window, method=method)
    cache, lengths = L.KVCache(window=window), np.array([8, 8 - ragged])
    decoded(layer, X[:, :8], cache, [1] * 8)
    cache.crop(lengths)
    new = np.stack([X[b, at : at + 2] for b, at in enumerate(lengths)])
    with mg.no_grad():
        found = layer(new, rule, cache=cache).numpy()
    for b, at in enumerate(lengths):
        assert_same(found[b], layer(X[b, : at + 2], rule).numpy()[at:], 1e-9)
