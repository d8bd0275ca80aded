"""Another value in the place of a named one: values, gradients and checks follow."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError
from tests.compare import assert_same


def model(x):
    with mg.scope("net"):
        h = mg.exp(x).named("h")
    return mg.sum(h * h)


@pytest.fixture
def x():
    return mg.tensor([0.0, 1.0, 2.0], requires_grad=True, name="x")


@pytest.mark.parametrize(
    ("value", "out", "grad"),
    [
        (np.array([1.0, 2.0, 3.0]), 14.0, None),
        (2.0, 12.0, None),
        (lambda h: h * 0.5, float(np.exp([0.0, 2.0, 4.0]).sum() / 4), np.exp([0.0, 2.0, 4.0]) / 2),
        (lambda h: h.numpy() * 0.0 + 1.0, 3.0, None),
    ],
)
@pytest.mark.parametrize("path", ["h", "net/h", "exp"])
def test_the_rest_of_the_run_gets_the_new_value(path, value, out, grad, x):
    with mg.replace(path, value):
        loss = model(x)
    assert_same(loss.item(), out)
    if grad is None:
        assert not loss.requires_grad
    else:
        loss.backward()
        assert_same(x.grad, grad)


def test_a_trace_has_the_new_value_and_its_checks_agree(x):
    with mg.trace() as t, mg.replace("h", lambda h: h * [1.0, 0.0, 1.0]):
        model(x).backward()
    assert_same(t["net/h"].value, np.exp([0.0, 1.0, 2.0]) * [1.0, 0.0, 1.0])
    assert t.check(ops=True).ok


def test_what_fits_nothing_is_refused(x):
    with pytest.raises(ArgumentError, match="non-empty string"):
        mg.replace("", 0.0)
    with pytest.raises(
        ArgumentError,
        match=r"replace\('et/h'\): no tensor of the run has this path; near it are net/h",
    ):
        with mg.replace("et/h", 0.0):
            model(x)
    with (
        pytest.raises(ShapeError, match=r"net/h has shape \(3,\), got \(2,\)"),
        mg.replace("net/h", np.ones(2)),
    ):
        model(x)
    with pytest.raises(KeyError), mg.replace("nothing", 0.0):  # the block's own error counts
        raise KeyError
