"""Cross-entropy: closed forms, the op it generalises, PyTorch with every option."""

import numpy as np
import pytest

import minigrad as mg
from layers import cross_entropy_loss

ROWS, C = 7, 5


@pytest.fixture
def logits(rng):
    return rng.normal(size=(ROWS, C))


@pytest.fixture
def targets(rng):
    return rng.integers(0, C, ROWS)


def test_the_plain_case_is_the_op(logits, targets):
    x = mg.tensor(logits, requires_grad=True)
    ours, op = cross_entropy_loss(x, targets), mg.cross_entropy(x, targets)
    np.testing.assert_allclose(ours.numpy(), op.numpy(), rtol=1e-14)
    np.testing.assert_allclose(mg.grad(ours, x), mg.grad(op, x), rtol=1e-12, atol=1e-16)


def test_equal_logits_cost_the_logarithm_of_the_number_of_classes(targets):
    for smoothing in (0.0, 0.3, 1.0):
        loss = cross_entropy_loss(np.zeros((ROWS, C)), targets, label_smoothing=smoothing)
        np.testing.assert_allclose(loss, np.log(C))


def test_a_class_is_the_distribution_that_is_certain_of_it(logits, targets):
    for reduction in ("none", "sum", "mean"):
        np.testing.assert_allclose(
            cross_entropy_loss(logits, np.eye(C)[targets], reduction=reduction),
            cross_entropy_loss(logits, targets, reduction=reduction),
            rtol=1e-14,
        )


def test_ignored_rows_are_as_if_they_were_not_there(logits, targets):
    marked = targets.copy()
    marked[[1, 4]] = -100
    kept = np.delete(np.arange(ROWS), [1, 4])
    for smoothing in (0.0, 0.2):
        options = {"label_smoothing": smoothing, "weight": np.arange(1.0, C + 1)}
        np.testing.assert_allclose(
            cross_entropy_loss(logits, marked, ignore_index=-100, **options),
            cross_entropy_loss(logits[kept], targets[kept], **options),
            rtol=1e-14,
        )
    x = mg.tensor(logits, requires_grad=True)
    gradient = mg.grad(cross_entropy_loss(x, marked, ignore_index=-100), x)
    np.testing.assert_array_equal(gradient[[1, 4]], 0)


def test_gradients_reach_a_target_distribution(rng, logits):
    p = mg.tensor(rng.dirichlet(np.ones(C), ROWS), requires_grad=True)
    x = mg.tensor(logits, requires_grad=True)
    assert mg.gradcheck(lambda x, p: cross_entropy_loss(x, p, label_smoothing=0.1), [x, p])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_mean_over_no_row_is_nan_and_moves_nothing(logits, smoothing):
    """As in PyTorch: a batch of padding leaves the weights alone."""
    x = mg.tensor(logits, requires_grad=True)
    every = np.full(ROWS, 2)
    loss = cross_entropy_loss(x, every, ignore_index=2, label_smoothing=smoothing)
    assert np.isnan(loss.numpy())
    np.testing.assert_array_equal(mg.grad(loss, x), np.zeros_like(logits))
