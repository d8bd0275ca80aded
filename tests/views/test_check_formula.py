"""Shown formulas are held to the code: what each op says of itself in LaTeX is what it computes."""

from functools import cache
from itertools import islice

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.op import call
from minigrad.errors import UnreadableFormulaError
from minigrad.views.formula import parse
from minigrad.views.formula.evaluate import evaluate


def _ops():
    return [op for op in mg.registry.values() if not op.effect]


@cache
def checks(op, spoil="", most=None):
    """The checks of an op, its formulas changed if asked for; of one with kinks, at ties too."""
    declared, samples = op.formulas, op.samples

    def changed(*call):
        tex, rules = declared(*call)
        change = SPOILS[spoil] if spoil else str
        return change(tex), {name: change(rule) for name, rule in rules.items()}

    def with_ties(rng):
        for one in islice(samples(rng), most):
            yield one
            if not op.analytic and op.name != "fake_quantize":  # whose scale would be 0
                yield call(*map(_whole, one.args), **one.kwargs)

    vars(op).update(formulas=changed, samples=with_ties)
    try:
        return mg.check_formula(op)
    finally:
        vars(op)["samples"] = samples
        del vars(op)["formulas"]


def _whole(value):
    floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return np.round(value) if floats else value


@pytest.mark.parametrize("op", _ops(), ids=lambda op: op.name)
def test_every_formula_gives_what_the_code_computes(op):
    """None is left unread, and none is left out."""
    assert [check for check in checks(op) if not check.ok] == []
    parts = {check.part.rstrip("0123456789") for check in checks(op)}
    assert parts == {"out", *op.vjp_tex}


SPOILS = {
    "sign": lambda tex: "-" + _grouped(tex),
    "divided": lambda tex: tex.replace(r"\odot", r"\oslash", 1),
    "not transposed": lambda tex: tex.replace(r"^\top", "", 1),
    "another gradient": lambda tex: tex.replace("<out>", "<g>", 1),
    "seven times": lambda tex: "7 " + _grouped(tex),
    "subtracted": lambda tex: tex.replace(" + ", " - ", 1),
}


def _grouped(tex):
    body, quad, definitions = tex.partition(r", \quad")
    return f"({body}){quad}{definitions}"


ALIKE = {
    ("sign", "x"),  # a gradient that is 0 everywhere
    ("abs", "x"),  # division by a factor that is 1 or -1
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_formula_that_is_spoiled_is_caught(spoil):
    """Every rule of every op, where the change changes the text, on one of two samples at least."""
    seen = {}
    for op in _ops():
        for before, after in zip(checks(op, most=2), checks(op, spoil, 2), strict=True):
            if before.formula != after.formula and before.part != "out":
                part = op.name, before.part.rstrip("0123456789")
                seen[part] = seen.get(part, False) or not after.ok
    missed = {part for part, caught in seen.items() if not caught}
    assert len(seen) > len(missed)
    assert missed <= ALIKE


def test_a_users_own_op_is_held_to_its_formula_too():
    def declare(vjp_tex):
        @mg.op(tex=r"3 <x>", vjp_tex={"x": vjp_tex}, samples=lambda rng: [call(rng.normal(size=5))])
        def tripled_for_a_test(x):
            """Three times x."""
            return 3.0 * x

        @tripled_for_a_test.vjp("x")
        def _(g):
            return 3.0 * g

        return tripled_for_a_test

    try:
        assert all(c.ok for c in mg.check_formula(declare(r"3 <g>")))
        [_, wrong] = mg.check_formula(declare(r"7 <g>"))
        assert not wrong.ok
        assert wrong.part == "x"
    finally:
        mg.registry.pop("tripled_for_a_test")


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (r"\sum_j <x>_{i,j}", [3.0, 12.0]),
        (r"\tfrac12 <x> \odot <x> \oslash <x>", [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5]]),
        (r"\operatorname{mean}_{i}\, <x>_{i,j} + n, \quad n = 2", [3.5, 4.5, 5.5]),
        (r"[1 < <x> \le 4]", [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]),
        (r"<x> \, <x>^\top", [[5.0, 14.0], [14.0, 50.0]]),
        (r"\sum_{j' \le j} <x>_{i,j'}", [[0.0, 1.0, 3.0], [3.0, 7.0, 12.0]]),
        (r"\max(<x>, 1, 2)", [[2.0, 2.0, 2.0], [3.0, 4.0, 5.0]]),
    ],
)
def test_the_grammar(formula, value):
    x = np.arange(6.0).reshape(2, 3)
    with np.errstate(invalid="ignore"):
        found = evaluate(parse(formula), {"x": x})
    np.testing.assert_array_equal(np.nan_to_num(found), value)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        (r"<x> + m", "m"),
        (r"\sum_k <x>_{i,j}", "k labels no axis"),
        (r"\sigma, \quad \sigma = \sqrt{\sigma + 1}", "defined by itself"),
        (r"\operatorname{frobnicate}(<x>)", "frobnicate"),
        (r"<x>_{i,j,k}", "3 labels for 2 axes"),
        (r"\operatorname{softmax}^2(<x>)", "the superscript 2 of softmax"),
        (r"\sum_{j=1}^3 <x>_{i,j}", "the superscript 3 of Σ"),
        (r"\sum_{j=1} <x>_{i,j}", r"\\sum below which stands ="),
        (r"\max_{j' \le j} <x>_{i,j'}", r"\\max below which stands \\le"),  # no sum of them
        (r"\max_j(<x>, 2)", "the subscript j of max"),
        (r"h, \quad h_t = <x>_t - <x>_{t-1}", "x has no step 0"),  # not the last row
        (r"h, \quad h_t = <x>_t + <x>_{2t}", "the index 2 t"),  # not 2 + t
        (r"(h_a, \ldots, h_b), \quad h_t = <x>_t", "the dots between h_a and h_b"),
    ],
)
def test_a_sign_that_nothing_defines_is_named(formula, said):
    with pytest.raises(UnreadableFormulaError, match=said):
        evaluate(parse(formula), {"x": np.ones((2, 3))})


def test_a_recurrence_of_more_steps_than_python_can_nest_is_refused():
    formula = parse(r"z, \quad z_t = <x>_t + z_{t+1}, \quad z_T = <x>_T")
    np.testing.assert_array_equal(evaluate(formula, {"x": np.ones(3)}), [3, 2, 1])
    with pytest.raises(UnreadableFormulaError, match="more steps"):
        evaluate(formula, {"x": np.ones(3000)})
