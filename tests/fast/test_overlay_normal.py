"""Φ is right in its last digits, far into the tail, in every dtype."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.overlays.normal import normal_cdf_of

gelu = mg.gelu.overlay.kernel


def exact_at(x):
    return np.array([0.5 * math.erfc(-entry / math.sqrt(2)) for entry in x.tolist()])


@pytest.mark.parametrize(("dtype", "low", "ulp"), [(np.float16, -16, 1), (np.float64, -1, 6)])
def test_it_is_right_to_the_last_digits_of_its_dtype(dtype, low, ulp, rng):
    """In float64 only where erfc, given a rounded x / √2, is right to 2."""
    x = np.concatenate([rng.uniform(low, 9, 4000), rng.uniform(-1, 2, 4000), [0.0, -0.0]])
    x = x.astype(dtype)
    exact, found = exact_at(x), normal_cdf_of(x)
    assert found.dtype == dtype
    gaps = np.abs(found.astype(np.float64) - exact) / np.spacing(exact.astype(dtype))
    assert gaps.max() <= ulp


def test_in_float32_it_is_right_to_six_digits_far_into_the_tail_and_to_seven_in_all(rng):
    x = np.concatenate([rng.uniform(-13, 9, 9000), rng.uniform(-1, 2, 9000)]).astype(np.float32)
    found = normal_cdf_of(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact_at(x), rtol=5e-6, atol=0)
    np.testing.assert_allclose(found, exact_at(x), rtol=0, atol=2e-7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_it_knows_its_ends_and_nan(dtype):
    x = np.array([-np.inf, -1e4, 1e4, np.inf, np.nan] * 200, dtype)
    np.testing.assert_array_equal(normal_cdf_of(x), [0.0, 0.0, 1.0, 1.0, np.nan] * 200)


def test_exact_gelu_of_many_entries_is_the_c_librarys():
    """Within 6 of 0 the reference is right to 30 units in the last place, as it takes the rounded
    x/√2; in the far tail to fewer digits.
    """
    x = np.linspace(-37, 37, 7001)
    expected = np.array([v * math.erfc(-v * math.sqrt(0.5)) / 2 for v in x])
    near = np.abs(x) < 6
    np.testing.assert_allclose(gelu(x)[0][near], expected[near], rtol=1e-14)
    np.testing.assert_allclose(gelu(x)[0], expected, rtol=1e-12)
