"""Attention that grows with n: its quadratic form, cost, masks of keys, contexts and decoding."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import layers as L
import minigrad as mg
from minigrad.errors import GradientError, ShapeError
from tests.compare import assert_same
from tests.layers.test_cache import decoded

B, N, M, D, H = 3, 71, 37, 12, 6  # N is more than two chunks, and no multiple of one
D_K, D_V = 5, 3
W = L.orthogonal_features(7, D_K, rng=3)
E, F = np.random.default_rng(5).normal(0, 11**-0.5, (2, 11, 600))


def performer(Q, K, V, **options):
    return L.performer_attention(Q, K, V, W, **options)


def linformer(Q, K, V, **options):
    m = K.shape[-2]
    return L.linformer_attention(Q, K, V, E[:, :m], F[:, :m], **options)


KINDS = {
    "linear": L.linear_attention,
    "performer": performer,
    "linformer": linformer,
    "linear, causal": partial(L.linear_attention, is_causal=True),
    "performer, causal": partial(performer, is_causal=True),
}
SUMS = ("linear", "performer")
LAYERS = {
    "linear": L.LinearAttention,
    "performer": lambda *a, **o: L.PerformerAttention(*a, n_features=5, **o),
    "linformer": lambda *a, **o: L.LinformerAttention(*a, seq_len=80, k=4, **o),
}


def drawn(rng, n=N, m=None):
    m = n if m is None else m
    return tuple(rng.normal(size=(B, *s)) for s in ((n, D_K), (m, D_K), (m, D_V)))


def exact(Q, K, V, **options):
    return mg.scaled_dot_product_attention(Q, K, V, method="exact", **options)


# ---------------------------------------------------------------- values

FEATURES = {
    "linear": lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
    "performer": lambda x: L.positive_features(x / D_K**0.25, W),  # without constants for its range
}


def written_out(name, Q, K, V, weights=1.0):
    """The n × n form: weights φ(q)·φ(k), later keys cut, rows divided by their sums."""
    if name == "linformer":
        m = K.shape[-2]
        columns = np.broadcast_to(weights, (B, 1, m)).swapaxes(-1, -2)
        return exact(Q, E[:, :m] @ (columns * K), F[:, :m] @ (columns * V))
    phi = FEATURES[name.split(",")[0]]
    P = weights * (phi(Q) @ phi(K).swapaxes(-1, -2))
    P = np.tril(P) if "causal" in name else P
    sums = P.sum(axis=-1, keepdims=True)
    return P @ V / np.where(sums > 0, sums, 1)


MASKS = {
    "none": lambda rng, m: None,
    "boolean": lambda rng, m: rng.random((B, 1, m)) < 0.6,
    "padding": lambda rng, m: L.padding_mask([m, m // 2, 0], m),  # who sees no key gets zeros
    "numbers": lambda rng, m: rng.normal(size=m),
}


@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, N])
@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("name", KINDS)
def test_each_is_its_quadratic_form_in_which_a_mask_multiplies_by_e_to_it(rng, name, masked, n):
    m = n if "causal" in name else M
    Q, K, V = drawn(rng, n, m)
    mask = MASKS[masked](rng, m)
    if name == "linformer" and masked == "numbers":
        mask = mask > 0  # it can hide keys, not weigh them
    weights = 1.0 if mask is None else mask if mask.dtype == bool else np.exp(mask)
    found = KINDS[name](Q, K, V, mask=mask)
    np.testing.assert_allclose(found, written_out(name, Q, K, V, weights), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_performers_error_falls_as_one_over_the_root_of_its_features(rng):
    Q, K, V = drawn(rng)
    Q, K = Q / 2, K / 2  # the estimate's variance grows exponentially with ‖q + k‖²
    truth = exact(Q, K, V)

    def error(m):
        draws = [L.orthogonal_features(m, D_K, rng) for _ in range(32)]
        found = np.array([L.performer_attention(Q, K, V, W) for W in draws])
        return np.sqrt(np.mean((found - truth) ** 2))

    errors = [error(m) for m in (16, 64, 256, 1024)]
    for more, less in pairwise(errors):
        assert 1.4 < more / less < 2.8, errors  # 4 times the features: half the error


def test_orthogonal_features_are_orthogonal_in_blocks_and_gaussian_in_length():
    W = L.orthogonal_features(3 * D_K - 2, D_K, rng=0)
    for block in (W[:D_K], W[D_K : 2 * D_K], W[2 * D_K :]):
        gram = block @ block.T
        np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-12)
    many = L.orthogonal_features(50_000, D_K, rng=0)
    np.testing.assert_allclose(many.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(np.cov(many.T), np.eye(D_K), atol=0.03)


def test_performer_stays_finite_where_bare_features_vanish_or_overflow(rng):
    Q, K, V = drawn(rng)
    for size in (100.0, 1e-100):
        assert np.isfinite(performer(size * Q, size * K, V)).all()
    assert not L.positive_features(100 * K, W).any()
    with np.errstate(over="ignore"):
        assert np.isinf(L.positive_features(np.full((1, D_K), 50.0), np.full((1, D_K), 60.0))).any()


def test_the_constant_of_the_features_is_no_part_of_their_gradient(rng):
    """dφ/dx = φ (w − x) whatever c: it cancels in the attention that is made of them."""
    X = mg.tensor(rng.normal(size=(7, D_K)), requires_grad=True)
    g = rng.normal(size=(7, len(W)))
    for over in (None, -1, (-2, -1)):
        phi = L.positive_features(X, W, over)
        expected = np.einsum("nr,nrd->nd", g * phi.numpy(), W - X.numpy()[:, None])
        np.testing.assert_allclose(mg.grad(phi, X, g), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", KINDS)
def test_gradients_agree_with_differences_and_who_sees_no_key_gives_none(rng, name):
    """Through more than one chunk of causal sums."""
    arrays = drawn(rng, 35)
    f = partial(KINDS[name], mask=np.arange(35) % np.array([[[2]], [[35]], [[1]]]) > 0)
    directions = [rng.normal(size=x.shape) for x in arrays]
    leaves = [mg.tensor(x, requires_grad=True) for x in arrays]
    out = f(*leaves)
    u, h = rng.normal(size=out.shape), 1e-5
    gradients = mg.grad(out, leaves, u)
    slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    above, below = (
        f(*(x + k * d for x, d in zip(arrays, directions, strict=True))) for k in (h, -h)
    )
    np.testing.assert_allclose(slope, (u * (above - below)).sum() / (2 * h), rtol=1e-6)
    for gradient in gradients:
        assert (gradient[2] == 0).all()


@pytest.mark.parametrize("name", KINDS)
def test_no_array_grows_faster_than_n_and_flops_double_with_it(rng, name):
    largest, flops = {}, {}
    for n in (128, 256, 512):
        with mg.trace() as t:
            KINDS[name](*(mg.tensor(x) for x in drawn(rng, n)))
        made = [entry for entry in t if entry.kind == "op"]
        largest[n] = max(entry.value.size for entry in made)
        flops[n] = sum(entry.flops or 0 for entry in made)
    assert largest[512] < B * 512 * 64
    for n in (128, 256):
        np.testing.assert_allclose(flops[2 * n] / flops[n], 2, rtol=1e-3)
        assert largest[2 * n] == 2 * largest[n]


# ---------------------------------------------------------------- layers


@pytest.mark.parametrize("of_context", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n_kv_heads", [6, 2, 1])
@pytest.mark.parametrize("name", KINDS)
def test_each_head_of_a_layer_is_its_function(rng, name, n_kv_heads, masked, of_context):
    """With its own part of the weights, or one that its group shares."""
    kind, causal = name.split(",")[0], {"is_causal": True} if "causal" in name else {}
    given = {"n_kv_heads": n_kv_heads, "use_bias": True, "rng": rng}
    layer = LAYERS[kind](D, H, **given, **causal, **({"d_context": 11} if of_context else {}))
    X, m = rng.normal(size=(B, N, D)), N if causal else M
    Y = rng.normal(size=(B, m, 11)) if of_context else X
    mask = L.padding_mask([Y.shape[1], 20, 3], Y.shape[1]) if masked else None
    function = {
        "linear": L.linear_attention,
        "performer": lambda *qkv, **more: L.performer_attention(
            *qkv, getattr(layer, "features", None), **more
        ),
        "linformer": lambda *qkv, **more: L.linformer_attention(
            *qkv, *(x.numpy()[:, : Y.shape[1]] for x in (layer.E, layer.F)), **more
        ),
    }[kind]
    state, of = layer.state_dict(), {"Q": X, "K": Y, "V": Y}
    Q, K, V = (x @ state[f"W_{s}"] + state[f"b_{s}"] for s, x in of.items())
    heads = []
    for h in range(H):
        own, shared = (slice(2 * k, 2 * k + 2) for k in (h, h * n_kv_heads // H))
        heads.append(function(Q[..., own], K[..., shared], V[..., shared], mask=mask, **causal))
    expected = np.concatenate(heads, axis=-1) @ state["W_O"] + state["b_O"]
    assert_same(layer(X, mask, context=Y if of_context else None), expected, 1e-9)


# ---------------------------------------------------------------- decoding


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("n_kv_heads", [6, 2])
@pytest.mark.parametrize("sizes", [[1] * N, [35, 1, 35], [7, 33, 31]], ids=str)
def test_decoding_by_sums_is_the_full_causal_pass(rng, name, n_kv_heads, sizes):
    layer = LAYERS[name](D, H, n_kv_heads=n_kv_heads, is_causal=True, use_bias=True, rng=rng)
    X, cache = rng.normal(size=(B, N, D)), layer.new_cache()
    assert_same(decoded(layer, X, cache, sizes), layer(X), 1e-9)
    assert len(cache) == N


@pytest.mark.parametrize("name", SUMS)
def test_hidden_tokens_leave_no_trace_in_the_sums(rng, name):
    """Prompts padded at their start, with holes: what is decoded is that of each alone."""
    layer = LAYERS[name](D, H, is_causal=True, rng=rng)
    X, padded = rng.normal(size=(B, N, D)), np.array([0, 4, 60])
    mask = ((np.arange(N) >= padded[:, None]) & (np.arange(N) % 9 != 8))[:, None]
    found = decoded(layer, X, L.KernelState(), [50, *[1] * 21], mask)
    assert_same(found, layer(X, mask), 1e-9)
    for b, start in enumerate(padded):
        alone = layer(X[b : b + 1, start:], mask[b : b + 1, :, start:])
        assert_same(found[b : b + 1, start:], alone.numpy(), 1e-9)
        np.testing.assert_array_equal(found[b, :start], 0)  # it sees no key; there is no bias


@pytest.mark.parametrize("name", SUMS)
def test_a_decoded_token_costs_the_same_however_many_came_before(rng, name):
    layer, cache = LAYERS[name](D, H, is_causal=True, rng=rng), L.KernelState()
    X, costs, held = rng.normal(size=(B, 200, D)), [], []
    with mg.no_grad():
        for at in (slice(0, 1), slice(1, 2), slice(2, 199), slice(199, 200)):
            with mg.trace() as t:
                layer(X[:, at], cache=cache)
            costs.append(sum(entry.flops or 0 for entry in t))
            held.append(cache.nbytes)
    assert costs[0] <= costs[1] == costs[3]
    r = 5 if name == "performer" else D // H
    assert set(held) == {B * H * r * (D // H + 1) * 8}


def test_what_a_state_cannot_hold_is_refused(rng):
    layer, cache = L.LinearAttention(D, H, is_causal=True, rng=rng), L.KernelState()
    X = rng.normal(size=(B, 3, D))
    with pytest.raises(GradientError, match=r"KernelState: .* within mg.no_grad\(\)"):
        layer(X, cache=cache)
    with mg.no_grad():
        layer(X, cache=cache)
        with pytest.raises(ShapeError, match="KernelState: it holds sums"):
            layer(X[:1], cache=cache)
        cache.reset()
        assert_same(layer(X, cache=cache), layer(X), 0)


def test_the_mixtures_of_a_linformer_are_parameters():
    trained = [name for name, p in LAYERS["linformer"](D, H).named_parameters() if p.requires_grad]
    assert trained[-2:] == ["E", "F"]


def test_stacks_of_linear_attention_decode_by_sums_and_keep_their_context(rng):
    """Any block's attention may be replaced; learned positions go on counting."""
    model, decoder = L.LanguageModel(13, D, H, 2, max_len=N, rng=rng), L.Decoder(1, D, H, rng=rng)
    for block in model.decoder.blocks + decoder.blocks:
        block.attention = L.LinearAttention(D, H, is_causal=True, rng=rng)
    tokens, X, Y = rng.integers(0, 13, (B, 9)), *rng.normal(size=(2, B, 9, D))
    for stack, inputs, context in ((model, tokens, []), (decoder, X, [Y])):
        cache = stack.new_cache()
        with mg.no_grad():
            steps = [stack(inputs[:, t : t + 1], *context, cache=cache).numpy() for t in range(9)]
        assert_same(np.concatenate(steps, axis=1), stack(inputs, *context), 1e-9)
        assert all(isinstance(own, L.KernelState) for own in cache)
    assert cache[0].of_context.made is not None


def test_a_refused_token_leaves_the_state_as_it_was(rng):
    X, cache = rng.normal(size=(B, 3, D)), L.KernelState()
    layer = L.LinearAttention(D, H, is_causal=True, rng=rng)
    with pytest.raises(GradientError):
        layer(X, cache=cache)
    hidden = np.array([False, True, True])
    with mg.no_grad():
        found = layer(X, hidden, cache=cache).numpy()
    np.testing.assert_array_equal(found, layer(X, hidden).numpy())
