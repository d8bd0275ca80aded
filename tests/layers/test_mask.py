"""Masks, sparse ones too; nothing is guessed from their values, and two meanings are refused."""

import warnings

import numpy as np
import pytest

import layers as L
import minigrad as mg
from minigrad import mask_rules
from minigrad.errors import ArgumentError, ShapeError
from tests.compare import assert_same
from tests.weighing import weigh

INF, LONG = np.inf, 97
N, D = 5, 6  # sequences of N tokens, and N of them


# ---------------------------------------------------------------- what is made


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_masks_have_the_dtype_asked_for_and_may_be_empty(dtype):
    assert (
        L.create_causal_mask(3, dtype).dtype == L.padding_mask([2, 3], dtype=dtype).dtype == dtype
    )
    assert L.create_causal_mask(0, dtype).shape == (0, 0)


def test_padding_mask_hides_columns_from_the_length_on():
    expected = [[[0, 0, -INF, -INF]], [[0, 0, 0, 0]], [[-INF] * 4]]
    np.testing.assert_array_equal(L.padding_mask([2, 4, 0]), expected)
    np.testing.assert_array_equal(L.padding_mask(np.array([2, 4, 0], np.uint8), 4), expected)
    real = np.arange(4) < np.array([[2], [4], [0]])
    np.testing.assert_array_equal(L.padding_mask(real), expected)
    np.testing.assert_array_equal(L.padding_mask(real, seq_len=4), expected)


@pytest.mark.parametrize("boolean_causal", [True, False])
@pytest.mark.parametrize("padding", ["boolean (B, n)", "boolean (B, 1, n)", "additive"])
@pytest.mark.parametrize("batched", [True, False])
def test_combined_mask_allows_what_both_allow(boolean_causal, padding, batched):
    real = np.arange(5) < np.array([[3], [5]])
    causal = np.tri(5, dtype=bool) if boolean_causal else L.create_causal_mask(5)
    causal = np.stack([causal, causal]) if batched else causal
    second = {"boolean (B, n)": real, "boolean (B, 1, n)": real[:, None]}.get(
        padding, L.padding_mask(real)
    )
    combined = L.combined_mask(causal, second)
    expected = np.where(np.tri(5, dtype=bool) & real[:, None], 0.0, -INF)
    np.testing.assert_array_equal(combined, expected)
    assert combined.dtype == np.float64


def test_combined_mask_of_finite_masks_is_their_sum_in_their_dtype():
    combined = L.combined_mask(np.float32([[0, -1e9], [0, 0]]), np.float32([[[0, -1e9]]]))
    np.testing.assert_array_equal(combined, np.float32([[[0, -2e9], [0, -1e9]]]))
    assert combined.dtype == np.float32


def test_exchanged_arguments_of_combined_mask_are_refused_where_their_shapes_are_alike():
    real = np.arange(3) < np.array([[3], [1], [2]])
    for causal in (L.create_causal_mask(3), np.tri(3, dtype=bool), np.triu([[-1e9] * 3] * 3, 1)):
        assert L.combined_mask(causal, real).shape == (3, 3, 3)
        with pytest.raises(ShapeError, match=r"exchange them: combined_mask\(second, first\)"):
            L.combined_mask(real, causal)


# ---------------------------------------------------------------- masks on scores


@pytest.mark.parametrize("heads", [None, 2])
@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        *((3, shape) for shape in [(7, 7), (1, 7), (3, 7, 7), (1, 7, 7), (3, 1, 7)]),
        *((None, shape) for shape in [(7, 7), (1, 7, 7), (1, 1, 7, 7), (1, 1, 7)]),
        (2, (2, 7, 7)),  # the first axis is the batch even where it could be the heads
    ],
)
def test_masks_of_every_shape_hide_the_same_pairs(rng, heads, batch, shape):
    layer = L.MultiHeadAttention(6, heads, rng=rng) if heads else L.SelfAttention(6, 2, 5, rng=rng)
    allowed = rng.random(shape) < 0.5
    X = rng.normal(size=(batch, 7, 6) if batch else (7, 6))
    out = layer(X, allowed)
    assert_same(layer(X, allowed.tolist()), out, 0)
    assert out.shape == X.shape
    A = layer.attention_weights.reshape(batch or 1, heads or 1, 7, 7)
    pairs = allowed.reshape(-1, *allowed.shape[-2:])
    for head in range(heads or 1):
        np.testing.assert_array_equal(A[:, head] != 0, np.broadcast_to(pairs, (batch or 1, 7, 7)))


