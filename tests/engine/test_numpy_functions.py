"""NumPy's functions on a Tensor, and lists of Tensors: recorded as an op or refused, never lost."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import DTypeError, GradientError, ShapeError
from tests.compare import refusals

ARRAY = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


@pytest.fixture
def x():
    return mg.tensor(ARRAY, requires_grad=True)


@pytest.mark.parametrize(
    "f",
    [
        np.absolute, np.amin, np.amax, lambda x: np.permute_dims(x, (1, 0)), np.ravel,
        lambda x: np.add(1, x), lambda x: np.concatenate([ARRAY, x]), lambda x: np.clip(x, 2, 5),
    ],
)  # fmt: skip
def test_a_function_of_another_name_or_with_arrays_beside_records_an_op(f, x):
    """Those of an op's own name are in tests/ops/test_registry.py."""
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


X = mg.tensor(ARRAY, requires_grad=True)
LEFT = "on a Tensor would not be recorded"

test_what_would_leave_the_graph_is_refused = refusals(
    *((lambda f=f: f(X), GradientError, "gradient")
      for f in (
          np.asarray, np.array, lambda x: np.array([x, x]), lambda x: np.full(2, x[0, 0]),
          lambda x: np.zeros((2, 3)).__setitem__(slice(None), x),
          lambda x: mg.tensor([x, x], requires_grad=True),
      )),
    (lambda: np.sinh(X), DTypeError, rf"np\.sinh {LEFT}; use x\.numpy\(\) to leave"),
    (lambda: np.linalg.inv(X), DTypeError, rf"np\.inv {LEFT}; use x\.numpy\(\)"),
    (lambda: np.median(X), DTypeError, rf"np\.median {LEFT}"),
    (lambda: np.add.reduce(X), DTypeError, rf"np\.add {LEFT}; call minigrad\.add"),
    (lambda: np.add(X, 1, out=np.empty((2, 3))), DTypeError,
     r"call minigrad\.add with its own arguments"),
    (lambda: np.exp(X, where=ARRAY > 1), DTypeError, r"call minigrad\.exp with its own arguments"),
    (lambda: np.sum(X, dtype=np.float32), DTypeError, "got an unexpected keyword argument 'dtype'"),
    (lambda: np.sum(X, 0, np.float32), DTypeError, r"call minigrad\.sum with its own arguments"),
    (lambda: np.max(X, 0, np.empty(3)), DTypeError, r"call minigrad\.max with its own arguments"),
)  # fmt: skip


def test_an_array_is_not_overwritten_by_a_tensor_in_place(x):
    a = np.ones((2, 3))
    with pytest.raises(DTypeError, match=r"np\.add on a Tensor would not be recorded"):
        a += x
    a[:] = x.numpy()  # an explicit copy out of the graph
    np.testing.assert_allclose(a, ARRAY)


# ---------------------------------------------------------------- lists of Tensors


@pytest.fixture
def leaves():
    return (
        mg.tensor(2.0, requires_grad=True, name="a"),
        mg.tensor(3.0, requires_grad=True, name="b"),
        mg.tensor([5.0, 7.0], requires_grad=True, name="x"),
    )


STACKED = {
    "multiply": lambda a, b, x: x * [a * b, b],
    "reflected": lambda a, b, x: [a * b, b] * x,
    "add": lambda a, b, x: mg.add(x, (a * b, b)),
    "maximum": lambda a, b, x: mg.maximum([a * b, b], x),
    "where": lambda a, b, x: mg.where([True, False], [a * b, b], x),
    "matmul": lambda a, b, x: mg.matmul([[a * b, b], [b, a]], x),
    "einsum": lambda a, b, x: mg.einsum("i,i->i", x, [a * b, b]),
    "sum": lambda a, b, x: mg.sum([a * b, b]) * x,
    "mean": lambda a, b, x: mg.mean((a * b, b)) * x,
    "concatenate": lambda a, b, x: mg.concatenate([[a * b, b], x]),
    "nested": lambda a, b, x: mg.sum([[a * b, b], [x[0], x[1]]], axis=0),
    "numbers beside": lambda a, b, x: x * [a * b, 1.0],
}


@pytest.mark.parametrize("call", STACKED.values(), ids=STACKED)
def test_a_list_of_tensors_gets_the_gradient_of_the_stack_written_out(call, leaves):
    assert mg.gradcheck(call, leaves)
    assert any(np.any(g) for g in mg.grad(call(*leaves).sum(), leaves[:2]))


def test_lists_of_unequal_lengths_are_refused_by_the_call(leaves):
    a, _, x = leaves
    with pytest.raises(ShapeError, match=r"stack\(arrays, axis\): all input arrays must have"):
        mg.add(x, [a, [1.0, 2.0]])
