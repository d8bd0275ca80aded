"""The graph and its traversal: every use counts, order holds, nothing recurses."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.tensor import order


@pytest.fixture
def x():
    return mg.tensor([2.0, 3.0, 5.0], requires_grad=True, name="x")


# ---------------------------------------------------------------- every use counts


def test_a_stack_of_diamonds_doubles_each_time():
    """Each node runs once: 2^200 paths from end to start, 200 steps."""
    start = y = mg.tensor(1.0, requires_grad=True)
    for _ in range(200):
        y = y + y
    y.backward()
    np.testing.assert_allclose(start.grad, 2.0**200)


def test_a_leaf_that_is_the_output_gets_the_seed(x):
    x.backward(np.array([1.0, 10.0, 100.0]))
    np.testing.assert_allclose(x.grad, [1, 10, 100])


def test_an_input_broadcast_twice_is_summed_over_exactly_those_axes(rng):
    row, column = (mg.tensor(rng.normal(size=s), requires_grad=True) for s in ((1, 5), (3, 1)))
    u = rng.normal(size=(2, 3, 5))
    ((row * column) * mg.tensor(np.ones((2, 1, 1)))).backward(u)
    np.testing.assert_allclose(row.grad, (u * column.data).sum((0, 1))[None], rtol=1e-14)
    np.testing.assert_allclose(column.grad, (u * row.data).sum(0).sum(1)[:, None], rtol=1e-14)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 1, 5), ()])
def test_a_float16_gradient_counts_every_entry_that_an_input_was_broadcast_to(shape):
    """In float16 itself, 2048 ones and one more are 2048."""
    small = mg.tensor(np.zeros(shape, np.float16), requires_grad=True)
    (small + np.zeros((2, 2050, 5), np.float16)).backward(np.ones((2, 2050, 5)))
    times = 2 * 2050 * 5 // small.size
    np.testing.assert_array_equal(small.grad, np.full(shape, times, np.float16))


def test_a_gradient_is_cast_to_its_inputs_dtype():
    w = mg.tensor(np.float32([1, 2]), requires_grad=True)
    b = mg.tensor(np.array([1.0, 2.0]), requires_grad=True)
    out = w * b
    assert out.dtype == np.float64
    out.sum().backward()
    assert (w.grad.dtype, b.grad.dtype) == (np.float32, np.float64)


# ---------------------------------------------------------------- order


def test_nodes_run_newest_first_whatever_way_they_were_joined(x):
    a = x * 2
    b = mg.exp(x)
    c = b * a
    d = a + c
    nodes = order([d.node])
    assert [n.op.name for n in nodes] == ["add", "multiply", "exp", "multiply"]
    assert [n.seq for n in nodes] == sorted((n.seq for n in nodes), reverse=True)


def test_an_input_that_needs_no_gradient_has_no_edge(x):
    y = x * mg.tensor([1.0, 2.0, 3.0])
    assert y.node.edges == [x]
    assert (mg.tensor([1.0]) * 2).node is None
