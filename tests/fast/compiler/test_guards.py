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
from tests.compiled import assert_compiles
from tests.engine.declaring import declare

pytestmark = pytest.mark.usefixtures("sizes")


def leaf(*shape, seed=0, name="w", dtype=np.float64):
    data = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(dtype)
    return mg.tensor(data, requires_grad=True, name=name)


def agree(run, *args, leaves=(), **kwargs):
    """One call each way gives the same value and gradients."""
    found = []
    for call in (run.step, run):
        for t in leaves:
            t.grad = None
        found.append([call(*args, **kwargs).numpy(), *(t.grad for t in leaves)])
    for wanted, got in zip(*found, strict=True):
        assert (wanted is None) == (got is None)
        if wanted is not None:
            np.testing.assert_allclose(got, wanted, rtol=1e-12)


def backward_of(loss_of):
    """A step that sends its loss back."""

    def step(*given):
        loss = loss_of(*given)
        loss.backward()
        return loss

    return step


def simple(w):
    return backward_of(lambda x: mg.sum(mg.tanh(w * x)))


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
        agree(run, *given, leaves=[X, Y], **named)
    assert (run.recordings, run.reasons) == (programs, [])


def test_whether_a_graph_is_recorded_and_a_gradient_wanted_are_guards():
    w, x = leaf(5), leaf(5, name="x")
    run = mg.compile(simple(w))
    agree(run, x, leaves=[w, x])
    agree(run, x, leaves=[w, x])
    x.requires_grad, x.grad = False, None
    agree(run, x, leaves=[w])
    assert x.grad is None
    assert run.recordings == 2
    run = mg.compile(lambda x: mg.sum(w * x).detach())
    run(np.ones(5))
    with mg.no_grad():
        assert not run(np.ones(5)).requires_grad
    assert run.recordings == 2


def test_a_variable_is_no_guard_where_an_attribute_has_its_name():
    """As `data` of a loop over batches, where the step writes `w.data`."""
    space = {"mg": mg, "w": leaf(5)}
    code = "def step(x):\n    loss = mg.sum(w * x)\n    w.data -= 0.1 * x\n    return loss.detach()"
    exec(compile(code, "script.py", "exec"), space)
    run = mg.compile(space["step"])
    for n in range(3):
        space["data"] = np.full(5, float(n))
        run(space["data"])
    assert (run.recordings, run.reasons) == (1, [])


def test_an_argument_that_the_step_also_reaches_itself_is_a_guard():
    w = leaf(5)
    run = mg.compile(simple(w))
    x = leaf(5, seed=3, name="x")
    agree(run, x, leaves=[w, x])
    agree(run, w, leaves=[w])
    agree(run, x, leaves=[w, x])
    assert run.recordings == 2


def test_programs_are_kept_up_to_a_limit_and_then_the_step_runs_eagerly():
    w = leaf(5)
    run = mg.compile(simple(w))
    for n in range(8):
        agree(run, np.ones((n + 1, 5)), leaves=[w])
    with pytest.warns(mg.CompileWarning, match="8 programs were recorded and none fits"):
        agree(run, np.ones((9, 5)), leaves=[w])
    agree(run, np.ones((10, 5)), leaves=[w])
    assert run.recordings == 8
    assert len(run.variants) == 8


def test_a_number_that_changes_at_each_call_is_one_reason_that_names_it():
    w, rates = leaf(5), [1.0]
    run = mg.compile(lambda x: mg.sum(w * x * rates[0]).detach())

    def call(rate):
        rates[0] = rate
        agree(run, np.ones(5))

    for n in range(8):
        call(n + 1.0)
    with pytest.warns(mg.CompileWarning, match=r"none fits, as rates\[0\] was 8.0 and is 9.0"):
        call(9.0)
    call(10.0)
    assert len(run.reasons) == 1


# ---------------------------------------------------------------- what cannot be known runs eagerly


def averaging(averages):
    """A step may keep an average of its weights by hand."""

    def written(w, x):
        averages[:5] = 0.9 * averages[:5] + w.numpy()
        return w * x

    return written


LOOKING = {
    "written": averaging(np.zeros(5)),
    "written where it is large": averaging(np.zeros(4000)),
    "written into a copy of a tensor's": averaging(mg.zeros(5).numpy().copy()),
    "a mean in another dtype": lambda w, x: w * np.mean(x.numpy(), 0, np.float32),
    "where": lambda w, x: w[: len(np.where(x.numpy() > 0)[0])],
    "item": lambda w, x: w * 2.0 if mg.sum(x).item() > 1 else w * 3.0,
    "float": lambda w, x: w * float(mg.sum(x)),
    "asarray": lambda w, x: w * np.asarray(mg.exp(x)).max(),
    "rounded": lambda w, x: w * round(x.numpy().mean(), 1),
    "hashed": lambda w, x: w * len(set(x.numpy())) * x.numpy()[0].is_integer(),
    "second order": lambda w, x: w * mg.grad(mg.sum(w * w * w), w, create_graph=True),
}


