"""Programs that run on parts of their rows, on two threads: what they give, when they may, and
that nothing is left behind.
"""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import minigrad as mg
from layers import MultiHeadAttention, SelfAttention, create_causal_mask
from minigrad.fast.threads import _blas
from minigrad.optim import SGD
from tests.compiled import assert_compiles

pytestmark = pytest.mark.usefixtures("sizes", "in_parts")


def leaf(*shape, seed=0, name="w"):
    data = np.random.default_rng(seed).normal(size=shape)
    return mg.tensor(data, requires_grad=True, name=name)


def phases(run):
    return run.source.count("def part")


def draws(*shape):
    return [(np.random.default_rng(n).normal(size=shape),) for n in range(3)]


def training(loss_of):
    """A step that sends a loss back."""

    def step(*given):
        loss = loss_of(*given)
        loss.backward()
        return loss

    return step


# ---------------------------------------------------------------- what runs in parts, and what not

W, SQUARE, NORM = leaf(5, 3), leaf(6, 6), (leaf(5, seed=1), leaf(5, seed=2))


def batch_normalised(h):
    centred = h - mg.mean(h, axis=0)
    return mg.sum(mg.tanh(centred * (mg.mean(centred * centred, axis=0) + 1e-5) ** -0.5))


def of_tanh(x):
    return mg.sum(mg.tanh(x))


STEPS = {  # the shape of what is cut, the loss, and in how many phases it runs, where that is sure
    **{f"{rows} rows": ((rows, 5), lambda x: of_tanh(x @ W), 1) for rows in (2, 3, 7, 8)},
    "one value whole and in rows": (
        (6, 6), lambda x: of_tanh(x @ SQUARE @ (SQUARE @ SQUARE)), 1
    ),
    "a square": ((6, 6), lambda x: of_tanh(x @ x * SQUARE), 1),
    "layer norm": ((4, 3, 5), lambda x: of_tanh(mg.layer_norm(x @ W @ W.mT, *NORM)), 1),
    "RMS norm": ((4, 3, 5), lambda x: of_tanh(mg.rms_norm(x @ W @ W.mT, NORM[0])), 1),
    # what mixes rows waits for all of them
    "batch normalisation": ((6, 5), lambda x: batch_normalised(x @ W), None),
    "all pairs": ((6, 5), lambda x: mg.logsumexp((x @ W) @ (x @ W).mT), None),
    "the largest of all rows": ((6, 5), lambda x: mg.sum(mg.max(x @ W, axis=0) * (x @ W)), None),
    "a sum squared": ((6, 5), lambda x: mg.sum(mg.sum(x @ W, axis=0) ** 2), None),
    "rows in another order": ((6, 5), lambda x: of_tanh((x @ W)[::-1] * (x @ W)), None),
    "a softmax over the batch": ((6, 5), lambda x: mg.sum(mg.softmax(x @ W, axis=0) * 2.0), None),
    "a running sum": ((6, 5), lambda x: of_tanh(mg.cumsum(x @ W, axis=0)), None),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "loss_of", "expected"), STEPS.values(), ids=STEPS)
def test_in_parts_a_step_gives_what_it_gives_whole(shape, loss_of, expected):
    x = leaf(*shape, name="x")
    for given, calls in (([x], [()] * 3), ([], draws(*shape))):  # a leaf's rows, and an array's
        step = training(lambda *args, given=given: loss_of(*given, *args))
        run = assert_compiles(step, [W, SQUARE, *NORM, *given], *calls)
    assert expected in (None, phases(run))


