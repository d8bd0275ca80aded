"""backward: freeing and running again, what it refuses, and where no gradient goes."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import FreedGraphError, GradientError, ShapeError


@pytest.fixture
def x():
    return mg.tensor([2.0, 3.0, 5.0], requires_grad=True, name="x")


# ---------------------------------------------------------------- freeing, and a second backward


def test_a_second_backward_names_the_op_by_path_file_and_line(x):
    with mg.scope("head"):
        loss = mg.sum(x * x).named("loss")
    loss.backward()
    with pytest.raises(FreedGraphError) as error:
        loss.backward()
    text = str(error.value)
    assert "backward through head/loss (sum, made at " in text
    assert "test_backward.py:" in text
    assert f"test_backward.py:{loss.node.place.line})" in text
    assert "pass retain_graph=True" in text


def test_the_line_of_a_node_is_the_line_of_the_call(x):
    import inspect

    line = inspect.currentframe().f_lineno
    made = [x * 2, mg.exp(x), x.sum(), x @ x, x[1:], x.T, np.exp(x), 2 - x, x.reshape(3, 1)]
    assert {y.node.place.line for y in made} == {line + 1}
    assert {y.node.place.file for y in made} == {__file__}


def test_a_refused_backward_leaves_no_gradient(x):
    y = mg.exp(x)
    y.sum().backward()
    before = x.grad.copy()
    fresh = mg.tensor([1.0, 1.0, 1.0], requires_grad=True)
    with pytest.raises(FreedGraphError):
        (y * fresh).sum().backward()
    assert fresh.grad is None
    np.testing.assert_allclose(x.grad, before)


def test_a_retained_graph_runs_again_and_adds_to_leaves_only(x):
    y = mg.exp(x)
    z = (y * y).sum()
    z.backward(retain_graph=True)
    once = x.grad.copy()
    assert y.grad is None
    z.backward(retain_graph=True)
    np.testing.assert_allclose(x.grad, 2 * once)
    z.backward()
    np.testing.assert_allclose(x.grad, 3 * once)
    with pytest.raises(FreedGraphError):
        z.backward()


# ---------------------------------------------------------------- what backward refuses


def test_backward_needs_a_gradient_for_several_entries(x):
    with pytest.raises(
        ShapeError, match=r"backward: an output of shape \(3,\) needs a gradient of that shape"
    ):
        (x * 2).backward()


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 1), (1, 3)])
def test_backward_refuses_a_gradient_of_another_shape(x, shape):
    message = r"backward: the gradient's shape .* is not the output's \(3,\)"
    with pytest.raises(ShapeError, match=message):
        (x * 2).backward(np.ones(shape))


def test_backward_without_a_graph_is_refused():
    with pytest.raises(GradientError, match="backward: the output requires no gradient"):
        mg.tensor(1.0).backward()


def test_a_rule_of_the_wrong_shape_is_named(x, monkeypatch):
    y = mg.exp(x)
    monkeypatch.setattr(y.node, "plan", _PlantedPlan(y.node.plan))
    with pytest.raises(GradientError) as error:
        y.sum().backward()
    assert "exp: the rule for x gave shape (2,), which does not reduce to the input's (3,)" in str(
        error.value
    )
    assert "test_backward.py:" in str(error.value)


class _PlantedPlan:
    """A plan whose rule drops an entry."""

    def __init__(self, plan):
        self.op, self.needed, self.names = plan.op, plan.needed, plan.names

    def backward(self, g, saved):
        return (g[1:],)


# ---------------------------------------------------------------- requires_grad, detach, no_grad


def test_only_real_floating_tensors_can_require_a_gradient():
    from minigrad.errors import DTypeError

    for array in (np.array([1, 2]), np.array([True]), np.array([1j])):
        with pytest.raises(DTypeError, match="only real floating tensors have gradients, got"):
            mg.tensor(array, requires_grad=True)


def test_a_computed_tensor_keeps_its_requires_grad(x):
    with mg.scope("f"):
        y = (x * 2).named("y")
    with pytest.raises(
        GradientError, match=r"requires_grad: f/y was computed by multiply; use detach\(\)"
    ):
        y.requires_grad = False


def test_detach_shares_the_array_and_cuts_the_graph(x):
    y = (x * 2).named("y")
    cut = y.detach()
    assert np.shares_memory(cut.data, y.data)
    assert cut.name == "y"
    assert cut.is_leaf
    assert not cut.requires_grad
    (y * cut).sum().backward()
    np.testing.assert_allclose(x.grad, 2 * y.data)


def test_a_cast_to_integers_has_no_slope(x):
    (x.astype(int) * x).sum().backward()
    np.testing.assert_allclose(x.grad, x.data)
