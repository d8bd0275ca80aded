"""Every guard has a test that trips it: what a step depends on may change, and the answer is the
eager one.
"""

from __future__ import annotations

import random
import threading
import warnings

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

pytestmark = pytest.mark.usefixtures("sizes")


def leaf(*shape, seed=0, name="w", dtype=np.float64):
    data = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(dtype)
    return mg.tensor(data, requires_grad=True, name=name)


def agree(step, run, *args, leaves=()):
    """One call each way gives the same value and gradients."""
    for t in leaves:
        t.grad = None
    expected = step(*args)
    gradients = [t.grad for t in leaves]
    for t in leaves:
        t.grad = None
    got = run(*args)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12, err_msg="value")
    for t, g in zip(leaves, gradients, strict=True):
        np.testing.assert_allclose(t.grad, g, rtol=1e-12, err_msg="gradient")
    return got


def simple(w):
    def step(x):
        loss = mg.sum(mg.tanh(w * x))
        loss.backward()
        return loss

    return step


def _product(*xs, power=2, **named):
    loss = mg.sum((xs[0] * xs[-1] * named.get("more", [1.0])[0]) ** power)
    loss.backward()
    return loss


X, Y = leaf(5, seed=1, name="x"), leaf(5, seed=2, name="y")
HALF = np.full(5, 0.5)
RECORDED = {  # the calls, and how many programs they take
    "other numbers": ([(X, HALF), (X, HALF * 3), (X, HALF - 1)], 1),
    "a shape": ([(X, HALF), (X, np.ones((3, 5))), (X, HALF * 3)], 2),
    "a dtype": ([(X, HALF), (X, np.ones(5, np.float32)), (X, HALF * 3)], 2),
    "strides": ([(X, HALF), (X, np.ones(10)[::2]), (X, HALF * 3)], 2),
    "a tensor for an array": ([(X, HALF), (X, mg.tensor(HALF)), (X, HALF * 3)], 2),
    "a number for an array": ([(X, HALF), (X, 2.0), (X, HALF * 3)], 2),
    "numbers by value and type": ([(X, p) for p in (2, 2, 3, 2.0, 3, 1)], 4),
    "keywords": ([(X, {"power": p}) for p in (2, 3, 2)], 2),
    "containers": ([(X, {"more": [HALF[:k] * k]}) for k in (5, 5, 1, 5)], 2),
    "one tensor twice": ([(X, Y), (X, X), (Y, Y), (Y, X)], 2),
}


@pytest.mark.parametrize(("calls", "programs"), RECORDED.values(), ids=RECORDED)
def test_another_kind_of_argument_is_recorded_anew(calls, programs):
    run = mg.compile(_product)
    for args in calls:
        named = args[-1] if isinstance(args[-1], dict) else {}
        given = [x for x in args if x is not named]
        both = []
        for call in (_product, run):
            X.grad = Y.grad = None
            both.append([call(*given, **named).numpy(), X.grad, Y.grad])
        for wanted, found in zip(*both, strict=True):
            assert (wanted is None) == (found is None)
            if wanted is not None:
                np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert (run.recordings, run.reasons) == (programs, [])


def test_whether_a_graph_is_recorded_and_a_gradient_wanted_are_guards():
    w, x = leaf(5), leaf(5, name="x")
    run = mg.compile(simple(w))
    agree(run.step, run, x, leaves=[w, x])
    agree(run.step, run, x, leaves=[w, x])
    x.requires_grad, x.grad = False, None
    agree(run.step, run, x, leaves=[w])
    assert x.grad is None
    assert run.recordings == 2
    run = mg.compile(lambda x: mg.sum(w * x).detach())
    run(np.ones(5))
    with mg.no_grad():
        assert not run(np.ones(5)).requires_grad
    assert run.recordings == 2


