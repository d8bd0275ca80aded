"""LaTeX, names and numbers as plain text."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from layers import multi_head_steps, self_attention_steps
from minigrad.views.plain import one_line, plain

FORMULAS = [tex for op in mg.registry.values() for tex in (op.tex, *op.vjp_tex.values())]
W = np.ones((4, 4))
STEPS = [
    *self_attention_steps(X=W, W_Q=W, W_K=W, W_V=W, W_O=W, b_Q=W[0], b_O=W[0], grad_output=W),
    *multi_head_steps(
        n_heads=4, n_kv_heads=2, X=W, W_Q=W, W_K=W[:, :2], W_V=W[:, :2], W_O=W, grad_output=W
    ),
]
FORMULAS += [tex for step in STEPS for tex in (step.forward, *step.formulas.values())]


@pytest.mark.parametrize("tex", dict.fromkeys(FORMULAS))
def test_no_formula_keeps_a_sign_of_latex(tex: str) -> None:
    for ascii in (False, True):
        text = plain(tex, ascii=ascii)
        assert text, tex
        assert not set("\\{}$") & set(text), text
        assert text.count("(") == text.count(")")
        assert not text.endswith(("^", "_"))
    assert plain(tex, ascii=True).isascii()


@pytest.mark.parametrize(
    ("tex", "text", "ascii"),
    [
        (r"O^\top \frac{\partial L}{\partial W_O}", "Oᵀ ∂L/∂W_O", "O^T dL/dW_O"),
        (r"\frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}}", "(x - μ)/√(σ² + ε)", None),
        (r"a^{\circ (b - 1)}", "a^(b - 1)", "a^(b - 1)"),
        (r"\tfrac12 x", "1/2 x", "1/2 x"),
        (r"\hat g", "g\u0302", "g_hat"),
        (r"S_{\mathrm{raw}}", "S_raw", "S_raw"),
        (r"\unknowncommand x", "unknowncommand x", None),
        ("", "", ""),
        ("x^", "x^()", None),
    ],
)
def test_formulas_read_as_people_write_them(tex: str, text: str, ascii: str | None) -> None:
    assert plain(tex) == text
    if ascii is not None:
        assert plain(tex, ascii=True) == ascii


def test_placeholders_take_the_names_given() -> None:
    assert plain(mg.registry["matmul"].vjp_tex["b"], {"a": "X", "g": "∂L/∂Q"}) == "Xᵀ ∂L/∂Q"


def test_a_name_cannot_move_the_cursor_or_turn_the_line() -> None:
    shown = one_line("\x1b[31m\u202e\r\n\ud800")
    assert shown == r"\x1b[31m\u202e\r\n\ud800"
    assert shown.isprintable()
