"""Masks: causal, padding, both; boolean and additive; and every one that does not fit."""

import numpy as np
import pytest

from layers import (
    MultiHeadAttention,
    SelfAttention,
    combined_mask,
    create_causal_mask,
    padding_mask,
)
from minigrad.errors import ShapeError

INF = np.inf


def test_causal_mask_is_zero_up_to_the_diagonal_and_minus_infinity_above():
    np.testing.assert_array_equal(create_causal_mask(3), [[0, -INF, -INF], [0, 0, -INF], [0, 0, 0]])
    np.testing.assert_array_equal(create_causal_mask(1), [[0]])
    assert create_causal_mask(0).shape == (0, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_masks_have_the_dtype_asked_for(dtype):
    assert create_causal_mask(3, dtype).dtype == dtype
    assert padding_mask([2, 3], dtype=dtype).dtype == dtype


def test_padding_mask_hides_columns_from_the_length_on():
    expected = [[[0, 0, -INF, -INF]], [[0, 0, 0, 0]], [[-INF] * 4]]
    np.testing.assert_array_equal(padding_mask([2, 4, 0]), expected)
    np.testing.assert_array_equal(padding_mask(np.array([2, 4, 0], np.uint8), 4), expected)
    real = np.arange(4) < np.array([[2], [4], [0]])
    np.testing.assert_array_equal(padding_mask(real), expected)
    np.testing.assert_array_equal(padding_mask(real, seq_len=4), expected)


@pytest.mark.parametrize("boolean_causal", [True, False])
@pytest.mark.parametrize("padding", ["boolean (B, n)", "boolean (B, 1, n)", "additive"])
@pytest.mark.parametrize("batched", [True, False])
def test_combined_mask_allows_what_both_allow(boolean_causal, padding, batched):
    real = np.arange(5) < np.array([[3], [5]])
    causal = np.tri(5, dtype=bool) if boolean_causal else create_causal_mask(5)
    causal = np.stack([causal, causal]) if batched else causal
    second = {"boolean (B, n)": real, "boolean (B, 1, n)": real[:, None]}.get(
        padding, padding_mask(real)
    )
    combined = combined_mask(causal, second)
    expected = np.where(np.tri(5, dtype=bool) & real[:, None], 0.0, -INF)
    np.testing.assert_array_equal(combined, expected)
    assert combined.dtype == np.float64


def test_combined_mask_of_finite_masks_is_their_sum_in_their_dtype():
    combined = combined_mask(np.float32([[0, -1e9], [0, 0]]), np.float32([[[0, -1e9]]]))
    np.testing.assert_array_equal(combined, np.float32([[[0, -2e9], [0, -1e9]]]))
    assert combined.dtype == np.float32


def test_exchanged_arguments_of_combined_mask_are_refused_where_their_shapes_are_alike():
    real = np.arange(3) < np.array([[3], [1], [2]])
    for causal in (create_causal_mask(3), np.tri(3, dtype=bool), np.triu([[-1e9] * 3] * 3, 1)):
        assert combined_mask(causal, real).shape == (3, 3, 3)
        with pytest.raises(ShapeError, match=r"exchange them: combined_mask\(second, first\)"):
            combined_mask(real, causal)


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
    layer = MultiHeadAttention(6, heads, rng=rng) if heads else SelfAttention(6, 2, 5, rng=rng)
    allowed = rng.random(shape) < 0.5
    X = rng.normal(size=(batch, 7, 6) if batch else (7, 6))
    assert layer(X, allowed).shape == X.shape
    A = layer.attention_weights.reshape(batch or 1, heads or 1, 7, 7)
    pairs = allowed.reshape(-1, *allowed.shape[-2:])
    for head in range(heads or 1):
        np.testing.assert_array_equal(A[:, head] != 0, np.broadcast_to(pairs, (batch or 1, 7, 7)))
