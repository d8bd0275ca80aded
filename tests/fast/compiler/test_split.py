"""Programs that run on parts of their rows, on two threads: what they give, when they may, and
that nothing is left behind.
"""

from __future__ import annotations

import numpy as np
import pytest

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


def batches(*shape, count=3):
    return [(np.random.default_rng(n).normal(size=shape),) for n in range(count)]


def test_a_value_may_be_read_whole_and_in_rows_by_one_product():
    w = leaf(6, 6)

    def step(x):
        loss = mg.sum(mg.tanh(x @ w @ (w @ w)))
        loss.backward()
        return loss

    run = assert_compiles(step, [w], *batches(6, 6))
    assert phases(run) > 0

    def square(x):
        loss = mg.sum(mg.tanh(x @ x))
        loss.backward()
        return loss

    x = leaf(6, 6, name="x")
    run = assert_compiles(lambda: square(x), [x], (), (), ())
    assert phases(run) > 0


@pytest.mark.parametrize("rows", [2, 3, 7, 8])
def test_parts_need_not_be_of_one_size(rows):
    W = leaf(5, 3)

    def step(x):
        loss = mg.sum(mg.tanh(x @ W))
        loss.backward()
        return loss

    assert phases(assert_compiles(step, [W], *batches(rows, 5))) == 1


def test_token_ids_and_targets_are_looked_up_whole():
    E, W = leaf(11, 5, seed=1), leaf(5, 11, seed=2)
    rng = np.random.default_rng(0)

    def step(tokens, targets):
        x = mg.take(E, tokens, axis=0)
        loss = mg.cross_entropy((x @ W).reshape((-1, 11)), targets.reshape(-1))
        loss.backward()
        return loss

    calls = [(rng.integers(0, 11, (4, 7)), rng.integers(0, 11, (4, 7))) for _ in range(3)]
    assert phases(assert_compiles(step, [E, W], *calls)) > 0


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


@pytest.mark.parametrize("norm", [mg.layer_norm, mg.rms_norm])
def test_all_of_a_norm_runs_in_parts(norm):
    parameters = [leaf(5, seed=k) for k in range(2 if norm is mg.layer_norm else 1)]
    W = leaf(5, 5)

    def step(x):
        loss = mg.sum(mg.tanh(norm(x @ W, *parameters)))
        loss.backward()
        return loss

    assert phases(assert_compiles(step, [W, *parameters], *batches(4, 3, 5))) == 1


# ---------------------------------------------------------------- what mixes rows


def _normalised(h):
    """Over the batch: every row needs the mean of all."""
    centred = h - mg.mean(h, axis=0)
    return centred * (mg.mean(centred * centred, axis=0) + 1e-5) ** -0.5


MIXING = {
    "batch normalisation": lambda h: mg.sum(mg.tanh(_normalised(h))),
    "a loss over all pairs": lambda h: mg.logsumexp(h @ h.mT),
    "the largest of all rows": lambda h: mg.sum(mg.max(h, axis=0) * h),
    "a sum squared": lambda h: mg.sum(mg.sum(h, axis=0) ** 2),
    "rows in another order": lambda h: mg.sum(mg.tanh(h[::-1] * h)),
    "a softmax over the batch": lambda h: mg.sum(mg.softmax(h, axis=0) * h),
    "a running sum": lambda h: mg.sum(mg.tanh(mg.cumsum(h, axis=0))),
}


@pytest.mark.parametrize("loss_of", MIXING.values(), ids=MIXING)
def test_what_mixes_rows_waits_for_all_of_them(loss_of):
    W = leaf(5, 3)

    def step(x):
        loss = loss_of(x @ W)
        loss.backward()
        return loss

    assert_compiles(step, [W], *batches(6, 5))


def test_random_draws_are_not_split():
    values = []
    for wrap in (lambda f: f, mg.compile):
        W, rng = leaf(5, 3), np.random.default_rng(0)

        def step(x, W=W, rng=rng):
            loss = mg.sum(mg.dropout(x @ W, 0.5, rng))
            loss.backward()
            return loss

        run = wrap(step)
        values.append([run(*args).item() for args in batches(6, 5)])
    assert phases(run) == 0
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)


def test_what_is_computed_after_a_write_is_not_split():
    W, v = leaf(5, 3), mg.tensor(np.zeros(3), name="v")

    def step(x):
        loss = mg.sum(mg.tanh(x @ W))
        loss.backward()
        v.assign_(mg.sum(x @ W, axis=0).detach())
        return (loss * mg.sum(v)).detach()

    run = assert_compiles(step, [W], *batches(6, 5))
    assert phases(run) == 0


# ---------------------------------------------------------------- nothing is left behind


def _blas_threads():
    blas = _blas()
    return [] if blas is None else [library.num_threads for library in blas.lib_controllers]


def _trained(activation=mg.tanh):
    """A parameter, and a step that moves it."""
    W = leaf(5, 3)
    optimiser = SGD([W], lr=0.1)

    def step(x, targets):
        loss = mg.cross_entropy(activation(x @ W), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    return W, mg.compile(step)


def test_an_error_leaves_nothing_half_written():
    W, run = _trained()
    x, targets = np.ones((6, 5)), np.array([0, 1, 2, 0, 1, 2])
    for _ in range(3):
        run(x, targets)
    assert phases(run) == 1
    before, gradient, threads = W.numpy().copy(), W.grad, _blas_threads()
    for bad in (9, -1):
        with pytest.raises(mg.errors.OutOfRangeError, match="targets must lie"):
            run(x, np.array([0, 1, 2, 0, 1, bad]))
        np.testing.assert_array_equal(W.numpy(), before)
    assert _blas_threads() == threads
    run(x, targets)
    assert gradient is not W.grad


def test_an_error_in_either_part_is_raised():
    W, run = _trained(lambda z: mg.exp(abs(z)))
    x, targets = np.ones((6, 5)), np.array([0, 1, 2, 0, 1, 2])
    run(x, targets)
    run(x, targets)
    assert phases(run) == 1
    before, threads = W.numpy().copy(), _blas_threads()
    with np.errstate(over="raise"):
        for row in (0, 5):
            bad = x.copy()
            bad[row] = 1e6
            with pytest.raises(FloatingPointError):
                run(bad, targets)
            np.testing.assert_array_equal(W.numpy(), before)
    assert _blas_threads() == threads


@pytest.mark.usefixtures("measured")
def test_small_programs_stay_whole():
    W = leaf(5, 3)

    def step(x):
        loss = mg.sum(mg.tanh(x @ W))
        loss.backward()
        return loss

    assert phases(assert_compiles(step, [W], *batches(6, 5))) == 0


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(("rows", "layers", "split"), [(16, 160, False), (4096, 2, True)])
def test_many_short_steps_stay_whole_and_a_few_long_ones_do_not(rows, layers, split):
    """Both take some milliseconds; threads that take turns at short steps only wait."""
    W = mg.tensor(np.eye(64), requires_grad=True)

    @mg.compile
    def step(x):
        for _ in range(layers):
            x = mg.tanh(x @ W)
        loss = mg.sum(x)
        loss.backward()
        return loss

    step(np.ones((rows, 64)))
    assert (phases(step) > 0) == split
