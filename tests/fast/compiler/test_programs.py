"""Random programs, compiled, give what they give eagerly; what they hand out stays as it is."""

from __future__ import annotations

import tracemalloc
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.memory import release
from tests.compiled import assert_compiles

pytestmark = pytest.mark.usefixtures("sizes")

SHAPES = [(2, 3, 5), (3, 5), (5,), (2, 3, 1), (5, 5), (2, 5, 3), (5, 5), (2, 5, 5), ()]
INDEX = np.array([0, 0])
CHOICE = np.array([True, False, True, True, False])

BINARY = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - b,
    lambda a, b: a / (abs(b) + 1.5),
    lambda a, b: a @ b,
    lambda a, b: mg.where(CHOICE, a, b),
    lambda a, b: mg.concatenate((a, b), axis=-1),
    lambda a, b: mg.scale(a @ b.mT, 0.3),
    lambda a, b: mg.softmax(mg.scale(a @ b.mT, 0.3)) @ b,
    lambda a, b: a.detach() * b,
    lambda a, b: mg.maximum(a, b),
]
UNARY = [
    mg.tanh,
    mg.softmax,
    lambda a: a.mT,
    lambda a: a.reshape(-1),
    lambda a: a.sum(axis=-1, keepdims=True),
    lambda a: mg.relu(a - 1.0),
    lambda a: a * 0.5,
    lambda a: a[..., ::-1],
    lambda a: a[::-1],
    lambda a: mg.mean(a, axis=0),
    lambda a: mg.layer_norm(a, None, None),
    lambda a: mg.gelu(a, approximate="tanh"),
    lambda a: a[INDEX],
    lambda a: a**2,
    lambda a: mg.expand_dims(a, 0),
    mg.transpose,
    lambda a: mg.logsumexp(a, axis=-1),
]


def _program(seed):
    """A step of random ops over random leaves, with its leaves."""
    rng = np.random.default_rng(seed)
    leaves = []
    for name in "ABCDEF":
        shape = SHAPES[rng.integers(len(SHAPES))]
        data = rng.uniform(0.5, 1.5, shape)
        leaves.append(mg.tensor(data, requires_grad=bool(rng.integers(6)), name=name))
    generator = np.random.default_rng(seed)
    choices = rng.integers(0, 10**6, (rng.integers(4, 18), 4)).tolist()
    both = bool(rng.integers(2))

    def one(kind, a, b, array):
        if kind % 13 == 0:
            return mg.dropout(a, 0.3, generator)
        if kind % 13 == 1:
            return a + array
        if kind % 13 < 7:
            return BINARY[kind % len(BINARY)](a, b)
        return UNARY[kind % len(UNARY)](a)

    def values_of(x, array, chosen):
        """The values a list of choices makes; choices that do not fit are taken out of it."""
        values = [*leaves, x]
        for choice in list(chosen):
            kind, i, j = choice[0], choice[1] % len(values), choice[2] % len(values)
            try:
                made = one(kind, values[i], values[j], array)
            except mg.errors.MinigradError:
                made = None
            if made is None or not 0 < made.size < 500:
                chosen.remove(choice)
            else:
                values.append(made)
        return values[7:]

    values_of(mg.tensor(np.ones((3, 5)), requires_grad=True), np.ones((3, 5)), choices)
    generator = np.random.default_rng(seed)
    count = len(choices)

    def step(x, array):
        values = [x, *values_of(x, array, choices)]
        assert len(choices) == count
        loss = mg.tanh(x).sum()
        for value in values[-4:]:
            loss = loss + mg.tanh(value).sum() * 0.1
        loss.backward()
        return (loss, values[-1]) if both else loss

    return leaves, step


def _results(seed, compiled):
    leaves, step = _program(seed)
    run = mg.compile(step) if compiled else step
    rng = np.random.default_rng(seed + 1)
    x = mg.tensor(rng.uniform(0.5, 1.5, (3, 5)), requires_grad=True, name="x")
    everything, held = [], []
    for n in range(4):
        for leaf in (*leaves, x):
            leaf.assign_(rng.uniform(0.5, 1.5, leaf.shape))
            leaf.grad = leaf.grad if n % 2 else None
        result = run(x, rng.uniform(0.5, 1.5, (3, 5)))
        outputs = result if isinstance(result, tuple) else (result,)
        arrays = [t.numpy() for t in outputs] + [leaf.grad for leaf in (*leaves, x)]
        everything += [None if a is None else a.copy() for a in arrays]
        for a in arrays:
            if a is not None and not any(np.may_share_memory(a, t.numpy()) for t in (*leaves, x)):
                held.append((a, a.copy()))
    return everything, held, run


@pytest.mark.parametrize(
    "first", [0, 20, *(pytest.param(n, marks=pytest.mark.slow) for n in range(40, 240, 20))]
)
def test_random_programs_equal_eager(first):
    compiled_ones = 0
    for seed in range(first, first + 20):
        eager, _, _ = _results(seed, False)
        compiled, held, run = _results(seed, True)
        compiled_ones += not run.reasons
        for a, b in zip(eager, compiled, strict=True):
            assert (a is None) == (b is None), seed
            if a is not None:
                assert (a.shape, a.dtype) == (b.shape, b.dtype), seed
                np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12, err_msg=str(seed))
        for array, copy in held:
            np.testing.assert_array_equal(
                array, copy, err_msg=f"{seed}: changed after it was handed out"
            )
    assert compiled_ones == 20


ROW = mg.tensor(np.arange(5.0))


