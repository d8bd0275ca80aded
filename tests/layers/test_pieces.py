"""Convolutions, pooling, norms and cross-entropy: as PyTorch's at both orders, in closed form."""

import numpy as np
import pytest

import minigrad as mg
from layers import ConvTranspose2d, LayerNorm, RMSNorm, cross_entropy_loss
from tests.compare import assert_same

ROWS, C = 7, 5


def _draw(*shape, seed=0):
    return (
        np.random.default_rng(seed).permutation(np.linspace(-2, 2, np.prod(shape))).reshape(shape)
    )


FORMS = {
    "plain": {},
    "strided": {"stride": 2, "padding": 1},
    "dilated": {"dilation": 2, "padding": 3},
    "grouped": {"groups": 2, "stride": 2},
    "depthwise": {"groups": 4, "padding": "same"},
}


@pytest.mark.filterwarnings("ignore:Using padding")  # of PyTorch, for its time
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_convolution_is_pytorchs_at_both_orders(form, n, agree_with_torch):
    F = pytest.importorskip("torch").nn.functional
    x = _draw(2, 4, *(7, 11)[:n])
    w, b = _draw(8, 4 // form.get("groups", 1), *(2, 3)[:n], seed=1), _draw(8, seed=2)
    ours, theirs = (mg.conv1d, F.conv1d) if n == 1 else (mg.conv2d, F.conv2d)
    for second in (False, True):
        agree_with_torch(
            lambda x, w, b: ours(x, w, b, **form),
            lambda x, w, b: theirs(x, w, b, **form),
            [x, w, b],
            second=second,
        )


def test_a_transposed_convolution_is_drawn_for_the_weights_that_its_stride_leaves():
    W = ConvTranspose2d(60, 50, 4, stride=2, rng=0).weight.numpy()
    assert abs(W.std() / np.sqrt(2 / (60 * 4 * 4 / 2**2)) - 1) < 5 / np.sqrt(2 * W.size)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [None, 1, 3])
@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_pooling_is_pytorchs(name, stride, padding, agree_with_torch):
    F = pytest.importorskip("torch").nn.functional
    agree_with_torch(
        lambda x: getattr(mg, name)(x, 2, stride, padding),
        lambda x: getattr(F, f"{name}2d")(x, 2, stride, padding),
        [_draw(2, 3, 7, 5)],
    )


def test_of_equal_entries_the_first_gets_the_gradient_as_in_pytorch():
    x = mg.tensor(np.zeros((1, 1, 2, 4)), requires_grad=True)
    mg.max_pool(x, 2).sum().backward()
    np.testing.assert_array_equal(x.grad[0, 0], [[1, 0, 1, 0], [0, 0, 0, 0]])


@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 7), (2, 6, 3, 5)])
def test_norms_of_channels_are_pytorchs_at_both_orders(shape, agree_with_torch):
    F = pytest.importorskip("torch").nn.functional
    x, w, b = _draw(*shape), _draw(6, seed=1), _draw(6, seed=2)
    for second in (False, True):
        agree_with_torch(
            mg.batch_norm,
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
            [x, w, b],
            second=second,
        )
        agree_with_torch(
            lambda x, w, b: mg.group_norm(x, 2, w, b),
            lambda x, w, b: F.group_norm(x, 2, w, b),
            [x, w, b],
            second=second,
        )


# ---------------------------------------------------------------- norms of tokens


@pytest.fixture
def x(rng):
    return rng.normal(size=(2, 3, 5))


def scrambled(layer, rng):
    for parameter in layer.parameters():
        parameter.assign_(rng.normal(size=parameter.shape))
    return layer


def test_plus_one_is_the_plain_form_with_one_added_to_the_weight(x, rng):
    ours, plain = RMSNorm(5, plus_one=True), RMSNorm(5)
    weight = rng.normal(size=5)
    ours.weight, plain.weight = weight, 1 + weight
    np.testing.assert_array_equal(ours(x).numpy(), plain(x).numpy())
    grad_output = rng.normal(size=x.shape)
    np.testing.assert_array_equal(ours.backward(grad_output), plain.backward(grad_output))
    np.testing.assert_array_equal(ours.grad_weight, plain.grad_weight)


def test_a_norm_over_the_last_two_axes_is_that_over_their_entries_in_one_row(x, rng):
    for made in (LayerNorm, RMSNorm):
        two, one = scrambled(made((3, 5)), rng), made(15)
        for parameter, same in zip(two.parameters(), one.parameters(), strict=True):
            same.assign_(parameter.numpy().ravel())
        assert_same(two(x), one(x.reshape(2, 15)).numpy().reshape(x.shape), 0)


def test_without_parameters_there_are_none(x):
    layer = LayerNorm(5, use_bias=False, use_weight=False)
    assert layer.parameters() == []
    assert layer(x).shape == x.shape
    assert RMSNorm(5, use_weight=False).parameters() == []


# ---------------------------------------------------------------- cross-entropy


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
