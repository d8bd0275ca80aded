"""What a record says of a call: its own formulas, and nothing that it does not know."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import DeclarationError
from minigrad.recording.trace import TraceRecord


@pytest.fixture
def cube_like():
    """Declare an op for one test."""
    names = []

    def declare(**declaration):
        def op_of_a_record(x, power=2):
            """x to a power."""
            return x**power

        names.append("op_of_a_record")
        made = mg.op(**{"vjp_tex": {"x": "<g>"}} | declaration)(op_of_a_record)
        made.vjp("x")(lambda g, x, power: g * power * x ** (power - 1))
        return made

    yield declare
    for name in names:
        mg.registry.pop(name, None)


@pytest.fixture
def x(rng):
    return mg.tensor(rng.normal(size=(2, 3)), requires_grad=True, name="x")


@pytest.mark.parametrize(
    ("tex", "called", "unsaid"),
    [
        ("f(<x>)", {"power": 3}, ("power",)),
        ("f(<x>)", {}, ()),
        ("<x>^{<power>}", {"power": 3}, ()),
        (lambda x, power: rf"<x>^{{{power}}}", {"power": 3}, ()),
        (lambda x: rf"<x>, {x.ndim}", {"power": 3}, ("power",)),
    ],
)
def test_a_setting_that_no_formula_tells_is_unsaid_unless_left_alone(
    cube_like, x, tex, called, unsaid
):
    op = cube_like(tex=tex)
    with mg.trace() as t:
        op(x, **called)
    assert t.entries[-1].unsaid == unsaid


def test_a_formula_that_fails_is_named_as_the_declarations_fault(cube_like, x):
    op = cube_like(tex=lambda x: x.no_such_thing)
    with mg.trace() as t:
        op(x)
    with pytest.raises(DeclarationError, match="op op_of_a_record: a formula or its cost failed"):
        t.table()


def test_each_of_many_inputs_has_its_own_rule(rng, x):
    with mg.trace() as t:
        mg.concatenate([x, np.ones((2, 2)), x], axis=1)
    assert [*t.entries[-1].vjp_tex] == ["arrays0", "arrays1", "arrays2"]
    assert r"{:}3" in t.entries[-1].vjp_tex["arrays0"]
    assert r"5{:}8" in t.entries[-1].vjp_tex["arrays2"]


def test_a_graph_without_a_record_claims_only_what_it_knows(rng, x):
    joined = mg.concatenate([x, np.ones((2, 2))], axis=1)
    entry = TraceRecord.of(joined).entries[-1]
    assert "{:}" not in "".join(entry.vjp_tex.values())
    assert "concatenate" in entry.tex


def test_costs_and_formulas_leave_nothing_in_the_record(cube_like, x):
    op = cube_like(
        tex=lambda x: rf"{float(mg.sum(np.ones(x.shape))):g} <x>",
        flops=lambda x: int(mg.sum(mg.tensor(np.ones(x.shape))).item()),
    )
    with mg.trace() as t:
        op(x)
    assert [e.op for e in t.entries] == [None, "op_of_a_record"]
    assert t.entries[-1].flops == 6
