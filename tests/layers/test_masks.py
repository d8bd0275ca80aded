"""Masks as arrays and as rules, and what joins them."""

import pickle

import numpy as np
import pytest

import layers as L
import minigrad as mg
from layers import causal, combined_mask, create_causal_mask, padding_mask, window
from layers.masking import joined
from minigrad.errors import ArgumentError, DTypeError, ShapeError
from tests.compare import assert_same, refusals

I = np.arange(7)
i, j = np.indices((7, 7))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (causal, j <= i),
        (window(3), abs(i - j) < 3),
        (window(2, dilation=3), (abs(i - j) < 6) & ((i - j) % 3 == 0)),
        (L.global_tokens(0, 4), np.isin(i, [0, 4]) | np.isin(j, [0, 4])),
        (causal & window(2), (j <= i) & (i - j < 2)),
        (window(1) | L.global_tokens(2), (i == j) | (i == 2) | (j == 2)),
    ],
)
def test_a_rule_is_a_function_of_positions_that_can_be_kept(rule, expected):
    assert_same(rule(I[:, None], I), expected)
    assert_same(rule(I[2:4, None], I[1:]), expected[2:4, 1:])
    copy = pickle.loads(pickle.dumps(rule))
    assert copy == rule
    assert hash(copy) == hash(rule)
    assert copy != L.window(6)


def test_random_tokens_are_as_many_for_each_query_and_the_same_by_the_same_seed():
    rule = L.random_tokens(11, 3, rng=0)
    table = rule(np.arange(11)[:, None], np.arange(11))
    assert (table.sum(axis=1) == 3).all()
    assert rule == L.random_tokens(11, 3, rng=0) != L.random_tokens(11, 3, rng=1)


def test_arrays_say_where_0_and_where_minus_infinity_is_added():
    assert_same(create_causal_mask(7), np.where(j <= i, 0.0, -np.inf), 0)
    assert create_causal_mask(7, np.float32).dtype == np.float32
    real = np.array([[True, True, False], [True, False, False]])
    assert_same(padding_mask(real), np.where(real, 0.0, -np.inf)[:, None], 0)
    assert_same(padding_mask([2, 1], 3), padding_mask(real), 0)
    expected = create_causal_mask(3) + padding_mask(real)
    for first in (create_causal_mask(3), np.tri(3, dtype=bool), causal):
        for second in (real, real[:, None], padding_mask(real)):
            assert_same(combined_mask(first, second), expected, 0)


@pytest.mark.parametrize("others", [(), (causal,), (create_causal_mask(7), window(3))])
@pytest.mark.parametrize("boolean", [True, False])
def test_joined_is_what_all_let_see_and_the_sum_of_what_they_add(rng, boolean, others):
    mask = rng.random((2, 7, 7)) < 0.7
    added = rng.normal(size=(1, 3, 7, 7))
    first = mask if boolean else np.where(mask, 0.25, -np.inf)
    M = joined(I, I - 1, first, None, *others, added)
    seen = np.where(mask, 0.0 if boolean else 0.25, -np.inf) + np.where(I > 0, 0.0, -np.inf)
    for other in others:
        table = other(I[:, None], I - 1) if isinstance(other, L.MaskRule) else other == 0
        seen = seen + np.where(table, 0.0, -np.inf)
    assert_same(M.numpy(), seen[:, None] + added)
    assert joined(I, I, None) is None
    assert joined(I, I, first) is first


def test_a_mask_that_is_learned_gets_its_gradient(rng):
    M = mg.tensor(rng.normal(size=(7, 7)), requires_grad=True)
    layer = L.MultiHeadAttention(12, 3, rng=0, mask=causal)
    layer(rng.normal(size=(2, 7, 12)), M).sum().backward()
    assert not np.triu(M.grad, 1).any()
    assert np.tril(M.grad, 0).any()


test_what_is_no_mask_is_refused = refusals(
    (lambda: padding_mask([2], 3.5), ArgumentError, "seq_len must be an integer"),
    (lambda: padding_mask(np.ones((2, 3), bool), 4), ShapeError, r"booleans \(B, 4\)"),
    (lambda: create_causal_mask(3, bool), DTypeError, "dtype must be one of floats"),
    (lambda: padding_mask([3], 3, int), DTypeError, "dtype must be one of floats"),
    (lambda: padding_mask([1, 5], 3), ArgumentError, r"must be 0 to 3, got \[1, 5\]"),
    (lambda: create_causal_mask(-3), ArgumentError, "create_causal_mask: seq_len must be"),
    (lambda: L.global_tokens(), ArgumentError, "give positions"),
    (lambda: L.global_tokens([0, 1]), ArgumentError, "give positions"),
    (lambda: combined_mask(np.ones((4, 4), bool), create_causal_mask(4)), ShapeError, "causal one"),
    (lambda: combined_mask(np.tri(5), np.ones((2, 5), bool)), ArgumentError, "0 and 1 hide"),
    (lambda: mg.mask_add(np.ones(3), np.array([0, 1, -np.inf])), ArgumentError, "0 and 1 hide"),
    (lambda: combined_mask(create_causal_mask(3), causal), ShapeError, r"padding: \(\)"),
    (lambda: padding_mask(np.ones((2, 3))), ShapeError, "True at real tokens, got float64"),
    (lambda: padding_mask(np.ones(3, bool)), ShapeError, r"booleans \(B, n\)"),
    (lambda: combined_mask(np.ones((5, 5), int), np.ones((2, 5), bool)), DTypeError, "got int64"),
    (lambda: window(0), ArgumentError, "window: size must be"),
)  # fmt: skip
