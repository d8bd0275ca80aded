"""Every op of the registry: what it declares, and what it gives on every sample it declares."""

import re

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same


def first_sentence(function):
    return re.split(r"(?<=[.])\s", " ".join((function.__doc__ or "").split()))[0]


def test_an_op_declares_all_that_the_project_reads(declared):
    """Both formulas, a rule for each input, a cost, a docstring with a doctest, and samples."""
    assert declared.tex
    assert set(declared.vjp_tex) == set(declared.inputs) == set(declared.rules)
    assert all(declared.vjp_tex.values())
    assert callable(declared.flops)
    assert f">>> {declared.name}(" in declared.__doc__
    assert list(declared.samples(np.random.default_rng(7)))


def test_an_op_and_each_of_its_rules_say_what_they_do_in_a_plain_sentence(declared):
    """Without LaTeX; a rule need not say anything."""
    rules = [rule.function for rule in declared.rules.values() if rule.function.__doc__]
    for function in (declared.kernel, *rules):
        words = first_sentence(function).split(": ")[0].rstrip(".")
        assert re.fullmatch(r"[A-Z][^\\{}]+[\w)]", words), words


def test_a_call_has_a_cost_and_formulas_that_name_only_what_it_has(case, invoke):
    """`<name>` is an input, a setting, the result, or in a backward formula the gradient; all
    braces and brackets of a formula close.
    """
    op, out = case.op, np.asarray(invoke(case.op, case.inputs, case.settings))
    assert op.count_flops(case.inputs, case.settings, out) >= 0
    tex, rules = op.formulas(case.inputs, case.settings, out)
    known = {*op.inputs, *op.settings, *rules}
    assert len(rules) == len(case.inputs)
    assert set(re.findall(r"<(\w+)>", tex)) <= known
    for formula in (tex, *rules.values()):
        assert set(re.findall(r"<(\w+)>", formula)) <= known | {"g", "out"}
        plain = re.sub(r"<\w+>|\\[{}#]|<|>", "", formula)
        for opened, closed in ("{}", "()", "[]"):
            assert plain.count(opened) == plain.count(closed), formula


COSTS = {  # by hand, of a call on ones of these shapes
    "linear": ([(3, 5), (5, 7), (7,)], 2 * 3 * 5 * 7 + 3 * 7),
    "layer_norm": ([(3, 5), (5,), (5,)], 7 * 15 + 2 * 3),
    "conv2d": ([(2, 3, 5, 5), (4, 3, 3, 3), (4,)], 2 * 72 * 27 + 72),
    "tiled_attention": ([(3, 5), (7, 5), (7, 2)], 21 * (2 * 5 + 5 + 2 * 2)),
}


@pytest.mark.parametrize("name", COSTS)
def test_the_cost_of_a_call_is_counted_by_hand(name):
    shapes, expected = COSTS[name]
    with mg.trace() as t:
        getattr(mg, name)(*(mg.tensor(np.ones(shape)) for shape in shapes))
    assert sum(entry.flops or 0 for entry in t) == expected


@pytest.mark.only(lambda op: not op.kernel.__module__.endswith("losses"))
def test_an_op_has_a_sample_without_entries(declared):
    """All but the means over no rows, which do not exist."""
    sizes = []
    for sample in declared.samples(np.random.default_rng(7)):
        result = declared(*sample.args, **sample.kwargs)
        given = [x for value in sample.args for x in (value if type(value) is list else [value])]
        sizes += [np.size(x) for x in (*given, result) if isinstance(x, np.ndarray)]
    assert 0 in sizes


def test_what_is_exported_is_an_op_or_composed_of_ops():
    """And a composed function is documented as an op is."""
    for name in mg.ops.__all__:
        exported = getattr(mg, name)
        assert exported is mg.registry.get(name, exported)
        assert ">>> " in exported.__doc__


def test_on_plain_arrays_an_op_gives_plain_numpy_equal_to_the_recorded_result(case, invoke, leaves):
    plain = invoke(case.op, case.inputs, case.settings)
    recorded = invoke(case.op, leaves(case), case.settings)
    assert isinstance(plain, np.ndarray | np.generic | float)
    assert isinstance(recorded, mg.Tensor)
    assert_same(recorded.numpy(), np.asarray(plain), 1e-14)


OTHERWISE = {  # in NumPy: how it takes the settings
    "einsum": lambda f, inputs, s: f(s["subscripts"], *inputs),
    "clip": lambda f, inputs, s: f(*inputs, s["low"], s["high"]),
    "pad": lambda f, inputs, s: f(*inputs, s.pop("pad_width"), **s),
    "take": lambda f, inputs, s: f(*inputs, s["indices"], s["axis"]),
    "where": lambda f, inputs, s: f(s["condition"], *inputs),
    "concatenate": lambda f, inputs, s: f(inputs, **s),
    "stack": lambda f, inputs, s: f(inputs, **s),
}
NOT_NUMPYS = {"astype", "broadcast"}  # words that mean something else there


@pytest.mark.only(lambda case: hasattr(np, case.op.name) and case.op.name not in NOT_NUMPYS)
def test_an_op_is_numpys_function_of_the_same_name_and_that_on_tensors_is_the_op(case, leaves):
    op, theirs = case.op, getattr(np, case.op.name)
    call = OTHERWISE.get(op.name, lambda f, inputs, s: f(*inputs, **s))
    settings = dict(zip(op.settings, case.settings, strict=True))
    expected = call(theirs, case.inputs, dict(settings))
    out = call(theirs, leaves(case), dict(settings))
    assert out.node.op is op
    np.testing.assert_allclose(out.data, expected, rtol=1e-14, atol=1e-15)
