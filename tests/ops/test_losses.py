"""Cross-entropy: closed forms and what it refuses."""

import numpy as np

import minigrad as mg


def test_equal_logits_cost_the_logarithm_of_their_number():
    np.testing.assert_allclose(mg.cross_entropy(np.zeros((3, 7)), np.array([0, 3, 6])), np.log(7))


def test_logits_far_apart_stay_finite():
    x = mg.tensor([[800.0, -800.0], [-800.0, 800.0]], requires_grad=True)
    loss = mg.cross_entropy(x, np.array([0, 0]))
    np.testing.assert_allclose(loss.item(), 800)
    np.testing.assert_allclose(mg.grad(loss, x), [[0, 0], [-0.5, 0.5]])


def test_one_row_without_batch_and_lists_are_accepted():
    np.testing.assert_allclose(mg.cross_entropy(np.zeros(5), 3), np.log(5))
    np.testing.assert_allclose(mg.cross_entropy([[0.0, 0.0]], [1]), np.log(2))
    np.testing.assert_allclose(
        mg.cross_entropy(mg.tensor(np.zeros((2, 3))), mg.tensor(np.array([0, 2]))).item(), np.log(3)
    )
