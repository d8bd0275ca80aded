"""Positions: closed forms, what they are made to hold, naive loops, PyTorch's T5 buckets."""

import numpy as np
import pytest

import layers as L
from tests.compare import assert_same

B, N, H, D_K = 2, 7, 3, 4
D = H * D_K


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


def scrambled(layer, rng):
    for parameter in layer.parameters():
        parameter.assign_(rng.normal(size=parameter.shape))
    return layer


def attention_with(position, rng, **options):
    return scrambled(L.MultiHeadAttention(D, H, position=position, rng=rng, **options), rng)


IN_ATTENTION = {
    "rotary by halves": lambda: L.Rotary(D_K),
    "rotary interleaved": lambda: L.Rotary(D_K, pairing="interleaved"),
    "partial rotary": lambda: L.Rotary(2),
    "Shaw": lambda: L.RelativePosition(D_K, max_distance=3, d_v=D_K),
    "Shaw without values": lambda: L.RelativePosition(D_K, max_distance=3),
    "Transformer-XL": lambda: L.TransformerXLPosition(D, H, D_K),
    "T5": lambda: L.T5Bias(H, n_buckets=8, max_distance=11),
    "T5, causal": lambda: L.T5Bias(H, n_buckets=8, max_distance=11, bidirectional=False),
    "ALiBi": lambda: L.ALiBi(H),
}
RELATIVE = [name for name in IN_ATTENTION if name != "nothing"]


# ---------------------------------------------------------------- what positions are for


@pytest.mark.parametrize("kind", [*IN_ATTENTION, "sinusoidal", "learned"])
def test_with_positions_it_does_not(rng, X, kind):
    if kind in IN_ATTENTION:
        layer = attention_with(IN_ATTENTION[kind](), rng)
    else:
        position = (
            L.SinusoidalPosition(D) if kind == "sinusoidal" else L.LearnedPosition(N, D, rng=rng)
        )
        layer = L.Sequential(scrambled(position, rng), attention_with(None, rng))
    order = np.roll(np.arange(N), 2)  # not reversed: ALiBi sees distances alone
    assert np.abs(layer(X[:, order]).numpy() - layer(X).numpy()[:, order]).max() > 1e-3


