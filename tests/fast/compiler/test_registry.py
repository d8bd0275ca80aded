"""Every op, compiled, gives what it gives eagerly: values and gradients."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.op import registry

pytestmark = pytest.mark.usefixtures("sizes")

CASES = [
    pytest.param(op, i, id=f"{name}-{i}")
    for name, op in sorted(registry.items())
    for i, _ in enumerate(op.samples(np.random.default_rng(0)))
]


def _run(op, sample, compiled):
    """Value and gradients of a weighted sum of the op, three times with other numbers."""
    inputs, settings = op.bind(*deepcopy(sample.args), **deepcopy(sample.kwargs))
    tensors = [
        mg.tensor(x, requires_grad=np.asarray(x).dtype.kind == "f", name=f"x{i}")
        for i, x in enumerate(inputs)
        if isinstance(x, np.ndarray)
    ]
    places = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray)]

    def step(weight, *leaves):
        given = list(inputs)
        for place, leaf in zip(places, leaves, strict=True):
            given[place] = leaf
        arguments = dict(zip(op.settings, settings, strict=True))
        if op.variadic:
            named = op.signature.parameters[op.inputs[0]]
            if named.kind is named.VAR_POSITIONAL:
                out = op(*arguments.values(), *given)
            else:
                out = op(tuple(given), **arguments)
        else:
            out = op(**dict(zip(op.inputs, given, strict=True)), **arguments)
        if out.requires_grad:
            out.backward(weight)
        return out

    run = mg.compile(step) if compiled else step
    with mg.no_grad():
        shape = op(*deepcopy(sample.args), **deepcopy(sample.kwargs))
    rng = np.random.default_rng(1)
    results = []
    for n in range(3):
        weight = np.asarray(rng.uniform(0.5, 1.5, np.shape(shape)), np.asarray(shape).dtype)
        for leaf in tensors:
            leaf.grad = None
            if n:
                leaf.assign_(leaf.numpy()[..., ::-1].copy() if leaf.ndim else leaf.numpy())
        out = run(weight, *tensors)
        results.append([out.numpy().copy(), *(leaf.grad for leaf in tensors)])
    return results, run


@pytest.mark.parametrize(("op", "i"), CASES)
def test_compiled_op_equals_eager(op, i):
    """Also for other numbers in the same arrays."""
    eager, _ = _run(op, list(op.samples(np.random.default_rng(0)))[i], False)
    compiled, run = _run(op, list(op.samples(np.random.default_rng(0)))[i], True)
    assert not run.reasons, run.reasons
    assert run.recordings == 1
    for first, second in zip(eager, compiled, strict=True):
        for a, b in zip(first, second, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
