"""Declaring ops: what is generated, saved and run; what a wrong declaration is told at import."""

import doctest
import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.op import op, registry
from minigrad.errors import DeclarationError, MinigradError
from tests.compare import refusals
from tests.engine.declaring import declare


def double(x):
    """2x.

    >>> import numpy as np
    >>> double(np.ones(2))
    array([2., 2.])
    """
    return 2 * x


def affine(x, w, b, power=1, shift=0.0):
    """x w^power + b + shift."""
    return x * w**power + b + shift


AFFINE = {"x": "1", "w": "2", "b": "3"}


# ---------------------------------------------------------------- declarations


def test_an_op_is_declared_once():
    before = dict(registry)
    with pytest.raises(DeclarationError, match="op exp: declared twice"):

        @op(tex="", vjp_tex={"x": ""}, flops=lambda out: 0, samples=lambda rng: [])
        def exp(x):
            return x

    assert registry == before


# ---------------------------------------------------------------- what an op keeps of its kernel


def test_an_error_of_a_users_kernel_is_the_cause_of_ours_and_an_ops_own_is_not():
    def failing(x):
        raise ValueError("odd")

    with pytest.raises(MinigradError, match="failing\\(x\\): odd") as caught:
        declare(failing)(mg.tensor(1.0))
    assert str(caught.value.__cause__) == "odd"
    with pytest.raises(MinigradError) as caught:
        mg.reshape(mg.tensor(1.0), (2,))
    assert caught.value.__cause__ is None


def test_doctest_finds_the_examples_of_every_op():
    """`@op` returns an object, not a function: without care its doctests vanish silently."""
    finder = doctest.DocTestFinder()
    for declared in registry.values():
        module = sys.modules[declared.__module__]
        tests = finder.find(declared, name=declared.name, module=module)
        assert any(test.examples for test in tests), declared.name


# ---------------------------------------------------------------- plans: what is saved and run


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


def test_a_parameter_may_have_a_name_that_the_engine_uses_elsewhere():
    """A setting `i` is no position and `needed` no truth values, also for formulas of the call."""

    def pick(kernel, i, needed=1.0):
        return kernel[i] * needed

    named = {"kernel": lambda i: f"<g> e_{i}"}
    one = declare(pick, tex=lambda i: f"<kernel>_{i}", vjp_tex=named)

    @one.vjp("kernel")
    def _(g, kernel_shape, i, needed):
        d = np.zeros(kernel_shape)
        d[i] = g * needed
        return d

    x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for out in (one(x, 2, needed=5.0), one(x, needed=5.0, i=2)):
        assert out.item() == 15.0
        np.testing.assert_array_equal(mg.grad(out, x), [0.0, 0.0, 5.0])
    formulas = one.formulas((x.data,), (2, 5.0), out.data)
    assert formulas == ("<kernel>_2", {"kernel": "<g> e_2"})


def test_by_products_reach_the_rules_and_not_the_caller():
    def halves(x):
        return x / 2, x > 0

    one = declare(halves, auxiliary=("positive",))
    one.vjp("x")(lambda g, positive: g * positive)
    x = mg.tensor([1.0, -1.0], requires_grad=True)
    out = one(x)
    assert out.node.plan.saves == ("positive",)
    out.sum().backward()
    np.testing.assert_allclose(x.grad, [1, 0])
    np.testing.assert_allclose(one(np.array([4.0])), [2.0])


test_what_is_refused = refusals(
    (lambda: declare(lambda x, out: x + out), DeclarationError, "got out"),
    (lambda: declare(double).vjp("x")(lambda g, weight: g * weight), DeclarationError,
     r"^op double, rule for \('x',\): a rule takes g first and then only what the op has "
     r"\(x, out, x_shape\); got \('g', 'weight'\)$"),
    (lambda: declare(double).vjp("x")(lambda out: out), DeclarationError, "takes g first"),
    (lambda: declare(double).vjp("y")(lambda g: g), DeclarationError, "op double, rule for"),
    (lambda: declare(double)(mg.tensor(1.0, requires_grad=True)),
     DeclarationError, "op double: no backward rule for input 'x'"),
    (lambda: declare(double, vjp_tex={"x": "<g>", "y": "<g>"}),
     DeclarationError, "op double: vjp_tex must name its inputs.*got y"),
    (lambda: declare(double, flops=lambda weight: weight.size),
     DeclarationError, "op double: .*costs its parameters or out; got weight"),
    (lambda: declare(affine, vjp_tex=AFFINE, variadic=True),
     DeclarationError, "op affine: vjp_tex must name its inputs .one, if variadic."),
)  # fmt: skip
