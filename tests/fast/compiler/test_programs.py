"""Random programs, compiled, give what they give eagerly; what they hand out stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
from tests.weighing import weigh

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
