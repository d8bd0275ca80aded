"""Declaring ops: what is generated from a declaration, and what a wrong one is told at import."""

import doctest

import pytest

import minigrad as mg
from minigrad.engine.op import op, registry
from minigrad.errors import DeclarationError
from tests.compare import refusals
from tests.engine.declaring import AFFINE, affine, declare


def double(x):
    """2x.

    >>> import numpy as np
    >>> double(np.ones(2))
    array([2., 2.])
    """
    return 2 * x


# ---------------------------------------------------------------- declarations that are refused


def test_a_rule_that_names_what_it_cannot_have_fails_at_import():
    made = declare(double)
    with pytest.raises(DeclarationError) as error:

        @made.vjp("x")
        def _(g, weight):
            return g * weight

    assert str(error.value) == (
        "op double, rule for ('x',): a rule takes g first and then only what the op has "
        "(out, x, x_shape); got (g, weight)"
    )


@pytest.mark.parametrize(
    "rule",
    [
        lambda out: out,
        lambda: 0,
        lambda g, i: g,
        lambda g, others: g,
        lambda g, needed: g,
        lambda g, power_shape: g,
    ],
)
def test_a_rule_takes_g_first_and_only_what_its_kind_of_op_has(rule):
    made = declare(affine, vjp_tex=AFFINE)
    with pytest.raises(DeclarationError, match=r"op affine, rule for \('x',\)"):
        made.vjp("x")(rule)


@pytest.mark.parametrize("inputs", [(), ("y",), ("x", "y"), ("power",)])
def test_a_rule_serves_inputs_only(inputs):
    with pytest.raises(DeclarationError, match="op affine, rule for"):
        declare(affine, vjp_tex=AFFINE).vjp(*inputs)(lambda g: g)


def test_an_op_is_declared_once():
    before = dict(registry)
    with pytest.raises(DeclarationError, match="op exp: declared twice"):

        @op(tex="", vjp_tex={"x": ""}, flops=lambda out: 0, samples=lambda rng: [])
        def exp(x):
            return x

    assert registry == before


def test_a_missing_rule_is_named_when_it_is_needed():
    made = declare(double)
    assert made(mg.tensor(1.0)).item() == 2.0
    with pytest.raises(DeclarationError, match="op double: no backward rule for input 'x'"):
        made(mg.tensor(1.0, requires_grad=True))


# ---------------------------------------------------------------- what an op keeps of its kernel


def test_an_op_keeps_its_kernels_name_docstring_and_signature():
    made = declare(double)
    assert made.__name__ == made.name == "double"
    assert made.__doc__ == double.__doc__
    assert made.__wrapped__ is double
    assert repr(made) == "<op double(x)>"


def test_doctest_finds_the_examples_of_every_op():
    """`@op` returns an object, not a function: without care its doctests vanish silently."""
    finder = doctest.DocTestFinder()
    for one in registry.values():
        found = finder.find(one, name=one.name, module=__import__(one.__module__, fromlist=["x"]))
        assert sum(len(test.examples) for test in found) > 0, one.name


test_what_is_refused = refusals(
    (lambda: declare(double, vjp_tex={"x": "<g>", "y": "<g>"}),
     DeclarationError, r"op double: vjp_tex names \['y'\], which are no parameters"),
    (lambda: declare(double, flops=lambda weight: weight.size),
     DeclarationError, r"op double: flops names \['weight'\], which are no parameters"),
    (lambda: declare(affine, vjp_tex=AFFINE, variadic=True),
     DeclarationError, "op affine: variadic=True takes one input, got"),
)  # fmt: skip
