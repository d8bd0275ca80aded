"""assign_ is the one in-place write; what was saved before it is never used after it."""

import inspect
import os

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import DTypeError, GradientError, OverwrittenError, ShapeError


@pytest.fixture
def w():
    return mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True, name="w")


def _line():
    return inspect.currentframe().f_back.f_lineno


def test_assign_writes_into_the_same_array(w):
    array = w.data
    assert w.assign_(np.zeros((2, 3))) is w
    assert w.data is array
    np.testing.assert_allclose(array, np.zeros((2, 3)))


def test_a_saved_array_that_was_overwritten_is_an_error_that_names_both_places(w):
    with mg.scope("layer"):
        loss = mg.sum(w * w)
    saved = _line() - 1
    w.assign_(w.data + 1)
    written = _line() - 1
    with pytest.raises(OverwrittenError) as error:
        loss.backward()
    assert str(error.value).splitlines() == [
        "backward of layer/multiply: b (2, 3) was overwritten after it was saved",
        f"  saved by multiply at {os.path.relpath(__file__)}:{saved}",
        f"  overwritten at {os.path.relpath(__file__)}:{written}",
    ]
    assert w.grad is None


VIEWS = {
    "transpose": lambda w: w.T,
    "slice": lambda w: w[1:],
    "reshape": lambda w: w.reshape(6),
    "swapaxes": lambda w: w.mT,
    "expand": lambda w: mg.expand_dims(w, 0),
    "squeeze": lambda w: mg.squeeze(w),
    "broadcast": lambda w: mg.broadcast_to(w, (2, 2, 3)),
    "view of a view": lambda w: w.T[1:].mT[::-1][..., None],
    "detached": lambda w: w.detach(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_overwriting_is_seen_through_views(w, view):
    """The view was saved; its memory is w's."""
    scale = mg.tensor(1.0, requires_grad=True)
    loss = (view(w) * scale).sum()
    w.assign_(np.zeros((2, 3)))
    with pytest.raises(OverwrittenError, match="was overwritten after it was saved"):
        loss.backward()


def test_writing_through_a_detached_alias_is_seen(w):
    loss = (w * w).sum()
    w.detach().assign_(np.zeros((2, 3)))
    with pytest.raises(OverwrittenError):
        loss.backward()


@pytest.mark.parametrize("write", ["augmented", "whole"])
def test_writing_through_data_is_seen(w, write):
    """`w.data -= step`, as an optimiser writes it, and `w.data = array`."""
    loss = (w * w).sum()
    if write == "augmented":
        w.data -= 0.1
        np.testing.assert_allclose(w.data[0, 0], 0.9)
    else:
        w.data = np.zeros((2, 3))
    with pytest.raises(OverwrittenError):
        loss.backward()


def test_a_copy_that_was_saved_is_not_concerned(w):
    loss = mg.exp(w).sum()  # saves its result
    w.assign_(np.zeros((2, 3)))
    loss.backward()
    np.testing.assert_allclose(w.grad, np.exp([[1, 2, 3], [4, 5, 6]]))


def test_what_saved_nothing_is_not_concerned(w):
    loss = (w + w).sum()
    w.assign_(np.zeros((2, 3)))
    loss.backward()
    np.testing.assert_allclose(w.grad, np.full((2, 3), 2))


def test_a_graph_made_after_the_write_runs(w):
    w.assign_(np.full((2, 3), 2.0))
    (w * w).sum().backward()
    np.testing.assert_allclose(w.grad, np.full((2, 3), 4))


def test_other_memory_is_not_concerned(w):
    other = mg.tensor(np.ones((2, 3)), requires_grad=True)
    loss = (w * w).sum()
    other.assign_(np.zeros((2, 3)))
    loss.backward()
    np.testing.assert_allclose(w.grad, 2 * w.data)


def test_overwriting_between_two_backwards_is_seen(w):
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    w.assign_(np.zeros((2, 3)))
    with pytest.raises(OverwrittenError):
        loss.backward()


def test_a_retained_first_derivative_is_guarded_too(w):
    first = mg.grad((w**3).sum(), w, create_graph=True)
    w.assign_(np.zeros((2, 3)))
    with pytest.raises(OverwrittenError):
        mg.grad(first.sum(), w)


def test_training_steps_write_between_graphs(w):
    for _ in range(50):
        w.grad = None
        ((w - 3.0) ** 2).sum().backward()
        w.assign_(w.data - 0.2 * w.grad)
    np.testing.assert_allclose(w.data, np.full((2, 3), 3.0), rtol=1e-9)


def test_assign_of_its_own_transpose_copies_first():
    w = mg.tensor([[1.0, 2.0], [3.0, 4.0]])
    w.assign_(w.data.T)
    np.testing.assert_allclose(w.data, [[1, 3], [2, 4]])


def test_assign_refuses_another_shape_or_dtype_or_a_computed_tensor(w):
    with pytest.raises(ShapeError, match=r"assign_\(array\): w has shape \(2, 3\), got \(3,\)"):
        w.assign_(np.zeros(3))
    with pytest.raises(DTypeError, match=r"assign_\(array\): w has dtype float64, got float32"):
        w.assign_(np.zeros((2, 3), np.float32))
    with pytest.raises(
        GradientError, match="assign_: multiply was computed by multiply; only leaves are written"
    ):
        (w * 2).assign_(np.zeros((2, 3)))


def test_writing_an_entry_is_refused(w):
    with pytest.raises(GradientError, match="tensors are not written in place"):
        w[0] = 1.0
    with pytest.raises(GradientError, match="tensors are not written in place"):
        w[0] += 1.0


def test_augmented_assignment_of_a_tensor_makes_a_new_one(w):
    y = w
    y += 1
    assert y is not w
    assert y.node.op.name == "add"
