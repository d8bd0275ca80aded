"""A compiled step says why it runs eagerly; its calls and its kernels, one by one."""

from __future__ import annotations

import gc
import io
import warnings
from contextlib import redirect_stdout
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import GradientError
from minigrad.fast.compile.lines import TapeLine, Value
from minigrad.fast.compile.symbols import KernelCalls
from minigrad.optim import SGD
from tests.compare import assert_same
from tests.fast.compiled import data, leaf

# ---------------------------------------------------------------- what is refused

w0, x0 = leaf(3), np.ones(3)
hidden = SimpleNamespace(h=mg.tensor(np.zeros(3)), count=0, seen=[])
table = np.zeros(3)
rng = np.random.default_rng(0)
outside = mg.sum(w0 * 3.0)


def carries(x: Any) -> Any:
    hidden.h = mg.tanh(hidden.h + w0 * x).detach()


def counts(x: Any) -> Any:
    hidden.count += 1


def hooked(x: Any) -> Any:
    y = w0 * x
    y.register_hook(lambda g: g * 2)
    y.sum().backward()


def writes(x: Any) -> Any:
    table[0] += 1


def by_hand(x: Any) -> Any:
    mg.sum(w0 * x).backward()
    w0.grad *= 0.5


def by_hand_before_an_update(x: Any) -> Any:
    mg.sum(w0 * x).backward()
    w0.grad = np.ones(3)
    SGD([w0], lr=0.0).step()


