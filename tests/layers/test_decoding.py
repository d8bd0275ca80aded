"""Decoding: a cache in pieces against the whole, and tokens drawn from a language model."""

import numpy as np
import pytest

import layers as L
import minigrad as mg
from layers import KVCache, LanguageModel, MultiHeadAttention, causal, generate, window
from minigrad.errors import ArgumentError, DTypeError, NonFiniteError, OutOfRangeError
from tests.compare import assert_same, refusals

D, H, N = 12, 3, 7
POSITIONS = {
    "none": None,
    "rotary": L.Rotary(4),
    "ALiBi": L.ALiBi(H),
    "T5": L.T5Bias(H, 8, 16),
    "Shaw": L.RelativePosition(4, 3, rng=0),
    "Transformer-XL": L.TransformerXLPosition(D, H, 4, rng=0),
}


def in_pieces(layer, cache, X, sizes, **keywords):
    out, start = [], 0
    with mg.no_grad():
        for size in sizes:
            at = keywords["positions"][:, start : start + size] if keywords else None
            out.append(layer(X[:, start : start + size], positions=at, cache=cache).numpy())
            start += size
    return np.concatenate(out, axis=1)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("rule", [causal, causal & window(3)], ids=str)
@pytest.mark.parametrize("kv", [3, 1])
def test_tokens_one_by_one_or_in_pieces_are_the_whole_sequence(rng, position, rule, kv):
    layer = MultiHeadAttention(D, H, kv, rng=0, mask=rule, position=POSITIONS[position])
    for p in layer.parameters():
        p.assign_(rng.normal(size=p.shape))
    X = rng.normal(size=(2, N, D))
    whole = layer(X).numpy()
    for sizes in ([1] * N, [3, 1, 3], [N]):
        cache = KVCache()
        assert_same(in_pieces(layer, cache, X, sizes), whole)
        assert len(cache) == N
    if POSITIONS[position] is None:
        layer.attend = L.in_tiles
        assert_same(in_pieces(layer, KVCache(), X, [3, 1, 3]), whole)


def test_rows_of_different_lengths_are_filled_up_in_front_below_position_0(rng):
    layer = MultiHeadAttention(D, H, 1, rng=0, mask=causal, position=L.Rotary(4))
    X, at = rng.normal(size=(2, N, D)), np.arange(N) - np.array([[0], [3]])
    alone = layer(X[1:, 3:]).numpy()
    assert_same(layer(X, positions=at).numpy()[1:, 3:], alone)
    pieces = in_pieces(layer, KVCache(), X, [4, 1, 2], positions=at)
    assert_same(pieces[1:, 3:], alone)
    layer.attend = L.in_tiles
    assert_same(layer(X, positions=at).numpy()[1:, 3:], alone)


def test_a_context_is_projected_once(rng):
    layer, cache = MultiHeadAttention(D, H, rng=0, d_context=5), KVCache()
    X, Y = rng.normal(size=(2, N, D)), rng.normal(size=(2, 4, 5))
    with mg.no_grad():
        first = layer(X[:, :2], context=Y, cache=cache).numpy()
        second = layer(X[:, 2:], context=0 * Y, cache=cache).numpy()  # not read again
    whole = layer(X, context=Y).numpy()
    assert_same(np.concatenate((first, second), axis=1), whole)
    assert len(cache) == 4


def test_a_decoder_with_caches_of_tokens_and_context_is_the_whole(rng):
    decoder = L.Decoder(2, D, H, rng=0)
    X, Y = rng.normal(size=(2, N, D)), rng.normal(size=(2, 4, D))
    cache = decoder.new_cache()
    with mg.no_grad():
        steps = [decoder(X[:, t : t + 1], Y, cache=cache).numpy() for t in range(N)]
    assert_same(np.concatenate(steps, axis=1), decoder(X, Y).numpy())
    masks = L.padding_mask([5, N], N), L.padding_mask([2, 4], 4)
    hidden = decoder(X, Y, *masks).numpy()
    X[0, 5:], Y[0, 2:] = 9.0, 9.0
    assert_same(decoder(X, Y, *masks).numpy()[:, :5], hidden[:, :5])


def test_a_cache_of_another_dtype_is_refused_until_it_is_reset():
    layer, cache, X = MultiHeadAttention(D, H, rng=0, mask=causal), KVCache(), np.ones((1, 2, D))
    with mg.no_grad():
        layer(X, cache=cache)
        layer.to(np.float32)
        with pytest.raises(DTypeError, match="holds float64, got float32"):
            layer(X, cache=cache)
        cache.reset()
        assert layer(X, cache=cache).dtype == np.float32