def test_token_ids_and_targets_are_looked_up_whole():
    E, head = leaf(11, 5, seed=1), leaf(5, 11, seed=2)
    rng = np.random.default_rng(0)

    def loss_of(tokens, targets):
        x = mg.take(E, tokens, axis=0)
        return mg.cross_entropy((x @ head).reshape((-1, 11)), targets.reshape(-1))

    calls = [(rng.integers(0, 11, (4, 7)), rng.integers(0, 11, (4, 7))) for _ in range(3)]
    assert phases(assert_compiles(training(loss_of), [E, head], *calls)) > 0


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("kind", ["self", "multi"])
def test_attention_is_split_over_examples_or_queries(kind, batch):
    """One example alone is split over its positions: keys and values of all of them come first."""
    n = 8
    layer = SelfAttention(6, 2, 3, rng=0) if kind == "self" else MultiHeadAttention(6, 2, rng=0)
    x, weight = leaf(batch, n, 6, name="X"), np.random.default_rng(1).normal(size=(batch, n, 6))

    def step(x):
        out = layer(x, mask=create_causal_mask(n))
        out.backward(weight)
        return out

    leaves = [x, *layer.parameters()]
    run = assert_compiles(step, leaves, *[(x,)] * 3, kept=lambda: [layer.attention_weights.copy()])
    assert phases(run) == 1 if batch > 1 else phases(run) > 2


def test_random_draws_are_not_split():
    values = []
    for wrap in (lambda f: f, mg.compile):
        drawn = np.random.default_rng(0)
        run = wrap(training(lambda x, drawn=drawn: mg.sum(mg.dropout(x @ W, 0.5, drawn))))
        values.append([run(*args).item() for args in draws(6, 5)])
    assert phases(run) == 0
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)


def test_what_is_computed_after_a_write_is_not_split():
    v = mg.tensor(np.zeros(3), name="v")

    def step(x):
        loss = of_tanh(x @ W)
        loss.backward()
        v.assign_(mg.sum(x @ W, axis=0).detach())
        return (loss * mg.sum(v)).detach()

    assert phases(assert_compiles(step, [W], *draws(6, 5))) == 0


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("rows", "layers", "split"), [(2, 1, False), (16, 160, False), (4096, 2, True)]
)
def test_small_programs_and_many_short_steps_stay_whole_a_few_long_ones_do_not(rows, layers, split):
    """Two take some milliseconds; threads that take turns at short steps only wait."""
    eye = mg.tensor(np.eye(64), requires_grad=True)

    @mg.compile
    def step(x):
        for _ in range(layers):
            x = mg.tanh(x @ eye)
        loss = mg.sum(x)
        loss.backward()
        return loss

    step(np.ones((rows, 64)))
    assert (phases(step) > 0) == split


# ---------------------------------------------------------------- nothing is left behind


def blas_threads():
    blas = _blas()
    return [] if blas is None else [library.num_threads for library in blas.lib_controllers]


def planted(x, targets):
    """Calls that fail: a class that there is none of, in either part, and numbers that overflow."""
    wrong = mg.errors.OutOfRangeError, "targets must lie"
    for bad in (9, -1):
        yield x, np.array([0, 1, 2, 0, 1, bad]), *wrong
    for row in (0, 5):
        large = x.copy()
        large[row] = 1e6
        yield large, targets, FloatingPointError, "overflow"


@threadpool_limits.wrap(limits=2, user_api="blas")
def test_an_error_in_either_part_is_raised_and_leaves_nothing_half_written():
    w = leaf(5, 3)
    optimizer = SGD([w], lr=0.1)

    @mg.compile
    def run(x, targets):
        loss = mg.cross_entropy(mg.exp(abs(x @ w)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x, targets = np.ones((6, 5)), np.array([0, 1, 2, 0, 1, 2])
    for _ in range(3):
        run(x, targets)
    assert phases(run) == 1
    before, gradient, threads = w.numpy().copy(), w.grad, blas_threads()
    for *given, error, text in planted(x, targets):
        with np.errstate(over="raise"), pytest.raises(error, match=text):
            run(*given)
        np.testing.assert_array_equal(w.numpy(), before)
        assert blas_threads() == threads
    run(x, targets)
    assert gradient is not w.grad
