"""Every op's rules on every sample: their gradients, and what they save, write and leave alone."""

from itertools import chain, combinations

import numpy as np
import pytest

import minigrad as mg
from minigrad.check.rules import at_kinks
from minigrad.engine.backward import reduce_to_edge
from minigrad.ops.arithmetic import broadcastable
from tests.compare import assert_same


def test_gradcheck_agrees_at_first_and_second_order(case, invoke):
    def f(*free):
        inputs = list(case.inputs)
        for i, x in zip(case.free, free, strict=True):
            inputs[i] = x
        return invoke(case.op, inputs, case.settings)

    free = [case.inputs[i] for i in case.free]
    if not any(x.size for x in free):
        return
    report = mg.gradcheck(f, free, order=2)
    assert report.order == 2
    assert report.method == ("complex step" if case.op.analytic else "central differences")
    assert not report.kinks
    assert at_kinks(case.op, case.inputs, case.settings, f(*free)) is None


def test_a_recorded_rule_gives_the_same_numbers_as_a_plain_one(case, invoke, leaves, cotangent):
    out = invoke(case.op, tensors := leaves(case), case.settings)
    leaves = [tensors[i] for i in case.free]
    u = cotangent(out.shape)
    recorded = mg.grad(out, leaves, u, create_graph=True)
    for one, other, leaf in zip(recorded, mg.grad(out, leaves, u), leaves, strict=True):
        assert isinstance(one, mg.Tensor)
        assert (other.shape, other.dtype) == (leaf.shape, leaf.dtype)
        np.testing.assert_allclose(one.data, other, rtol=1e-13, atol=1e-15)


@pytest.mark.only(lambda case: case.op.name != "astype")
def test_float32_stays_float32_forward_and_backward(case, invoke, leaves, cotangent):
    tensors, exact = leaves(case, np.float32), leaves(case)
    narrow = [
        s.astype(np.float32) if isinstance(s, np.ndarray) and s.dtype.kind == "f" else s
        for s in case.settings
    ]
    out, reference = invoke(case.op, tensors, narrow), invoke(case.op, exact, case.settings)
    assert out.dtype == np.float32
    u, free = cotangent(out.shape, np.float32), [tensors[i] for i in case.free]
    recorded = mg.grad(out, free, u, create_graph=True)
    assert {gradient.dtype for gradient in recorded} <= {np.dtype(np.float32)}
    out = invoke(case.op, tensors, narrow)
    for result in (out, reference):
        result.backward(u)
    for i in case.free:
        mine, theirs = tensors[i].grad, exact[i].grad
        assert mine.dtype == np.float32
        size = np.abs(theirs).max(initial=1e-30)
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4 * size)


LAYOUTS = {
    "plain": np.copy,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
    "fortran": lambda x: np.asarray(x.T.copy().T) if x.ndim else x,
}


def test_the_layout_of_an_input_does_not_matter(case, invoke, cotangent):
    results = []
    for laid_out in LAYOUTS.values():
        inputs = [
            mg.Tensor(laid_out(x), None, i in case.free) if isinstance(x, np.ndarray) else x
            for i, x in enumerate(case.inputs)
        ]
        out = invoke(case.op, inputs, case.settings)
        out.backward(cotangent(out.shape))
        results.append([out.data, *(inputs[i].grad for i in case.free)])
    for name, result in zip(LAYOUTS, results, strict=True):
        for found, plain in zip(result, results[0], strict=True):
            np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.only(lambda op: op.requires is broadcastable and op.name != "mask_add")
def test_a_python_number_takes_the_other_inputs_dtype(declared):
    x = mg.tensor(np.array([1.5, 0.5], np.float32), requires_grad=True)
    for out in (declared(x, 3.0), declared(3.0, x), declared(x, 3), declared(3, x)):
        assert out.dtype == np.float32
        assert mg.grad(out, x, np.ones(2)).dtype == np.float32


@pytest.mark.only(lambda op: op.requires is broadcastable and op.name != "mask_add")
@pytest.mark.parametrize("a", [2, 2.0, True])
def test_two_python_numbers_give_what_their_arrays_give(a, declared):
    expected = declared(np.array(a), np.array(3))
    result = declared(a, 3)
    assert (result, result.dtype) == (expected, expected.dtype)