# ---------------------------------------------------------------- text


def models():
    learned = LanguageModel(11, D, H, 2, max_len=40, rng=0)
    rotary = LanguageModel(11, D, H, 2, rng=0, position=L.Rotary(4), n_kv_heads=1, tied=False)
    return [learned, rotary]


def slowly(model, row, count):
    """The likeliest tokens, each from the whole sequence run anew."""
    row = [*row]
    for _ in range(count):
        row.append(int(model(np.array([row])).numpy()[0, -1].argmax()))
    return row[-count:]


@pytest.mark.parametrize("model", models())
def test_the_likeliest_tokens_are_those_of_the_whole_sequence_also_side_by_side(model):
    rows = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]
    continued = np.stack(list(generate(model, rows, 8)), axis=1)
    assert continued.tolist() == [slowly(model, row, 8) for row in rows]
    assert list(generate(model, rows[1], 8)) == continued[1].tolist()


def test_tokens_are_drawn_by_their_probabilities_within_top_k_and_top_p():
    logits = np.log(np.tile([0.5, 0.1, 0.3, 0.1], (20_000, 1)))
    rng = np.random.default_rng(0)

    def shares(*how):
        drawn = L.transformer._drawn(logits, *how, rng)
        return np.bincount(drawn, minlength=4) / len(drawn)

    np.testing.assert_allclose(shares(1.0, None, None), [0.5, 0.1, 0.3, 0.1], atol=0.02)
    np.testing.assert_allclose(shares(1.0, 2, None), [5 / 8, 0, 3 / 8, 0], atol=0.02)
    np.testing.assert_allclose(shares(1.0, None, 0.7), [5 / 8, 0, 3 / 8, 0], atol=0.02)
    squares = np.array([0.25, 0.01, 0.09, 0.01]) / 0.36
    np.testing.assert_allclose(shares(0.5, None, None), squares, atol=0.02)
    assert shares(1e-300, None, None).tolist() == [1, 0, 0, 0]


def test_the_same_seed_draws_the_same_and_a_row_ends_after_its_stop():
    model = models()[0]
    runs = [list(generate(model, [3, 1], 6, rng=5, **how)) for how in ({"temperature": 1.0}, {})]
    assert runs[0] == runs[1] != list(generate(model, [3, 1], 6, rng=5, temperature=0.0))
    whole = np.stack(list(generate(model, [[3, 1, 4], [9, 2]], 9, temperature=2.0, rng=1)), axis=1)
    stop = whole[0, 2]
    settings = {"temperature": 2.0, "rng": 1, "stop": [stop]}
    ended = np.stack(list(generate(model, [[3, 1, 4], [9, 2]], 9, **settings)), axis=1)
    end = int(np.argmax(whole[0] == stop))
    assert ended[0, : end + 1].tolist() == whole[0, : end + 1].tolist()
    assert (ended[0, end + 1 :] == -1).all()


MODEL = models()[0]
X = np.ones((1, 2, D))
test_what_cannot_be_continued_is_refused = refusals(
    (lambda: generate(MODEL, [], 3), ArgumentError, "at least one in each row"),
    (lambda: generate(MODEL, [1.5], 3), ArgumentError, "tokens must be integers"),
    (lambda: generate(MODEL, [1], 0), ArgumentError, "max_new must be an integer"),
    (lambda: generate(MODEL, [1], 3, temperature=-1), ArgumentError, "temperature must be 0"),
    (lambda: generate(MODEL, [1], 3, top_k=0), ArgumentError, "top_k must be an integer"),
    (lambda: generate(MODEL, [1], 3, top_p=1.5), ArgumentError, r"top_p in \(0, 1\], got 1.0 and"),
    (lambda: generate(L.Encoder(1, D, H), [1], 3), ArgumentError, "Encoder has no decoder"),
    (lambda: list(generate(MODEL, [11], 3)), OutOfRangeError, "11"),
    (lambda: list(generate(MODEL, [1] * 39, 5)), OutOfRangeError, r"\[0, 40\), got 40"),
    (lambda: L.Decoder(1, D, H)(X, None), ArgumentError, "for cross=True, which needs one"),
    (lambda: L.TransformerBlock(D, H)(X, context=X), ArgumentError, "a context is for cross=True"),
)  # fmt: skip


def test_logits_that_are_nan_are_an_error():
    model = models()[1]
    model.head.W.assign_(np.full(model.head.W.shape, np.nan))
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        list(generate(model, [1], 3))
