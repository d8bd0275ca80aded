"""One tree for a formula, and what it reads like in LaTeX, as text and as MathML."""

import numpy as np
import pytest

import minigrad as mg
from layers import multi_head_steps, self_attention_steps
from minigrad.views.formula import fill, latex, mathml, parse, plain, slots
from minigrad.views.formula.products import gradient
from minigrad.views.formula.tree import keeps_shape
from minigrad.views.plain import one_line

FORMULAS = [
    tex
    for op in mg.registry.values()
    for tex in (op.tex, *op.vjp_tex.values())
    if isinstance(tex, str)
]
W = np.ones((4, 4))
STEPS = [
    *self_attention_steps(X=W, W_Q=W, W_K=W, W_V=W, W_O=W, b_Q=W[0], b_O=W[0], grad_output=W),
    *multi_head_steps(
        n_heads=4, n_kv_heads=2, X=W, W_Q=W, W_K=W[:, :2], W_V=W[:, :2], W_O=W, grad_output=W
    ),
]
FORMULAS += [tex for step in STEPS for tex in (step.forward, *step.formulas.values())]


@pytest.mark.parametrize("tex", dict.fromkeys(FORMULAS))
def test_every_formula_is_text_without_a_sign_of_latex_and_latex_that_reads_as_before(tex):
    text, written = plain(tex), latex(parse(tex))
    assert text, tex
    assert not set("\\{}$") & set(text), text
    assert text.count("(") == text.count(")")
    assert not text.endswith(("^", "_"))
    assert plain(written) == text
    assert written.count("{") == written.count("}")
    assert "operatorname" not in written
    leaves = [*texts_of(mathml(parse(tex)))]
    assert {text for tag, text in leaves if tag == "slot"} == set(slots(parse(tex)))
    assert not any(sign in text for _, text in leaves for sign in "\\{}$")


def texts_of(tree):
    """The texts of a tree of MathML, each with its tag."""
    for child in tree[1:]:
        if isinstance(child, str):
            yield tree[0], child
        elif isinstance(child, list):
            yield from texts_of(child)


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"O^\top \frac{\partial L}{\partial W_O}", "Oᵀ ∂L/∂W_O"),
        (r"\frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}}", "(x - μ)/√(σ² + ε)"),
        (r"a^{\circ (b - 1)}", "a^(b - 1)"),
        (r"\tfrac12 x", "1/2 x"),
        (r"\hat g", "g\u0302"),
        (r"S_{\mathrm{raw}}", "S_raw"),
        (r"\unknowncommand x", "unknowncommand x"),
        ("", ""),
        ("x^", "x^()"),
    ],
)
def test_formulas_read_as_people_write_them(tex, text):
    assert plain(tex) == text


# ---------------------------------------------------------------- the tree


@pytest.mark.parametrize(
    "tex", ["", "x^", "^2", "(", "a)", r"\left(", r"\frac", "|a", "{", "[0, 1)"]
)
def test_any_text_gives_a_tree(tex):
    tree = parse(tex)
    assert isinstance(latex(tree) + plain(tex), str)
    assert mathml(tree)[0] == "mrow"


@pytest.mark.parametrize(
    ("rule", "keeps"),
    [
        ("<g>", True),
        (r"<g> <b>^\top", True),
        (r"<g> \odot ([<a> > <b>] + \tfrac12 [<a> = <b>])", True),
        (r"<g> \odot e^{<x>}, \quad n = \operatorname{rank}(<x>)", True),
        (r"\operatorname{broadcast}(<g>)", False),
        (r"\textstyle\sum <g>", False),
        (r"<g>[{:}2]", False),
        (r"<g>_i", False),
    ],
)
def test_a_rule_tells_whether_it_keeps_the_results_shape(rule, keeps):
    assert keeps_shape(parse(rule)) is keeps


# ---------------------------------------------------------------- slots filled


@pytest.mark.parametrize(
    ("template", "values", "tex"),
    [
        (r"<g> <b>^\top", {"b": "A B"}, r"\frac{\partial L}{\partial Y} B^\top A^\top"),
        (r"<g> \odot <b>", {"b": "A B"}, r"\frac{\partial L}{\partial Y} \odot \left(A B\right)"),
        ("<a> + <b>", {"a": "A - B", "b": "C - D"}, r"A - B + \left(C - D\right)"),
        (r"\operatorname{f}(<a>, <b>)", {"a": "A + B", "b": "-C"}, r"\mathrm{f}(A + B, -C)"),
        ("<a>[0]", {"a": "A + B"}, r"\left(A + B\right)[0]"),
        (r"<a>^{\circ (<b> - 1)}", {"a": "X", "b": "2"}, "X"),
        (r"<a>^{\circ (<b> - 1)}", {"a": "W_Q", "b": "3"}, r"W_Q^{\circ 2}"),
        (
            r"<g> \odot <b> \odot <a>",
            {"a": "X", "b": "2"},
            r"2\, \frac{\partial L}{\partial Y} \odot X",
        ),
        ("<a>_{i,j}", {"a": "H_2"}, r"\left(H_2\right)_{i,j}"),
        (r"e^{<a>}", {"a": "A + B"}, "e^{A + B}"),
    ],
)
def test_values_get_brackets_where_they_would_be_misread_without(template, values, tex):
    filled = {name: parse(value) for name, value in values.items()}
    assert latex(fill(parse(template), filled | {"g": gradient(parse("Y"))})) == tex


def test_a_name_cannot_move_the_cursor_or_turn_the_line():
    shown = one_line("\x1b[31m\u202e\r\n\ud800")
    assert shown == r"\x1b[31m\u202e\r\n\ud800"
    assert shown.isprintable()
