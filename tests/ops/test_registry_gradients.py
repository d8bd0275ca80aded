"""Every op's gradients on every sample: at both orders, in every dtype and memory layout."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.ops.arithmetic import broadcastable


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
def test_integers_and_booleans_are_constants(declared, invoke):
    """An declared of two arrays takes either as a constant, and no gradient is asked for it."""
    x = mg.tensor([1.5, 0.5], requires_grad=True)
    for constant in (np.array([2, 3]), np.array([True, True])):
        out = declared(x, constant)
        assert out.node.plan.needed == (0,)
        np.testing.assert_allclose(
            mg.grad(out, x, np.ones(2)), mg.grad(declared(x, constant * 1.0), x, np.ones(2))
        )
