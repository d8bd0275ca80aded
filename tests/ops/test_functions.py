"""Smooth functions: derivatives, extremes, tails."""

import math

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same
from tests.ops.slope import slope


def test_sigmoid_and_silu_neither_overflow_nor_lose_small_values():
    x = mg.tensor([-800.0, -40.0, 0.0, 40.0, 800.0])
    np.testing.assert_allclose(mg.sigmoid(x).data, [0, math.exp(-40), 0.5, 1, 1], rtol=1e-15)
    np.testing.assert_allclose(mg.silu(x).data, [0, -40 * math.exp(-40), 0, 40, 800], rtol=1e-15)
    assert_same(slope(mg.sigmoid, x.data), [0, math.exp(-40), 0.25, 0, 0], 1e-15)


def test_exact_gelu_keeps_its_small_tail():
    """x Φ(x) at -10 is about -7.6e-23; 1 + erf would round it to 0."""
    expected = -10 * 0.5 * math.erfc(10 / math.sqrt(2))
    np.testing.assert_allclose(mg.gelu(np.array([-10.0, 0.0, 10.0])), [expected, 0, 10], rtol=1e-13)


@pytest.mark.parametrize("op", [mg.sigmoid, mg.silu])
def test_a_logistic_of_unsigned_integers_is_that_of_their_values(op):
    """-x of a uint8 wraps around; the values are computed as floats."""
    x = np.array([0, 1, 3], np.uint8)
    np.testing.assert_array_equal(op(x), op(x.astype(np.float64)))
    assert np.all(np.diff(op(x)) > 0)
