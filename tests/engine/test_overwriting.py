"""assign_ is the one in-place write; what was saved before it is never used after it."""

import inspect
import operator
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
    array = w.numpy()
    assert w.assign_(np.zeros((2, 3))) is w
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
        "  run forward again; what an earlier step left goes in by .detach()",
    ]
    assert w.grad is None


VIEWS = {
    "transpose": lambda w: w.T,
    "view of a view": lambda w: w.T[1:].mT[::-1][..., None],
    "detached": lambda w: w.detach(),
    "slice of its data": lambda w: w.data[1:][:, 1:],
    "windows": lambda w: np.lib.stride_tricks.sliding_window_view(w.data, 2, axis=1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_overwriting_is_seen_through_views(w, view):
    """The view was saved; its memory is w's."""
    scale = mg.tensor(1.0, requires_grad=True)
    loss = (view(w) * scale).sum()
    w.assign_(np.zeros((2, 3)))
    with pytest.raises(OverwrittenError, match="was overwritten after it was saved"):
        loss.backward()


def test_overwriting_is_seen_among_any_number_of_inputs(w):
    loss = mg.einsum("ij,ij->", w, mg.ones((2, 3), requires_grad=True))
    w.assign_(np.zeros((2, 3)))
    with pytest.raises(OverwrittenError, match=r"einsum: .* \(2, 3\) was overwritten"):
        loss.backward()


def test_what_saved_nothing_is_not_concerned(w):
    loss = (w + w).sum()
    w.assign_(np.zeros((2, 3)))
    loss.backward()
    np.testing.assert_allclose(w.grad, np.full((2, 3), 2))


@pytest.mark.parametrize("sign", ["iadd", "isub", "imul", "itruediv", "ipow"])
def test_within_no_grad_an_in_place_operator_writes_into_a_leaf_that_learns(w, sign):
    expected = getattr(w.numpy().copy(), f"__{sign}__")(2.0)
    loss, same = mg.sum(w * w), w
    with mg.no_grad():
        w = getattr(operator, sign)(w, 2.0)
    assert w is same
    np.testing.assert_array_equal(w.numpy(), expected)
    with pytest.raises(OverwrittenError, match="was overwritten"):
        loss.backward()


def test_within_no_grad_an_in_place_operator_keeps_shape_and_dtype():
    w = mg.tensor(np.ones(3, np.float32), requires_grad=True)
    with mg.no_grad():
        w -= np.full(3, 0.5)
        with pytest.raises(ShapeError):
            w += np.ones((2, 3))
    assert w.dtype == np.float32
    np.testing.assert_array_equal(w.numpy(), np.full(3, 0.5))


@pytest.mark.parametrize("mode", [mg.no_grad, mg.enable_grad])
@pytest.mark.parametrize("made", [lambda w: w * 2.0, lambda w: mg.ones((2, 3))])
def test_of_any_other_tensor_an_in_place_operator_makes_a_new_one_in_every_mode(w, made, mode):
    """Or `skip = h = W * x; h += 10` would give another result in evaluation than in training."""
    with mode():
        y = same = made(w)
        before = y.numpy().copy()
        y += 1
    assert y is not same
    np.testing.assert_array_equal(same.numpy(), before)
    np.testing.assert_array_equal(y.numpy(), before + 1)


W = mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True, name="w")


@pytest.mark.parametrize(
    ("write", "error", "text"),
    [
        (lambda: W.assign_(np.zeros((2, 3), np.float32)), DTypeError,
         r"assign_\(array\): w has dtype float64, got float32"),
        (lambda: (W * 2).assign_(np.zeros((2, 3))), GradientError,
         r"assign_\(array\): multiply was computed by multiply; only leaves are written"),
        (lambda: W.__setitem__(0, 1.0), GradientError, "tensors are not written in place"),
        (lambda: operator.isub(W, 1), GradientError, r"w -= …: w is a leaf .* mg.no_grad\(\)"),
        (lambda: W.data.T.__setitem__(0, 1.0), ValueError, "read-only"),
        (lambda: operator.iadd(W.numpy(), 4.0), ValueError, "read-only"),
    ],
)  # fmt: skip
def test_a_refused_write_changes_nothing(write, error, text):
    with pytest.raises(error, match=text):
        write()
    np.testing.assert_array_equal(W.numpy(), [[1, 2, 3], [4, 5, 6]])
