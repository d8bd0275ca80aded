"""Soft-cap, dropout, biases, norms of Q and K, scale, window, widths; scores at every stage."""

from functools import partial

import numpy as np
import pytest

import minigrad as mg
from layers import (
    LayerNorm,
    MultiHeadAttention,
    RMSNorm,
    Rotary,
    scaled_dot_product_attention,
)

B, N, D, H = 2, 7, 12, 3


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


def pair(seed, **options):
    """A layer with options, and a plain one with the same weights."""
    layer = MultiHeadAttention(D, H, rng=seed, **options)
    plain = MultiHeadAttention(D, H, rng=seed)
    return layer, plain


# ---------------------------------------------------------------- options that change nothing


@pytest.mark.parametrize(
    "options",
    [
        {"d_k": D // H, "d_v": D // H},
        {"scale": 0.5},
        {"window": N},
        {"dropout": 0.0},
        {"is_causal": False},
        {"d_context": D},
        {"use_bias": ""},
    ],
    ids=str,
)
def test_defaults_written_out_are_the_plain_layer_to_the_bit(X, options):
    layer, plain = pair(7, **options)
    np.testing.assert_array_equal(layer(X).numpy(), plain(X).numpy())


def test_a_causal_layer_takes_a_mask_on_top(rng, X):
    layer, plain = pair(7, is_causal=True)
    allowed = rng.random((B, N, N)) < 0.7
    both = plain(X, allowed & np.tri(N, dtype=bool)).numpy()
    np.testing.assert_array_equal(layer(X, allowed).numpy(), both)
    np.testing.assert_array_equal(layer(X, np.where(allowed, 0, -np.inf)).numpy(), both)


@pytest.mark.parametrize("causal", [True, False])
def test_a_window_hides_what_is_that_far_away(X, causal):
    layer, plain = pair(7, is_causal=causal, window=3)
    back = np.arange(N)[:, None] - np.arange(N)
    allowed = (np.abs(back) < 3) & ((back >= 0) | (not causal))
    np.testing.assert_array_equal(layer(X).numpy(), plain(X, allowed).numpy())


# ---------------------------------------------------------------- what is claimed of them


@pytest.mark.parametrize(
    "options",
    [
        {"is_causal": True},
        {"window": 3},
        {"d_k": 5},
        {"d_v": 7},
        {"d_k": 2, "d_v": 5, "n_kv_heads": 1, "is_causal": True},
        {"use_bias": "QKV"},
        {"use_bias": "O"},
    ],
    ids=str,
)
def test_the_hand_derived_steps_hold_where_they_describe_the_layer(
    rng, X, check_against_hand, options
):
    assert check_against_hand(MultiHeadAttention(D, H, rng=rng, **options), X)


# ---------------------------------------------------------------- each by itself


def test_a_soft_cap_keeps_scores_within_it(rng, X):
    layer = MultiHeadAttention(D, H, rng=rng, softcap=0.7)
    with mg.trace() as t:
        layer(40 * X)
    S, S_capped = t["S"].value, t["S_capped"].value
    assert np.abs(S).max() > 100
    assert np.abs(S_capped).max() <= 0.7
    np.testing.assert_allclose(S_capped, 0.7 * np.tanh(S / 0.7), rtol=1e-13)


def test_dropout_zeroes_weights_at_its_rate_and_divides_the_rest(rng):
    layer = MultiHeadAttention(D, H, rng=rng, dropout=0.3)
    with mg.trace() as t:
        layer(rng.normal(size=(5, 31, D)))
    A, kept = t["A"].value, t["A_dropped"].value
    gone = kept == 0
    np.testing.assert_allclose(gone.mean(), 0.3, atol=0.01)
    np.testing.assert_allclose(kept[~gone], A[~gone] / 0.7, rtol=1e-13)
    np.testing.assert_allclose(layer.attention_weights.sum(axis=-1), 1, rtol=1e-13)


def test_the_same_seed_drops_the_same_and_each_call_anew(X):
    one, other = (MultiHeadAttention(D, H, rng=3, dropout=0.5) for _ in range(2))
    first = one(X).numpy()
    np.testing.assert_array_equal(other(X).numpy(), first)
    assert np.abs(one(X).numpy() - first).max() > 1e-3


def test_biases_may_be_on_some_projections_only(rng):
    layer = MultiHeadAttention(D, H, use_bias="QKV", rng=rng)
    assert list(layer.state_dict()) == ["W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O"]
    assert layer.b_O is None


@pytest.mark.parametrize("norm", [RMSNorm, partial(RMSNorm, plus_one=True), LayerNorm])
def test_normed_queries_and_keys_do_not_care_how_long_they_were(rng, X, norm):
    layer = MultiHeadAttention(D, H, rng=rng, qk_norm=partial(norm, eps=0.0))
    out = layer(X).numpy()
    for s in "QK":
        setattr(layer, f"W_{s}", 17 * getattr(layer, f"W_{s}").numpy())
    np.testing.assert_allclose(layer(X).numpy(), out, rtol=1e-10, atol=1e-13)


def test_each_heads_norm_is_over_that_head_alone(rng, X):
    layer = MultiHeadAttention(D, H, rng=rng, qk_norm=partial(RMSNorm, eps=0.0))
    with mg.trace() as t:
        layer(X)
    np.testing.assert_allclose((t["Q_norm"].value ** 2).mean(axis=-1), np.ones((B, H, N)))
    assert {"q_norm.weight", "k_norm.weight"} <= set(layer.state_dict())


@pytest.mark.needs_fast("attention in tiles")
def test_a_layer_in_tiles_takes_rotary_positions_scale_and_causality(X):
    options = {"is_causal": True, "scale": 0.3, "position": Rotary(4), "n_kv_heads": 1}
    exact, tiled = (
        MultiHeadAttention(D, H, rng=3, method=m, **options) for m in ("exact", "tiled")
    )
    np.testing.assert_allclose(tiled(X).numpy(), exact(X).numpy(), rtol=1e-11, atol=1e-13)


# ---------------------------------------------------------------- the function


@pytest.fixture
def QKV(rng):
    return (
        rng.normal(size=(B, 6, N, 5)),
        rng.normal(size=(B, 2, 11, 5)),
        rng.normal(size=(B, 2, 11, 3)),
    )


def softmax(S):
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    return E / E.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("softcap_first", [True, False])
def test_scores_are_returned_at_every_stage(rng, QKV, softcap_first):
    Q, K, V = QKV
    K, V = np.repeat(K, 3, axis=1), np.repeat(V, 3, axis=1)
    mask = rng.normal(size=(B, 1, N, 11))
    expected = {"S_raw": Q @ K.swapaxes(-1, -2)}
    expected["S"] = 0.3 * expected["S_raw"]
    if softcap_first:
        expected["S_capped"] = 2 * np.tanh(expected["S"] / 2)
        last = expected["S_masked"] = expected["S_capped"] + mask
    else:
        expected["S_masked"] = expected["S"] + mask
        last = expected["S_capped"] = 2 * np.tanh(expected["S_masked"] / 2)
    for stage, scores in expected.items():
        O, A, found = scaled_dot_product_attention(
            *QKV, mask, return_scores=stage, scale=0.3, softcap=2.0, softcap_first=softcap_first
        )
        np.testing.assert_allclose(found, scores, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(A, softmax(last), rtol=1e-12)
        np.testing.assert_allclose(O, softmax(last) @ V, rtol=1e-11, atol=1e-14)


def test_a_stage_that_was_left_out_changes_nothing(QKV):
    stages = [
        scaled_dot_product_attention(*QKV, return_scores=stage)[2]
        for stage in (True, "S", "S_capped", "S_masked")
    ]
    for scores in stages[1:]:
        np.testing.assert_array_equal(scores, stages[0])


def test_capped_first_a_forbidden_key_gets_nothing_capped_last_it_keeps_some(QKV):
    allowed = np.tri(N, 11, dtype=bool)
    _, first = scaled_dot_product_attention(*QKV, allowed, softcap=2.0)
    _, last = scaled_dot_product_attention(*QKV, allowed, softcap=2.0, softcap_first=False)
    assert (first[..., ~allowed] == 0).all()
    assert (last[..., ~allowed] > 0).all()


@pytest.mark.parametrize("offset", [0, 4, -2])
def test_a_causal_query_sees_the_keys_up_to_its_own_place(QKV, offset):
    _, A = scaled_dot_product_attention(*QKV, is_causal=True, offset=offset)
    np.testing.assert_array_equal(A > 0, np.broadcast_to(np.tri(N, 11, offset, bool), A.shape))


@pytest.mark.parametrize(
    "shape", [(N, 11), (B, N, 11), (B, 1, N, 11), (B, H, N, 11), (B, 1, 1, 11)]
)
@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_an_offset_for_each_row_goes_with_any_mask_of_many_heads(rng, shape, kind):
    """B is not H, then it is: a batch must not be taken for the heads where the sizes allow it."""
    for heads in (H, B):
        Q, K, V = (rng.normal(size=(B, heads, n, 5)) for n in (N, 11, 11))
        mask = rng.random(tuple(heads if s == H else s for s in shape)) > 0.2
        mask = mask if kind == "boolean" else np.where(mask, rng.normal(), -np.inf)
        offset = np.array([4, 1])
        _, A = scaled_dot_product_attention(Q, K, V, mask, is_causal=True, offset=offset)
        for b in range(B):
            own = mask[b : b + 1] if mask.ndim > 2 else mask
            one = (x[b : b + 1] for x in (Q, K, V))
            _, alone = scaled_dot_product_attention(*one, own, is_causal=True, offset=offset[b])
            np.testing.assert_array_equal(A[b], alone[0])


def test_an_additive_mask_that_requires_a_gradient_gets_one(rng, QKV):
    bias = mg.tensor(rng.normal(size=(6, N, 11)), requires_grad=True)

    def f(bias):
        O, _ = scaled_dot_product_attention(*QKV, mg.expand_dims(bias, 0), is_causal=True)
        return O

    assert mg.gradcheck(f, [bias])