def test_an_argument_that_the_step_also_reaches_itself_is_a_guard():
    w = leaf(5)
    run = mg.compile(simple(w))
    x = leaf(5, seed=3, name="x")
    agree(run.step, run, x, leaves=[w, x])
    agree(run.step, run, w, leaves=[w])
    agree(run.step, run, x, leaves=[w, x])
    assert run.recordings == 2


def test_programs_are_kept_up_to_a_limit_and_then_the_step_runs_eagerly():
    w = leaf(5)
    run = mg.compile(simple(w))

    def calls():
        for n in range(12):
            agree(run.step, run, np.ones((n + 1, 5)), leaves=[w])

    with pytest.warns(mg.CompileWarning, match="8 programs were recorded and none fits"):
        calls()
    assert run.recordings == 8
    assert len(run.variants) == 8


# ---------------------------------------------------------------- what cannot be known runs eagerly


def _item(w, x):
    return w * 2.0 if mg.sum(x).item() > 1 else w * 3.0


def _float(w, x):
    return w * float(mg.sum(x))


def _asarray(w, x):
    return w * np.asarray(mg.exp(x)).max()


def _second_order(w, x):
    return w * mg.grad(mg.sum(w * w * w), w, create_graph=True)


@pytest.mark.parametrize("reading", [_item, _float, _asarray, _second_order])
def test_a_step_that_looks_at_numbers_runs_eagerly(reading):
    w = leaf(5)

    def step(x):
        loss = mg.sum(reading(w, x))
        loss.backward()
        return loss

    run = mg.compile(step)

    def calls():
        for n in range(4):
            agree(step, run, mg.tensor(np.full(5, 0.1 + 0.2 * n), name="x"), leaves=[w])

    with pytest.warns(mg.CompileWarning, match=r"runs eagerly: .*test_guards.py:\d+"):
        calls()
    assert len(run.reasons) == 1
    assert "test_guards.py:" in run.reasons[0]
    assert run.source.startswith("# runs eagerly")


def test_a_draw_of_python_s_own_generator_is_noticed_at_the_first_call():
    w, drawn = leaf(5), random.Random(3)
    run = mg.compile(lambda x: mg.sum(w * x * drawn.random()).detach())
    with pytest.warns(mg.CompileWarning, match="random numbers are drawn outside the ops"):
        first = run(np.ones(5))
    assert run(np.ones(5)).item() != first.item()


def test_a_function_made_anew_is_warned_of_once():
    def compiled():
        return mg.compile(lambda x: mg.tensor(x * float(x.max())))

    runs = [compiled() for _ in range(3)]
    with pytest.warns(mg.CompileWarning, match="numbers are taken out of an array"):
        runs[0](np.ones(5))
    for run in runs[1:]:  # a warning would be an error
        run(np.ones(5))
    assert all("test_guards.py:" in run.reasons[0] for run in runs)


@pytest.mark.parametrize(
    "cut",
    [lambda x: x, lambda x: x[1:], lambda x: x.T[1:, ::2].T, lambda x: mg.tensor(x)[:, 0:4]],
    ids=["whole", "rows", "columns", "tensor"],
)
@pytest.mark.parametrize(
    "lay",
    [np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x[:, ::-1]],
    ids=["by columns", "with gaps", "backwards"],
)
def test_array_arguments_may_lie_in_memory_in_any_order(lay, cut):
    w = leaf(6, 4)

    def step(x):
        x = cut(x)
        loss = mg.sum(mg.tanh(w[: x.shape[0], : x.shape[1]] * x))
        loss.backward()
        return loss

    run = mg.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mg.CompileWarning)
        for n in range(3):
            agree(step, run, lay(np.random.default_rng(n).uniform(size=(6, 4))), leaves=[w])
    assert run.recordings == 1
    if lay(np.ones((2, 2))).strides[-1] > 0:
        assert not run.reasons


