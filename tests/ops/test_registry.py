"""Every op of the registry, on every sample that its declaration gives: no op is named here but as an exception."""

import inspect
from copy import deepcopy
from itertools import chain, combinations
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad.graph import fit

SEED = 7


def _first(op, result):
    """The result of a kernel, without its by-products."""
    return result[0] if op.also else result


def _cases():
    for op in mg.registry.values():
        for n, sample in enumerate(op.samples(np.random.default_rng(SEED))):
            inputs, settings = op.bind(*sample.args, **sample.kwargs)
            case = SimpleNamespace(op=op, inputs=inputs, settings=settings)
            case.free = [i for i, x in enumerate(inputs) if getattr(x, "dtype", np.dtype(int)).kind == "f"]
            case.masked = np.isinf(_first(op, op.forward(*inputs, *deepcopy(settings))))
            yield pytest.param(case, id=f"{op.name}-{n}")


CASES = list(_cases())
OPS = [pytest.param(op, id=op.name) for op in mg.registry.values()]
every_sample = pytest.mark.parametrize("case", CASES)
every_op = pytest.mark.parametrize("op", OPS)


def _tensors(case, dtype=np.float64, needed=None):
    """The inputs as fresh leaves, those that can have a gradient with one."""
    needed = case.free if needed is None else needed
    return [
        mg.tensor(x.astype(dtype) if i in case.free else x, requires_grad=i in needed)
        if isinstance(x, np.ndarray)
        else x
        for i, x in enumerate(case.inputs)
    ]


def _cotangent(shape, dtype=np.float64):
    return np.asarray(np.random.default_rng(11).uniform(0.5, 1.5, shape), dtype)


# ---------------------------------------------------------------- declarations


@every_op
def test_an_op_declares_all_that_the_project_reads(op):
    """Both formulas, a rule for each input, a cost, a docstring with a doctest, and samples."""
    assert op.tex
    assert set(op.vjp_tex) == set(op.inputs) == set(op.rules)
    assert all(op.vjp_tex.values())
    assert callable(op.flops)
    assert f">>> {op.name}(" in op.__doc__
    assert list(op.samples(np.random.default_rng(SEED)))


@every_op
def test_the_formulas_name_only_what_the_op_has(op):
    """`<name>` is an input, a setting, the result, or in a backward formula the gradient."""
    import re

    known = {*op.inputs, *op.settings}
    assert set(re.findall(r"<(\w+)>", op.tex)) <= known
    for formula in op.vjp_tex.values():
        assert set(re.findall(r"<(\w+)>", formula)) <= known | {"g", "out"}


@every_op
def test_an_op_has_a_sample_without_entries(op):
    """But the mean over no rows, which does not exist."""
    if op.name == "cross_entropy":
        pytest.skip("a mean over no rows is an error")
    cases = [p.values[0] for p in CASES if p.values[0].op is op]
    arrays = [x for case in cases for x in (*case.inputs, op.forward(*case.inputs, *case.settings))]
    assert any(np.size(x) == 0 for x in arrays if not isinstance(x, tuple)) or op.also


def test_every_public_op_is_in_the_registry():
    public = {name for name in mg.ops.__all__ if name in mg.registry}
    composed = set(mg.ops.__all__) - public
    assert composed == {"split", "scaled_dot_product_attention"}


# ---------------------------------------------------------------- values


@every_sample
def test_on_plain_arrays_an_op_gives_plain_numpy_equal_to_the_recorded_result(case, invoke):
    plain = invoke(case.op, case.inputs, case.settings)
    recorded = invoke(case.op, _tensors(case), case.settings)
    assert isinstance(plain, np.ndarray | np.generic | float)
    assert isinstance(recorded, mg.Tensor)
    assert isinstance(recorded.data, np.ndarray)
    np.testing.assert_array_equal(recorded.data, plain)


NUMPYS = {"abs", "add", "broadcast_to", "clip", "concatenate", "cumsum", "divide", "einsum", "exp", "expand_dims",
          "log", "matmul", "max", "maximum", "mean", "min", "minimum", "multiply", "negative", "pad", "power",
          "reshape", "sqrt", "squeeze", "stack", "subtract", "sum", "swapaxes", "take", "tanh", "transpose",
          "var", "where"}  # fmt: skip


def test_an_op_with_numpys_name_is_numpys_function():
    """Each such op is compared below; astype differs only in being a method's name too."""
    shared = {name for name in mg.registry if callable(getattr(np, name, None))}
    assert shared - {"astype"} == NUMPYS


@pytest.mark.parametrize("case", [p for p in CASES if p.values[0].op.name in NUMPYS])
def test_the_result_is_that_of_numpys_function_of_the_same_name(case):
    op, inputs = case.op, case.inputs
    theirs = getattr(np, op.name)
    settings = dict(zip(op.settings, case.settings, strict=True))
    if op.name == "einsum":
        expected = np.einsum(settings["subscripts"], *inputs)
    elif op.name == "clip":
        expected = np.clip(*inputs, settings["low"], settings["high"])
    elif op.many:
        expected = theirs(inputs, **settings)
    elif op.name == "where":
        expected = np.where(settings["condition"], *inputs)
    else:
        expected = theirs(*inputs, **settings)
    np.testing.assert_allclose(op.forward(*inputs, *case.settings), expected, rtol=1e-14, atol=1e-15)


