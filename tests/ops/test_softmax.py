"""Softmax, its logarithm and that of its sum: rows that are masked, extreme, or empty."""

import numpy as np
import pytest

import minigrad as mg


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


def test_over_nothing_but_minus_infinity_logsumexp_is_minus_infinity():
    x = mg.tensor(np.full((2, 3), -np.inf), requires_grad=True)
    np.testing.assert_array_equal(mg.logsumexp(x, axis=1).data, [-np.inf, -np.inf])
    np.testing.assert_array_equal(mg.grad(mg.logsumexp(x, axis=1), x, np.ones(2)), np.zeros((2, 3)))


def test_of_no_entries_softmax_is_empty_and_logsumexp_minus_infinity():
    assert mg.softmax(np.zeros((3, 0))).shape == (3, 0)
    np.testing.assert_array_equal(mg.logsumexp(np.zeros((2, 0)), axis=1), [-np.inf, -np.inf])


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
