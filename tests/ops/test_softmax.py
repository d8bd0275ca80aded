"""Softmax, its logarithm and that of its sum: rows that are masked, extreme, or empty."""

import numpy as np
import pytest

import minigrad as mg


def test_softmax_and_its_kin_neither_overflow_nor_underflow():
    x = mg.tensor([800.0, -800.0, 799.0], requires_grad=True)
    e = np.exp(-1.0)
    np.testing.assert_allclose(mg.softmax(x).data, [1 / (1 + e), 0, e / (1 + e)], rtol=1e-15)
    np.testing.assert_allclose(
        mg.log_softmax(x).data, [-np.log1p(e), -1600 - np.log1p(e), -1 - np.log1p(e)], rtol=1e-14
    )
    np.testing.assert_allclose(mg.logsumexp(x).item(), 800 + np.log1p(e), rtol=1e-15)
    for op in (mg.softmax, mg.log_softmax, mg.logsumexp):
        out = op(x)
        assert np.isfinite(mg.grad(out, x, np.ones(out.shape))).all()


@pytest.mark.parametrize("order", [1, 2])
def test_a_fully_masked_row_gives_zeros_forward_and_backward(order, rng):
    scores = mg.tensor(
        np.where(np.array([[True], [False]]), rng.normal(size=(2, 3)), -np.inf), requires_grad=True
    )
    A = mg.softmax(scores)
    np.testing.assert_allclose(A.data[1], np.zeros(3))
    np.testing.assert_allclose(A.data[0].sum(), 1)
    found = mg.grad((A * A * np.arange(3.0)).sum(), scores, create_graph=order == 2)
    if order == 2:
        found = mg.grad((found * found).sum(), scores)
    np.testing.assert_allclose(found[1], np.zeros(3))
    assert np.isfinite(found[0]).all()


def test_masked_entries_get_exactly_zero(rng):
    x = rng.normal(size=5)
    x[[1, 3]] = -np.inf
    leaf = mg.tensor(x, requires_grad=True)
    s = mg.softmax(leaf)
    np.testing.assert_array_equal(s.data[[1, 3]], [0, 0])
    np.testing.assert_array_equal(mg.grad(s, leaf, rng.normal(size=5))[[1, 3]], [0, 0])
    np.testing.assert_allclose(s.data[[0, 2, 4]], mg.softmax(x[[0, 2, 4]]), rtol=1e-15)


def test_over_nothing_but_minus_infinity_logsumexp_is_minus_infinity():
    x = mg.tensor(np.full((2, 3), -np.inf), requires_grad=True)
    np.testing.assert_array_equal(mg.logsumexp(x, axis=1).data, [-np.inf, -np.inf])
    np.testing.assert_array_equal(mg.grad(mg.logsumexp(x, axis=1), x, np.ones(2)), np.zeros((2, 3)))


def test_log_softmax_of_a_masked_row_has_no_nan():
    x = mg.tensor([-np.inf, -np.inf], requires_grad=True)
    out = mg.log_softmax(x)
    np.testing.assert_array_equal(out.data, [-np.inf, -np.inf])
    assert not np.isnan(mg.grad(out, x, np.ones(2))).any()


def test_of_no_entries_softmax_is_empty_and_logsumexp_minus_infinity():
    assert mg.softmax(np.zeros((3, 0))).shape == (3, 0)
    np.testing.assert_array_equal(mg.logsumexp(np.zeros((2, 0)), axis=1), [-np.inf, -np.inf])


@pytest.mark.parametrize("op", [mg.softmax, mg.log_softmax])
def test_softmax_over_several_axes_or_all(op, rng):
    x = rng.normal(size=(2, 3, 5))
    exact = np.exp(op(x, axis=(0, 2))) if op is mg.log_softmax else op(x, axis=(0, 2))
    np.testing.assert_allclose(exact.sum((0, 2)), np.ones(3), rtol=1e-14)


@pytest.mark.parametrize("op", [mg.softmax, mg.log_softmax])
def test_softmax_of_one_number_is_of_that_alone(op):
    x = mg.tensor(np.asarray(1.5), requires_grad=True)
    y = op(x)
    y.backward()
    assert y.item() == op(np.array([1.5])).item()
    assert x.grad == 0


def test_logsumexp_of_an_infinite_entry_is_infinite_and_other_rows_stay():
    x = np.array([[np.inf, 1.0], [0.0, 0.0], [np.inf, -np.inf]])
    np.testing.assert_array_equal(mg.logsumexp(x, axis=1), [np.inf, np.log(2), np.inf])
    assert mg.logsumexp(x) == np.inf