@every_sample
def test_flops_are_counted_from_shapes_alone(case, invoke):
    out = invoke(case.op, case.inputs, case.settings)
    count = case.op.count_flops(case.inputs, case.settings, np.asarray(out))
    assert type(count) is int
    assert count >= 0


# ---------------------------------------------------------------- gradients


def _numeric(case, invoke, i, u):
    """The gradient of Σ u ⊙ op(inputs) in input i, entry by entry, on plain arrays."""
    op = case.op

    def value(step, index):
        dtype = complex if isinstance(step, complex) else float
        moved = [x.astype(dtype) if j in case.free else x for j, x in enumerate(case.inputs)]
        moved[i][index] += step
        return np.sum(np.where(case.masked, 0, invoke(op, moved, case.settings)) * u)

    found = np.zeros(case.inputs[i].shape)
    for index in np.ndindex(found.shape):
        if op.analytic:
            found[index] = np.imag(value(1e-40j, index)) / 1e-40
        else:
            found[index] = (value(1e-5, index) - value(-1e-5, index)) / 2e-5
    return found


@every_sample
def test_the_gradient_is_the_numeric_derivative(case, invoke):
    """To 1e-10 by the complex step, to 1e-6 by differences; and it has its input's shape and dtype."""
    tensors = _tensors(case)
    out = invoke(case.op, tensors, case.settings)
    u = np.where(case.masked, 0, _cotangent(out.shape))
    out.backward(u)
    tolerance = 1e-10 if case.op.analytic else 1e-6
    for i in case.free:
        assert tensors[i].grad.shape == case.inputs[i].shape
        assert tensors[i].grad.dtype == np.float64
        expected = _numeric(case, invoke, i, u)
        size = max(np.abs(expected).max(initial=0.0), 1e-6)  # u is of size 1, and so is its rounding
        np.testing.assert_allclose(tensors[i].grad, expected, rtol=tolerance, atol=tolerance * size)


@every_sample
def test_gradcheck_agrees_at_first_and_second_order(case, invoke):
    def f(*free):
        inputs = list(case.inputs)
        for i, x in zip(case.free, free, strict=True):
            inputs[i] = x
        return invoke(case.op, inputs, case.settings)

    report = mg.gradcheck(f, [case.inputs[i] for i in case.free], order=2)
    assert report.order == 2
    assert report.method == ("complex step" if case.op.analytic else "central differences")
    assert not report.kinks


@every_sample
def test_a_recorded_rule_gives_the_same_numbers_as_a_plain_one(case, invoke):
    out = invoke(case.op, tensors := _tensors(case), case.settings)
    leaves = [tensors[i] for i in case.free]
    u = _cotangent(out.shape)
    recorded = mg.grad(out, leaves, u, create_graph=True)
    for one, other in zip(recorded, mg.grad(out, leaves, u), strict=True):
        assert isinstance(one, mg.Tensor)
        np.testing.assert_allclose(one.data, other, rtol=1e-13, atol=1e-15)


@every_sample
def test_float32_stays_float32_forward_and_backward(case, invoke):
    if case.op.name == "astype":
        pytest.skip("its result has the dtype it was asked for")
    tensors, exact = _tensors(case, np.float32), _tensors(case)
    narrow = [s.astype(np.float32) if isinstance(s, np.ndarray) and s.dtype.kind == "f" else s for s in case.settings]
    out, reference = invoke(case.op, tensors, narrow), invoke(case.op, exact, case.settings)
    assert out.dtype == np.float32
    u = _cotangent(out.shape, np.float32)
    for result in (out, reference):
        result.backward(u)
    for i in case.free:
        mine, theirs = tensors[i].grad, exact[i].grad
        assert mine.dtype == np.float32
        size = np.abs(theirs).max(initial=1e-30)
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4 * size)


@every_sample
def test_recorded_rules_keep_float32(case, invoke):
    if case.op.name == "astype":
        pytest.skip("its result has the dtype it was asked for")
    out = invoke(case.op, tensors := _tensors(case, np.float32), case.settings)
    for gradient in mg.grad(out, [tensors[i] for i in case.free], _cotangent(out.shape), create_graph=True):
        assert gradient.dtype == np.float32


