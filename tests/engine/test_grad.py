"""mg.grad: gradients of anything in anything, without touching a `.grad`."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import GradientError


@pytest.fixture
def x():
    return mg.tensor([2.0, 3.0, 5.0], requires_grad=True)


def test_one_input_gives_one_array_and_several_a_list(x):
    y = mg.tensor([1.0, 1.0, 2.0], requires_grad=True)
    one = mg.grad((x * y).sum(), x)
    assert isinstance(one, np.ndarray)
    np.testing.assert_allclose(one, y.data)
    both = mg.grad((x * y).sum(), [x, y])
    assert isinstance(both, list)
    np.testing.assert_allclose(both, [y.data, x.data])


def test_no_grad_attribute_is_written(x):
    y = mg.exp(x)
    y.retain_grad()
    mg.grad((y * 2).sum(), [x, y])
    assert x.grad is None
    assert y.grad is None


def test_of_an_unrelated_input_it_is_zeros(x):
    other = mg.tensor(np.ones((2, 7), np.float32), requires_grad=True)
    found = mg.grad((x * 2).sum(), [other, x])
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(found[0], np.zeros((2, 7)))


def test_results_never_share_memory_with_the_seed_or_each_other(x):
    y = mg.tensor([1.0, 1.0, 1.0], requires_grad=True)
    seed = np.ones(3)
    first, second = mg.grad(x + y, [x, y], seed)
    first += 100
    np.testing.assert_allclose(second, [1, 1, 1])
    np.testing.assert_allclose(seed, [1, 1, 1])


def test_rules_that_lead_to_no_wanted_input_do_not_run(x):
    """Nodes off the way are skipped, and so is the other side's rule of a node on the way."""
    ran = []
    other = mg.tensor([1.0, 1.0, 1.0], requires_grad=True)
    aside = mg.exp(other)
    aside.node.register_hook(lambda parts, g: ran.append("aside"))
    out = x * aside
    out.node.register_hook(lambda parts, g: ran.append([p is None for p in parts]))
    mg.grad(out.sum(), x)
    assert ran == [[False, True]]


def test_what_was_skipped_is_not_freed(x):
    y = mg.exp(x)
    z = mg.exp(y)
    mg.grad(z.sum(), y)
    np.testing.assert_allclose(mg.grad(y.sum(), x), y.data)


def test_derivatives_to_fourth_order():
    x = mg.tensor(1.3, requires_grad=True)
    value = x**5 + mg.exp(2 * x)
    for order in range(1, 5):
        value = mg.grad(value, x, create_graph=True)
        falling = np.prod([5.0 - k for k in range(order)])
        expected = falling * 1.3 ** (5 - order) + 2.0**order * np.exp(2.6)
        np.testing.assert_allclose(value.data, expected, rtol=1e-13)


def test_create_graph_through_a_gradient_that_is_a_tensor(x):
    """The vjp is linear in its cotangent, and the cotangent's own gradient is recorded."""
    u = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    pulled = mg.grad(x * x, x, u, create_graph=True)
    np.testing.assert_allclose(mg.grad(pulled.sum(), u), 2 * x.data)


def test_a_tensor_as_seed_leaves_plain_arrays(x):
    seed = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    found = mg.grad(x * x, x, seed)
    assert type(found) is np.ndarray
    (x * x).backward(seed)
    assert type(x.grad) is np.ndarray
    assert seed.grad is None


def test_create_graph_records_even_under_no_grad_only_if_asked(x):
    y = (x**3).sum()
    with mg.no_grad():
        frozen = mg.grad(y, x, create_graph=True)
    assert not frozen.requires_grad
    np.testing.assert_allclose(frozen.data, 3 * x.data**2)


def test_inputs_without_gradient_are_refused(x):
    for other in (mg.tensor([1.0]), np.ones(3), 1.0):
        with pytest.raises(
            GradientError, match=r"grad\(output, inputs\): inputs\[1\] is no tensor that requires"
        ):
            mg.grad((x * 2).sum(), [x, other])


def test_outputs_without_gradient_are_refused(x):
    for output in (mg.tensor([1.0]), np.ones(3), 1.0):
        with pytest.raises(GradientError, match="grad: the output requires no gradient"):
            mg.grad(output, x)
