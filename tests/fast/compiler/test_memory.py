"""What a compiled step holds, beside the eager one: peaks of NumPy's arrays, by tracemalloc."""

import tracemalloc

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, MultiHeadAttention, Sequential
from minigrad.optim import SGD, Adam
from tests.weighing import weighing


def mlp():
    sizes = ((128, 256), (256, 256), (256, 10))
    first, second, last = (Linear(a, b, rng=0, dtype=np.float32) for a, b in sizes)
    return Sequential(first, mg.relu, second, mg.relu, last), (256, 128)


def attention():
    return MultiHeadAttention(64, 4, rng=0, dtype=np.float32), (4, 128, 64)


def training(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def weighed(make, compiled):
    """Bytes at the peak of calls 2 to 9, audits included, and after the first call."""
    model, shape = make()
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    step = training(model, Adam(model.parameters(), lr=1e-3))
    step = mg.compile(step) if compiled else step
    with weighing():
        step(x)
        first = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(8):
            step(x)
        return tracemalloc.get_traced_memory()[1], first


@pytest.mark.parametrize("make", [mlp, attention])
def test_a_compiled_step_is_at_most_a_quarter_larger_than_the_eager_one(make):
    """With its program; beside PyTorch's, at the sizes people train: `benchmarks.training`."""
    weighed(make, True)  # what is imported and cached at a first use comes first
    (eager, kept), (compiled, more) = weighed(make, False), weighed(make, True)
    program = 500_000  # the lines and objects of the program itself
    assert compiled < 1.25 * eager + program
    assert more < kept + program  # nothing of the first call's arrays stays


def test_no_array_of_the_recorded_run_waits_for_the_garbage_collector():
    w = mg.tensor(np.ones(1 << 17), requires_grad=True)
    run = mg.compile(lambda x: mg.sum(w * x).backward())
    with weighing():
        run(np.float64(2.0))
        w.grad = None
        assert tracemalloc.get_traced_memory()[0] < w.data.nbytes


def test_a_step_that_clears_its_gradients_is_recorded_once():
    w = mg.tensor(np.ones(5), requires_grad=True, name="w")
    unused = mg.tensor(np.ones(3), requires_grad=True, name="unused")
    optimizer = SGD([w, unused], lr=0.1)
    run = mg.compile(training(lambda x: w * x, optimizer))
    for n in range(6):
        unused.grad = np.ones(3) if n % 2 else None
        run(np.full(5, 1.0 + n))
        assert unused.grad is None
    assert (run.recordings, run.reasons) == (1, [])


def test_gradients_read_before_they_are_cleared_are_those_of_the_last_call():
    w = mg.tensor(np.ones(5), requires_grad=True, name="w")
    optimizer = SGD([w], lr=0.0)

    @mg.compile
    def step(x):
        before = mg.tensor(w.grad * 2.0)
        optimizer.zero_grad()
        mg.sum(w * x).backward()
        return before

    for n in range(5):
        w.grad = np.full(5, float(n))
        np.testing.assert_array_equal(step(np.full(5, 10.0 + n)).numpy(), 2.0 * n)
        np.testing.assert_array_equal(w.grad, 10.0 + n)
    assert (step.recordings, step.reasons) == (1, [])