@pytest.mark.parametrize("reading", LOOKING.values(), ids=LOOKING)
def test_a_step_that_looks_at_numbers_runs_eagerly(reading):
    w = leaf(5)
    run = mg.compile(backward_of(lambda x: mg.sum(reading(w, x))))
    x = mg.tensor(np.full(5, 0.1), name="x")
    with pytest.warns(mg.CompileWarning, match=r"runs eagerly: .*test_guards.py:\d+"):
        agree(run, x, leaves=[w])
    for n in range(1, 4):
        agree(run, mg.tensor(np.full(5, 0.1 + 0.2 * n)), leaves=[w])
    assert len(run.reasons) == 1
    assert "test_guards.py:" in run.reasons[0]
    assert run.source.startswith("# runs eagerly")


def test_a_container_that_the_step_fills_holds_what_it_does_eagerly():
    """Also at the first call, which says what it changes."""
    w, seen = leaf(5), []
    run = mg.compile(lambda x: seen.append(x * 2.0) or mg.sum(w * x).detach())
    with pytest.warns(mg.CompileWarning, match=r"the step changes seen\[1\]"):
        agree(run, np.ones(5))
    assert [type(x) for x in seen] == [np.ndarray] * 2


def test_an_attribute_that_is_set_to_a_number_of_numpy_s_is_a_number():
    class State:
        """Of an epoch."""

    w, state = leaf(5), State()
    state.largest = None

    def step(x):
        state.largest = x.max()
        return mg.sum(w * x).detach()

    run = mg.compile(step)
    for n in range(1, 4):
        agree(run, np.full(5, float(n)))
        assert (type(state.largest), state.largest) == (np.float64, n)
    assert run.reasons == []


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

    def loss_of(x):
        x = cut(x)
        return mg.sum(mg.tanh(w[: x.shape[0], : x.shape[1]] * x))

    run = mg.compile(backward_of(loss_of))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mg.CompileWarning)
        for n in range(3):
            agree(run, lay(np.random.default_rng(n).uniform(size=(6, 4))), leaves=[w])
    assert run.recordings == 1
    if lay(np.ones((2, 2))).strides[-1] > 0:
        assert not run.reasons


def test_an_argument_may_be_a_view_and_is_not_taken_for_what_it_is_a_view_of():
    rows, others = np.random.default_rng(0).normal(size=(2, 6, 4))
    w = leaf(4)

    def alone(a):
        return mg.sum(w * np.asarray(a)[1:])

    def with_its_owner(a):
        return mg.sum(w * np.asarray(a)) + mg.sum(w * rows[0])

    def calls(loss_of):
        run = mg.compile(backward_of(loss_of))
        for a in (rows[0:2], rows[3:5], others[2:4], others[1:3].copy()):
            agree(run, a, leaves=[w])
        return run

    assert not calls(alone).reasons
    with pytest.warns(mg.CompileWarning, match="memory that several"):
        calls(with_its_owner)


@pytest.mark.parametrize("first", [slice(None, -1), slice(None)], ids=["shifted", "cut within"])
def test_tokens_and_those_that_follow_may_be_windows_of_one_array(first):
    """Of which one may be what the step cuts from the other, at the first calls."""
    W, tokens = leaf(11, 3), np.random.default_rng(0).integers(0, 11, (6, 4, 8))
    run = mg.compile(
        backward_of(lambda x, y: mg.cross_entropy(mg.take(W, x[:, -6:], axis=0), y[:, -6:] % 3))
    )
    for here, there in [(0, 0), (1, 1), (2, 3), (4, 4), (5, 0)]:
        agree(run, tokens[here, :, first], tokens[there, :, -6:], leaves=[W])
    assert (run.recordings, run.reasons) == (1, [])


def test_what_numpy_gives_of_a_tensor_is_an_argument_as_other_arrays_are():
    """As the state of a recurrent step; eager calls and programs return it in different classes."""
    w = leaf(5)

    def step(h):
        after = mg.tanh(w * h + 1.0)
        return after.numpy(), mg.sum(after).detach()

    run, wanted, found = mg.compile(step), np.zeros(5), np.zeros(5)
    for _ in range(9):
        wanted, found = step(wanted)[0], run(found)[0]
        np.testing.assert_array_equal(found, wanted)
    assert (run.recordings, run.reasons) == (1, [])


def test_a_step_that_writes_into_the_data_of_a_tensor_does_so_at_each_call():
    def step(x):
        x[1:] += 1.0
        x[0] = 3.0
        return mg.sum(x)

    x = mg.zeros(3)
    run = mg.compile(step)
    with pytest.warns(mg.CompileWarning, match="runs eagerly"):
        run(x.data)
    run(x.data)
    np.testing.assert_array_equal(x.numpy(), [3.0, 2.0, 2.0])


