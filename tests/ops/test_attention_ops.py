"""scale, mask_add and scaled_dot_product_attention."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same


@pytest.fixture
def qkv(rng):
    return [
        mg.tensor(rng.normal(size=s), requires_grad=True)
        for s in ((2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13))
    ]


def test_scale_multiplies_by_one_number_and_saves_no_array():
    x = mg.tensor(np.float32([1, 2]), requires_grad=True)
    out = mg.scale(x, np.float64(0.5))
    assert out.dtype == np.float32
    assert out.node.saved == (0.5,)
    np.testing.assert_allclose(mg.grad(out.sum(), x), [0.5, 0.5])


# ---------------------------------------------------------------- masks


def test_a_boolean_mask_is_an_additive_one(rng):
    scores, mask = rng.normal(size=(2, 3, 3)), np.tril(np.ones((3, 3), bool))
    additive = np.where(mask, 0, -np.inf)
    np.testing.assert_array_equal(mg.mask_add(scores, mask), mg.mask_add(scores, additive))
    np.testing.assert_array_equal(mg.mask_add(scores, mask)[:, mask], scores[:, mask])


@pytest.mark.parametrize("mask", [np.ones(3, bool), np.zeros(3), np.zeros(3, np.float32)])
def test_a_mask_does_not_widen_the_dtype(mask):
    assert mg.mask_add(mg.tensor(np.ones((2, 3), np.float32)), mask).dtype == np.float32


def test_a_large_mask_is_looked_at_once_until_it_is_written(monkeypatch):
    """Its entries are read at the first call, and again after `assign_`."""
    mask, scores = mg.tensor(np.zeros((70, 70))), np.ones((70, 70))
    mg.mask_add(scores, mask)
    with monkeypatch.context() as patched:
        patched.setattr(np, "maximum", None)
        mg.mask_add(scores, mask)
    mask.assign_(np.full((70, 70), np.nan))
    with pytest.raises(mg.errors.ArgumentError, match="mask holds NaN"):
        mg.mask_add(scores, mask)


# ---------------------------------------------------------------- attention


def test_causal_is_the_lower_triangle_and_combines_with_a_mask(qkv):
    q, k, v = qkv
    triangle = np.tri(5, 11, dtype=bool)
    padding = np.arange(11) != 0
    expected = mg.scaled_dot_product_attention(q, k, v, triangle & padding)
    assert_same(mg.scaled_dot_product_attention(q, k, v, padding, is_causal=True), expected, 0)
    np.testing.assert_array_equal(expected.data[..., 0, :], np.zeros((2, 3, 13)))


def test_a_query_that_may_attend_to_nothing_gives_zeros_and_no_nan(qkv):
    mask = np.ones((5, 11), bool)
    mask[2] = False
    out = mg.scaled_dot_product_attention(*qkv, mask)
    np.testing.assert_array_equal(out.data[..., 2, :], np.zeros((2, 3, 13)))
    for g in mg.grad(out.sum(), qkv):
        assert np.isfinite(g).all()


def test_the_scale_can_be_given(qkv):
    q, k, v = qkv
    np.testing.assert_allclose(
        mg.scaled_dot_product_attention(q, k, v, scale=0.3).data,
        mg.scaled_dot_product_attention(q * (0.3 * np.sqrt(7)), k, v).data,
        rtol=1e-12,
    )
