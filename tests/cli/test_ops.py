"""`minigrad ops`: every op of the registry, with every formula of its declaration."""

import json

import numpy as np
import pytest

from minigrad import registry
from minigrad.views.formula import plain


def declared(op):
    """The formulas of an op; of its first sample, where they depend on the call."""
    if all(isinstance(tex, str) for tex in (op.tex, *op.vjp_tex.values())):
        return op.tex, op.vjp_tex
    call = next(iter(op.samples(np.random.default_rng(0))))
    inputs, settings = op.bind(*call.args, **call.kwargs)
    tex, rules = op.formulas(inputs, settings, op(*call.args, **call.kwargs))
    return tex, dict(zip(op.inputs, rules.values(), strict=False))


def test_every_op_is_listed_with_a_formula_for_each_input(command):
    ran = command("ops", width=1000)
    assert ran.status == 0
    paragraphs = {part.partition("(")[0]: part for part in ran.out.split("\n\n")}
    for op in registry.values():
        part = paragraphs[op.name]
        tex, rules = declared(op)
        assert f"out = {plain(tex)}" in part
        for name, rule in rules.items():
            assert f"∂L/∂{name} = {plain(rule)}" in part
    assert f"{len(registry)} ops; out is the result, g its gradient" in ran.out


def test_an_op_is_shown_with_its_signature_and_claim(command):
    lines = command("ops", "softmax").out.splitlines()
    assert lines[0] == "softmax(x, axis=-1)"
    assert lines[1].startswith("  Softmax along an axis")
    assert lines[2:4] == ["    out = softmax(x)", "    ∂L/∂x = out ⊙ (g - rowsum(g ⊙ out))"]


def test_named_ops_come_in_the_order_asked_for_and_once(command):
    ran = command("ops", "exp", "add", "exp", "--json")
    assert [op["name"] for op in json.loads(ran.out)] == ["exp", "add"]


def test_tex_is_latex_without_placeholders(command):
    ran = command("ops", "--tex", width=1000)
    assert r"\partial L / \partial a = g b^\top" in ran.out
    assert r"\partial L / \partial \mathrm{logits} = " in ran.out
    assert not any(
        f"<{name}>" in ran.out for op in registry.values() for name in op.signature.parameters
    )


def test_json_holds_every_op(command):
    data = json.loads(command("ops", "--json").out)
    assert [op["name"] for op in data] == list(registry)
    for op in data:
        assert op["claim"]
        assert op["forward"]
        assert set(op["backward"]) == set(op["vjp_tex"]) == set(op["inputs"])


@pytest.mark.parametrize("width", [40, 1])
def test_narrow_terminals_wrap(command, width):
    ran = command("ops", "layer_norm", width=width)
    assert ran.status == 0
    assert max(map(len, ran.out.splitlines())) <= max(width, 42)
