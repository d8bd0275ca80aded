"""`minigrad check`: it passes on the engine as it is, and finds any rule that was made wrong."""

import re

import numpy as np
import pytest

from minigrad import registry


@pytest.mark.slow
def test_every_op_and_both_layers_pass(command):
    ran = command("check", "--order", 1)
    lines = ran.out.splitlines()
    assert ran.status == 0, ran.out
    assert [line.split()[0] for line in lines[1:-1]] == [*registry, "self-attention", "multi-head"]
    assert all(line.endswith("✓") for line in lines[1:-1])
    assert re.fullmatch(
        rf"{len(registry)} ops and 2 layers agree on \d+ samples, first order, seed 0",
        lines[-1],
    )


def test_a_rule_wrong_by_a_twentieth_of_a_percent_is_found(command, plant):
    plant("softmax", "x", lambda gradient: gradient * 1.0005)
    ran = command("check", "--op", "exp", "softmax", width=300)
    assert ran.status == 1
    assert re.search(r"^softmax .* 5\.0e-04 +✗$", ran.out, re.MULTILINE)
    assert re.search(r"^exp .*✓$", ran.out, re.MULTILINE)
    failure = re.search(
        r"^✗ softmax: sample 1, softmax\(.+\): order 1, worst at x\[[\d, ]+\]: "
        r"engine (\S+), numeric (\S+), relative error 5\.0e-04$",
        ran.out,
        re.MULTILINE,
    )
    assert failure, ran.out
    np.testing.assert_allclose(float(failure[1]) / float(failure[2]), 1.0005, rtol=1e-6)
    assert ran.out.splitlines()[-1] == "1 of 2 ops disagree: softmax"


@pytest.mark.needs_fast("an overlay's rule is wrong")
def test_a_wrong_rule_of_an_overlay_is_found_where_the_declared_one_is_right(command, monkeypatch):
    overlay = registry["softmax"].overlay
    right = overlay.rules["x"]
    wrong = right._replace(function=lambda *known: 1.0005 * right.function(*known))
    monkeypatch.setitem(overlay.rules, "x", wrong)
    monkeypatch.setattr(overlay, "plans", {})
    ran = command("check", "--op", "softmax", "--order", 1, width=300)
    assert ran.status == 1
    assert re.search(r"^✗ softmax: sample 1, softmax\(.+\) by its overlay: order 1", ran.out, re.M)


def test_a_wrong_rule_is_found_in_the_layers_too(command, plant):
    plant("softmax", "x", lambda gradient: gradient * 1.0005)
    ran = command("check", "--order", 1, width=300)
    assert ran.status == 1
    assert re.search(
        r"^✗ self-attention: .*: step 3, softmax, worst at S_masked\[", ran.out, re.MULTILINE
    )
    assert re.search(
        r"^✗ multi-head: .*: step 4, softmax, worst at S_masked\[", ran.out, re.MULTILINE
    )
    for name in ("softmax", "self-attention", "multi-head"):
        assert name in ran.out.splitlines()[-1]


def test_a_rule_of_one_of_several_inputs_is_named_by_that_input(command, plant):
    plant("divide", "b", lambda gradient: -gradient)
    ran = command("check", "--op", "divide")
    assert ran.status == 1
    assert "worst at b" in ran.out
    assert "more of its samples disagree" in ran.out


def test_a_rule_right_at_first_order_and_wrong_at_second_is_found(command, plant):
    """Its value is right, but it hides from the graph how it depends on the result."""

    def hidden(gradient):
        return gradient.detach() if hasattr(gradient, "detach") else gradient

    plant("tanh", "x", hidden)
    assert command("check", "--op", "tanh", "--order", 1).status == 0
    ran = command("check", "--op", "tanh")
    assert ran.status == 1
    assert "order 2" in ran.out


@pytest.mark.parametrize("wrong", [lambda g: g[..., None], lambda g: 1 / 0, lambda g: g * np.nan])
def test_a_rule_that_raises_or_gives_nan_is_a_failure_and_not_a_traceback(command, plant, wrong):
    plant("exp", "x", wrong)
    ran = command("check", "--op", "exp", "log")
    assert ran.status == 1
    assert ran.err == ""
    assert "✗ exp: sample 1, exp(2×3×5): " in ran.out
    assert ran.out.splitlines()[-1] == "1 of 2 ops disagree: exp"


def test_an_op_on_which_nothing_could_be_measured_fails(command, monkeypatch):
    monkeypatch.setattr(registry["exp"], "samples", lambda rng: iter(()))
    ran = command("check", "--op", "exp")
    assert ran.status == 1
    assert "no sample has a gradient to compare" in ran.out