def test_an_argument_may_be_a_view_and_is_not_taken_for_what_it_is_a_view_of():
    rows, others = np.random.default_rng(0).normal(size=(2, 6, 4))
    w = leaf(4)

    def alone(a):
        loss = mg.sum(w * np.asarray(a)[1:])
        loss.backward()
        return loss

    def with_its_owner(a):
        loss = mg.sum(w * np.asarray(a)) + mg.sum(w * rows[0])
        loss.backward()
        return loss

    def calls(run):
        for a in (rows[0:2], rows[3:5], others[2:4], others[1:3].copy()):
            agree(run.step, run, a, leaves=[w])

    run = mg.compile(alone)
    calls(run)
    assert not run.reasons
    with pytest.warns(mg.CompileWarning, match="memory that several"):
        calls(mg.compile(with_its_owner))


def test_a_step_that_draws_from_a_list_of_batches_runs_eagerly():
    w, batches = leaf(5), iter([np.full(5, float(n)) for n in range(5)])

    def step():
        loss = mg.sum(w * next(batches))
        loss.backward()
        return loss

    run = mg.compile(step)
    with pytest.warns(mg.CompileWarning, match="iterator"):
        assert [run().item() / w.data.sum() for _ in range(4)] == pytest.approx([0, 1, 2, 3])


def test_a_result_that_waits_for_its_backward_comes_with_its_graph():
    w = leaf(5)
    run = mg.compile(lambda x: mg.sum(w * x))

    def calls():
        for _ in range(3):
            w.grad = None
            run(np.full(5, 2.0)).backward()
            np.testing.assert_array_equal(w.grad, np.full(5, 2.0))

    with pytest.warns(mg.CompileWarning, match="waits for its backward"):
        calls()


@pytest.mark.filterwarnings("ignore::minigrad.errors.CompileWarning")
def test_hooks_and_retained_gradients_run_eagerly():
    w, seen = leaf(5), []
    run = mg.compile(simple(w))
    run(np.ones(5))
    handle = w.register_hook(lambda g: seen.append(g.copy()))
    run(np.ones(5))
    assert len(seen) == 1
    handle.remove()
    run(np.ones(5))
    assert len(seen) == 1

    def retaining(x):
        h = w * x
        h.retain_grad()
        mg.sum(h).backward()
        return h

    np.testing.assert_array_equal(mg.compile(retaining)(np.ones(5)).grad, np.ones(5))


def test_a_trace_sees_a_compiled_step_run():
    w = leaf(5)
    run = mg.compile(simple(w))
    run(np.ones(5))
    run(np.ones(5))
    with mg.trace() as t:
        run(np.ones(5))
    assert [e.op for e in t if e.kind == "op"] == ["multiply", "tanh", "sum"]


def test_writing_a_gradient_within_the_step():
    w = leaf(5)

    def clip(x):
        loss = mg.sum(w * x)
        loss.backward()
        w.grad *= 0.5
        return loss

    def reset(x):
        w.grad = None
        loss = mg.sum(w * x)
        loss.backward()
        return loss

    for step, factor in ((clip, 0.5), (reset, 1.0)):
        run = mg.compile(step)
        for n in range(3):
            w.grad = None if step is clip else w.grad
            run(np.full(5, n + 1.0))
            np.testing.assert_allclose(w.grad, np.full(5, factor * (n + 1.0)))
    assert not run.reasons


