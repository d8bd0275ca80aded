"""Moving entries: NumPy's results, and gradients moved back."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, ShapeError


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


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (
            lambda x: x.reshape(7, 2),
            r"reshape\(x, shape\): cannot reshape .* into shape \(7,2\)\n  x: \(2, 3, 5\)",
        ),
        (lambda x: mg.transpose(x, (0, 1)), r"transpose\(x, axes\): axes don't match array"),
        (lambda x: mg.transpose(x, (0, 0, 1)), r"transpose\(x, axes\): repeated axis"),
        (
            lambda x: mg.swapaxes(x, 0, 3),
            r"swapaxes\(x, axis1, axis2\): axis2: axis 3 is out of bounds",
        ),
        (lambda x: mg.expand_dims(x, 5), r"expand_dims\(x, axis\): axis 5 is out of bounds"),
        (lambda x: mg.squeeze(x, 0), r"squeeze\(x, axis\): cannot select an axis to squeeze out"),
        (
            lambda x: mg.broadcast_to(x, (3, 5)),
            r"broadcast_to\(x, shape\): input operand has more dimensions",
        ),
        (
            lambda x: mg.concatenate([x, x[0]]),
            r"concatenate\(arrays, axis\): .*\n  arrays\[0\]: \(2, 3, 5\)",
        ),
        (lambda x: mg.concatenate([]), r"concatenate\(arrays, axis\): need at least one array"),
        (
            lambda x: mg.stack([x, x[:, :1]]),
            r"stack\(arrays, axis\): all input arrays must have the same shape",
        ),
        (
            lambda x: mg.pad(x, -1),
            r"pad\(x, pad_width, constant_values, mode\): index can't contain negative values",
        ),
        (lambda x: mg.pad(x, (1, 2, 3)), r"pad\(x, pad_width, constant_values, mode\): "),
    ],
)
def test_what_does_not_fit_is_named(f, text, x):
    with pytest.raises(ShapeError, match=text):
        f(x)


def test_pads_widths_are_integers_and_its_constant_one_number(x):
    with pytest.raises(
        DTypeError,
        match=r"mode\): pad_width must be integers, got float64",
    ):
        mg.pad(x, 1.5)
    with pytest.raises(ArgumentError, match="constant_values must be one number"):
        mg.pad(x, 1, (1.0, 2.0))
