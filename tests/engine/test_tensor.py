"""Tensor as Python sees it: making, converting, comparing, printing, operators and methods."""

import copy
import operator
import pickle

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError
from tests.compare import refusals

ARRAY = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


@pytest.fixture
def x():
    return mg.tensor(ARRAY, requires_grad=True)


# ---------------------------------------------------------------- making one


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, np.int64, np.int32, np.bool_, np.complex128]
)
def test_an_array_keeps_its_dtype(dtype):
    assert mg.tensor(np.ones(3, dtype)).dtype == dtype
    assert mg.tensor(dtype(1)).dtype == dtype


# ---------------------------------------------------------------- what it is


def test_one_entry_converts_to_a_number():
    one = mg.tensor([[2.5]])
    assert (one.item(), float(one), int(one), bool(one)) == (2.5, 2.5, 2, True)
    assert (round(one, 1), f"{one:.2f}") == (2.5, "2.50")
    assert type(one.item()) is float
    assert "abc"[mg.tensor(np.array(1))] == "b"


def test_iteration_gives_rows_in_the_graph(x):
    rows = list(x)
    assert [row.shape for row in rows] == [(3,), (3,)]
    (rows[0] * 2 + rows[1] * 5).sum().backward()
    np.testing.assert_allclose(x.grad, [[2, 2, 2], [5, 5, 5]])


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_give_plain_boolean_arrays(name, x):
    compare = getattr(operator, name)
    for other in (3.0, ARRAY.T[:, :1].T, mg.tensor(np.full((2, 3), 3.0))):
        found = compare(x, other)
        assert type(found) is np.ndarray
        assert found.dtype == bool
        np.testing.assert_array_equal(found, compare(ARRAY, np.asarray(other)))
    np.testing.assert_array_equal(compare(np.full((2, 3), 3.0), x), compare(3.0, ARRAY))


def test_printing_says_what_matters(x):
    assert repr(mg.tensor([1.0, 2.0])) == "tensor([1., 2.])"
    assert repr(mg.tensor(np.float32([1]), requires_grad=True, name="w")) == (
        "tensor([1.], dtype=float32, name='w', requires_grad=True)"
    )
    assert repr((x * 2)[0].named("y")) == "tensor([2., 4., 6.], name='y', op=getitem)"
    assert repr(mg.tensor(3.0)) == "tensor(3.)"
    assert repr(mg.tensor([])) == "tensor([])"
    assert len(repr(mg.tensor(np.zeros((100, 100))))) < 500


@pytest.mark.parametrize(
    "again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy]
)
def test_a_leaf_is_copied_and_pickled_and_a_graph_is_not(x, again):
    x.grad = np.ones((2, 3))
    twin = again(x.named("x"))
    assert (twin.name, twin.requires_grad, twin.dtype) == ("x", True, x.dtype)
    np.testing.assert_array_equal(twin.numpy(), x.numpy())
    np.testing.assert_array_equal(twin.grad, x.grad)
    twin.assign_(np.zeros((2, 3)))
    assert x.numpy().any()
    with pytest.raises(GradientError, match="multiply was computed by multiply, and a graph is no"):
        again(x * 2)
    assert again(mg.gelu) is mg.gelu  # an op goes by its name


# ---------------------------------------------------------------- operators

OPERATORS = ["add", "sub", "mul", "truediv", "pow"]


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    "other",
    [2.0, 2, np.float64(2.0), np.array([2, 1, 3]), mg.tensor([2.0, 1.0, 3.0])],
)
def test_an_operator_and_its_reflection_are_numpys(name, other, x):
    apply = getattr(operator, name)
    plain = np.asarray(other) if isinstance(other, mg.Tensor) else other
    for out, expected in (
        (apply(x, other), apply(ARRAY, plain)),
        (apply(other, x), apply(plain, ARRAY)),
    ):
        assert isinstance(out, mg.Tensor)
        np.testing.assert_allclose(out.data, expected)
        x.grad = None
        out.sum().backward()
        assert x.grad.shape == (2, 3)


# ---------------------------------------------------------------- methods


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(axis=(0, 1), keepdims=True), lambda x: x.var(ddof=1), lambda x: x.max(-1),
        lambda x: -x, lambda x: abs(x), lambda x: x.reshape(3, 2), lambda x: x.reshape((3, 2)),
        lambda x: x.transpose(1, 0), lambda x: x.T, lambda x: x.mT, lambda x: x.flatten(),
    ],
)  # fmt: skip
def test_a_method_is_numpys(call, x):
    out, expected = call(x), call(ARRAY)
    assert out.dtype == expected.dtype
    np.testing.assert_allclose(out.data, expected)
    assert out.node is not None


X = mg.tensor(ARRAY, requires_grad=True)

test_what_is_refused = refusals(
    (lambda: mg.tensor(np.arange(3), True), DTypeError, "only real floats have gradients, got int"),
    (lambda: mg.tensor([1.0], np.float32), ArgumentError, "requires_grad is True or False, got"),
    (lambda: mg.tensor([1.0], dtype="floaty"), DTypeError, "data type 'floaty' not understood"),
    (lambda: mg.zeros(2, np.float32), DTypeError, "a dtype goes by keyword"),
    (lambda: mg.tensor(1.0, name=""), ArgumentError, r"named\(name\): a name is a non-empty str"),
    (lambda: float(X), ShapeError, r"item\(\): takes a tensor of one entry"),
    (lambda: f"{X:.2f}", ShapeError, r"item\(\): takes a tensor of one entry"),
    (lambda: bool(X), ValueError, "ambiguous"),
    (lambda: X // 2, TypeError, "unsupported operand"),
    (lambda: setattr(X, "note", 1), AttributeError, "note"),
    (lambda: iter(mg.tensor(1.0)), ShapeError, "iteration over a 0-d tensor"),
)  # fmt: skip
