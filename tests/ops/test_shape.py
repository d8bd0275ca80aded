"""Moving entries: NumPy's results, and gradients moved back."""

import numpy as np
import pytest

import minigrad as mg


@pytest.fixture
def x(rng):
    return mg.tensor(rng.normal(size=(2, 3, 5)), requires_grad=True)


def test_joining_tensors_with_plain_arrays_and_other_dtypes(x):
    small = mg.tensor(np.ones((2, 3, 5), np.float32), requires_grad=True)
    out = mg.concatenate([np.zeros((2, 3, 5)), x, small])
    assert out.dtype == np.float64
    assert [g.dtype for g in mg.grad(out.sum(), [x, small])] == [np.float64, np.float32]


@pytest.mark.parametrize(
    "width",
    [1, 0, (1, 2), ((0, 2), (1, 0), (3, 1)), ((1, 2),), ((1,), (2,), (0,)), np.array([[1, 0]])],
    ids=str,
)
def test_pad_takes_numpys_widths_and_drops_the_border_backward(width, x):
    out = mg.pad(x, width, 1.5)
    np.testing.assert_array_equal(out.data, np.pad(x.data, width, constant_values=1.5))
    np.testing.assert_array_equal(mg.grad(out, x, out.data), x.data)