@pytest.mark.parametrize("kind", RELATIVE)
def test_relative_positions_see_only_how_far_apart_two_tokens_are(rng, X, kind):
    layer = attention_with(IN_ATTENTION[kind](), rng)
    moved = layer(X, positions=np.arange(N) + 1000).numpy()
    np.testing.assert_allclose(moved, layer(X).numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", RELATIVE)
def test_positions_of_each_row_are_those_of_the_row_alone(rng, X, kind):
    layer, positions = attention_with(IN_ATTENTION[kind](), rng), rng.integers(0, 13, (B, N))
    together = layer(X, positions=positions).numpy()
    for b in range(B):
        alone = layer(X[b], positions=positions[b]).numpy()
        np.testing.assert_allclose(together[b], alone, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- sinusoids and learned rows


def test_the_encoding_is_sines_and_cosines_of_ever_slower_angles():
    PE = L.sinusoidal_encoding(11, 6)
    for p in range(11):
        for k in range(3):
            angle = p / 10000 ** (2 * k / 6)
            np.testing.assert_allclose(PE[p, 2 * k : 2 * k + 2], [np.sin(angle), np.cos(angle)])


def test_sines_before_cosines_are_the_same_numbers_in_another_order():
    np.testing.assert_array_equal(
        L.sinusoidal_encoding(7, 6, interleaved=False),
        L.sinusoidal_encoding(7, 6)[:, [0, 2, 4, 1, 3, 5]],
    )


def test_an_offset_continues_where_the_positions_before_ended(rng, X):
    for layer in (L.SinusoidalPosition(D), L.LearnedPosition(13, D, rng=rng), L.Rotary(D)):
        whole = layer(X).numpy()
        np.testing.assert_array_equal(layer(X[:, 3:], offset=3).numpy(), whole[:, 3:])
        np.testing.assert_array_equal(layer(X[:, 3:], np.arange(3, N)).numpy(), whole[:, 3:])


def test_a_learned_row_gets_the_gradient_of_every_token_at_its_position(rng, X):
    layer = L.LearnedPosition(11, D, rng=rng)
    layer(X, np.array([[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]]))
    grad_output = rng.normal(size=X.shape)
    np.testing.assert_array_equal(layer.backward(grad_output), grad_output)
    expected = grad_output[0] + grad_output[1, ::-1]
    np.testing.assert_allclose(layer.grad_P[:N], expected, rtol=1e-14)
    np.testing.assert_array_equal(layer.grad_P[N:], 0)


# ---------------------------------------------------------------- rotary


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rotation_is_multiplication_of_complex_numbers(rng, pairing):
    x, theta = rng.normal(size=(N, 6)), L.rotary_frequencies(6, base=77.0)
    turned = L.Rotary(6, base=77.0, pairing=pairing)(x).numpy()
    first, second = (
        (slice(0, 3), slice(3, 6)) if pairing == "half" else (slice(0, 6, 2), slice(1, 6, 2))
    )
    z = (x[:, first] + 1j * x[:, second]) * np.exp(1j * np.arange(N)[:, None] * theta)
    np.testing.assert_allclose(turned[:, first], z.real, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(turned[:, second], z.imag, rtol=1e-12, atol=1e-14)


def test_entries_beyond_the_rotary_ones_stay(rng):
    x = rng.normal(size=(B, H, N, 6))
    for pairing in ("half", "interleaved"):
        out = L.Rotary(4, pairing=pairing)(x).numpy()
        np.testing.assert_array_equal(out[..., 4:], x[..., 4:])
        np.testing.assert_array_equal(
            out[..., :4], L.Rotary(4, pairing=pairing)(x[..., :4]).numpy()
        )


def test_linear_scaling_puts_positions_closer_together(rng):
    x = rng.normal(size=(N, 6))
    slow = L.Rotary(6, scaling={"rope_type": "linear", "factor": 4.0})
    assert_same(slow(x, 4 * np.arange(N)), L.Rotary(6)(x), 1e-12)


def test_dynamic_scaling_sets_in_beyond_the_length_trained_on(rng):
    x = rng.normal(size=(20, 6))
    scaling = {"type": "dynamic", "factor": 2.0, "max_position_embeddings": 10}
    rotary, plain = L.Rotary(6, scaling=scaling), L.Rotary(6)
    np.testing.assert_array_equal(rotary(x[:10]).numpy(), plain(x[:10]).numpy())
    long = L.Rotary(6, base=10000.0 * (2.0 * 20 / 10 - 1) ** (6 / 4))
    np.testing.assert_array_equal(rotary(x).numpy(), long(x).numpy())


def test_llama_3_slows_what_turns_rarely_and_keeps_what_turns_often():
    plain = L.rotary_frequencies(64, 500000.0)
    ratio = L.llama3_frequencies(64) / plain
    turns = 8192 * plain / (2 * np.pi)
    np.testing.assert_allclose(ratio[turns < 1], 1 / 8)
    np.testing.assert_allclose(ratio[turns > 4], 1)
    middle = ratio[(turns > 1) & (turns < 4)]
    assert len(middle) > 0
    assert ((middle > 1 / 8) & (middle < 1)).all()
    assert (np.diff(ratio) <= 1e-15).all()


def test_yarn_slows_slow_pairs_keeps_fast_ones_and_raises_the_amplitude(rng):
    plain, factor, length = L.rotary_frequencies(64), 8.0, 512
    ratio = L.yarn_frequencies(64, 10000.0, factor, length) / plain
    turns = length * plain / (2 * np.pi)
    np.testing.assert_allclose(ratio[turns > 33], 1)
    np.testing.assert_allclose(ratio[turns < 0.7], 1 / factor)
    assert (np.diff(ratio) <= 1e-15).all()
    scaling = {"type": "yarn", "factor": factor, "original_max_position_embeddings": length}
    x, rotary = rng.normal(size=(N, 64)), L.Rotary(64, scaling=scaling)
    amplitude = 0.1 * np.log(factor) + 1
    np.testing.assert_allclose(
        rotary(x).numpy(),
        amplitude * L.Rotary(64, frequencies=ratio * plain)(x).numpy(),
        rtol=1e-12,
    )
    for more, wanted in [
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 2.0, "mscale_all_dim": 1.0}, (0.2 * np.log(8) + 1) / (0.1 * np.log(8) + 1)),
        ({"mscale": 2.0}, amplitude),
    ]:
        np.testing.assert_allclose(L.scaled_frequencies(64, 10000.0, scaling | more)[1], wanted)


def test_longrope_divides_each_pairs_frequency_by_its_own_number(rng):
    short, long, x = rng.uniform(1, 2, 3), rng.uniform(3, 9, 3), rng.normal(size=(20, 6))
    scaling = {
        "type": "longrope", "short_factor": short.tolist(), "long_factor": long.tolist(),
        "original_max_position_embeddings": 10, "max_position_embeddings": 40,
    }  # fmt: skip
    rotary, amplitude = L.Rotary(6, scaling=scaling), np.sqrt(1 + np.log(4) / np.log(10))
    for n, by in ((10, short), (20, long)):
        plain = L.Rotary(6, frequencies=L.rotary_frequencies(6) / by)
        assert_same(rotary(x[:n]), amplitude * plain(x[:n]).numpy(), 1e-12)


def test_a_checkpoint_s_rope_scaling_gives_the_kind_and_its_settings():
    llama = {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    theta, amplitude = L.scaled_frequencies(64, 500000.0, llama)
    np.testing.assert_array_equal(theta, L.llama3_frequencies(64, factor=32.0))
    assert amplitude == 1.0


# ---------------------------------------------------------------- relative: naive loops


def naive(layer, X, bias, values=None):
    """The layer with scores (q·k) / √d_k + bias(b, h, i, j, q, k), entry by entry."""
    weights = {s: getattr(layer, f"W_{s}").numpy() for s in "QKVO"}
    Q, K, V = (L.split_heads(X @ weights[s], H) for s in "QKV")
    O = np.zeros((B, H, N, D_K))
    for b, h, i in np.ndindex(B, H, N):
        S = [
            (Q[b, h, i] @ K[b, h, j]) / 2 + bias(h, i, j, Q[b, h, i], K[b, h, j]) for j in range(N)
        ]
        A = np.exp(S) / np.exp(S).sum()
        rows = [V[b, h, j] + (0 if values is None else values(i, j)) for j in range(N)]
        O[b, h, i] = A @ np.array(rows)
    return O.swapaxes(1, 2).reshape(B, N, D) @ weights["O"]


def test_shaws_vectors_are_clipped_and_scored_like_keys(rng, X):
    X, position = X / 5, L.RelativePosition(D_K, max_distance=2, d_v=D_K)
    layer = attention_with(position, rng)
    a_K, a_V = position.a_K.numpy(), position.a_V.numpy()

    def row(i, j):
        return min(max(j - i, -2), 2) + 2

    expected = naive(
        layer, X, lambda h, i, j, q, k: q @ a_K[row(i, j)] / 2, lambda i, j: a_V[row(i, j)]
    )
    np.testing.assert_allclose(layer(X).numpy(), expected, rtol=1e-9, atol=1e-11)


def test_transformer_xl_has_four_terms(rng, X):
    X, position = X / 5, L.TransformerXLPosition(D, H, D_K)
    layer = attention_with(position, rng)
    u, v, W_R = (getattr(position, name).numpy() for name in ("u", "v", "W_R"))

    def bias(h, i, j, q, k):
        PE = L.sinusoidal_encoding(np.array([i - j]), D, interleaved=False)[0]
        r = (PE @ W_R).reshape(H, D_K)[h]
        return (q @ r + u[h, 0] @ k + v[h, 0] @ r) / 2

    np.testing.assert_allclose(layer(X).numpy(), naive(layer, X, bias), rtol=1e-9, atol=1e-11)


def test_alibi_subtracts_the_slope_times_the_distance(rng, X):
    X, layer, m = X / 5, attention_with(L.ALiBi(H), rng), L.alibi_slopes(H)
    expected = naive(layer, X, lambda h, i, j, q, k: -m[h] * abs(i - j))
    np.testing.assert_allclose(layer(X).numpy(), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["Shaw", "T5", "ALiBi", "Transformer-XL", "rotary by halves"])
def test_one_head_takes_every_position_too(rng, X, kind):
    position = {
        "Shaw": L.RelativePosition(5, 3, d_v=11),
        "T5": L.T5Bias(1, 8, 11),
        "ALiBi": L.ALiBi(1),
        "Transformer-XL": L.TransformerXLPosition(D, 1, 5),
        "rotary by halves": L.Rotary(4),
    }[kind]
    layer = scrambled(L.SelfAttention(D, 5, 11, position=position, rng=rng), rng)
    many = L.MultiHeadAttention(D, 1, d_k=5, d_v=11, use_bias=True, position=position)
    many.load_state_dict(layer.state_dict())
    np.testing.assert_allclose(layer(X).numpy(), many(X).numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", RELATIVE)
def test_grouped_heads_take_every_position_too(rng, X, kind):
    """Two heads of queries that share keys are two with the same keys."""
    grouped = attention_with(IN_ATTENTION[kind](), rng, n_kv_heads=1)
    full = attention_with(grouped.position, rng)
    state = grouped.state_dict()
    full.load_state_dict(state | {f"W_{s}": np.tile(state[f"W_{s}"], (1, H)) for s in "KV"})
    np.testing.assert_allclose(grouped(X).numpy(), full(X).numpy(), rtol=1e-10, atol=1e-11)


# ---------------------------------------------------------------- ALiBi and T5, by their numbers


def test_slopes_of_twelve_heads_are_those_of_eight_and_every_other_of_sixteen():
    assert_same(L.alibi_slopes(12), [*0.5 ** np.arange(1, 9), *0.5 ** np.arange(0.5, 4.5, 1)], 1e-7)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 11), (64, 1000), (32, 64)])
def test_buckets_are_t5s(bidirectional, n_buckets, max_distance):
    """T5's function as published, in PyTorch, over every distance that matters."""
    torch = pytest.importorskip("torch")
    distance, buckets, expected = torch.arange(-1500, 1501), n_buckets, 0
    if bidirectional:
        buckets //= 2
        expected, far = (distance > 0).long() * buckets, distance.abs()
    else:
        far = -torch.min(distance, torch.zeros_like(distance))
    exact = buckets // 2
    ratio = torch.log(far.float() / exact) / np.log(max_distance / exact)
    large = exact + (ratio * (buckets - exact)).clamp(min=0).long()
    expected = expected + torch.where(far < exact, far, large.clamp(max=buckets - 1))
    found = L.t5_bucket(distance.numpy(), n_buckets, max_distance, bidirectional)
    np.testing.assert_array_equal(found, expected.numpy())
