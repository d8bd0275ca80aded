"""Softmax a few rows at a time is that of each row."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

softmax = mg.softmax.overlay.kernel  # however many entries there are


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("other", [-1e4, -100, -39, -9, 0, 9, 39, 41, 88, 1e4])
def test_softmax_of_few_rows_is_right_beside_a_row_of_any_size(rng, dtype, other):
    x = rng.normal(size=(2, 3, 5)).astype(dtype)
    x[1, 2] += dtype(other)
    with np.errstate(all="raise", under="ignore"):
        found = softmax(x)
    less = x.astype(np.longdouble) - x.max(-1, keepdims=True).astype(np.longdouble)
    expected = np.exp(less) / np.exp(less).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected.astype(dtype), rtol=8 * float(np.finfo(dtype).eps))
    assert found.dtype == dtype


@pytest.fixture(params=[np.float32, np.float64])
def many_rows(request, rng):
    """Rows enough to be gone through in blocks, their scores small but for a few rows."""
    x = rng.normal(size=(3, 41, 47)).astype(request.param)
    x[0, 1], x[0, 3], x[1, 5, 7], x[1, 9], x[2, 40] = -200, 300, 1000, -1e30, -np.inf
    x[2, 7, 1:] = -np.inf
    return x


def _row_by_row(op, *arrays):
    """The op on one row after the other: too few entries to be treated as many."""
    rows = (op(*given) for given in zip(*(a.reshape(-1, a.shape[-1]) for a in arrays), strict=True))
    return np.reshape(list(rows), arrays[0].shape)


@pytest.mark.parametrize("offset", [0, -50, 50, -300, 300])
def test_softmax_of_many_rows_is_that_of_each_row_whatever_the_size_of_the_scores(
    many_rows, offset
):
    x = many_rows + many_rows.dtype.type(offset)
    with np.errstate(all="raise", under="ignore"):
        found = softmax(x)
    assert found.dtype == x.dtype
    assert found.flags.c_contiguous
    eps = np.finfo(x.dtype).eps
    np.testing.assert_allclose(found, _row_by_row(mg.softmax.kernel, x), rtol=400 * eps, atol=0)
    np.testing.assert_array_equal(found[2, 40], np.zeros(47))
    np.testing.assert_array_equal(found[2, 7], np.eye(47)[0])


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_softmax_of_many_rows_is_nan_where_it_is_of_one_row_and_nowhere_else(many_rows, wrong):
    many_rows[1, 2, 3] = wrong
    with np.errstate(invalid="ignore"):
        found, expected = softmax(many_rows), _row_by_row(mg.softmax.kernel, many_rows)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.isnan(found).sum() == np.isnan(found[1, 2]).sum() > 0


def test_the_gradient_of_softmax_of_many_rows_is_that_of_each_row(many_rows, rng):
    g = rng.normal(size=many_rows.shape).astype(many_rows.dtype)

    def gradient(x, g):
        leaf = mg.tensor(x, requires_grad=True)
        return mg.grad(mg.softmax(leaf), leaf, g)

    found, eps = gradient(many_rows, g), np.finfo(many_rows.dtype).eps
    assert_same(found, _row_by_row(gradient, many_rows, g), 400 * eps)
    assert not found[2, 40].any()
