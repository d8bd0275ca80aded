"""Formulas of a run have each symbol defined where it is used, and are what the run computed."""

import re

import numpy as np
import pytest

import minigrad as mg
from layers import LSTM, SelfAttention
from minigrad.record.finish import finish
from minigrad.record.formulas import fill, number, symbol_of

from .models import DRAWN, leaf, traced, trained


@pytest.mark.parametrize("seed", range(3 * len(DRAWN)))
def test_no_two_entries_have_one_symbol_and_each_is_defined_before_its_use(seed):
    record = finish(trained(seed))
    assert len({entry.symbol for entry in record.entries}) == len(record.entries)
    for entry in record.entries:
        for edge in entry.takes:
            source = record.entries[edge.source]
            assert source.id < entry.id
            if entry.op in ("add", "matmul", "linear", "tanh"):
                assert (source.number or source.symbol.replace(r"^\top", "")) in entry.equation
            if edge.contribution is not None:
                assert edge.equation
                assert "<" not in edge.equation
        assert bool(entry.op) == bool(entry.equation)


def test_attention_reads_as_the_paper_does():
    layer = SelfAttention(5, 8, 7, use_bias=False, rng=0)
    t = traced(lambda: mg.sum(layer(leaf(2, 4, 5, name="X"))).named("loss"))
    equations = {entry.symbol: entry.equation for entry in t if entry.op}
    assert equations["Q"] == "X W_Q"
    assert equations[r"S_{\mathrm{raw}}"] == r"Q K^\top"
    assert equations["S"] == r"\tfrac{1}{\sqrt{8}}\, S_{\mathrm{raw}}"
    assert equations["A"] == r"\mathrm{softmax}(S)"
    assert equations["O"] == "A V"
    back = {edge.input: edge.equation for edge in t["O"].takes}
    assert back == {
        "a": r"\frac{\partial L}{\partial O} V^\top",
        "b": r"A^\top \frac{\partial L}{\partial O}",
    }
    (_, weight) = t["Q"].takes
    assert weight.equation == r"\sum_{b} X^\top \frac{\partial L}{\partial Q}"


def test_a_gradient_is_added_up_over_the_axes_that_its_input_was_repeated_along():
    for op in (mg.add, mg.maximum):
        t = traced(lambda op=op: mg.sum(op(leaf(2, 3, 5), leaf(1, 5))))
        (to_a, to_b) = (edge.equation.startswith(r"\sum_{b,i}") for edge in t[op.name].takes)
        assert (to_a, to_b) == (False, True)
    t = traced(lambda: mg.sum(LSTM(5, 3, rng=0)(leaf(2, 4, 5))))
    assert not t["lstm"].takes[0].equation.startswith(r"\sum_{b}")


def test_the_loss_is_L_and_another_of_that_name_is_not():
    t = traced(lambda: mg.sum(leaf(3, name="L") * 2.0).named("loss"))
    assert (t["loss"].symbol, t["L"].symbol) == ("L", "L^{(2)}")
    assert t["multiply"].equation in (r"2\, L^{(2)}", r"L^{(2)} \odot 2")


def test_definitions_behind_a_formula_stand_apart():
    t = traced(lambda: mg.mean(leaf(2, 3) * 2.0))
    (edge,) = t["mean"].takes
    assert "n = 6" in edge.where
    assert "quad" not in edge.equation


@pytest.mark.parametrize(
    ("template", "values", "written"),
    [
        (r"<g> \odot <x>", {"g": "a + b", "x": "x"}, r"\left(a + b\right) \odot x"),
        (r"<a> - <b>", {"a": "x", "b": "-2"}, r"x - \left(-2\right)"),
        (r"<x>^\top", {"x": r"K^\top"}, "K"),
        (r"<x>^\top", {"x": r"{K^{(1)}}^\top"}, "K^{(1)}"),
        (r"<x>^\top", {"x": r"\frac{a}{b}"}, r"\left(\frac{a}{b}\right)^\top"),
        (r"<x>[<i>]", {"x": "S^{(2)}", "i": "0, 7"}, "S^{(2)}[0, 7]"),
        (r"\tanh<x>", {"x": "a"}, r"\tanh a"),
        (r"<x> + <missing>", {"x": "a"}, r"a + \mathrm{missing}"),
    ],
)
def test_values_take_the_place_of_slots(template, values, written):
    assert fill(template, values) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (-(8**-0.5), r"-\tfrac{1}{\sqrt{8}}"),
        (2.5e-7, r"2.5 \cdot 10^{-7}"),
        (np.float32(0.1), r"0.1\ldots"),
        (np.inf, r"\infty"),
        (True, r"\text{True}"),
        (slice(1, None, 2), "1{:}{:}2"),
        ("ij,jk->ik", r"\text{ij,jk->ik}"),
    ],
)
def test_numbers_are_written_as_a_person_would(value, written):
    assert number(value) == written


@pytest.mark.parametrize("name", ["W_Q", "x y", "a{b", r"\frac", "50%", "<b>", "é", "α", "a" * 99])
def test_any_name_is_a_symbol_that_latex_reads(name):
    tex = symbol_of(name)
    bare = re.sub(r"\\[{}]", "", tex)
    assert bare.count("{") == bare.count("}")
    assert len(tex) < 120
