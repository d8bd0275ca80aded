"""t.check(): hand-derived steps against the engine; a fault in either turns it red."""

from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from layers import MultiHeadAttention, in_tiles
from minigrad.errors import GradientError
from minigrad.recording.checks import Checks


@pytest.fixture
def x():
    return mg.tensor([1.0, 2.0], requires_grad=True, name="x")


def _steps(factor=1.0):
    """y = sum(x w), z = 2y: hand-derived, `factor` off."""

    def steps(x, w, grad_output):
        def step(number, title, **gradients):
            formulas = {name: rf"\bar {name}" for name in gradients}
            return SimpleNamespace(
                number=number, title=title, forward="f", gradients=gradients, formulas=formulas
            )

        dy = 2 * grad_output
        yield step(1, "double", y=np.asarray(dy))
        yield step(2, "product", x=dy * w * factor, w=dy * x)

    return steps


def _layer(x, w, steps):
    with mg.scope("layer"):
        y = (x * w).sum().named("y")
        out = (2 * y).named("out")
        mg.expect_gradients(steps, x=x, w=w, y=y, out=out)
    return out


@pytest.fixture
def w():
    return mg.tensor([3.0, 5.0], requires_grad=True, name="w")


RIGHT = {"y": True, "x": True, "w": True}
RUNS = {
    "one call": (lambda x, w: _layer(x, w, _steps()) * 7, RIGHT),
    "a step that is wrong": (lambda x, w: _layer(x, w, _steps(1.0005)), RIGHT | {"x": False}),
    # its whole gradient is not the layer's
    "x used outside too": (lambda x, w: _layer(x, w, _steps()) + (x * 100).sum(), RIGHT),
    "w frozen": (lambda x, w: _layer(x, mg.tensor(w.data), _steps()), RIGHT | {"w": None}),
}


@pytest.mark.parametrize(("run", "expected"), RUNS.values(), ids=RUNS)
def test_every_gradient_of_every_step_is_measured_and_what_differs_is_red(run, expected, x, w):
    with mg.trace() as t:
        run(x, w).backward()
    checks, wrong = t.check(), [s for s, ok in expected.items() if ok is False]
    assert {c.symbol: c.ok for c in checks} == expected
    assert [(c.scope, c.number, c.title) for c in checks] == [
        ("layer", 1, "double"), ("layer", 2, "product"), ("layer", 2, "product"),
    ]  # fmt: skip
    assert checks.ok == (not wrong)
    assert [checks.first_wrong and checks.first_wrong.symbol] == (wrong or [None])
    assert all(c.difference <= 1e-15 for c in checks if c.ok)
    assert len(checks.measured) == 3 - [*expected.values()].count(None)


def test_each_call_of_a_layer_is_checked_by_itself(x, w):
    with mg.trace() as t:
        (_layer(x, w, _steps()) + 3 * _layer(x * 2, w, _steps())).backward()
    assert (len(t.check()), t.check().ok) == (6, True)


def test_a_run_without_hand_derived_steps_is_held_against_numeric_derivatives(x, w):
    assert Checks().ok is None
    with mg.trace() as t:
        mg.sum(x * w).backward()
    assert t.check().ok is True
    assert len(t.check().steps) == 2


def test_a_layer_without_a_backward_is_skipped_and_named_and_the_rest_is_checked(x, w):
    with mg.trace() as t:
        with mg.scope("unused"):
            _layer(x, w, _steps())
        mg.sum(_layer(x, w, _steps())).backward()
    checks = t.check()
    assert checks.skipped == ["unused/layer"]
    assert checks.ok
    assert "no backward ran through unused/layer" in " ".join(str(checks).split())
    assert t.to_dict()["checks"]


def test_check_without_backward_is_an_error(x, w):
    with mg.trace() as t:
        y = _layer(x, w, _steps())
    with pytest.raises(GradientError, match=r"no backward ran .* loss\.backward\(\) inside"):
        t.check()
    mg.sum(y).backward()
    with pytest.raises(GradientError, match=r"no backward ran .* loss\.backward\(\) inside"):
        t.check()


@pytest.mark.parametrize("attend", [None, in_tiles])
def test_a_step_whose_gradients_are_all_zero_agrees_though_the_engines_are_rounding(attend):
    """Rows that are the same: each key is worth the same, so no query or key has a gradient."""
    layer = MultiHeadAttention(4, 2, attend=attend, rng=0)
    with mg.trace() as t:
        mg.sum(layer(mg.tensor(np.ones((1, 3, 4)), requires_grad=True))).backward()
    assert t.check().first_wrong is None
