"""`minigrad ops`: every op of the registry, with every formula and cost of its declaration."""

import json

import pytest

from minigrad import registry
from minigrad.cli.catalogue import declared
from minigrad.views.formula import plain


@pytest.fixture(scope="module")
def every():
    return [declared(op) for op in registry.values()]


def test_every_op_is_listed_with_a_formula_for_each_input(command, every):
    ran = command("ops", width=2000)
    assert ran.status == 0
    paragraphs = {part.partition("(")[0]: part for part in ran.out.split("\n\n")}
    for one in every:
        part = paragraphs[one.op.name]
        assert f"out = {plain(one.forward)}" in part
        assert set(one.backward) == set(one.op.inputs)
        for name, rule in one.backward.items():
            assert f"∂L/∂{name} = {plain(rule)}" in part
    assert f"{len(registry)} ops; out is the result, g its gradient" in ran.out


def test_an_op_is_shown_with_its_signature_and_claim(command):
    lines = command("ops", "softmax").out.splitlines()
    assert lines[0] == "softmax(x, axis=-1)"
    assert lines[1].startswith("  Turns scores into weights that sum to 1 along an axis: y_i")
    assert lines[2:4] == ["    out = softmax(x)", "    ∂L/∂x = out ⊙ (g - rowsum(g ⊙ out))"]
    assert lines[4].startswith("      The gradient loses its average under the weights")


def test_json_holds_the_ops_asked_for_in_order_and_once(command):
    data = json.loads(command("ops", "exp", "add", "exp", "--json").out)
    assert [op["name"] for op in data] == ["exp", "add"]
    assert data[0]["backward"] == {"x": "g ⊙ out"}
    assert all(op["claim"] and set(op["vjp_tex"]) == set(op["inputs"]) for op in data)
