"""matmul in every case np.matmul knows, and linear."""

import numpy as np
import pytest

import minigrad as mg


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0, 3), (700, 3)])
def test_linear_is_a_product_and_a_sum(rng, shared, lead):
    x, W, b = rng.normal(size=(*lead, 5)), rng.normal(size=(5, 7)), rng.normal(size=7)
    np.testing.assert_allclose(mg.linear(x, W, b, shared), x @ W + b, rtol=1e-12)
    np.testing.assert_allclose(mg.linear(x, W, shared=shared), x @ W, rtol=1e-12)


def test_linear_promotes_as_the_sum_would(rng):
    x, W = rng.normal(size=(3, 5)).astype(np.float32), rng.normal(size=(5, 7)).astype(np.float32)
    assert mg.linear(x, W, np.zeros(7, np.float32)).dtype == np.float32
    assert mg.linear(x, W, np.zeros(7)).dtype == np.float64


@pytest.mark.parametrize("shared", [False, True])
def test_the_gradient_of_a_float16_bias_counts_every_row(shared):
    """In float16 itself, 2048 ones and one more are 2048."""
    x, W = np.ones((4096, 3), np.float16), np.ones((3, 5), np.float16)
    b = mg.tensor(np.zeros(5, np.float16), requires_grad=True)
    mg.linear(x, W, b, shared).backward(np.ones((4096, 5), np.float16))
    np.testing.assert_array_equal(b.grad, np.full(5, 4096, np.float16))
