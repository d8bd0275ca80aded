"""Picking entries: every kind of index NumPy has, and where gradients land."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

INDICES = {
    "integer": 1, "numpy integer": np.int64(2), "0-d array": np.array(1), "slice": slice(1, 3),
    "reversed": slice(None, None, -1), "empty": slice(0, 0), "all": (), "ellipsis": Ellipsis,
    "new axes": (None, 1, ..., None), "mixed": (slice(None, None, 2), 0, slice(1, None)),
    "list": [0, 2, 0], "negative list": [-1, 0, -1], "no rows": [],
    "array": np.array([[0, 2], [2, 2]]), "pairs": ([0, 2, 0], [1, 4, 1]),
    "array after slice": (slice(None), [4, 0, 4]), "grid": np.ix_([0, 2], [1, 1], [3, 0]),
    "arrays around a slice": ([0, 0, 2], slice(None), [1, 1, 3]), "array and integer": (1, [0, 0]),
    "boolean rows": np.array([True, False, True]), "true": True, "false": False,
    "boolean inside": (1, np.array([True, False, True, True, False])),
    "unsigned": np.array([0, 2, 0], np.uint8),
}  # fmt: skip


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())
def test_an_index_picks_what_numpy_picks_and_its_gradient_lands_there(index, rng):
    x = rng.normal(size=(3, 5, 7))
    leaf = mg.tensor(x, requires_grad=True)
    out = leaf[index]
    np.testing.assert_array_equal(out.data, x[index])
    u = rng.normal(size=out.shape)
    expected = np.zeros(x.shape)
    np.add.at(expected, index, u)
    np.testing.assert_allclose(mg.grad(out, leaf, u), expected, rtol=1e-15)
    assert_same(mg.grad(leaf[index], leaf, u, create_graph=True), expected, 1e-15)


def test_tensors_may_be_indices():
    x, i = mg.tensor([1.0, 2.0, 3.0], requires_grad=True), mg.tensor(np.array([2, 2, 0]))
    np.testing.assert_allclose(mg.grad(x[i].sum(), x), [1, 0, 2])


@pytest.mark.parametrize(
    ("cut", "axis"), [(2, 1), (3, 0), ([1], 0), ([1, 4], 1), ([-1], -1), ([0, 9], 1), ([], 0)]
)
def test_split_is_numpys(cut, axis, rng):
    leaf = mg.tensor(rng.normal(size=(3, 6)), requires_grad=True)
    parts = mg.split(leaf, cut, axis)
    assert_same(parts, np.split(leaf.numpy(), cut, axis), 0)
    total = sum((part.sum() for part in parts), start=mg.tensor(0.0))
    np.testing.assert_allclose(mg.grad(total, leaf), np.ones((3, 6)))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("ravel", lambda f, x: f.ravel(x)),
        ("moveaxis", lambda f, x: f.moveaxis(x, (0, 2), (-1, 0))),
        ("expand_dims", lambda f, x: f.expand_dims(x, (0, -1))),
        ("squeeze", lambda f, x: f.squeeze(x[:, :1])),
        ("squeeze of an axis", lambda f, x: f.squeeze(x[:1, :, :1], -1)),
        ("repeat", lambda f, x: f.repeat(x, 2, axis=1)),
        ("repeat by numbers", lambda f, x: f.repeat(x, [0, 2, 1], axis=1)),
        ("argmax", lambda f, x: f.argmax(x, axis=1)),
    ],
)
def test_a_function_composed_of_ops_is_numpys_and_so_is_numpys_of_a_tensor(name, call, rng):
    x = rng.normal(size=(2, 3, 5))
    leaf, expected = mg.tensor(x, requires_grad=True), call(np, x)
    for module in (mg, np):
        found = call(module, leaf)
        assert isinstance(found, mg.Tensor) is not name.startswith("arg")
        found = found.numpy() if isinstance(found, mg.Tensor) else found
        np.testing.assert_array_equal(found, expected)
    if not name.startswith("arg"):
        mg.gradcheck(lambda x: call(mg, x), x, order=2)


def test_the_gradients_of_many_slices_take_the_memory_of_one_array(rng):
    x = mg.tensor(rng.normal(size=(5, 7, 3)), requires_grad=True)
    parts = [x[:, t] * float(t) for t in range(7)] + [x[1], x[[0, 0, 2]], mg.take(x, [4, -1], 0)]
    sum(mg.sum(part) for part in parts).backward()
    expected = np.zeros((5, 7, 3)) + np.arange(7.0)[:, None]
    np.add.at(expected, [1, 0, 0, 2, 4, 4], 1.0)
    np.testing.assert_allclose(x.grad, expected, rtol=1e-15)
    rule = mg.registry["getitem"].rules["x"].function
    assert not isinstance(rule(np.ones(3), (5, 3), 2), np.ndarray)


def test_a_gradient_that_someone_else_has_is_not_written_over_by_a_slice(rng):
    x, c = (mg.tensor(rng.normal(size=(5, 3)), requires_grad=True) for _ in range(2))
    u = rng.normal(size=(5, 3))
    row = x[2]
    y = x + c  # its rule hands the very same array to both
    mg.sum(y * u + row).backward()
    expected = u.copy()
    expected[2] += 5
    np.testing.assert_allclose(x.grad, expected, rtol=1e-15)
    np.testing.assert_array_equal(c.grad, u)


def test_rows_picked_more_than_once_add_up_in_the_order_in_which_they_were_picked(rng):
    """To the bits of np.add.at, at an index from the end too."""
    index = np.arange(-3, 101) % 5 - 2
    terms = rng.standard_normal((len(index), 7), np.float32)
    total = np.zeros((3, 7), np.float32)
    np.add.at(total, index, terms)
    np.testing.assert_array_equal(mg.scatter_add(terms, index, (3, 7)), total)


def test_long_rows_add_up_along_their_axis_as_short_ones_do(rng):
    """Of zeros, their signs too."""
    x = rng.standard_normal((3, 5, 1031), np.float32)
    x[:, :, 7] = -0.0
    for axis in (0, -2):
        sums = np.cumsum(x.astype(np.float64), axis).astype(np.float32)
        ours = mg.cumsum(x, axis)
        np.testing.assert_array_equal(ours, sums)
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(sums))