REFUSED = {
    "a hidden state": (carries, "changes hidden.h"),
    "a counter": (counts, "changes hidden.count"),
    "an array": (writes, "changes table"),
    "a generator": (lambda x: w0 * x if rng.random() < 2 else w0, "changes rng"),
    "a list": (lambda x: hidden.seen.append(1), "changes hidden.seen"),
    "item()": (lambda x: float(mg.sum(w0 * x).item()) * w0, "taken out of an array, by its item"),
    "a branch": (lambda x: w0 * x if mg.sum(w0) > 0 else w0, "by its __bool__"),
    "x / 255": (lambda x: mg.tensor(x / 255) * w0, "by np.divide"),
    "a branch on x": (lambda x: w0 if x.max() > 0 else -w0, "by its max"),
    "an entry of x": (lambda x: w0 * float(x[0]), "by taking entries out"),
    "a boolean index": (lambda x: (w0 * x)[x > 0], "picks as many entries as are True"),
    "noise": (lambda x: mg.tensor(np.random.default_rng().normal(size=3)) * w0, "made by NumPy"),
    "a hook": (hooked, "hook"),
    "a graph from outside": (lambda x: outside * mg.tensor(x), "a graph from outside"),
    "a backward from outside": (
        lambda x: outside.backward(retain_graph=True), "made outside the step"
    ),
    "a list of arrays": (lambda x: mg.tensor(np.concatenate([x, x])) * 2, "by np.concatenate"),
    "gradients by hand": (by_hand, "by np.multiply"),
    "gradients by hand before an update": (by_hand_before_an_update, "sets .grad of w by hand"),
    "what is returned": (lambda x: {1, 2}, "a set is returned"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_program_could_repeat_is_refused_with_the_reason_and_the_line(name):
    step, reason = REFUSED[name]
    w0.grad = None
    run = mg.compile(step)
    with pytest.warns(mg.CompileWarning, match=reason) as caught:
        run(x0)
    assert "test_compile_refusals.py:" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(x0)
    assert len(run.reasons) == 1
    assert w0.grad is None or type(w0.grad) is np.ndarray
    assert run.source.startswith("# runs eagerly: ")


@pytest.mark.parametrize("value", [float, lambda number: mg.tensor([float(number)])])
def test_what_only_changes_from_call_to_call_is_found_at_the_second(value):
    number = ContextVar("number", default=-1)  # where no compiled step looks

    def step(x: Any) -> Any:
        number.set(number.get() + 1)
        return mg.tensor(x) * value(number.get())

    run = mg.compile(step)
    run(x0)
    with pytest.warns(mg.CompileWarning, match="call 2 (runs|has another array)"):
        assert_same(run(x0), x0)
    assert_same(run(x0), 2 * x0)
    run = mg.compile(lambda: (w0 * 2.0, number.get()))
    run()
    number.set(7)
    with pytest.warns(mg.CompileWarning, match="returns other plain values"):
        assert run()[1] == 7


def test_calls_that_are_never_alike_run_eagerly_in_the_end():
    run = mg.compile(lambda x, k: mg.tensor(x) * k)
    with pytest.warns(mg.CompileWarning, match="in the last one .*32.0.* came where .*31.0.* was"):
        found = [run(x0, float(i)) for i in range(40)]
    assert_same(found, np.outer(np.arange(40), x0))


@pytest.mark.parametrize("given", [False, True])
def test_a_hook_that_is_registered_later_is_called(given):
    """Of a leaf that the step names, and of an argument."""
    w = leaf(3)
    args = [w] if given else []
    run = mg.compile(lambda x, w=w: mg.sum(w * x).backward())
    for _ in range(4):
        run(x0, *args)
    w.grad = None
    w.register_hook(lambda g: g * 2)
    with pytest.warns(mg.CompileWarning, match="a hook was registered"):
        run(x0, *args)
    assert_same(w.grad, 2 * x0)


def test_a_hook_of_an_argument_is_called_by_grad():
    seen, x = [], mg.tensor([1.0, 2.0], requires_grad=True)
    step = mg.compile(lambda x: mg.grad((x * x).sum(), x))
    for _ in range(3):
        step(x)
    x.register_hook(seen.append)
    with pytest.warns(mg.CompileWarning, match="a hook was registered"):
        step(x)
    assert len(seen) == 1


def test_a_recording_leaves_nothing_to_the_collector_of_garbage():
    def tapes() -> int:
        return sum(type(x).__name__ == "Tape" for x in gc.get_objects())

    gc.collect()
    before = tapes()
    gc.disable()
    try:
        run = mg.compile(lambda x: mg.sum(w0 * x).backward())
        for _ in range(3):
            run(x0)
        assert tapes() == before
    finally:
        gc.enable()


def test_a_step_that_fails_leaves_gradients_as_they_are():
    def step(x: Any) -> Any:
        mg.sum(w0 * x).backward()
        raise RuntimeError("later")

    w0.grad = None
    with pytest.raises(RuntimeError, match="later"):
        mg.compile(step)(x0)
    assert type(w0.grad) is np.ndarray


def test_a_step_that_changes_a_list_among_its_arguments_is_told_that_it_had_a_copy():
    kept: list[Any] = [x0]
    run = mg.compile(lambda kept: kept.append(mg.tensor(kept[0])))
    with pytest.warns(mg.CompileWarning, match="(?s)changes a list .* a copy, which is lost"):
        run(kept)
    assert len(kept) == 1
    run(kept)
    assert len(kept) == 2
    assert kept[0] is x0


# ---------------------------------------------------------------- calls


def test_python_s_side_effects_happen_when_the_step_is_recorded_and_not_otherwise():
    run = mg.compile(lambda x: print("recorded"))
    with redirect_stdout(io.StringIO()) as out:
        for _ in range(20):
            run(x0)
    assert 2 <= out.getvalue().count("recorded") < 20


def test_within_no_grad_it_is_another_program():
    run = mg.compile(lambda x: mg.sum(w0 * x).backward())
    for _ in range(4):
        run(x0)
    with mg.no_grad(), pytest.raises(GradientError):
        run(x0)


def test_leaves_of_one_gradient_get_arrays_of_their_own():
    w, v = leaf(3), leaf(3)
    run = mg.compile(lambda x: mg.sum((w + v) * x).backward())
    for _ in range(4):
        w.grad = v.grad = None
        run(x0)
    assert not np.shares_memory(w.grad, v.grad)


def test_a_traced_call_runs_eagerly_and_a_result_has_no_graph():
    run = mg.compile(lambda x: mg.tensor(x) * w0)
    assert not any(run(x0).requires_grad for _ in range(4))
    with mg.trace() as t:
        run(x0)
    assert [entry.op for entry in t if entry.op] == ["multiply"]


def test_what_is_masked_by_a_comparison_and_what_nobody_reads():
    x = data(0, 300)
    run = mg.compile(lambda x: (mg.where(x > 0, mg.tensor(x), 1.0), mg.exp(w0)[:1])[0])
    for _ in range(3):
        assert_same(run(x), np.where(x > 0, x, 1.0))
    assert "exp" not in run.source


def test_a_method_may_be_compiled_in_its_class():
    class Trainer:
        def __init__(self, k: float) -> None:
            self.k = k

        @mg.compile
        def step(self, x: Any) -> Any:
            return mg.tensor(x) * self.k

    one, two = Trainer(1.0), Trainer(2.0)
    for _ in range(4):
        assert_same(one.step(x0), x0)
        assert_same(two.step(x0), 2 * x0)


# ---------------------------------------------------------------- kernels taken apart


def writes_into_an_input(x: Any, y: Any) -> Any:
    x += y
    return x


def ignores_errors(x: Any, y: Any) -> Any:
    with np.errstate(over="ignore"):
        return x * y


def is_told_apart(x: Any, y: Any) -> Any:
    return x * y if type(x) is np.ndarray else x + y


UNFOLLOWED = [
    writes_into_an_input, ignores_errors, is_told_apart,
    lambda x, y: x * y[x > 0].sum(), lambda x, y: x.T if y.sum() > 0 else y,
    lambda x, y: np.add(x, y, out=np.empty((3, 3))), lambda x, y: x + np.asarray(y),
    lambda x, y: float(x[0, 0]) * y, lambda x, y: x * y if x.flags.owndata else y,
    lambda x, y: (x * y).sum(), lambda x, y: np.asfortranarray(x + y),
]  # fmt: skip


@pytest.mark.parametrize("kernel", UNFOLLOWED)
def test_what_samples_cannot_follow_to_the_bit_is_called_whole(kernel):
    x, y = [Value(i, "x", (3, 3), np.dtype(np.float64), (24, 8)) for i in (1, 2)]
    calls_of = lambda function: KernelCalls(TapeLine(function, (x, y), [x]), [x, y])  # noqa: E731
    assert calls_of(kernel).results is None
    followed = calls_of(lambda x, y: x.T + y * 2.0)
    assert [name for *_, name in followed.calls] == ["T", "multiply", "add"]
