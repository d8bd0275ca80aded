"""NumPy's functions and arrays of every kind beside a Tensor: recorded, read, or refused."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import DTypeError, GradientError
from tests.compare import refusals

ARRAY = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


@pytest.fixture
def x():
    return mg.tensor(ARRAY, requires_grad=True)


@pytest.mark.parametrize(
    "f",
    [
        np.absolute, np.amin, np.amax, lambda x: np.add(1, x), lambda x: np.concatenate([ARRAY, x]),
    ],
)  # fmt: skip
def test_a_function_that_is_an_op_records_it(f, x):
    out = f(x)
    assert isinstance(out, mg.Tensor)
    np.testing.assert_allclose(out.data, f(ARRAY))
    assert mg.grad(out, x, np.ones(out.shape)).shape == (2, 3)


@pytest.mark.parametrize(
    "f",
    [
        np.shape, np.ndim, np.size, np.isfinite, np.isnan, lambda x: np.greater(x, 2),
        lambda x: np.allclose(x, ARRAY), lambda x: np.array_equal(x, ARRAY),
    ],
)  # fmt: skip
def test_a_question_is_answered_plainly(f, x):
    out = f(x)
    assert not isinstance(out, mg.Tensor)
    np.testing.assert_array_equal(out, f(ARRAY))


def test_an_array_is_not_overwritten_by_a_tensor_in_place(x):
    a = np.ones((2, 3))
    with pytest.raises(DTypeError, match=r"np\.add on a Tensor would not be recorded"):
        a += x
    a[:] = x.numpy()  # an explicit copy out of the graph
    np.testing.assert_allclose(a, ARRAY)


@pytest.mark.parametrize("scalar", [np.float64(2.0), np.sqrt(4), np.int64(2)])
def test_a_scalar_of_numpy_does_not_widen_float32(scalar):
    """√3 is a float64 to NumPy, and the whole model after a division by it would be."""
    x = mg.tensor(np.ones(3, np.float32), requires_grad=True)
    for out in (x / scalar, scalar * x, x + scalar, x**scalar, np.multiply(scalar, x)):
        assert out.dtype == np.float32
        assert mg.grad(out.sum(), x).dtype == np.float32


class Foreign:
    """An array of another library."""

    dtype = "theirs"
    shape = (1, 3)

    def __dlpack__(self, **options):
        raise AssertionError("read in silence")

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("read in silence")


STRANGE = [
    Foreign(), [Foreign()], np.array([[1, 2, 3]], object), np.array([["2020-01-01"]], "M8[D]"),
    np.ma.masked_array([[1.0, 2.0, 3.0]], [[0, 1, 0]]), "text", {"a": 1}, [1.0, None],
    [[1], [1, 2]],
]  # fmt: skip


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: type(value).__name__)
def test_what_holds_no_plain_numbers_is_refused_by_every_way_in(strange, x):
    ways = [
        mg.exp, mg.tensor, lambda a: mg.multiply(a, 2.0), lambda a: mg.add(x, a),
        lambda a: mg.stack([x, a]), lambda a: mg.matmul(mg.ones((5, 1)), a),
    ]  # fmt: skip
    for way in ways:
        with pytest.raises(DTypeError, match=r"got a|not an array of numbers"):
            way(strange)


def test_numpy_shares_the_memory_and_may_not_write_to_it(x):
    with mg.no_grad():
        seen = np.asarray(x)
        with pytest.raises(ValueError, match="read-only"):
            seen[0] = 7
        own = np.array(x)
    own[0] = 7
    x.assign_(x.numpy() + 1)
    np.testing.assert_array_equal(seen, ARRAY + 1)


X = mg.tensor(ARRAY, requires_grad=True)
LEFT = "on a Tensor would not be recorded"
test_what_would_leave_the_graph_is_refused = refusals(
    (lambda: np.asarray(X), GradientError, "gradient"),
    (lambda: np.array([X, X]), GradientError, "gradient"),
    (lambda: np.zeros((2, 3)).__setitem__(slice(None), X), GradientError, "gradient"),
    (lambda: mg.tensor([X, X]), DTypeError, r"list of Tensors; write mg\.stack"),
    (lambda: X * [X, X], DTypeError, r"list of Tensors; write mg\.stack"),
    (lambda: np.sinh(X), DTypeError, rf"np\.sinh {LEFT}; use x\.numpy\(\) to leave"),
    (lambda: np.linalg.inv(X), DTypeError, rf"np\.inv {LEFT}; use x\.numpy\(\)"),
    (lambda: np.add.reduce(X), DTypeError, rf"np\.add {LEFT}; call mg\.add"),
    (lambda: np.exp(X, where=ARRAY > 1), DTypeError, "call mg.exp with its own arguments"),
    (lambda: np.sum(X, 0, np.float32), DTypeError, "call mg.sum with its own arguments"),
)  # fmt: skip
