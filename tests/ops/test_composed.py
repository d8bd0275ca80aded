"""What is composed of ops is NumPy's, and its gradient the numeric derivative; argmax and the like
look at arrays alone.
"""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, OutOfRangeError, ShapeError
from tests.compare import assert_same, refusals

X = np.random.default_rng(0).permutation(np.linspace(-2, 2, 30)).reshape(2, 3, 5)
Y = np.random.default_rng(1).uniform(-1, 1, (5, 3, 7))
PAIR = X[0], Y[0]

TABLE = [
    ("ravel", lambda f, x: f.ravel(x), [X]),
    ("moveaxis", lambda f, x: f.moveaxis(x, (0, 2), (-1, 0)), [X]),
    ("vstack", lambda f, x, y: f.vstack([x, y]), [X[0, 0], X[1]]),
    ("hstack", lambda f, x, y: f.hstack([x, y]), PAIR),
    ("hstack-rows", lambda f, x, y: f.hstack([x, y]), [X[0, 0], Y[0, 0]]),
    ("tile", lambda f, x: f.tile(x, (2, 1, 3, 2)), [X]),
    ("tile-once", lambda f, x: f.tile(x, 2), [X]),
    ("outer", lambda f, x, y: f.outer(x, y), PAIR),
    ("tensordot", lambda f, x, y: f.tensordot(x, y, 1), [X, Y]),
    ("tensordot-pairs", lambda f, x, y: f.tensordot(x, y, ([1, -1], [1, 0])), [X, Y]),
    ("tensordot-all", lambda f, x, y: f.tensordot(x, y, 2), [X[0], X[1]]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "arrays"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_a_composed_function_is_numpys(call, arrays):
    expected = call(np, *arrays)
    np.testing.assert_allclose(call(mg, *arrays), expected, rtol=1e-13, atol=1e-15)
    leaves = [mg.tensor(a, requires_grad=True) for a in arrays]
    for module in (mg, np):  # np.outer(x, y) of Tensors is the same function
        found = call(module, *leaves)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-13, atol=1e-15)
    assert mg.gradcheck(lambda *xs: call(mg, *xs), arrays, order=2).order == 2


def test_where_entries_are_is_numpys_answer_and_a_plain_array():
    x = mg.tensor(X, requires_grad=True)
    for name in ("argmax", "argmin", "argsort"):
        found = getattr(x, name)(axis=1)
        assert not isinstance(found, mg.Tensor)
        np.testing.assert_array_equal(found, getattr(np, name)(X, axis=1))
        np.testing.assert_array_equal(getattr(mg, name)(X), getattr(np, name)(X))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_topk_is_pytorchs(axis, agree_with_torch):
    torch = pytest.importorskip("torch")
    agree_with_torch(lambda x: mg.topk(x, 2, axis)[0], lambda x: torch.topk(x, 2, axis).values, [X])
    assert_same(mg.topk(X, 2, axis)[1], torch.topk(torch.tensor(X), 2, axis).indices, 0)


def test_a_product_with_zeros_has_the_products_of_the_others_for_gradient():
    x = mg.tensor([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]], requires_grad=True)
    mg.prod(x, axis=1).sum().backward()
    np.testing.assert_array_equal(x.grad, [[0, 6, 0], [0, 0, 0]])


test_what_is_refused = refusals(
    (lambda: mg.topk(X, 6), ArgumentError, r"k must lie in \[0, 5\], got 6"),
    (lambda: mg.moveaxis(X, 3, 0), ShapeError, "axis 3 is out of bounds"),
    (lambda: mg.tensordot(X, Y), ShapeError, r"got \(3, 5\) and \(5, 3\)"),
    (lambda: mg.pad(X, 1, mode="mirror"),
     ArgumentError, "constant, edge, reflect, symmetric, wrap"),
    (lambda: mg.norm(X[0], 2), ArgumentError, "ord must be None, or 2 along one axis"),
    (lambda: np.linalg.norm(mg.tensor(X[0]), 1), ArgumentError, "got 1"),
    (lambda: mg.take_along_axis(X, np.array([[[9]]]), 2), OutOfRangeError, "out of bounds"),
)  # fmt: skip
