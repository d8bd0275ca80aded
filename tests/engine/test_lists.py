"""A list or tuple of Tensors is stacked by the op `stack`, or refused: it never loses its graph."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ShapeError


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