@every_sample
@pytest.mark.parametrize("layout", ["strided", "fortran", "read-only"])
def test_the_layout_of_an_input_does_not_matter(case, layout, invoke):
    def laid_out(x):
        if not isinstance(x, np.ndarray):
            return x
        if layout == "fortran":
            return np.asarray(x.T.copy().T) if x.ndim else x
        if layout == "strided":
            return np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x
        x = x.copy()
        x.flags.writeable = False
        return x

    plain, moved = (
        [mg.Tensor(f(x), None, i in case.free) if isinstance(x, np.ndarray) else x for i, x in enumerate(case.inputs)]
        for f in (np.copy, laid_out)
    )
    u = None
    for inputs in (plain, moved):
        out = invoke(case.op, inputs, case.settings)
        u = _cotangent(out.shape)
        out.backward(u)
    expected = invoke(case.op, plain, case.settings)
    np.testing.assert_allclose(out.data, expected.data, rtol=1e-13, atol=1e-14)
    for i in case.free:
        np.testing.assert_allclose(moved[i].grad, plain[i].grad, rtol=1e-12, atol=1e-14)


@every_op
def test_a_python_number_takes_the_other_inputs_dtype(op):
    if len(op.inputs) != 2 or op.requires is None or op.name in ("matmul", "mask_add"):
        pytest.skip("takes no two arrays that broadcast")
    x = mg.tensor(np.array([1.5, 0.5], np.float32), requires_grad=True)
    for out in (op(x, 3.0), op(3.0, x), op(x, 3), op(3, x)):
        assert out.dtype == np.float32
        assert mg.grad(out, x, np.ones(2)).dtype == np.float32


@every_op
def test_integers_and_booleans_are_constants(op, invoke):
    """An op of two arrays takes either as a constant, and no gradient is asked for it."""
    if len(op.inputs) != 2 or op.requires is None or op.name in ("matmul", "mask_add"):
        pytest.skip("takes no two arrays that broadcast")
    x = mg.tensor([1.5, 0.5], requires_grad=True)
    for constant in (np.array([2, 3]), np.array([True, True])):
        out = op(x, constant)
        assert out.node.plan.needed == (0,)
        np.testing.assert_allclose(mg.grad(out, x, np.ones(2)), mg.grad(op(x, constant * 1.0), x, np.ones(2)))


# ---------------------------------------------------------------- what is saved


def _subsets(free):
    return chain.from_iterable(combinations(free, n) for n in range(1, len(free) + 1))


def _named_by_rules(op, needed, count):
    """What the rules of these inputs name, read from their own signatures."""
    names = set()
    for i in needed:
        rule = op.rules[op.inputs[0 if op.many else i]]
        for name in list(inspect.signature(rule.function).parameters)[1:]:
            if name == "others":
                names |= {f"{op.inputs[0]}{j}" for j in range(count) if j != i}
            elif op.many and name == op.inputs[0]:
                names |= {f"{name}{j}" for j in range(count)}
            elif name not in ("i", "needed"):
                names.add(name)
    return names


@every_sample
def test_a_node_saves_exactly_what_the_rules_of_its_needed_inputs_name(case, invoke):
    op = case.op
    for needed in _subsets(case.free):
        tensors = _tensors(case, needed=needed)
        out = invoke(op, tensors, case.settings)
        node = out.node
        assert node.plan.needed == needed
        assert len(node.edges) == len(needed)
        assert len(node.plan.names) == len(set(node.plan.names)) == len(node.saved)
        assert set(node.plan.names) == _named_by_rules(op, needed, len(tensors))
        for name, value in zip(node.plan.names, node.saved, strict=True):
            position = node.plan.input_of(name)
            if name == "out":
                assert value is out.data
            elif position is not None and isinstance(tensors[position], mg.Tensor):
                assert value is tensors[position].data


@every_sample
def test_inputs_that_need_no_gradient_leave_no_node(case, invoke):
    out = invoke(case.op, _tensors(case, needed=()), case.settings)
    assert out.node is None
    assert not out.requires_grad


@every_sample
def test_no_kernel_and_no_rule_writes_to_what_it_is_given(case, invoke):
    """Everything that a kernel or a rule gets is read-only here, so a write would raise."""
    tensors = _tensors(case)
    for x in tensors:
        if isinstance(x, mg.Tensor):
            x.data.flags.writeable = False
    out = invoke(case.op, tensors, case.settings)
    out.data.flags.writeable = False
    u = _cotangent(out.shape)
    u.flags.writeable = False
    for part, edge in zip(out.node.plan.backward(u, out.node.saved), out.node.edges, strict=True):
        assert fit(part, edge, out.node).shape == edge.shape


@every_sample
def test_each_gradient_alone_equals_the_one_found_with_the_others(case, invoke):
    tensors = _tensors(case)
    out = invoke(case.op, tensors, case.settings)
    u = _cotangent(out.shape)
    together = mg.grad(out, [tensors[i] for i in case.free], u)
    for i, expected in zip(case.free, together, strict=True):
        alone = _tensors(case, needed=(i,))
        np.testing.assert_array_equal(mg.grad(invoke(case.op, alone, case.settings), alone[i], u), expected)
        out = invoke(case.op, tensors, case.settings)
        np.testing.assert_array_equal(mg.grad(out, tensors[i], u), expected)
