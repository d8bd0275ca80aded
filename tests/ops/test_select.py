"""Picking entries: every kind of index NumPy has, and where gradients land."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine import sparse
from tests.compare import assert_same

INDICES = {
    "integer": 1,
    "negative": -1,
    "numpy integer": np.int64(2),
    "0-d array": np.array(1),
    "slice": slice(1, 3),
    "reversed": slice(None, None, -1),
    "empty": slice(0, 0),
    "all": (),
    "ellipsis": Ellipsis,
    "new axes": (None, 1, ..., None),
    "mixed": (slice(None, None, 2), 0, slice(1, None)),
    "list": [0, 2, 0],
    "negative list": [-1, 0, -1],
    "no rows": [],
    "array": np.array([[0, 2], [2, 2]]),
    "pairs": ([0, 2, 0], [1, 4, 1]),
    "array after slice": (slice(None), [4, 0, 4]),
    "arrays around a slice": ([0, 0, 2], slice(None), [1, 1, 3]),
    "grid": np.ix_([0, 2], [1, 1], [3, 0]),
    "array and integer": (1, [0, 0]),
    "array and new axis": (None, [0, 0]),
    "boolean rows": np.array([True, False, True]),
    "boolean list": [True, False, True],
    "boolean inside": (1, np.array([True, False, True, True, False])),
    "true": True,
    "false": False,
    "unsigned": np.array([0, 2, 0], np.uint8),
}


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
    x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    i = mg.tensor(np.array([2, 2, 0]))
    np.testing.assert_allclose(mg.grad(x[i].sum(), x), [1, 0, 2])
    np.testing.assert_allclose(mg.grad(x[mg.tensor(np.array(1))], x), [0, 1, 0])
    y = mg.tensor(np.ones((2, 3)), requires_grad=True)
    np.testing.assert_allclose(mg.grad(y[:, i].sum(), y), [[1, 0, 2], [1, 0, 2]])


def test_basic_indices_give_views():
    x = mg.tensor(np.ones((3, 5)))
    assert np.shares_memory(x[1:].data, x.data)
    assert not np.shares_memory(x[[1, 2]].data, x.data)


# ---------------------------------------------------------------- split


@pytest.mark.parametrize(
    ("cut", "axis"),
    [(2, 1), (3, 0), ([1], 0), ([1, 4], 1), ([-1], -1), ([0, 9], 1), ([], 0), ([3, 1], 1)],
)
def test_split_is_numpys(cut, axis, rng):
    x = rng.normal(size=(3, 6))
    leaf = mg.tensor(x, requires_grad=True)
    parts = mg.split(leaf, cut, axis)
    expected = np.split(x, cut, axis)
    assert len(parts) == len(expected)
    assert_same(parts, expected, 0)
    if cut not in ([3, 1],):
        total = sum((part.sum() for part in parts), start=mg.tensor(0.0))
        np.testing.assert_allclose(mg.grad(total, leaf), np.ones((3, 6)))


def test_what_slices_send_back_is_added_in_one_array(rng, monkeypatch):
    made, onto = [], sparse.SparseGradient.onto

    def counted(self, total, in_place=False):
        made.extend([] if in_place else [self.shape])
        return onto(self, total, in_place)

    monkeypatch.setattr(sparse.SparseGradient, "onto", counted)
    x = mg.tensor(rng.normal(size=(5, 7, 3)), requires_grad=True)
    parts = [x[:, t] * float(t) for t in range(7)] + [x[1], x[[0, 0, 2]], mg.take(x, [4, -1], 0)]
    sum(mg.sum(part) for part in parts).backward()
    expected = np.zeros((5, 7, 3)) + np.arange(7.0)[:, None]
    np.add.at(expected, [1, 0, 0, 2, 4, 4], 1.0)
    np.testing.assert_allclose(x.grad, expected, rtol=1e-15)
    assert made == [(5, 7, 3)]


def test_a_gradient_that_someone_else_has_is_not_written_over_by_a_slice(rng):
    x, c = (mg.tensor(rng.normal(size=(5, 3)), requires_grad=True) for _ in range(2))
    u = rng.normal(size=(5, 3))
    row = x[2]
    y = x + c  # its rule hands the very same array to both
    held = []
    y.register_hook(held.append)
    mg.sum(y * u + row).backward()
    expected = u.copy()
    expected[2] += 5
    np.testing.assert_allclose(x.grad, expected, rtol=1e-15)
    np.testing.assert_array_equal(c.grad, u)
    np.testing.assert_array_equal(held[0], u)


def test_whoever_listens_sees_a_slices_gradient_as_an_array(rng):
    x = mg.tensor(rng.normal(size=(5, 3)), requires_grad=True)
    part, found = (x * 1.0)[1:3], []

    class Heard(mg.Listener):
        def backward(self, node, gradient, contributions, seconds):
            found.extend(contributions if node is part.node else [])

    part.node.register_hook(lambda contributions, gradient: found.extend(contributions))
    with mg.listen(Heard()):
        mg.sum(part).backward()
    assert [type(array) for array in found] == [np.ndarray] * 2
    np.testing.assert_array_equal(found[0], np.pad(np.ones((2, 3)), ((1, 2), (0, 0))))
    np.testing.assert_array_equal(x.grad, found[0])


@pytest.mark.parametrize("rows", [11, 70, 300, 40_000])
def test_embedding_gradients_add_up_each_row_as_often_as_it_was_taken(rows, rng):
    x = mg.tensor(rng.normal(size=(rows, 17)), requires_grad=True)
    index = rng.integers(-rows, rows, (13, 31))
    index[:4] = index[0, 0]  # one of them very often
    g = rng.normal(size=(13, 31, 17))
    mg.take(x, index, axis=0).backward(g)
    expected = np.zeros((rows, 17))
    np.add.at(expected, index, g)
    np.testing.assert_allclose(x.grad, expected, rtol=1e-12, atol=1e-12)