# ---------------------------------------------------------------- sparse ones

SPARSE = {
    "sliding window": lambda n: L.sliding_window_mask(n, 5),
    "causal window": lambda n: L.sliding_window_mask(n, 5, is_causal=True),
    "dilated": lambda n: L.dilated_mask(n, 3, 4),
    "causal, dilated": lambda n: L.dilated_mask(n, 3, 4, is_causal=True),
    "global and window": lambda n: L.global_mask(n, 5, [0, -1]),
    "causal, global and window": lambda n: L.global_mask(n, 5, [0, 7], is_causal=True),
    "random blocks": lambda n: L.big_bird_mask(n, 4, 1, 2, rng=0),
}


def test_global_tokens_see_all_and_are_seen_by_all():
    mask = L.global_mask(LONG, 5, [0, 7])
    assert mask[[0, 7]].all()
    assert mask[:, [0, 7]].all()
    others = np.delete(np.arange(LONG), [0, 7])
    inner = np.ix_(others, others)
    np.testing.assert_array_equal(mask[inner], L.sliding_window_mask(LONG, 5)[inner])
    np.testing.assert_array_equal(L.global_mask(LONG, 5, 7), L.global_mask(LONG, 5, [7]))


def test_every_block_sees_its_neighbours_the_first_and_so_many_at_random():
    blocks = L.big_bird_mask(20, 1, n_global=1, n_random=3, rng=0)
    assert blocks[0].all()
    assert blocks[:, 0].all()
    np.testing.assert_array_equal(blocks[5:15].sum(axis=1), 3 + 1 + 3)
    whole = L.big_bird_mask(80, 4, n_global=1, n_random=3, rng=0)
    np.testing.assert_array_equal(whole, np.kron(blocks, np.ones((4, 4), bool)))
    assert not np.array_equal(blocks, L.big_bird_mask(20, 1, 1, 3, rng=1))


@pytest.mark.parametrize("name", SPARSE)
def test_every_query_sees_itself_and_causal_ones_nothing_later(name):
    mask = SPARSE[name](LONG)
    assert mask.shape == (LONG, LONG)
    assert mask.dtype == bool
    assert mask.diagonal().all()
    if name.startswith("causal"):
        assert not np.triu(mask, 1).any()


@pytest.mark.parametrize("name", SPARSE)
def test_in_tiles_every_pattern_gives_what_the_exact_form_gives(rng, name):
    X, mask = rng.normal(size=(2, LONG, 12)), SPARSE[name](LONG)
    exact = L.MultiHeadAttention(12, 3, rng=0)
    tiled = L.MultiHeadAttention(12, 3, rng=0, method="tiled")
    np.testing.assert_allclose(tiled(X, mask).numpy(), exact(X, mask).numpy(), atol=1e-13)
    assert ((exact.attention_weights > 0) == mask).all()
    g = rng.normal(size=X.shape)
    np.testing.assert_allclose(tiled.backward(g), exact.backward(g), atol=1e-12)


# ---------------------------------------------------------------- in whose meaning


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, N, D))


def in_tiles(make):
    return make


