"""Cross-entropy: closed forms and what it refuses."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import DTypeError, OutOfRangeError, ShapeError


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


@pytest.mark.parametrize(
    ("shape", "targets", "kind", "text"),
    [
        (
            (3, 5),
            [0, 1],
            ShapeError,
            r"targets \(2,\) must have logits' shape without its last axis, \(3,\)",
        ),
        ((3, 5), np.eye(3, 5), ShapeError, r"targets \(3, 5\) must have"),
        ((), 0, ShapeError, r"logits need a last axis, one entry a class, got shape \(\)"),
        ((3, 5), [0.0, 1.0, 2.0], DTypeError, "targets must be integers, got float64"),
        ((3, 5), [True, False, True], DTypeError, "targets must be integers, got bool"),
        ((3, 5), [0, 5, 1], OutOfRangeError, r"targets must lie in \[0, 5\), got 5"),
        ((3, 5), [0, -1, 9], OutOfRangeError, r"targets must lie in \[0, 5\), got -1"),
        ((0, 5), np.zeros(0, int), ShapeError, "a mean over no rows; logits need at least one"),
    ],
)
def test_targets_that_do_not_fit_are_refused(shape, targets, kind, text):
    with pytest.raises(kind, match=rf"cross_entropy\(logits, targets\): {text}"):
        mg.cross_entropy(mg.tensor(np.zeros(shape)), targets)
