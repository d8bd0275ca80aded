"""Cross-entropy with its options, and what is particular to a convolution and to pooling."""

import numpy as np
import pytest

import minigrad as mg
from layers import BatchNorm, cross_entropy_loss
from tests.compare import assert_same

ROWS, C = 7, 5


def test_of_equal_entries_the_first_gets_the_gradient_as_in_pytorch():
    x = mg.tensor(np.zeros((1, 1, 2, 4)), requires_grad=True)
    mg.max_pool(x, 2).sum().backward()
    np.testing.assert_array_equal(x.grad[0, 0], [[1, 0, 1, 0], [0, 0, 0, 0]])


# ---------------------------------------------------------------- cross-entropy


def some_ignored(rng):
    targets = rng.integers(0, C, ROWS)
    targets[[1, 4]] = -100
    return targets


TARGETS = {
    "classes": (lambda rng: rng.integers(0, C, ROWS), {}),
    "classes, some ignored": (some_ignored, {"ignore_index": -100}),
    "distributions": (lambda rng: rng.dirichlet(np.ones(C), ROWS), {}),
}
WEIGHTS = {"weight": np.arange(1.0, C + 1)}
OPTIONS = [
    {}, {"label_smoothing": 0.3}, WEIGHTS, WEIGHTS | {"label_smoothing": 0.2},
    {"reduction": "sum"}, WEIGHTS | {"reduction": "none", "label_smoothing": 1.0},
]  # fmt: skip


@pytest.fixture
def logits(rng):
    return rng.normal(size=(ROWS, C))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", TARGETS)
def test_cross_entropy_is_pytorchs(kind, options, rng, logits, agree_with_torch):
    torch = pytest.importorskip("torch")
    make, ignored = TARGETS[kind]
    targets, theirs = make(rng), dict(options)
    if "weight" in options:
        theirs["weight"] = torch.tensor(options["weight"])
    agree_with_torch(
        lambda x: cross_entropy_loss(x, targets, **options, **ignored),
        lambda x: torch.nn.functional.cross_entropy(x, torch.tensor(targets), **theirs),
        [logits],
    )


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_a_class_is_the_distribution_that_is_certain_of_it(reduction, rng, logits):
    classes = TARGETS["classes"][0](rng)
    certain = cross_entropy_loss(logits, np.eye(C)[classes], reduction=reduction)
    assert_same(cross_entropy_loss(logits, classes, reduction=reduction), certain, 1e-14)


def test_weights_of_classes_are_not_cut_to_integers_beside_logits_of_integers():
    logits, options = np.array([[1, 2], [0, 3]]), {"weight": [0.5, 0.25]}
    found = cross_entropy_loss(logits, np.array([1, 0]), **options)
    assert_same(found, cross_entropy_loss(logits.astype(float), np.array([1, 0]), **options), 0)


@pytest.mark.parametrize("weight", [None, np.arange(1.0, C + 2)], ids=["plain", "weighted"])
def test_an_impossible_class_that_is_not_the_target_costs_nothing(rng, logits, weight):
    """A logit of −inf takes its class out, as a mask of illegal moves does."""
    classes, shorter = TARGETS["classes"][0](rng), None if weight is None else weight[:C]
    longer = np.concatenate([logits, np.full((ROWS, 1), -np.inf)], axis=1)
    x, y = mg.tensor(longer, requires_grad=True), mg.tensor(logits, requires_grad=True)
    loss, expected = (
        cross_entropy_loss(logits, classes, weight=w) for logits, w in ((x, weight), (y, shorter))
    )
    assert_same(loss, expected, 1e-14)
    assert_same(mg.grad(loss, x), np.pad(mg.grad(expected, y), ((0, 0), (0, 1))), 1e-12)


def test_gradients_reach_a_target_distribution(rng, logits):
    p = mg.tensor(rng.dirichlet(np.ones(C), ROWS), requires_grad=True)
    x = mg.tensor(logits, requires_grad=True)
    assert mg.gradcheck(lambda x, p: cross_entropy_loss(x, p, label_smoothing=0.1), [x, p])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_mean_over_no_row_is_nan_and_moves_nothing(logits, smoothing):
    """As in PyTorch: a batch of padding leaves the weights alone."""
    x = mg.tensor(logits, requires_grad=True)
    loss = cross_entropy_loss(x, np.full(ROWS, 2), ignore_index=2, label_smoothing=smoothing)
    assert np.isnan(loss.numpy())
    assert not mg.grad(loss, x).any()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the mean of nothing
def test_an_empty_batch_leaves_the_running_averages_as_they_are():
    norm = BatchNorm(3)
    assert norm(np.zeros((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal([norm.running_mean, norm.running_var], [[0] * 3, [1] * 3])
