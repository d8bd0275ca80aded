"""LayerNorm and RMSNorm: closed forms, what they are invariant to, PyTorch, errors."""

import numpy as np
import pytest

from layers import LayerNorm, RMSNorm
from tests.compare import assert_same


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