def test_two_threads_do_not_share_buffers():
    w = leaf(64, 64)

    def step(x):
        y = x
        for _ in range(20):
            y = mg.tanh(y @ w * 0.1)
        return y.detach()

    with mg.no_grad():
        run = mg.compile(lambda x: step(x))
        inputs = [mg.tensor(np.full((64, 64), 0.1 * n)) for n in range(4)]
        expected = [step(x).numpy() for x in inputs]
        run(inputs[0])
    results = {}

    def work(n):
        with mg.no_grad():
            results[n] = [run(inputs[n]).numpy() for _ in range(20)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n, arrays in results.items():
        for array in arrays:
            np.testing.assert_allclose(array, expected[n], rtol=1e-12)


def test_an_error_of_the_step_is_the_step_s_own():
    w = leaf(5)
    run = mg.compile(simple(w))
    with pytest.raises(mg.errors.ShapeError):
        run(np.ones(3))
    agree(run.step, run, np.ones(5), leaves=[w])


# ---------------------------------------------------------------- writes


def test_assign_after_backward_is_part_of_the_program():
    results = []
    for wrap in (lambda f: f, mg.compile):
        w, v = leaf(5), mg.tensor(np.zeros(5), name="v")

        def step(x, w=w, v=v):
            y = w * x
            loss = mg.sum(y * y)
            loss.backward()
            v.assign_(y.detach())
            u = v * 3.0
            v.assign_(u)
            return loss, u.detach()

        run = wrap(step)
        for n in range(3):
            loss, u = run(np.full(5, n + 1.0))
            results.append([loss.item(), *u.numpy(), *v.numpy(), *w.grad])
    assert not run.reasons
    np.testing.assert_allclose(results[:3], results[3:], rtol=1e-12)


@pytest.mark.parametrize("view", [False, True], ids=["whole", "transposed"])
def test_rows_written_into_a_tensor_are_part_of_the_program(view):
    results, rows = [], np.arange(3)
    for wrap in (lambda f: f, mg.compile):
        store = mg.tensor(np.zeros((3, 5, 2)), name="store")

        def step(x, at, store=store):
            with mg.no_grad():
                before = mg.exp(store) + at[:, None, None]
                store[rows, at] = x * 2.0
                store[:, 4] = x[0]
                seen = mg.exp(mg.swapaxes(store, 1, 2) if view else store)
                return before, seen, mg.tanh(mg.astype(mg.tensor(at), "float64"))

        run = wrap(step)
        for n in range(5):
            found = run(np.full((3, 2), n + 1.0), (rows + n) % 4)
            results.append([np.array(x.numpy()) for x in found] + [np.array(store.numpy())])
    assert (run.reasons, len(run.variants)) == ([], 1)
    for eager, compiled in zip(results[:5], results[5:], strict=True):
        assert_same(compiled, eager, 1e-12)


def test_a_large_condition_of_a_tensor_s_numbers_is_part_of_the_program():
    """Kernels that run by blocks take it for what it is."""
    w, x = leaf(300, 300), leaf(300, 300, seed=1)

    def step(shift):
        loss = mg.sum(mg.where(w.data > 1.0 + shift, w * shift, x))
        loss.backward()
        return loss

    run = mg.compile(step)
    for n in range(3):
        agree(step, run, np.float64(0.1) * np.full((), n), leaves=[w, x])
    assert not run.reasons


def test_backward_refuses_what_a_compiled_step_wrote_into():
    w, x = leaf(5), np.ones(2)

    @mg.compile
    def step(x):
        with mg.no_grad():
            w[:2] = x

    step(x)
    loss = mg.sum(w * w)
    step(x + 1)
    with pytest.raises(mg.errors.OverwrittenError, match="overwritten"):
        loss.backward()


def _twice(w, x):
    loss = mg.sum(mg.tanh(w * x))
    loss.backward(retain_graph=True)
    loss.backward()
    return loss


def _two_losses(w, x):
    loss = mg.sum(w * x)
    loss.backward()
    mg.sum(mg.exp(w)).backward()
    return loss


def _checkpointed(w, x):
    loss = mg.sum(mg.checkpoint(lambda w: mg.tanh(w * x), w))
    loss.backward()
    return loss


def _seeded(w, x):
    y = w * x
    y.backward(x)
    return y


@pytest.mark.parametrize("body", [_twice, _two_losses, _checkpointed, _seeded])
def test_backward_in_its_other_forms_is_part_of_the_program(body):
    w = leaf(5)
    run = mg.compile(lambda x: body(w, x))
    for n in range(3):
        agree(run.step, run, np.full(5, 0.1 * (n + 1)), leaves=[w])
    assert (run.recordings, run.reasons) == (1, [])
