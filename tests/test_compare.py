"""The comparison that all tests trust lets rounding through and nothing else."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same


def test_rounding_is_let_through():
    assert_same({"x": [np.ones(3), 2.0]}, {"x": [mg.tensor(np.ones(3) + 1e-13), 2.0]})
    assert_same(np.float32([1.0, 1e-9]), np.float32([1.0 + 1e-6, 0.0]))


@pytest.mark.parametrize(
    ("found", "expected", "says"),
    [
        (np.ones((2, 3)), np.ones((3, 2)), r"shape \(2, 3\), expected \(3, 2\)"),
        (np.float32([1.0]), np.array([1.0]), "dtype float32, expected float64"),
        ([1.0, 2.0], [1.0, 2.0 + 1e-10], "Not equal to tolerance rtol=1e-12, atol=2e-12"),
        ({"x": 1.0}, {"y": 1.0}, r"\['x'\], not \['y'\]"),
        ([np.ones(2)], [np.ones(2), np.ones(2)], "1, not 2"),
    ],
)
def test_anything_else_is_not(found, expected, says):
    with pytest.raises(AssertionError, match=says):
        assert_same(found, expected)
