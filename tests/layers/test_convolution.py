"""Convolution, pooling and their norms: as PyTorch's, at both orders, and closed forms."""

import numpy as np
import pytest

import minigrad as mg


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
