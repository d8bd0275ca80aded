"""What every op saves, and that kernels and rules leave alone what they are given."""

import inspect
from itertools import chain, combinations

import numpy as np

import minigrad as mg
from minigrad.engine.tensor import unbroadcast
from tests.compare import assert_same


def _subsets(free):
    return chain.from_iterable(combinations(free, n) for n in range(1, len(free) + 1))


def _named_by_rules(plan, count):
    """What the rules that may run name: the op's own, and those of the overlay that ran."""
    op, names = plan.op, set()
    inputs = [op.input_name(i) for i in plan.needed]
    rules = [(i, op.rules[name]) for i, name in zip(plan.needed, inputs, strict=True)]
    if plan.overlay is not None:
        every = zip(plan.needed, inputs, strict=True)
        rules += [(i, plan.overlay.rules[name]) for i, name in every if name in plan.overlay.rules]
    for i, rule in rules:
        for name in list(inspect.signature(rule.function).parameters)[1:]:
            if name == "others":
                names |= {f"{op.inputs[0]}{j}" for j in range(count) if j != i}
            elif op.variadic and name == op.inputs[0]:
                names |= {f"{name}{j}" for j in range(count)}
            elif name not in ("i", "needed"):
                names.add(name)
    return names


def test_a_node_saves_exactly_what_the_rules_of_its_needed_inputs_name(case, invoke, leaves):
    op = case.op
    for needed in _subsets(case.free):
        tensors = leaves(case, needed=needed)
        out = invoke(op, tensors, case.settings)
        node = out.node
        assert node.plan.needed == needed
        assert len(node.edges) == len(needed)
        assert len(node.plan.names) == len(set(node.plan.names)) == len(node.saved)
        assert set(node.plan.names) == _named_by_rules(node.plan, len(tensors))
        for name, value in zip(node.plan.names, node.saved, strict=True):
            position = node.plan.input_of(name)
            if name == "out":
                assert value is out._data
            elif position is not None and isinstance(tensors[position], mg.Tensor):
                assert value is tensors[position]._data
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
    for part, edge in zip(out.node.plan.backward(u, out.node.saved), out.node.edges, strict=True):
        assert unbroadcast(part, edge, out.node).shape == edge.shape


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
