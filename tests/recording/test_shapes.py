"""Tensors of which only the shape is there: results' shapes, what rules cost, what is refused."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import DTypeError
from minigrad.recording.shapes import FlopCounter, ShapeTensor


def test_a_length_that_an_op_computes_is_not_taken_for_an_inputs():
    counter = FlopCounter()
    x, weight = (ShapeTensor(shape, float, counter) for shape in ((2, 3, 11), (4, 3, 3)))
    assert mg.conv1d(x, weight, None, stride=2).shape == (2, 4, 5)
    assert mg.avg_pool(ShapeTensor((1, 3, 5, 7), float, counter), 2, stride=1).shape == (1, 3, 4, 6)


def test_a_large_product_is_counted_and_not_computed():
    n = 1_000_000
    counter = FlopCounter()
    x = ShapeTensor((n, n), np.float32, counter)
    assert (mg.tanh(x @ x) * (x > 0)).shape == (n, n)
    assert counter.flops == 2 * n**3 + 2 * n**2
    assert FlopCounter().rules(mg.matmul, (x, x), (), (True, True)).flops == 4 * n**3


def test_a_function_that_no_op_stands_for_is_refused_not_counted_as_nothing():
    with pytest.raises(DTypeError, match=r"np\.fix"):
        np.fix(ShapeTensor((3,), float, FlopCounter()))