@pytest.mark.parametrize("norm", [lambda x, w: mg.layer_norm(x, w, None), mg.rms_norm])
def test_a_norm_of_many_constant_rows_goes_to_second_order_in_its_weight(norm, rng):
    rows = rng.normal(size=(257, 3))
    assert mg.gradcheck(lambda w: norm(rows, w), [rng.normal(size=3)], order=2).order == 2


@pytest.mark.only(lambda case: len(case.free) > 1 and case.op.name != "mask_add")
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integers_and_booleans_are_constants(case, dtype, invoke, leaves, cotangent):
    """An input of either counts as the same floats do; no gradient is asked for it."""
    for i in case.free:
        others = tuple(j for j in case.free if j != i)
        whole = np.rint(2 * np.abs(case.inputs[i])).astype(dtype)
        results = []
        for constant in (whole, whole.astype(np.float64)):
            tensors = leaves(case, needed=others)
            tensors[i] = constant
            with np.errstate(divide="ignore", invalid="ignore"):
                out = invoke(case.op, tensors, case.settings)
                u = cotangent(out.shape)
                results.append([out.data, *mg.grad(out, [tensors[j] for j in others], u)])
            assert out.node.plan.names == tuple(case.op.input_name(i) for i in others)
        for found, expected in zip(*results, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------- what is saved and written


def _subsets(free):
    return chain.from_iterable(combinations(free, n) for n in range(1, len(free) + 1))


def _named_by_rules(op, needed):
    """What the rules that may run name."""
    names = set()
    for i in needed:
        for name in op.rules[op.inputs[0 if op.variadic else i]].needs:
            names.add(f"{name}{i}" if op.variadic and name in ("i", "others") else name)
    return names


def test_a_node_saves_exactly_what_the_rules_of_its_needed_inputs_name(case, invoke, leaves):
    op = case.op
    for needed in _subsets(case.free):
        tensors = leaves(case, needed=needed)
        out = invoke(op, tensors, case.settings)
        node = out.node
        assert node.plan.names == tuple(op.input_name(i) for i in needed)
        assert len(node.edges) == len(needed)
        assert len(node.plan.saves) == len(set(node.plan.saves)) == len(node.saved)
        assert set(node.plan.saves) == _named_by_rules(op, needed)
        for name, value in zip(node.plan.saves, node.saved, strict=True):
            if name == "out":
                assert value is out._data
            elif name in op.inputs and not op.variadic:
                given = tensors[op.inputs.index(name)]
                assert not isinstance(given, mg.Tensor) or value is given._data
    assert invoke(op, leaves(case, needed=()), case.settings).node is None


def test_no_kernel_and_no_rule_writes_to_what_it_is_given(case, invoke, leaves, cotangent):
    """Everything that a kernel or a rule gets is read-only here, so a write would raise."""
    tensors = leaves(case)
    for x in tensors:
        if isinstance(x, mg.Tensor):
            x._data.flags.writeable = False
    out = invoke(case.op, tensors, case.settings)
    out._data.flags.writeable = False
    u = cotangent(out.shape)
    u.flags.writeable = False
    for part, edge in zip(out.node.run_rules(u, None), out.node.edges, strict=True):
        assert reduce_to_edge(part, edge, out.node).shape == edge.shape


def test_each_gradient_alone_equals_the_one_found_with_the_others(case, invoke, leaves, cotangent):
    tensors = leaves(case)
    out = invoke(case.op, tensors, case.settings)
    u = cotangent(out.shape)
    together = mg.grad(out, [tensors[i] for i in case.free], u)
    for i, expected in zip(case.free, together, strict=True):
        alone = leaves(case, needed=(i,))
        assert_same(mg.grad(invoke(case.op, alone, case.settings), alone[i], u), expected, 0)
        out = invoke(case.op, tensors, case.settings)
        np.testing.assert_array_equal(mg.grad(out, tensors[i], u), expected)
