"""Attention as a function: scores at every stage, causality, key by key, the worked example."""

from math import exp, sqrt

import numpy as np
import pytest

import minigrad as mg
from layers import (
    create_causal_mask,
    online_softmax_attention,
    padding_mask,
    scaled_dot_product_attention,
    softmax_backward,
)
from tests.compare import assert_same

B, N, H = 2, 7, 3


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
    mask = np.where(rng.random((B, 1, N, 11)) < 0.7, rng.normal(size=(B, 1, N, 11)), -np.inf)
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
    first, *others = (
        scaled_dot_product_attention(*QKV, return_scores=stage)[2]
        for stage in (True, "S", "S_capped", "S_masked")
    )
    assert_same(others, [first] * 3, 0)


def test_capped_last_is_capped_where_there_is_no_mask_too(QKV):
    _, unmasked = scaled_dot_product_attention(*QKV, softcap=2.0, softcap_first=False)
    assert_same(unmasked, scaled_dot_product_attention(*QKV, softcap=2.0)[1], 0)


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


def test_on_arrays_attention_is_numpy_and_on_tensors_it_is_recorded(rng):
    Q, K, V = (rng.normal(size=(B, N, d)) for d in (3, 3, 11))
    O, A = scaled_dot_product_attention(Q, K, V)
    assert type(O) is type(A) is np.ndarray
    recorded, _ = scaled_dot_product_attention(mg.tensor(Q, requires_grad=True), K, V)
    assert recorded.name == "O"
    assert_same(recorded, O, 0)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_backward_along_any_axis_is_the_engines(rng, axis):
    S, g = rng.normal(size=(2, 2, 3, 5))
    leaf = mg.tensor(S, requires_grad=True)
    found = softmax_backward(g, mg.softmax(S, axis=axis), axis=axis)
    np.testing.assert_allclose(mg.grad(mg.softmax(leaf, axis=axis), leaf, g), found, rtol=1e-13)


@pytest.mark.parametrize("kind", ["none", "causal", "padding", "a rule", "nobody sees a thing"])
def test_online_softmax_goes_over_keys_one_by_one_and_is_attention(rng, kind):
    """Scores that grow with the key, so that the running maximum changes; gradients too."""
    q, k, v = (mg.tensor(rng.normal(size=(2, 5, d)), requires_grad=True) for d in (3, 3, 7))
    k.data *= np.arange(1, 6)[:, None]
    mask = {
        "causal": create_causal_mask(5),
        "padding": padding_mask([2, 5]),
        "a rule": mg.mask_rules.Window(2),
        "nobody sees a thing": np.zeros((1, 1, 5), bool),
    }.get(kind)
    ours = online_softmax_attention(q, k, v, mask)
    theirs, _ = scaled_dot_product_attention(q, k, v, mask)
    assert_same(ours, theirs)
    assert_same(online_softmax_attention(q.numpy(), k.numpy(), v.numpy(), mask), theirs)
    g = rng.normal(size=ours.shape)
    assert_same(mg.grad(ours, [q, k, v], g), mg.grad(theirs, [q, k, v], g))


Q = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
K = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]])
V = np.array([[[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]]])


def test_the_worked_example_to_the_last_digit():
    """The second row's weight on the second key is p = 1 / (1 + e^(−1/√3))."""
    p = 1 / (1 + exp(-1 / sqrt(3)))
    O, A = scaled_dot_product_attention(Q, K, V)
    np.testing.assert_allclose(A, [[[0.5, 0.5], [1 - p, p]]], rtol=1e-15)
    np.testing.assert_allclose(O[0, 1], [10 + 30 * p, 20 + 30 * p, 30 + 30 * p], rtol=1e-15)
