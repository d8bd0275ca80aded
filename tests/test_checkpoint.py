"""checkpoint: the same gradients to the last bit, without the activations."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import GradientError, OverwrittenError
from minigrad.recompute import run_once
from tests.compare import assert_same


@pytest.fixture
def x(rng):
    return mg.tensor(rng.normal(size=(3, 5)), requires_grad=True, name="x")


@pytest.fixture
def w(rng):
    return mg.tensor(rng.normal(size=(5, 5)), requires_grad=True, name="w")


def block(x, w):
    with mg.scope("block"):
        return mg.softmax(mg.tanh(x @ w) @ w.T) * x


def _gradients(f, *leaves):
    for leaf in leaves:
        leaf.grad = None
    f(*leaves).sum().backward()
    return [leaf.grad for leaf in leaves]


def two(x, w):
    h = mg.tanh(x @ w)
    return h * h, mg.exp(h)


@pytest.mark.parametrize(
    "program",
    [
        lambda call, x, w: call(block, call(block, x, w), w),
        lambda call, x, w: mg.multiply(*call(two, x, w)),
    ],
    ids=["one after the other", "several outputs"],
)
def test_gradients_are_the_same_to_the_last_bit(program, x, w):
    plain, again = (
        _gradients(partial(program, call), x, w)
        for call in (lambda f, *inputs: f(*inputs), mg.checkpoint)
    )
    assert_same(plain, again, 0)


def test_no_activation_stays_alive(x, w):
    arrays = []

    def watched(x, w):
        h = mg.tanh(x @ w)
        arrays.append(weakref.ref(h._data))
        return (h * h).sum()

    gc.disable()
    try:
        out = mg.checkpoint(watched, x, w)
        assert arrays[0]() is None
        out.backward()
        assert len(arrays) == 2
        assert arrays[1]() is None
    finally:
        gc.enable()


def test_the_graph_has_the_same_ops_scopes_and_places(x, w):
    from minigrad.engine.tensor import order

    plain, kept = (order([f(x, w).node]) for f in (block, lambda *a: mg.checkpoint(block, *a)))
    assert [(n.op, n.path, n.place.line) for n in plain] == [
        (n.op, n.path, n.place.line) for n in kept
    ]
    assert all(n.saved is None for n in kept)


def test_dropout_draws_the_same_and_the_generator_goes_on_as_if_nothing_was(x):
    def noisy(x, rng):
        return mg.dropout(mg.exp(mg.dropout(x, 0.5, rng)), 0.3, rng)

    generators = [np.random.default_rng(3) for _ in range(2)]
    out = noisy(x, generators[0])
    kept = mg.checkpoint(lambda x: noisy(x, generators[1]), x)
    np.testing.assert_array_equal(out.data, kept.data)
    expected = mg.grad(out, x, np.ones((3, 5)))
    np.testing.assert_array_equal(mg.grad(kept, x, np.ones((3, 5))), expected)
    assert generators[0].random() == generators[1].random()


def test_within_no_grad_it_is_a_plain_call(x, w):
    with mg.no_grad():
        out = mg.checkpoint(block, x, w)
    assert out.node is None
    np.testing.assert_array_equal(out.data, block(x, w).data)


def test_it_remembers_that_it_was_recording(x, w):
    """Backward within no_grad recomputes with a graph all the same."""
    expected = _gradients(block, x, w)
    loss = mg.checkpoint(block, x, w).sum()
    x.grad = w.grad = None
    with mg.no_grad():
        loss.backward()
    np.testing.assert_array_equal(x.grad, expected[0])


def test_create_graph_goes_through_it(x, w):
    def slope(f):
        first = mg.grad((f(x, w) ** 2).sum(), [x, w], create_graph=True)
        return mg.grad(sum((g * g).sum() for g in first), [x, w])

    assert_same(slope(block), slope(lambda *a: mg.checkpoint(block, *a)), 1e-14)


def test_a_parameter_overwritten_before_backward_is_an_error(x, w):
    out = mg.checkpoint(lambda x: block(x, w), x).sum()
    w.assign_(w.data * 2)
    with pytest.raises(OverwrittenError, match=r"w \(5, 5\) was overwritten after it was saved"):
        out.backward()


# ---------------------------------------------------------------- what would happen twice


def test_what_f_assigns_is_assigned_once(x):
    running = mg.tensor(np.zeros(5))

    def normalised(x):
        mean = mg.mean(x, axis=0)
        with mg.no_grad():  # by ops, as BatchNorm does it
            running.assign_(running * 0.9 + mean * 0.1)
        return mg.exp(x - mean)

    out = mg.checkpoint(normalised, x)
    np.testing.assert_allclose(running.numpy(), 0.1 * x.numpy().mean(axis=0))
    out.sum().backward()
    np.testing.assert_allclose(running.numpy(), 0.1 * x.numpy().mean(axis=0))


def changing(*runs):
    """A function that does these in turn, as it is run again."""
    turn = iter(runs)
    return lambda x: next(turn)(x)


rng = np.random.default_rng(0)
AGAIN = "when backward ran it again"


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (changing(mg.exp, lambda x: mg.tanh(x) * 2), "took other steps when backward ran it again"),
        (
            lambda x: mg.exp(x) * (rng.random(x.shape) < 0.5),
            "gave other numbers when backward ran it again",
        ),
        (lambda x: (mg.exp(x), mg.exp(x) * rng.random(x.shape)), "gave other numbers"),
        (lambda x: {"y": [mg.exp(x) * rng.random(x.shape)]}, "gave other numbers"),
        (changing(mg.exp, lambda x: run_once(lambda: None) or mg.exp(x)), "more was sent"),
        (lambda x: mg.exp(x).sum().backward() or x * 2, r"calls backward\(\)"),
        (lambda x: mg.optim.SGD([x]).step() or x * 2, "updates weights"),
    ],
)
def test_what_would_be_another_run_is_an_error_and_no_wrong_gradient(x, f, said):
    f.__name__ = "other"

    def run():
        out = mg.checkpoint(f, x)
        mg.sum(out["y"][0] if isinstance(out, dict) else out).backward()

    with pytest.raises(GradientError, match=f"checkpoint: (other )?{said}"):
        run()
    assert x.grad is None


def test_outputs_without_entries_or_with_nan_are_no_difference(x):
    out = mg.checkpoint(lambda x: (mg.exp(x)[:0], mg.exp(x) * np.nan), x)
    (out[0].sum() + out[1].sum()).backward()
    assert np.isnan(x.grad).all()


def test_an_effect_happens_once_and_its_result_serves_twice(x, w):
    sent = []

    def send(x, w):
        y = mg.tanh(x @ w)
        total = run_once(lambda: sent.append(y.numpy().sum()) or np.array(sent[-1]))
        return y * mg.exp(mg.tensor(total))

    plain = _gradients(send, x, w)
    again = _gradients(
        lambda x, w: mg.checkpoint(lambda *both: mg.checkpoint(send, *both), x, w), x, w
    )
    assert len(sent) == 2
    assert_same(plain, again, 0)