LAYERS = [
    lambda **options: L.SelfAttention(D, 3, 2, rng=0, **options),
    lambda **options: L.MultiHeadAttention(D, 2, rng=0, **options),
    in_tiles(lambda **options: L.MultiHeadAttention(D, 2, rng=0, method="tiled", **options)),
]
FUNCTIONS = [
    lambda X, mask: L.scaled_dot_product_attention(X, X, X, mask)[0],
    lambda X, mask: mg.scaled_dot_product_attention(X, X, X, mask),
    lambda X, mask: mg.scaled_dot_product_attention(mg.tensor(X[:, None]), X[:, None], X, mask),
    in_tiles(lambda X, mask: mg.tiled_attention(X, X, X, mask)),
]
EYES = {"W_Q": np.eye(D), "W_K": np.eye(D), "W_V": np.eye(D), "W_O": np.eye(D)}


def by_hand(steps, **sizes):
    return lambda X, mask: steps(X=X, mask=mask, grad_output=X, **EYES, **sizes)[-1].gradients["X"]


CALLS = [
    lambda X, mask: LAYERS[0]()(X, mask),
    lambda X, mask: LAYERS[1]()(X, mask),
    in_tiles(lambda X, mask: L.MultiHeadAttention(D, 2, rng=0, method="tiled")(X, mask)),
    *FUNCTIONS,
    lambda X, mask: L.TransformerBlock(D, 2, rng=0)(X, mask),
    by_hand(L.self_attention_steps),
    by_hand(L.multi_head_steps, n_heads=2),
]
REAL = np.arange(N) < np.arange(1, N + 1)[::-1, None]  # padding: 5, 4, … 1 tokens


@pytest.mark.parametrize("call", CALLS)
def test_a_padding_mask_of_as_many_sequences_as_tokens_is_refused(X, call):
    """(B, n) with B = n: it would be taken for one of queries and keys."""
    for mask in (REAL, np.where(REAL, 0.0, -np.inf)):
        with pytest.raises(ShapeError, match=r"padding_mask\(mask\) for the first, mask\[None\]"):
            call(X, mask)
    assert_same(call(X, L.padding_mask(REAL)), call(X, np.tile(REAL[:, None], (1, N, 1))))
    assert_same(call(X, np.tri(N, dtype=bool)), call(X, np.tri(N, dtype=bool)[None]))


@pytest.mark.parametrize("make", LAYERS)
def test_a_causal_mask_is_known_by_what_it_is_not_by_who_made_it(X, make):
    causal, ours = make(is_causal=True)(X), L.create_causal_mask(N)
    by_hand = [np.triu(np.ones((N, N)), 1) * -1e9, ours.copy(), ours.astype(np.float32), ours == 0]
    by_hand += [ours, ours.view(), np.triu(np.full((N, N), -np.inf), 1), mg.tensor(ours)]
    for mask in by_hand:
        assert_same(make()(X, mask), causal)
    for seen in (L.sliding_window_mask(N, 2), L.dilated_mask(N, 2, 2), L.global_mask(N, 1, [0])):
        assert_same(make()(X, seen), make()(X, np.array(seen)[None]))


def test_a_batch_of_another_size_or_none_at_all_needs_no_telling_apart(X):
    layer, lower = LAYERS[0](), np.tri(N, dtype=bool)
    assert_same(layer(X[:2], lower), layer(X[:2], lower[None]))
    assert_same(layer(X[0], lower), layer(X[0], lower[None]))
    assert_same(layer(X[:1, :1], np.ones((1, 1), bool)), layer(X[:1, :1]))


def test_masks_that_no_padding_looks_like_need_no_telling_apart(X):
    near = L.sliding_window_mask(N, 4)  # of the first row the end is closed, of the last the start
    alike = np.broadcast_to(np.arange(N) < 3, (N, N))  # says the same of both
    bias = -0.5 * np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
    for mask in (near, alike, bias, L.big_bird_mask(N, 1, 1, 1, rng=0)):
        assert_same(LAYERS[0]()(X, mask), LAYERS[0]()(X, mask[None]))
    for mask in (REAL, REAL[:, ::-1], np.ones((N, N), bool) & (np.arange(N) < [[5]] * 4 + [[2]])):
        with pytest.raises(ShapeError, match="may be one of each sequence's keys"):
            LAYERS[0]()(X, mask)


