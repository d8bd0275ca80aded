"""Shown formulas are held to the code: what each op says of itself in LaTeX is what it computes."""

from collections.abc import Callable

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.op import Op, call
from minigrad.errors import UnreadableFormulaError
from minigrad.views.formula import parse
from minigrad.views.formula.evaluate import evaluate

RECURRENCE = "a recurrence over time; layers/hand_derived_recurrent.py is its check"
WINDOWS = "an index that is computed, such as i + k"
UNREAD = {
    ("rnn", None): RECURRENCE,
    ("gru", None): RECURRENCE,
    ("lstm", None): RECURRENCE,
    ("conv1d", None): WINDOWS,
    ("conv2d", None): WINDOWS,
    ("conv_transpose1d", None): WINDOWS,
    ("conv_transpose2d", None): WINDOWS,
    ("windows", None): WINDOWS,
    ("add_windows", None): WINDOWS,
    ("max_pool", None): WINDOWS,
    ("avg_pool", None): WINDOWS,
    ("dropout", None): "which entries are kept is drawn at random",
    ("prod", "x"): "a product over all but one entry of several axes",
}
"""What the grammar cannot evaluate, with the reason; this table only shrinks."""


def _ops() -> list[Op]:
    return [op for op in mg.registry.values() if not op.effect]


def _may_be_unread(op: str, part: str) -> bool:
    return (op, None) in UNREAD or (op, part) in UNREAD


@pytest.mark.parametrize("op", _ops(), ids=lambda op: op.name)
def test_every_formula_gives_what_the_code_computes(op: Op) -> None:
    found = mg.check_formula(op)
    wrong = [c for c in found if not c.ok and not (c.unread and _may_be_unread(c.op, c.part))]
    assert wrong == []


def test_what_is_listed_as_unread_is_unread() -> None:
    """A formula that can be read by now has no business in the table."""
    unread = {(c.op, c.part) for op in _ops() for c in mg.check_formula(op) if c.unread}
    for op, part in UNREAD:
        assert any(name == op and part in (None, where) for name, where in unread), (op, part)


SPOILS: dict[str, Callable[[str], str]] = {
    "sign": lambda tex: "-" + _grouped(tex),
    "divided": lambda tex: tex.replace(r"\odot", r"\oslash", 1),
    "not transposed": lambda tex: tex.replace(r"^\top", "", 1),
    "another gradient": lambda tex: tex.replace("<out>", "<g>", 1),
    "seven times": lambda tex: "7 " + _grouped(tex),
}


def _grouped(tex: str) -> str:
    body, quad, definitions = tex.partition(r", \quad")
    return f"({body}){quad}{definitions}"


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_formula_that_is_spoiled_is_caught(spoil: str) -> None:
    """One rule of each op, where the change changes the text and the gradient is not zero."""
    missed, caught = [], 0
    for op in _ops():
        right = mg.check_formula(op)
        spoiled = mg.check_formula(op, spoil=SPOILS[spoil])
        pairs = zip(right, spoiled, strict=True)
        changed = [
            (before, after)
            for before, after in pairs
            if before.ok and before.part != "out" and before.formula != after.formula
        ]
        if not changed or not op.rules:
            continue
        if all(after.ok for _, after in changed):
            missed.append(op.name)
        else:
            caught += 1
    assert caught > 0
    same = {
        "sign",
        "abs",
        "l1_loss",
    }  # a gradient that is 0 everywhere; division by a factor that is ±1
    assert set(missed) <= same


def test_a_users_own_op_is_held_to_its_formula_too() -> None:
    def declare(vjp_tex: str) -> Op:
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
    ],
)
def test_the_grammar(formula: str, value: list[float]) -> None:
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
    ],
)
def test_a_sign_that_nothing_defines_is_named(formula: str, said: str) -> None:
    with pytest.raises(UnreadableFormulaError, match=said):
        evaluate(parse(formula), {"x": np.ones((2, 3))})
