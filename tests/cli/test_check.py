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
    rows = [line for line in lines[1:-1] if line[0] != " "]  # not the notes of a formula below one
    assert [row.split()[0] for row in rows] == [*registry, "self-attention", "multi-head"]
    assert all(row.endswith("✓") for row in rows)
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


def test_a_wrong_rule_of_an_overlay_is_found_where_the_declared_one_is_right(command, monkeypatch):
    overlay = registry["softmax"].overlay
    right = overlay.rules["x"]
    wrong = right._replace(function=lambda *known: 1.0005 * right.function(*known))
    monkeypatch.setitem(overlay.rules, "x", wrong)
    monkeypatch.setattr(overlay, "plans", {})
    ran = command("check", "--op", "softmax", "--order", 1, width=300)
    assert ran.status == 1
    assert re.search(r"^✗ softmax: sample 1, softmax\(.+\) by its overlay: order 1", ran.out, re.M)


def hidden(gradient):
    """Right in value, but it hides from the graph how it depends on the result."""
    return gradient.detach() if hasattr(gradient, "detach") else gradient


BROKEN = [r"^✗ exp: sample 1, exp\(2×3×5\): ", r"^1 of 2 ops disagree: exp$"]


@pytest.mark.parametrize(
    ("rule", "wrong", "asked", "said"),
    [
        (("softmax", "x"), lambda g: g * 1.0005, ["--order", 1],
         [r"^✗ self-attention: .*: step 3, softmax, worst at S_masked\[",
          r"^✗ multi-head: .*: step 4, softmax, worst at S_masked\[",
          r"softmax, self-attention, multi-head$"]),
        (("linear", "b"), lambda g: g * 1.0005, ["--order", 1],
         [r"^✗ self-attention: biases True, .* worst at b_O\[", "self-attention: 5 more of its",
          r"^✗ multi-head: biases True, .* worst at b_O\[", "multi-head: 13 more of its"]),
        (("divide", "b"), lambda g: -g, ["--op", "divide"],
         ["worst at b", "more of its samples disagree"]),
        (("tanh", "x"), hidden, ["--op", "tanh"], ["order 2"]),
        (("exp", "x"), lambda g: g[..., None], ["--op", "exp", "log"], BROKEN),
        (("exp", "x"), lambda g: 1 / 0, ["--op", "exp", "log"], BROKEN),
        (("exp", "x"), lambda g: g * np.nan, ["--op", "exp", "log"], BROKEN),
    ],
    ids=["in the layers", "of biases", "of one input", "at second order", "shape", "raises", "NaN"],
)  # fmt: skip
def test_a_wrong_rule_is_found_and_named(command, plant, monkeypatch, rule, wrong, asked, said):
    plant(*rule, wrong)
    if "--op" not in asked:  # this op and both layers
        monkeypatch.setattr("minigrad.cli.check.known_ops", lambda names: [registry[rule[0]]])
    if wrong is hidden:
        assert command("check", *asked, "--order", 1).status == 0
    ran = command("check", *asked, width=300)
    assert (ran.status, ran.err) == (1, "")
    for pattern in said:
        assert re.search(pattern, ran.out, re.MULTILINE), ran.out


@pytest.mark.parametrize(
    ("part", "tex", "status", "said"),
    [
        ("vjp_tex", {"x": r"7 <g> \odot <out>"}, 1,
         r"^✗ exp: the formula of the rule for x, 7 <g> .* is not what its code .* difference 6\."),
        ("tex", r"e^{2 <x>}", 1,
         r"^✗ exp: the formula of the result, e\^\{2 .* is not what its code computes"),
        ("tex", r"\mathrm{wat}(<x>)", 0,
         r"^  exp: the formula of the result, .*wat.* is not evaluated: .+"),
        ("tex", lambda x: 1 / 0, 1, r"^✗ exp: its formulas: ZeroDivisionError"),
    ],
    ids=["of a rule", "of the result", "unreadable", "raises"],
)  # fmt: skip
def test_a_wrong_formula_of_a_right_rule_is_found(command, monkeypatch, part, tex, status, said):
    monkeypatch.setattr(registry["exp"], part, tex)
    ran = command("check", "--op", "exp", "log", "--order", 1, width=300)
    assert (ran.status, ran.err) == (status, "")
    assert re.search(said, ran.out, re.MULTILINE), ran.out


def test_an_op_on_which_nothing_could_be_measured_fails(command, monkeypatch):
    monkeypatch.setattr(registry["exp"], "samples", lambda rng: iter(()))
    ran = command("check", "--op", "exp")
    assert ran.status == 1
    assert "no sample has a gradient to compare" in ran.out
