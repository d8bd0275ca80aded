"""Attention: closed forms, the texts' interface, the steps derived by hand, masks of every form."""

import numpy as np
import pytest

import layers as L
import minigrad as mg
from layers import MultiHeadAttention, SelfAttention, attend, causal, in_tiles, window
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError
from tests.compare import assert_same, refusals

B, N, D, H = 2, 7, 12, 3
NOW = np.tri(N, dtype=bool)
NOWHERE = NOW & (np.arange(N) != 3)[:, None]  # token 3 may attend to none
MASKS = {
    "none": None,
    "causal": L.create_causal_mask(N),
    "boolean": NOW,
    "a row that sees nothing": NOWHERE,
    "padding": L.padding_mask([N - 2, N], N),
    "both": L.combined_mask(causal, L.padding_mask([N - 2, N], N)),
    "floats": np.random.default_rng(0).normal(size=(B, N, N)),
}


def head_by_head(layer, X, mask):
    """Output and weights of many heads, each by `attend` with its columns of the weights."""
    W, group = layer.state_dict(), layer.n_heads // layer.n_kv_heads
    d = D // layer.n_heads
    O, A = [], []
    for k in range(layer.n_heads):
        own, shared = slice(k * d, (k + 1) * d), slice(k // group * d, (k // group + 1) * d)
        Q, K, V = (
            X @ W[f"W_{s}"][:, c] + W.get(f"b_{s}", np.zeros(999))[c]
            for s, c in (("Q", own), ("K", shared), ("V", shared))
        )
        of_head = attend(Q, K, V, mask)
        O.append(of_head[0])
        A.append(of_head[1])
    return np.concatenate(O, axis=-1) @ W["W_O"] + W.get("b_O", 0), np.stack(A, axis=1)


def random(rng, layer):
    for p in layer.parameters():
        p.assign_(rng.normal(size=p.shape))
    return layer


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("how", [lambda *given: attend(*given)[0], mg.tiled_attention])
def test_a_row_that_sees_nothing_is_zero_forward_and_backward(rng, how):
    Q, K, V = (mg.tensor(rng.normal(size=(1, N, 3)), requires_grad=True) for _ in range(3))
    O = how(Q, K, V, NOWHERE)
    assert not O.numpy()[0, 3].any()
    gradients = mg.grad((O**2).sum(), [Q, K, V])
    assert not gradients[0][0, 3].any()
    assert np.isfinite(gradients).all()


def test_the_texts_function_takes_lists_arrays_and_tensors(rng):
    Q, K, V = rng.normal(size=(3, 2, 5, 4))
    O = L.scaled_dot_product_attention(Q, K, V)[0]
    assert_same(L.scaled_dot_product_attention(Q.tolist(), K.tolist(), V.tolist())[0], O, 0)
    assert_same(L.scaled_dot_product_attention(*map(mg.tensor, (Q, K, V)))[0].numpy(), O, 0)
    assert_same(attend(Q, K, V, causal)[1], attend(Q, K, V, np.tri(5, dtype=bool))[1], 0)


@pytest.mark.parametrize("kv", [6, 2, 1])
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_many_heads_are_what_a_loop_over_heads_computes(rng, kv, use_bias, mask):
    layer = random(rng, MultiHeadAttention(D, 6, kv, use_bias))
    X, M = rng.normal(size=(B, N, D)), MASKS[mask]
    out, A = layer(X, M, return_weights=True)
    expected = head_by_head(layer, X, M)
    assert_same(out.numpy(), expected[0])
    assert_same(A.numpy(), expected[1])
    assert_same(layer.attention_weights, expected[1])


def test_heads_may_have_masks_of_their_own(rng):
    layer, X = random(rng, MultiHeadAttention(D, H)), rng.normal(size=(B, N, D))
    mask = rng.random((B, H, N, N)) < 0.6
    A = layer(X, mask, return_weights=True)[1].numpy()
    assert not A[~mask].any()
    for k in range(H):
        assert_same(layer(X, mask[:, k], return_weights=True)[1].numpy()[:, k], A[:, k])


@pytest.mark.parametrize("rule", [causal & window(3), window(2, 2) | L.global_tokens(0)], ids=str)
def test_a_rule_of_the_layer_of_the_call_or_an_array_are_the_same_mask(rng, rule):
    X, array = rng.normal(size=(B + 1, N, D)), rule(np.arange(N)[:, None], np.arange(N))
    for make in (lambda **k: SelfAttention(D, 5, 4, rng=0, **k),
                 lambda **k: MultiHeadAttention(D, H, rng=0, **k)):  # fmt: skip
        expected = make()(X, array).numpy()
        assert_same(make(mask=rule)(X).numpy(), expected, 0)
        assert_same(make()(X, rule).numpy(), expected, 0)
        both = make(mask=rule)(X, L.padding_mask([N - 2, N, N], N))
        padded = array & (np.arange(N) < np.array([[[N - 2]], [[N]], [[N]]]))
        assert_same(both.numpy(), make()(X, padded).numpy())


def test_cross_attention_reads_keys_and_values_of_the_context_alone(rng):
    layer = random(rng, MultiHeadAttention(D, H, d_context=5, use_bias=True))
    X, Y = rng.normal(size=(B, N, D)), rng.normal(size=(B, 4, 5))
    out = layer(X, context=Y, mask=L.padding_mask([2, 4], 4)).numpy()
    assert layer.attention_weights.shape == (B, H, N, 4)
    Y[0, 2:] = 99.0  # hidden
    assert_same(layer(X, context=Y, mask=L.padding_mask([2, 4], 4)).numpy(), out, 0)
    X[0, 1:] = 99.0  # queries do not see each other
    changed = layer(X, context=Y, mask=L.padding_mask([2, 4], 4)).numpy()
    assert_same(changed[0, 0], out[0, 0])


# ---------------------------------------------------------------- the texts' interface


@pytest.mark.parametrize("many", [False, True])
def test_a_call_on_an_array_keeps_the_texts_cache_and_one_on_a_tensor_keeps_nothing(rng, many):
    layer = MultiHeadAttention(D, H, use_bias=True) if many else SelfAttention(D, 5, 4)
    X = rng.normal(size=(B, N, D))
    layer(X, NOW)
    assert [*layer.cache] == [*"XQKVAO", *["C"] * many, "mask"]
    assert_same(layer.cache["X"], X, 0)
    assert_same(layer.cache["A"], layer.attention_weights, 0)
    assert_same(layer.cache["A"] @ layer.cache["V"], layer.cache["O"])
    layer(mg.tensor(X))
    with pytest.raises(GradientError, match="keeps nothing alive"):
        _ = layer.cache
    with pytest.raises(GradientError, match="kept no graph"):
        layer.backward(X)


@pytest.mark.parametrize("position", [None, L.Rotary(4), L.ALiBi(H)], ids=["", "rotary", "ALiBi"])
@pytest.mark.parametrize("how", [None, in_tiles])
@pytest.mark.parametrize("kv", [3, 1])
def test_every_gradient_of_every_step_equals_the_one_derived_by_hand(rng, position, how, kv):
    settings = {"mask": causal & window(4), "position": position, "attend": how}
    layer = random(rng, MultiHeadAttention(D, H, kv, True, **settings))
    at = np.arange(N) + np.array([[0], [2]])
    Y = mg.tensor(rng.normal(size=(B, 4, D)), requires_grad=True)
    for keywords in ({"mask": L.padding_mask([4, N], N)}, {"positions": at}, {"context": Y}):
        X = mg.tensor(rng.normal(size=(B, N, D)), requires_grad=True, name="X")
        with mg.trace() as t:
            out = layer(X, **keywords)
            (out**3).mean().backward()
        checks = t.check()
        assert checks.ok
        assert not checks.uncovered
        symbols = {check.symbol for check in checks.measured}
        assert symbols >= {"X", "Q", "K", "V", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_O", "O", "C"}
        assert ("A" in symbols) == (how is None)
        assert ("context" in keywords) == ("context" in symbols)
        assert max(check.difference for check in checks.measured) < 1e-12


def test_a_call_that_the_derivation_does_not_cover_is_named(rng):
    for settings, name in (
        ({"dropout": 0.5}, "Dropout"),
        ({"position": L.RelativePosition(4, 3)}, "RelativePosition"),
        ({"attend": L.LinearKernel()}, "LinearKernel"),
    ):
        layer = MultiHeadAttention(D, H, rng=0, **settings)
        with mg.trace() as t:
            layer(rng.normal(size=(B, N, D))).sum().backward()
        assert t.check().uncovered == [f"MultiHeadAttention with {name}"]


# ---------------------------------------------------------------- refusals

X = np.ones((B, N, D))
ONE, MANY = SelfAttention(D, 5, 4, rng=0), MultiHeadAttention(D, H, rng=0)
each_layer = pytest.mark.parametrize("layer", [ONE, MANY], ids=["one head", "many"])


@each_layer
@pytest.mark.parametrize("shape", [(B, N, 5), (D,), (1, B, N, D)])
def test_an_input_of_another_shape_is_refused(layer, shape):
    with pytest.raises(
        ShapeError, match=rf"{type(layer).__name__}\(X\): X must be \(B, n, 12\) or"
    ):
        layer(np.ones(shape))


@each_layer
@pytest.mark.parametrize("shape", [(N, N + 1), (B, N), (5, N, N), (B, 2, N, N)])
def test_a_mask_of_another_shape_is_refused(layer, shape):
    with pytest.raises(ShapeError, match=r"padding_mask\(real\).*\n  scores: .*\n  mask: \("):
        layer(X, np.ones(shape, bool))


@each_layer
@pytest.mark.parametrize("mask", [~np.eye(N, dtype=bool), -1e4 * np.eye(N)])
def test_a_mask_that_may_be_of_pairs_or_of_padding_is_refused(layer, mask):
    with pytest.raises(ShapeError, match=r"mask \(7, 7\) may be one of padding"):
        layer(np.ones((N, N, D)), mask)


test_what_does_not_fit_is_refused_with_layer_and_shapes = refusals(
    (lambda: L.scaled_dot_product_attention(X[0], np.ones(3), X[0]), ShapeError, "n, d"),
    (lambda: MANY(X, np.ones((N, N), int)), DTypeError, "True = may attend"),
    (lambda: MultiHeadAttention(D, H, mask=causal)(X, np.tri(N)), ArgumentError, "hide nothing"),
    (lambda: MANY(X, context=np.ones((B, 4, 5))), ShapeError, r"context must be \(2, m, 12\), got"),
    (lambda: MANY(X, positions=np.arange(N + 1)), ShapeError, r"must be integers \(7,\)"),
    (lambda: MANY(X, positions=np.ones(N)), ShapeError, "positions must be integers"),
    (lambda: MultiHeadAttention(D, 5), ArgumentError, "must divide .* d_model=12, n_heads=5"),
    (lambda: MultiHeadAttention(D, 6, 4), ArgumentError, "n_kv_heads=4"),
    (lambda: SelfAttention(D, 5, 4, mask=NOW), ArgumentError, "a rule that always holds"),
    (lambda: MultiHeadAttention(D, H, position="rotary"), ArgumentError, "must be a Position"),
    (lambda: MultiHeadAttention(D, H, position=L.Rotary(6))(X), ArgumentError, "heads of width 6"),
    (lambda: MultiHeadAttention(D, H, dropout=0.1, attend=in_tiles)(X), ArgumentError, "in_tiles"),
    (lambda: L.split_heads(X, 5), ShapeError, "5 heads must divide"),
    (lambda: cached(B + 1).append(K := np.ones((B, H, 1, 4)), K, np.arange(1)), ShapeError,
     r"keys \(3, 3, 2, 4\), got \(2, 3, n, 4\)"),
    (lambda: MANY(X, context=X, cache=cached(B + 1)), ShapeError, r"KVCache: it holds keys \(3, 3"),
    (lambda: MANY(X, cache=L.KVCache()), GradientError, r"decode within mg\.no_grad\(\)"),
)  # fmt: skip


def cached(b):
    cache = L.KVCache()
    with mg.no_grad():
        MANY(np.ones((b, 2, D)), cache=cache)
    return cache


def test_where_there_are_as_many_sequences_as_tokens_a_mask_of_pairs_is_taken_as_one(rng):
    X = rng.normal(size=(N, N, D))
    for mask in (NOW, NOW[None], L.create_causal_mask(N), causal, L.padding_mask(NOW)):
        assert ONE(X, mask).shape == X.shape
    assert_same(ONE(X, NOWHERE[None]).numpy(), ONE(X[:, :, :], NOWHERE[None, :, :]).numpy(), 0)