def _of_square(function):
    """A loss of a square matrix, and that matrix; what is computed from it may be turned."""
    w = mg.tensor(np.random.default_rng(0).uniform(0.5, 1.5, (5, 5)), requires_grad=True, name="w")

    def step():
        loss = function(w)
        loss.backward()
        return loss

    return step, w


def _turned_twice(w):
    y = mg.tanh((w * w).mT)  # which NumPy lays out by columns
    return mg.tanh(y).sum() + (w * mg.tanh(mg.transpose(y))).sum()


def _turned_and_flattened(w):
    y = w * w
    product = ROW @ y.mT
    return mg.tanh(product).sum() + mg.tanh(y.mT.reshape(-1)).sum()


@pytest.mark.parametrize("function", [_turned_twice, _turned_and_flattened])
def test_a_view_of_what_lies_by_columns_is_no_other(function):
    step, w = _of_square(function)
    assert_compiles(step, [w], (), (), ())


REVERSED = {
    "a product": lambda q, k, v: mg.scale((q @ k.mT)[::-1], 0.5),
    "a product, averaged": lambda q, k, v: mg.softmax(mg.scale((q @ k.mT)[::-1], 0.5)) @ v,
    "weights": lambda q, k, v: mg.softmax(mg.scale(q @ k.mT, 0.5))[::-1] @ v,
    "what was scaled": lambda q, k, v: mg.scale(mg.tanh(q @ k.mT), 0.5)[::-1] @ v,
    "what was scaled, turned": lambda q, k, v: mg.scale(mg.tanh(q @ k.mT), 0.5)[::-1].mT @ v,
}


@pytest.mark.parametrize("function", REVERSED.values(), ids=REVERSED)
def test_a_stack_in_reverse_is_not_the_stack(function, rng):
    q, k, v = (mg.tensor(rng.normal(size=(3, 5, 2)), requires_grad=True) for _ in "qkv")

    def step():
        out = function(q, k, v)
        mg.sum(mg.tanh(out) * out).backward()
        return out

    assert_compiles(step, [q, k, v], (), ())


def test_the_first_call_holds_little_more_than_an_eager_one():
    """Arrays that no rule saved die while the step is recorded."""

    def peak(call, x):
        x.grad = None
        release()
        tracemalloc.start()
        try:
            call(x)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def step(x):
        y = x
        for _ in range(12):
            y = mg.tanh(y + 1.0) * 2.0 + y
        y.backward(np.ones(y.shape))
        return y

    x = mg.tensor(np.linspace(-1, 1, 1 << 16), requires_grad=True)
    step(x)
    assert peak(mg.compile(step), x) < 3 * peak(step, x)


@pytest.mark.parametrize("rows", [7, 5000])
def test_rows_taken_many_times_get_their_gradient_in_compiled_steps_too(rows, rng):
    x = mg.tensor(rng.normal(size=(rows, 30)), requires_grad=True)
    index, u = rng.integers(-rows, rows, (20, 11)), rng.normal(size=(20, 11, 30))

    @mg.compile
    def step(x):
        out = mg.take(x, index, axis=0) * 2.0
        out.backward(u)
        return out

    for _ in range(2):
        x.grad = None
        step(x)
    assert step.reasons == []
    expected = np.zeros((rows, 30))
    np.add.at(expected, index, 2 * u)
    np.testing.assert_allclose(x.grad, expected, rtol=1e-12, atol=1e-12)


def _descent(w, b, x):
    loss = mg.mean((x @ w + b) ** 2)
    d_w, d_b = mg.grad(loss, [w, b])
    w.assign_(w.numpy() - 0.1 * d_w)
    b.assign_(b.numpy() - 0.1 * d_b)
    return loss.detach()


def _weighted(w, b, x):
    y = mg.tanh(x @ w + b)
    d_w = mg.grad(y, w, x[:, :3] * 2.0, retain_graph=True)
    return mg.tensor(d_w) + mg.tensor(mg.grad(mg.sum(y * y), w)) * 2.0


def _of_what_was_computed(w, b, x):
    h = mg.tanh(x @ w)
    loss = mg.sum((h + b) ** 2)
    d_h, d_w, again = mg.grad(loss, [h, w, w], retain_graph=True)
    loss.backward()
    return mg.tensor(d_h), mg.tensor(d_w + again)


@pytest.mark.parametrize("step", [_descent, _weighted, _of_what_was_computed])
def test_gradients_that_a_step_takes_by_itself_are_part_of_its_program(step, rng):
    w = mg.tensor(rng.normal(size=(5, 3)), requires_grad=True, name="w")
    b = mg.tensor(rng.normal(size=3), requires_grad=True, name="b")
    start = w.numpy().copy(), b.numpy().copy()
    found = []
    for compiled in (False, True):
        w.assign_(start[0]), b.assign_(start[1])
        run = mg.compile(lambda x: step(w, b, x)) if compiled else partial(step, w, b)
        for n in range(5):
            w.grad = b.grad = None
            out = run(np.random.default_rng(n).normal(size=(7, 5)))
            out = out if isinstance(out, tuple) else (out,)
            found.append([*(x.numpy().copy() for x in out), w.numpy().copy(), w.grad, b.grad])
    assert (run.recordings, run.reasons) == (1, [])
    for eager, other in zip(found[:5], found[5:], strict=True):
        for wanted, made in zip(eager, other, strict=True):
            assert (wanted is None) == (made is None)
            if wanted is not None:
                np.testing.assert_allclose(made, wanted, rtol=1e-12)
