"""matmul in every case np.matmul knows, and linear."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ShapeError


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ((2, 7, 11), (2, 13, 5), "a's last axis must equal b's second-to-last, got 11 != 13"),
        ((3, 5), (7,), "a's last axis must equal b's only axis, got 5 != 7"),
        ((5,), (7, 5), "a's last axis must equal b's second-to-last, got 5 != 7"),
        ((2, 3, 5), (7, 5, 3), "batch axes must broadcast, but axis -3 has 2 and 7"),
        ((), (5, 7), "both need at least one axis"),
        ((5, 7), (), "both need at least one axis"),
    ],
)
def test_matmul_names_the_rule_that_shapes_break(a, b, text):
    with pytest.raises(ShapeError) as error:
        mg.matmul(mg.tensor(np.ones(a)), mg.tensor(np.ones(b)))
    lines = str(error.value).splitlines()
    assert lines[0] == f"matmul(a, b): {text}"
    assert lines[1:] == [f"  a: {a} float64", f"  b: {b} float64"]


@pytest.mark.parametrize("swap", [False, True])
def test_matmul_with_a_number_is_refused(swap):
    x = mg.tensor(np.ones((2, 2)))
    with pytest.raises(ShapeError, match=r"matmul\(a, b\): both need at least one axis"):
        3.0 @ x if swap else x @ 3.0


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


@pytest.mark.parametrize(
    ("shapes", "rule"),
    [
        (
            ((3, 5), (4, 7), (7,)),
            "x's last axis must equal W's first, got 5 != 4",
        ),
        (((3, 5), (5, 7), (1,)), "b must have W's last axis, got \\(1,\\) and \\(5, 7\\)"),
        (((3, 5), (2, 5, 7), (7,)), "W must have two axes, got 3"),
        (((), (5, 7), (7,)), "x's last axis must equal W's first"),
    ],
)
def test_linear_refuses_what_does_not_fit(shapes, rule):
    with pytest.raises(ShapeError, match=f"^linear\\(x, W, b, shared\\): {rule}"):
        mg.linear(*(mg.tensor(np.zeros(shape)) for shape in shapes))


@pytest.mark.parametrize("x", [2.0, 3, True, None, "x"])
@pytest.mark.parametrize("shared", [False, True])
def test_linear_of_no_array_is_refused_as_one_without_axes(x, shared):
    rule = "x's last axis must equal W's first, got none != 5"
    for W in (np.zeros((5, 7)), mg.tensor(np.zeros((5, 7)), requires_grad=True)):
        with pytest.raises(ShapeError, match=f"^linear\\(x, W, b, shared\\): {rule}"):
            mg.linear(x, W, shared=shared)


@pytest.mark.parametrize("shared", [False, True])
def test_the_gradient_of_a_float16_bias_counts_every_row(shared):
    """In float16 itself, 2048 ones and one more are 2048."""
    x, W = np.ones((4096, 3), np.float16), np.ones((3, 5), np.float16)
    b = mg.tensor(np.zeros(5, np.float16), requires_grad=True)
    mg.linear(x, W, b, shared).backward(np.ones((4096, 5), np.float16))
    np.testing.assert_array_equal(b.grad, np.full(5, 4096, np.float16))
