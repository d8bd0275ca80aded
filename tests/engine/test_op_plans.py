"""Plans: what is generated from a declaration, and that it saves and runs just what is needed."""

import numpy as np
import pytest

import minigrad as mg
from tests.engine.declaring import AFFINE, affine, declare


@pytest.fixture
def made():
    one = declare(affine, vjp_tex=AFFINE)

    @one.vjp("x")
    def _(g, w, power):
        return g * w**power

    @one.vjp("w")
    def _(g, x, w, power):
        return g * x * power * w ** (power - 1)

    @one.vjp("b")
    def _(g):
        return g

    return one


def test_plans_are_made_once_and_anew_when_a_rule_is_replaced(made):
    x = mg.tensor(2.0, requires_grad=True)
    made(x, 3.0, 0.0).backward()
    plans = dict(made.plans)
    made(x, 3.0, 0.0)
    assert made.plans == plans
    made.vjp("x")(lambda g: g * 100)
    x.grad = None
    made(x, 3.0, 0.0).backward()
    np.testing.assert_allclose(x.grad, 100)


def test_settings_come_by_position_or_by_name(made):
    x = mg.tensor(2.0, requires_grad=True)
    for out in (
        made(x, 3.0, 1.0, 2, 10.0),
        made(x, 3.0, 1.0, shift=10.0, power=2),
        made(b=1.0, w=3.0, x=x, power=2, shift=10.0),
    ):
        assert out.item() == 2 * 9 + 1 + 10
        assert out.node.settings == (2, 10.0)


def test_a_joint_rule_runs_once_and_is_told_what_is_needed():
    calls = []
    one = declare(affine, vjp_tex=AFFINE)

    @one.vjp("x", "w")
    def _(g, x, w, needed):
        calls.append(needed)
        return g * w if needed[0] else None, g * x if needed[1] else None

    one.vjp("b")(lambda g: g)
    x, w, b = (mg.tensor(v, requires_grad=True) for v in (2.0, 3.0, 5.0))
    one(x, w, b).backward()
    np.testing.assert_allclose([x.grad, w.grad, b.grad], [3, 2, 1])
    mg.grad(one(x, w, b), w)
    one(x, 3.0, b).backward()
    assert calls == [(True, True), (False, True), (True, False)]


def test_by_products_reach_the_rules_and_not_the_caller():
    def halves(x):
        return x / 2, x > 0

    one = declare(halves, auxiliary=("positive",))
    one.vjp("x")(lambda g, positive: g * positive)
    x = mg.tensor([1.0, -1.0], requires_grad=True)
    out = one(x)
    assert out.node.plan.names == ("positive",)
    out.sum().backward()
    np.testing.assert_allclose(x.grad, [1, 0])
    np.testing.assert_allclose(one(np.array([4.0])), [2.0])


def test_an_op_of_any_number_of_inputs_saves_per_position():
    def product(xs):
        out = 1.0
        for x in xs:
            out = out * x
        return np.asarray(out)

    one = declare(product, vjp_tex={"xs": "<g>"}, variadic=True)

    @one.vjp("xs")
    def _(g, i, others):
        assert others[i] is None
        for j, other in enumerate(others):
            g = g if j == i else g * other
        return g

    a, b, c = (mg.tensor(v, requires_grad=True) for v in (2.0, 3.0, 5.0))
    out = one([a, b, c])
    assert out.node.plan.names == ("xs1", "xs2", "xs0")
    out.backward()
    np.testing.assert_allclose([a.grad, b.grad, c.grad], [15, 10, 6])
    frozen = one([a, mg.tensor(3.0), mg.tensor(5.0)])
    assert frozen.node.plan.names == ("xs1", "xs2")
    assert len(frozen.node.edges) == 1
