r"""LaTeX as MathML and as text: every formula of every op is read to its end."""

import xml.etree.ElementTree as ElementTree

import pytest

import minigrad as mg
from minigrad.views.maths import mathml, plain, portable
from tests.views.graphs import RUNS

WORDS = {
    r"\operatorname{softmax}(Q^{(1)} {K^{(1)}}^\top / \sqrt{8})": "softmax(Q⁽¹⁾ K⁽¹⁾ᵀ / √8)",
    r"A \odot (g - \operatorname{rowsum}(g \odot A))": "A ⊙ (g - rowsum(g ⊙ A))",
    r"\tfrac12 x": "1/2 x",
    r"\hat x": "x\u0302",
    r"\text{mean of } x_{i,j}": "mean of x_(i, j)",
    r"\left.\frac{\partial L}{\partial X}\right|_{S}": "∂L/∂X |_S",
    r"\unknown{x} }": "unknown x",
}


@pytest.mark.parametrize(("tex", "text"), WORDS.items())
def test_a_formula_reads_as_a_person_writes_it(tex, text):
    assert plain(tex) == text


def formulas():
    for run in RUNS.values():
        for entry in run():
            yield from (entry.symbol, entry.equation, entry.slope, entry.number, *entry.where)
        yield from (edge.equation for edge in run().edges)


def test_each_formula_of_a_run_is_well_formed_mathml_without_a_command_left():
    for tex in {*formulas()} - {""}:
        tree = ElementTree.fromstring(mathml(tex))
        assert "\\" not in "".join(tree.itertext()), tex
        assert "\\" not in plain(tex), tex


def test_each_declared_formula_is_read():
    for op in mg.registry.values():
        for tex in [op.tex, *op.vjp_tex.values()]:
            if isinstance(tex, str):
                ElementTree.fromstring(mathml(tex))


def test_names_cannot_be_markup():
    assert "<b>" not in mathml(r"\text{<b>x</b>}")
    assert portable(r"\operatorname{f}(<x>)") == r"\mathrm{f}(\mathrm{x})"
