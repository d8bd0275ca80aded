"""Kinks, ties, ends, choices, casts."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same
from tests.ops.slope import slope


def test_clip_passes_inside_and_at_its_ends():
    x = [-2.0, -1.0, 0.0, 1.0, 2.0]
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, -1, 1), x), [0, 1, 1, 1, 0])
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, low=-1), x), [0, 1, 1, 1, 1])
    np.testing.assert_allclose(slope(lambda x: mg.clip(x, high=1), x), [1, 1, 1, 1, 0])
    np.testing.assert_allclose(slope(mg.clip, x), [1, 1, 1, 1, 1])


def test_clips_bounds_may_be_arrays_that_widen_the_result():
    assert_same(mg.clip(mg.tensor([0.0, 5.0]), np.array([[1.0], [2.0]])), [[1, 5], [2, 5]], 1e-7)
    assert_same(slope(lambda x: mg.clip(x, np.array([[1.0], [-2.0]])), [0.0, 5.0]), [1, 2], 1e-7)


def test_where_hides_a_bad_branch_forward_but_the_safe_input_must_be_chosen_first():
    """0 · inf is NaN: the gradient of log at a masked 0. With a safe input there is none."""
    x = np.array([0.0, 2.0])
    safe = slope(lambda x: mg.where(x.data > 0, mg.log(mg.where(x.data > 0, x, 1.0)), 0.0), x)
    np.testing.assert_allclose(safe, [0, 0.5])


def test_where_takes_a_tensor_as_condition():
    x = mg.tensor([1.0, -1.0])
    np.testing.assert_allclose(mg.where(mg.tensor(x > 0), x, 0.0).data, [1, 0])


def test_casting_down_and_up_keeps_each_sides_dtype():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    y = x.astype(np.float32)
    assert y.dtype == np.float32
    (y * y).sum().backward()
    assert x.grad.dtype == np.float64
    np.testing.assert_allclose(x.grad, [2, 4])


@pytest.mark.parametrize("op", [mg.relu, mg.abs, mg.maximum, mg.clip, mg.where])
def test_an_infinite_gradient_is_nothing_where_the_other_side_was_taken(op):
    """Zero times infinity would be NaN."""
    x = mg.tensor([-1.0, 2.0, 5.0], requires_grad=True)
    calls = {
        mg.maximum: lambda: op(x, 0.0),
        mg.clip: lambda: op(x, 0.0, 10.0),
        mg.where: lambda: op(x.data > 0, x, 0.0),
    }
    out = calls.get(op, lambda: op(x))()
    with np.errstate(all="raise"):
        out.backward(np.array([np.inf, np.inf, 3.0]))
    expected = [-np.inf if op is mg.abs else 0.0, np.inf, 3.0]
    np.testing.assert_array_equal(x.grad, expected)
