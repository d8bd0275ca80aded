"""Every op of the registry: what it declares, and what it gives on every sample it declares."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.record.formulas import first_sentence
from tests.compare import assert_same

# ---------------------------------------------------------------- declarations


def test_an_op_declares_all_that_the_project_reads(declared):
    """Both formulas, a rule for each input, a cost, a docstring with a doctest, and samples."""
    assert declared.tex
    assert set(declared.vjp_tex) == set(declared.inputs) == set(declared.rules)
    assert all(declared.vjp_tex.values())
    assert callable(declared.flops)
    assert f">>> {declared.name}(" in declared.__doc__
    assert list(declared.samples(np.random.default_rng(7)))


def test_an_op_and_each_of_its_rules_say_what_they_do_in_a_plain_sentence(declared):
    """Whole, without signs of formulas, other ops by their names; of the gradient, if a rule's."""
    functions = {name: rule.function for name, rule in declared.rules.items()}
    for name, function in {"": declared.kernel, **functions}.items():
        sentence = " ".join(word.rstrip(",") for word in first_sentence(function).split())
        plain = " ".join(word for word in sentence.split() if word not in mg.registry)
        assert re.fullmatch(r"[A-Z][^=^_{}\\√∂⊙²⊤]+[a-z0-9)]\.", plain), sentence
        assert not name or "gradient" in sentence, sentence


def test_no_two_ops_say_the_same_and_unchanged_is_true():
    said = [first_sentence(op.kernel) for op in mg.registry.values()]
    assert len({*said}) == len(said)
    rules = [rule.function for op in mg.registry.values() for rule in op.rules.values()]
    unchanged = [rule for rule in rules if "unchanged" in first_sentence(rule)]
    g = np.arange(3.0)
    assert len(unchanged) > 4
    assert all(rule(g) is g for rule in unchanged)


def test_a_call_has_a_cost_and_formulas_that_name_only_what_it_has(case, invoke):
    """`<name>` is an input, a setting, the result, or in a backward formula the gradient; all
    braces and brackets of a formula close.
    """
    op, out = case.op, np.asarray(invoke(case.op, case.inputs, case.settings))
    count = op.count_flops(case.inputs, case.settings, out)
    assert type(count) is int
    assert count >= 0
    tex, rules = op.formulas(case.inputs, case.settings, out)
    known = {*op.inputs, *op.settings, *op.input_names(len(case.inputs))}
    assert [*rules] == op.input_names(len(case.inputs))
    assert set(re.findall(r"<(\w+)>", tex)) <= known
    for formula in (tex, *rules.values()):
        assert set(re.findall(r"<(\w+)>", formula)) <= known | {"g", "out"}
        plain = re.sub(r"<\w+>|\\[{}#]|<|>", "", formula)
        for opened, closed in ("{}", "()", "[]"):
            assert plain.count(opened) == plain.count(closed), formula


@pytest.mark.only(lambda op: "loss" not in op.kernel.__module__)
def test_an_op_has_a_sample_without_entries(declared):
    """All but the mean over no rows, which does not exist."""
    sizes = []
    for sample in declared.samples(np.random.default_rng(7)):
        inputs, settings = declared.bind(*sample.args, **sample.kwargs)
        result = declared.forward(*inputs, *settings)
        sizes += map(np.size, (*inputs, result[0] if declared.auxiliary else result))
    assert 0 in sizes


def test_what_is_exported_is_an_op_or_composed_of_ops():
    """And a composed function is documented as an op is."""
    for name in mg.ops.__all__:
        exported = getattr(mg, name)
        assert exported is mg.registry.get(name, exported)
        assert ">>> " in exported.__doc__


# ---------------------------------------------------------------- values


def test_on_plain_arrays_an_op_gives_plain_numpy_equal_to_the_recorded_result(case, invoke, leaves):
    plain = invoke(case.op, case.inputs, case.settings)
    recorded = invoke(case.op, leaves(case), case.settings)
    assert isinstance(plain, np.ndarray | np.generic | float)
    assert isinstance(recorded, mg.Tensor)
    assert isinstance(recorded.data, np.ndarray)
    assert_same(recorded.numpy(), np.asarray(plain), 1e-14)


NUMPYS = set(
    "abs add broadcast_to clip concatenate cos cumsum divide einsum exp "
    "log log1p matmul max maximum mean min minimum multiply negative pad power prod reshape "
    "sign sin sqrt square stack std subtract sum swapaxes take take_along_axis "
    "tanh transpose var where".split()
)


def test_an_op_with_numpys_name_is_numpys_function():
    """Each such op is compared below, but for two words that mean something else in NumPy."""
    shared = {name for name in mg.registry if callable(getattr(np, name, None))}
    assert shared - {"astype", "broadcast"} == NUMPYS


def _by_numpy(op, inputs, given):
    """NumPy's function of the op's name, called as NumPy names its arguments."""
    theirs, settings = getattr(np, op.name), dict(zip(op.settings, given, strict=True))
    if op.name == "einsum":
        return theirs(settings["subscripts"], *inputs)
    if op.name == "clip":
        return theirs(*inputs, settings["low"], settings["high"])
    if op.variadic:
        return theirs(inputs, **settings)
    if op.name == "pad":
        return theirs(
            *inputs, settings["pad_width"], **{"constant_values": settings["constant_values"]}
        )
    if op.name == "take":
        return theirs(*inputs, settings["indices"], settings["axis"])
    if op.name == "where":
        return theirs(settings["condition"], *inputs)
    return theirs(*inputs, **settings)


@pytest.mark.only(lambda case: case.op.name in NUMPYS)
def test_an_op_is_numpys_function_of_the_same_name_and_that_on_tensors_is_the_op(case, leaves):
    op, expected = case.op, _by_numpy(case.op, case.inputs, case.settings)
    found = op.forward(*case.inputs, *case.settings)
    found = found[0] if op.auxiliary else found
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)
    out = _by_numpy(op, leaves(case), case.settings)
    assert out.node.op is op
    np.testing.assert_allclose(out.data, expected, rtol=1e-14, atol=1e-15)