def test_the_rule_of_a_mask_is_checked_against_the_hand_derived_steps(X):
    """A rule of a kind that, as an array of as many sequences, would be refused."""
    with mg.trace() as t:
        LAYERS[1]()(mg.tensor(X, requires_grad=True), mask_rules.Global((0,))).sum().backward()
    assert t.check().ok


# ---------------------------------------------------------------- in whose convention


@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("dtype", [bool, float])
def test_a_mask_of_the_opposite_convention_is_warned_of_and_says_which_is_ours(rng, make, dtype):
    """True where blocked, as in PyTorch: each query then sees only what comes after it."""
    blocked = np.triu(np.ones((N, N), bool), 1)
    mask = blocked if dtype is bool else np.where(blocked, 0, -1e9)
    X, layer = rng.normal(size=(2, N, D)), make()
    with pytest.warns(mg.MaskWarning, match=r"True means may attend here.*pass ~mask") as caught:
        layer(X, mask)
    assert caught[0].filename == __file__
    layer(X, ~blocked)
    layer(X, np.zeros((2, 1, N), bool))  # who sees nothing at all gets zeros, as is documented
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(3):
            layer(X, mask)
    assert len(shown) == 1


@pytest.mark.parametrize("attention", FUNCTIONS)
def test_the_functions_warn_of_it_too(rng, attention):
    X, blocked = rng.normal(size=(2, N, D)), np.triu(np.ones((N, N), bool), 1)
    with pytest.warns(mg.MaskWarning):
        attention(X, blocked)


def test_a_compiled_step_knows_its_causal_mask_too(X):
    layer, mask = LAYERS[1](), L.create_causal_mask(N)
    step = mg.compile(lambda x: layer(x, mask).detach())
    given = mg.compile(lambda x, m: layer(x, m).detach())
    for _ in range(2):
        assert_same(step(X), layer(X, mask))
        assert_same(given(X, mask), layer(X, mask))


@pytest.mark.parametrize("make", LAYERS)
def test_zeros_and_ones_as_a_mask_to_add_are_refused(rng, make):
    """They hide nothing; a mask of the other libraries, kept as floats."""
    X = rng.normal(size=(2, N, D))
    with pytest.raises(ArgumentError, match="boolean"):
        make()(X, np.tri(N))
    make()(X, np.zeros((N, N)))  # adds nothing, hides nothing


@pytest.mark.parametrize("make", LAYERS)
def test_a_rule_may_stand_for_a_mask(rng, make):
    X = rng.normal(size=(2, N, D))
    rule = mask_rules.Window(2) | mask_rules.Global((0,))
    expected = make()(X, rule.array(N, N))
    assert_same(make()(X, rule), expected)
    assert_same(make(is_causal=True)(X, rule), make()(X, (rule & mask_rules.Causal()).array(N, N)))


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_in_tiles_makes_no_array_of_queries_and_keys(rng, causal):
    n = 8192
    layer = L.SelfAttention(D, 3, 2, rng=0, method="tiled", window=16, is_causal=causal)
    X = rng.normal(size=(1, n, D))
    layer(X).sum().backward()  # what is kept from call to call is there
    assert weigh(lambda: layer(X).sum().backward())[1] < n * n  # not even one byte a pair


def test_a_window_in_tiles_is_the_exact_one_after_a_cache_too(rng):
    exact, tiled = (
        L.MultiHeadAttention(D, 2, rng=0, window=3, is_causal=True, method=method)
        for method in ("exact", "tiled")
    )
    X = rng.normal(size=(2, 11, D))
    assert_same(tiled(X), exact(X))
    caches = L.KVCache(window=3), L.KVCache(window=3)
    with mg.no_grad():
        for a, b in ((0, 5), (5, 6), (6, 11)):
            outs = [f(X[:, a:b], cache=c) for f, c in zip((exact, tiled), caches, strict=True)]
            assert_same(*outs)
