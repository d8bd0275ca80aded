"""What is right agrees, a planted fault is found, and what was not measured is counted."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    Linear,
    MultiHeadAttention,
    SelfAttention,
    create_causal_mask,
)
from minigrad.errors import GradientError

from .models import DRAWN, leaf, traced, trained


@pytest.mark.parametrize("seed", range(len(DRAWN)))
def test_models_of_every_kind_agree(seed):
    checks = trained(seed).check(ops=True)
    assert checks.ok
    assert len(checks.of("by derivative")) == checks.steps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "make",
    [
        lambda d: SelfAttention(5, 3, 7, rng=0, dtype=d),
        lambda d: MultiHeadAttention(12, 6, 2, use_bias=True, rng=0, dtype=d),
    ],
)
def test_attention_equals_its_steps_derived_by_hand(make, dtype, rng):
    layer = make(dtype)
    with mg.trace() as t:
        X = mg.tensor(rng.normal(size=(2, 4, layer.d_model)).astype(dtype), requires_grad=True)
        out = layer(X, create_causal_mask(4, dtype=dtype))
        out.backward(rng.normal(size=out.shape).astype(dtype))
    checks = t.check()
    assert checks.ok
    hand = checks.of("by hand")
    assert {"W_Q", "W_K", "W_V", "W_O", "X", "A"} <= {check.symbol for check in hand}
    assert not [check.symbol for check in hand if check.ok is None]
    assert (checks.uncovered, checks.skipped) == ([], [])


def test_a_wrong_rule_of_softmax_is_seen_by_hand_too(plant, rng):
    plant("softmax", "x", lambda g: g * 1.001)
    layer, X = SelfAttention(5, 3, 7, rng=0), rng.normal(size=(1, 4, 5))
    t = traced(lambda: mg.sum(layer(X) ** 2.0))
    wrong = t.check().wrong
    assert {"W_Q", "W_K", "Q", "K", "S"} <= {check.symbol for check in wrong}
    assert "W_O" not in {check.symbol for check in wrong}
    assert {t[name].state for name in ("W_Q", "Q")} == {"wrong"}


def test_two_calls_of_one_layer_are_compared_each_with_what_it_sent(rng):
    layer, X = SelfAttention(5, 3, 5, rng=0), leaf(1, 4, 5)
    checks = traced(lambda: mg.sum((layer(layer(X) + X) + X) ** 2.0)).check()
    assert checks.ok
    assert {check.call for check in checks.results} == {0, 1}


def test_a_layer_that_no_backward_ran_through_is_named():
    layer, X = SelfAttention(5, 3, 5, rng=0), leaf(1, 4, 5)
    with mg.trace() as t:
        with mg.scope("other"):
            layer(X)
        mg.sum(layer(X)).backward()
    assert t.check().skipped == ["other/self_attention"]


def test_a_parameter_that_no_derived_steps_cover_is_checked_unasked():
    checks = traced(lambda: mg.sum(Linear(3, 2, rng=0)(np.ones((4, 3))))).check()
    assert len(checks.of("by derivative")) == 2


def test_without_a_backward_there_is_nothing_to_check():
    with mg.trace() as t:
        mg.exp(leaf(1))
    with pytest.raises(GradientError, match=r"call loss\.backward"):
        t.check()


def test_at_a_kink_any_slope_between_those_of_the_sides_is_right():
    x = mg.tensor([0.0, 0.0, -1.0, 2.0], requires_grad=True)
    t = traced(lambda: mg.sum(mg.relu(x) * [1.0, 2.0, 3.0, 4.0]))
    assert t.check(ops=True).ok is not False


def test_what_is_not_finite_is_not_measured_and_says_why():
    with np.errstate(all="ignore"):
        x = mg.tensor([0.0, 1.0], requires_grad=True)
        checks = traced(lambda: mg.sum(mg.sqrt(x))).check(ops=True)
    assert [check.why for check in checks.results] == ["", "not finite"]
    assert checks.first_broken == "the backward of sqrt made it first, at sqrt"


def test_a_kernel_that_refuses_other_arguments_is_not_measured():
    @mg.op(tex=r"\operatorname{own}(<x>)", vjp_tex={"x": r"<g>"})
    def picky(x):
        """Takes real numbers alone."""
        if np.iscomplexobj(x):
            raise TypeError("real numbers alone")
        return x * 1.0

    @picky.vjp("x")
    def _(g):
        return g

    try:
        (_, check) = traced(lambda: mg.sum(picky(leaf(1)))).check(ops=True).results
        assert (check.ok, check.why) == (None, "picky refused other arguments: real numbers alone")
    finally:
        del mg.registry["picky"]