WINDOWS = {  # what the step is given of a table, and what it cuts of that
    "shifted": (lambda t: (t[:, :-1], t[:, 1:]), lambda x, y: (x, y)),
    "features and target": (lambda t: (t[:, :-1], t[:, -1]), lambda x, y: (x[:, 2:], y[:, None])),
    "one cut of the other": (lambda t: (t[:, :-1], t[:, 1:-1]), lambda x, y: (x[:, 1:], y)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_arguments_may_be_windows_of_one_array(name):
    """Where they show the same entries, one is not taken for the other."""
    given, used = WINDOWS[name]
    w, tables = leaf(5), np.random.default_rng(0).normal(size=(6, 4, 8))

    def loss_of(x, y):
        x, y = used(x, y)
        return mg.sum(mg.tanh(w[0] - x)) + mg.sum((w[1] - y) ** 2)

    run = mg.compile(backward_of(loss_of))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mg.CompileWarning)
        for here, there in [(0, 0), (1, 1), (2, 3), (4, 4), (5, 0)]:
            agree(run, given(tables[here])[0], given(tables[there])[1], leaves=[w])
    assert run.recordings == 1
    assert bool(run.reasons) == (name == "one cut of the other")


def test_a_step_that_draws_from_a_list_of_batches_runs_eagerly():
    w, batches = leaf(5), iter([np.full(5, float(n)) for n in range(5)])
    run = mg.compile(backward_of(lambda: mg.sum(w * next(batches))))
    with pytest.warns(mg.CompileWarning, match="iterator"):
        assert [run().item() / w.data.sum() for _ in range(4)] == pytest.approx([0, 1, 2, 3])


def test_a_result_that_waits_for_its_backward_comes_with_its_graph():
    w = leaf(5)
    run = mg.compile(lambda x: mg.sum(w * x))
    with pytest.warns(mg.CompileWarning, match="waits for its backward"):
        run(np.full(5, 2.0)).backward()
    run(np.full(5, 2.0)).backward()
    np.testing.assert_array_equal(w.grad, np.full(5, 4.0))


@pytest.mark.filterwarnings("ignore::minigrad.errors.CompileWarning")
def test_hooks_and_retained_gradients_run_eagerly():
    w, seen = leaf(5), []
    run = mg.compile(simple(w))
    for _ in range(3):
        run(np.ones(5))
    handle = w.register_hook(lambda g: seen.append(g.copy()))
    run(np.ones(5))  # a call that no audit would repeat
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


def test_two_threads_do_not_share_buffers():
    w = leaf(64, 64)

    def step(x):
        for _ in range(20):
            x = mg.tanh(x @ w * 0.1)
        return x.detach()

    run, results = mg.compile(step), {}
    inputs = [mg.tensor(np.full((64, 64), 0.1 * n)) for n in range(4)]
    expected = [step(x).numpy() for x in inputs]
    run(inputs[0])

    def work(n):
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
    for _ in range(9):
        with pytest.raises(mg.errors.ShapeError):
            run(np.ones(3))
    agree(run, np.ones(5), leaves=[w])
    assert run.recordings == 1


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (mg.sigmoid, np.float32(-1000)),
        (mg.logsumexp, np.full(3, -np.inf)),
        (lambda x: np.errstate(divide="ignore")(mg.log)(x), np.zeros(3)),
    ],
)
def test_what_is_no_error_eagerly_is_none_in_a_program(f, x):
    """What a kernel, or the step, ignores of overflow and of divisions by zero."""
    run = mg.compile(lambda x: f(mg.tensor(x)))
    for shift in (0.0, 1.0, 1.0, 0.0):  # the first call is recorded, and the second runs both ways
        given = np.asarray(x if shift else np.ones_like(x))
        np.testing.assert_array_equal(run(given).numpy(), f(given))
    assert not run.reasons


class Named:
    """A callable object whose attributes are called as those of a compiled step."""

    def __init__(self):
        self.step = self.calls = self.audit = self.variants = 7.0

    def __call__(self, x):
        return mg.tensor(x) * self.step


def test_attributes_of_a_callable_object_are_its_own():
    run = mg.compile(Named())
    for n in range(4):
        np.testing.assert_array_equal(run(np.full(3, float(n))).numpy(), 7.0 * n)
    run.audit(np.ones(3))
    assert (run.recordings, run.reasons) == (1, [])


# ---------------------------------------------------------------- writes


def test_a_large_condition_of_a_tensor_s_numbers_is_part_of_the_program():
    """Kernels that run by blocks take it for what it is."""
    w, x = leaf(300, 300), leaf(300, 300, seed=1)

    run = mg.compile(
        backward_of(lambda shift: mg.sum(mg.where(w.data > 1.0 + shift, w * shift, x)))
    )
    for n in range(3):
        agree(run, np.float64(0.1) * np.full((), n), leaves=[w, x])
    assert not run.reasons


def test_a_kernel_that_writes_into_a_view_is_called_whole():
    def quartered_but_the_first(x):
        y = x * 1.0
        others = y[1:]
        others /= 4.0
        return y

    op, w = declare(quartered_but_the_first), leaf(5)
    op.vjp("x")(lambda g: g * np.array([1.0, 0.25, 0.25, 0.25, 0.25]))
    step = backward_of(lambda x: mg.sum(op(w * x)))
    assert_compiles(step, [w], (HALF,), (HALF * 2,), (HALF * 3,))


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
