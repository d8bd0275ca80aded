"""Every op and random programs, compiled, give what they give eagerly: values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from tests.compiled import assert_compiles
from tests.random_programs import random_program
from tests.weighing import weigh

pytestmark = pytest.mark.usefixtures("sizes")


def backwards(array, rng):
    """An op takes its own entries in another order."""
    return array[..., ::-1].copy() if array.ndim else array


def drawn_outside(case):
    return any(isinstance(value, np.random.Generator) for value in case.settings)


@pytest.mark.only(lambda case: not drawn_outside(case))
def test_a_compiled_op_gives_what_it_gives_eagerly(case, invoke, leaves, cotangent):
    """Also for other numbers in the same arrays, and another gradient."""
    tensors = [x for x in leaves(case) if isinstance(x, mg.Tensor)]

    def step(u, *given):
        given = iter(given)
        arrays = [next(given) if isinstance(x, np.ndarray) else x for x in case.inputs]
        out = invoke(case.op, arrays, case.settings)
        if out.requires_grad:
            out.backward(u)
        return out

    out = invoke(case.op, leaves(case), case.settings)
    u = cotangent(out.shape, out.dtype)
    calls = [(np.asarray(u * k, u.dtype), *tensors) for k in (1.0, -2.0, 0.5)]
    assert_compiles(step, tensors, *calls, renewed=backwards)


@pytest.mark.parametrize(
    "first", [0, 20, *(pytest.param(n, marks=pytest.mark.slow) for n in range(40, 120, 20))]
)
def test_random_programs_equal_eager(first):
    for seed in range(first, first + 20):
        program = random_program(seed)
        *leaves, last = (mg.tensor(x, requires_grad=True) for x in program.arrays)
        both = seed % 2

        def step(array, program=program, leaves=leaves, both=both):
            array = mg.tensor(array)
            loss = program.loss([*leaves, array])
            loss.backward()
            return (loss, array * 2.0) if both else loss

        calls = [(np.asarray(last.numpy() * k),) for k in (1.0, 0.5, -1.0, 0.7)]
        assert_compiles(step, leaves, *calls, tolerance=1e-10)


@pytest.mark.parametrize(
    ("dtype", "shape", "small"),
    [
        (np.float16, (4096, 3), (3,)),
        (np.float16, (2, 4096, 3), (2, 1, 3)),
        (np.float32, (2, 30_000, 3), (2, 1, 3)),
    ],
)
def test_gradients_of_what_was_broadcast_lose_no_digits(dtype, shape, small):
    """A sum of float16 ones that is added up in float16 ends at 2048."""
    b = mg.tensor(np.zeros(small, dtype), requires_grad=True)
    x = np.full(shape, 0.1, dtype)

    def step(x):
        loss = mg.sum(b * x)
        loss.backward()
        return loss

    run = assert_compiles(step, [b], *[(x,)] * 3, tolerance=2 * np.finfo(dtype).eps)
    b.grad = None
    run(x)
    wanted = x.astype(np.float64).sum(1 if len(shape) == 3 else 0).reshape(small)
    np.testing.assert_allclose(b.grad, wanted, rtol=2 * np.finfo(dtype).eps)


def test_what_einsum_answers_with_a_view_of_stays_as_it_is():
    w = mg.tensor(np.random.default_rng(0).normal(size=(5, 5)), requires_grad=True)

    def step(x):
        y = mg.exp(w * x)
        turned = mg.einsum("ij->ji", y)
        for _ in range(3):
            y = mg.tanh(y) * x
        return turned.detach(), mg.sum(y * turned).detach()

    assert_compiles(step, [w], *[(np.full((5, 5), k),) for k in (1.0, 0.5, 2.0)])


def test_the_first_call_holds_little_more_than_an_eager_one():
    """Arrays that no rule saved die while the step is recorded."""

    def peak(call, x):
        x.grad = None
        return weigh(lambda: call(x))[1]

    def step(x):
        y = x
        for _ in range(12):
            y = mg.tanh(y + 1.0) * 2.0 + y
        y.backward(np.ones(y.shape))
        return y

    x = mg.tensor(np.linspace(-1, 1, 1 << 16), requires_grad=True)
    step(x)
    assert peak(mg.compile(step), x) < 3 * peak(step, x)
