"""Arithmetic: powers, division by zero, shapes that do not fit."""

import numpy as np
import pytest

import minigrad as mg
from tests.ops.slope import slope


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [(0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0), (0.0, 0.0), (1.0, 1.0), (1.5, 0.0)],
)
def test_a_constant_power_at_0_has_its_limit_as_gradient(exponent, expected):
    np.testing.assert_allclose(slope(lambda x: x**exponent, 0.0), expected)
    np.testing.assert_allclose(slope(lambda x: x ** np.array(exponent), 0.0), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [-4, -3, -2, -1, 0, 1, 2, 3, 3.0, 4, 5, 7])
def test_whole_powers_are_numpys_whatever_the_sign(n, dtype):
    a = np.array([-3.0, -1.5, -0.0, 0.0, 0.3, 2.0, np.inf, -np.inf, np.nan], dtype)
    x = mg.tensor(a, requires_grad=True)
    with np.errstate(all="ignore"):
        found, expected = x**n, np.power(a, n)
        np.testing.assert_allclose(found.data, expected, rtol=4 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(np.signbit(found.data[:-1]), np.signbit(expected[:-1]))
        found.backward(np.ones_like(a))
        slope = np.asarray(n * np.power(a, n - 1.0)) if n else np.zeros_like(a) * a
    assert found.dtype == dtype
    finite = np.isfinite(slope)
    np.testing.assert_allclose(x.grad[finite], slope[finite], rtol=8 * np.finfo(dtype).eps)
