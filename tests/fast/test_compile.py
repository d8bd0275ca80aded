"""A compiled step gives what the step gives at each call, or says why it runs eagerly."""

from __future__ import annotations

import gc
import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import LSTM, BatchNorm, LanguageModel, Linear, SelfAttention, create_causal_mask
from minigrad.errors import GradientError
from minigrad.fast.compile import symbols
from minigrad.fast.compile.lines import TapeLine, Value
from minigrad.fast.compile.symbols import Calls, Variable
from minigrad.fast.compile.text import Names
from minigrad.fast.limits import LIMITS
from minigrad.optim import SGD, Adam, LossScale, clip_grad_norm, schedule
from tests.compare import assert_same
from tests.engine.declaring import declare
from tests.random_programs import random_program


@pytest.fixture(autouse=True)
def let_go_of_small_arrays():
    """As steps do with large ones."""
    with LIMITS.changed(large_bytes=0):
        yield


def leaf(*shape: int, seed: int = 0, name: str = "w", dtype: Any = float) -> mg.Tensor:
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return mg.tensor(values, requires_grad=True, name=name)


def data(i: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(100 + i).normal(size=shape)


def some_rows(i: int) -> Any:
    return (data(i, 4, 3),)


def world(
    step: Any, *leaves: mg.Tensor, given: Any = some_rows, before: Any = None, seen: Any = None
) -> SimpleNamespace:
    """A step, its arguments at call i, what is done before it, and what is compared after it."""

    def entries() -> Any:
        return [[w.numpy().copy(), 0 if w.grad is None else w.grad.copy()] for w in leaves]

    def clear(i: int) -> None:
        for w in leaves:
            w.grad = None

    before = before or clear
    return SimpleNamespace(step=step, given=given, before=before, seen=seen or entries)


def same(make: Callable[[], Any], recordings: int = 1, calls: int = 9) -> Any:
    """Call the step of two worlds in turn, one of them compiled, and compare all that is seen."""
    eager, compiled = make(), make()
    run = mg.compile(compiled.step)
    for i in range(calls):
        found = []
        for world, step in ((eager, eager.step), (compiled, run)):
            world.before(i)
            found.append([step(*world.given(i)), world.seen()])
        for new, old in zip(_flat(found[1]), _flat(found[0]), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-11, err_msg=f"call {i + 1}")
    assert (run.recordings, run.reasons) == (recordings, [])
    return run


def _flat(x: Any) -> list[Any]:
    if isinstance(x, list | tuple):
        return [array for part in x for array in _flat(part)]
    return [] if x is None else [x.numpy() if isinstance(x, mg.Tensor) else x]


CLAIMS: dict[str, tuple[Callable[[], Any], int]] = {}


def claim(recordings: int = 1) -> Callable[[Any], Any]:
    """What a function makes is right at each call, by so many programs."""

    def note(make: Callable[[], Any]) -> Any:
        CLAIMS[make.__name__] = make, recordings
        return make

    return note


# ---------------------------------------------------------------- training


def mlp(optimizer: Any, clip: float = np.inf, clear: str = "first", rates: bool = False) -> Any:
    def make() -> Any:
        first, last = Linear(3, 5, rng=0), Linear(5, 2, rng=1)
        leaves = [*first.parameters(), *last.parameters()]
        taken = optimizer(leaves)
        rate = schedule.cosine(taken, steps=20) if clear == "scheduled" else None

        def step(x: Any) -> Any:
            if clear != "last":
                taken.zero_grad()
            loss = mg.mean(last(mg.tanh(first(x))) ** 2)
            loss.backward()
            if clip < np.inf:
                clip_grad_norm(leaves, clip)
            taken.step()
            if rate is not None:
                rate.step()
            if clear == "last":
                taken.zero_grad()
            return loss

        before = (lambda i: setattr(taken, "lr", 0.1 / (1 + i))) if rates else None
        return world(step, *leaves, before=before)

    return make


CLAIMS |= {
    "sgd": (mlp(lambda w: SGD(w, lr=0.1, momentum=0.9)), 1),
    "clipped": (mlp(lambda w: Adam(w, lr=0.1), clip=0.1), 1),
    "cleared last": (mlp(lambda w: SGD(w, lr=0.1), clear="last"), 1),
    "scheduled": (mlp(lambda w: SGD(w, lr=0.1), clear="scheduled"), 1),
    "rates set between calls": (mlp(lambda w: Adam(w, lr=0.1), rates=True), 1),
}


@claim()
def training_in_float16() -> Any:
    w = leaf(3, dtype=np.float16)
    scaler = LossScale(SGD([w], lr=0.1), scale=16.0, interval=3)

    def step(x: Any) -> Any:
        scaler.optimizer.zero_grad()
        loss = mg.sum((w * x.astype(np.float16)) ** 2)
        scaler.backward(loss)
        scaler.step()
        return loss

    return world(step, w)


@claim(recordings=2)
def a_gradient_that_is_there_at_some_calls_is_added_to() -> Any:
    w = leaf(3, 2)

    def step(x: Any) -> Any:
        mg.sum(mg.tensor(x) @ w * 2.0).backward()

    return world(step, w, before=lambda i: i in (0, 4) and setattr(w, "grad", None))


@claim(recordings=2)
def gradients_are_set_to_none_by_hand_and_returned() -> Any:
    w = leaf(3, 2)

    def step(x: Any) -> Any:
        w.grad = None
        mg.sum(mg.tensor(x) @ w).backward()
        return w.grad

    return world(step, w, before=lambda i: None)


@claim()
def gradients_without_backward_of_gradients_and_of_inputs() -> Any:
    w = leaf(3, 2)

    def step(x: Any) -> Any:
        X = mg.tensor(x, requires_grad=True)
        loss = mg.sum(mg.tanh(X @ w) ** 2)
        g = mg.grad(loss, w, create_graph=True)
        (h,) = mg.grad(mg.sum(g * g), [w])
        for _ in range(2):
            mg.sum(mg.tanh(X @ w)).backward()
        return loss, g, h, X.grad

    return world(step, w)


@claim(recordings=3)
def a_leaf_may_be_frozen_between_calls() -> Any:
    w, v = leaf(3, 2), leaf(3, 2, seed=1, name="v")

    def step(x: Any) -> Any:
        mg.sum(mg.tensor(x) @ w * 2.0 + mg.tensor(x) @ v).backward()

    def before(i: int) -> None:
        v.requires_grad = i < 3
        w.grad = None

    return world(step, w, v, before=before)


# ---------------------------------------------------------------- layers and what they keep


@claim()
def attention() -> Any:
    layer = SelfAttention(8, 8, 8, rng=0)
    mask = create_causal_mask(5)

    def step(X: Any) -> Any:
        layer.zero_grad()
        out = layer(X, mask=mask)
        loss = mg.sum(out * out)
        loss.backward()
        return loss

    def seen() -> Any:
        kept = [layer.attention_weights, layer.cache["Q"]]
        assert {type(x) for x in kept} == {np.ndarray}
        return [*kept, *[p.grad for p in layer.parameters()]]

    return world(step, given=lambda i: (data(i, 2, 5, 8),), seen=seen)


def test_the_source_of_attention_reads_as_a_person_would_write_it():
    source = same(attention).source
    for line in (
        "Q = X_rows.dot(W_Q._data)",
        "A = np.subtract(S_masked, A_max, out=S_masked)",
        "np.exp(A, out=A)",
        "A /= A_sum",
        "d_A = d_O @ V.mT",
        "W_Q.grad = d_W_Q",
    ):
        assert line in source, source


@claim(recordings=2)
def running_statistics_are_written_at_each_call_and_modes_are_told_apart() -> Any:
    norm = BatchNorm(3)
    return world(
        lambda x: norm(x),
        norm.running_mean,
        norm.running_var,
        before=lambda i: norm.train() if i % 4 < 2 else norm.eval(),
    )


@claim()
def dropout_draws_anew_at_each_call_in_the_same_order() -> Any:
    w, rng = leaf(3, 5), np.random.default_rng(3)

    def step(x: Any, y: Any) -> Any:
        mg.cross_entropy(mg.dropout(mg.tensor(x) @ w, 0.3, rng), y).backward()

    return world(step, w, given=lambda i: (data(i, 4, 3), np.arange(i, i + 4) % 5))


def trained(model: Any, given: Any) -> Any:
    optimizer = Adam(model.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = mg.mean(out * out)
        loss.backward()
        optimizer.step()
        return loss

    return world(step, *model.parameters(), given=given)


@claim()
def an_lstm() -> Any:
    return trained(LSTM(3, 4, rng=0), lambda i: (data(i, 2, 5, 3),))


@claim()
def a_gpt() -> Any:
    model = LanguageModel(7, 8, n_heads=2, n_layers=2, max_len=5, rng=0)
    return trained(model, lambda i: (np.random.default_rng(i).integers(0, 7, (2, 5)),))


# ---------------------------------------------------------------- what is another program


class Settings:
    """Where a step may find a number beside: behind a property, in a file, in any attribute."""

    def __init__(self) -> None:
        self.held = [1.0]
        self._changes = 1  # as a Module has
        self.file = ModuleType("settings")
        self.file.scale = 1.0
        self.own = 1.0

    @property
    def number(self) -> float:
        return self.held[0] * self.file.scale * self.own * self.always

    def __getattr__(self, name: str) -> float:
        return {"always": 1.0}[name]


def scaled(seed: int) -> Any:
    layer = Linear(2, 2, rng=seed)
    layer.slope = 1.0
    return layer


REBOUND = {
    "a number": lambda s, i: setattr(s, "k", 1.0 + (i > 4)),
    "a number in a list": lambda s, i: s.numbers.__setitem__(0, 1.0 + (i > 4)),
    "a number in a list in a dict": lambda s, i: s.nested["a"].__setitem__(0, 1.0 + (i > 4)),
    "an array": lambda s, i: setattr(s, "array", np.full(2, 1.0 + (i > 4))),
    "an array's entries": lambda s, i: s.array.__setitem__(slice(None), float(i)),
    "a Tensor": lambda s, i: i == 5 and setattr(s, "tensor", mg.tensor(np.full(2, 3.0))),
    "a Tensor's entries": lambda s, i: s.tensor.assign_(np.full(2, float(i))),
    "a module": lambda s, i: i == 5 and setattr(s, "module", scaled(5)),
    "a module's number": lambda s, i: setattr(s.module, "slope", 1.0 + (i > 4)),
    "a function": lambda s, i: i == 5 and setattr(s, "function", mg.sigmoid),
    "an attribute": lambda s, i: setattr(s.settings, "own", 1.0 + (i > 4)),
    "behind a property": lambda s, i: s.settings.held.__setitem__(0, 1.0 + (i > 4)),
    "an attribute of a class": lambda s, i: setattr(s.kind, "scale", 1.0 + (i > 4)),
    "in a file": lambda s, i: setattr(s.settings.file, "scale", 1.0 + (i > 4)),
}


@pytest.mark.parametrize("name", REBOUND)
def test_what_the_step_reaches_by_name_may_change_between_calls(name):
    def make() -> Any:
        w = leaf(3, 2)
        s = SimpleNamespace(k=1.0, numbers=[1.0], nested={"a": [1.0]}, function=mg.tanh)
        s.array, s.tensor = np.ones(2), mg.tensor(np.ones(2))
        s.module, s.settings = scaled(4), Settings()
        s.kind = type("Kind", (), {"scale": 1.0})

        def step(x: Any) -> Any:
            y = s.module(s.function(mg.tensor(x) @ w * s.k * s.numbers[0] + s.array) + s.tensor)
            return mg.sum(y * s.nested["a"][0] * s.module.slope * s.settings.number * s.kind.scale)

        return world(step, before=lambda i: REBOUND[name](s, i))

    programs = {"an array": 9, "an array's entries": 1, "a Tensor's entries": 1}
    same(make, programs.get(name, 2))


SCALE = 1.0


@claim(recordings=2)
def a_global_may_change_between_calls() -> Any:
    def before(i: int) -> None:
        global SCALE
        SCALE = 1.0 + (i > 4)

    return world(lambda x: mg.tensor(x) * SCALE, before=before)


@claim(recordings=2)
def a_name_of_the_closure_may_be_bound_anew() -> Any:
    factor = 2.0

    def before(i: int) -> None:
        nonlocal factor
        factor = 2.0 + (i > 4)

    return world(lambda x: mg.tensor(x) * factor, before=before)


@claim(recordings=2)
def a_leaf_may_be_cast_between_calls() -> Any:
    w = leaf(3)
    return world(lambda x: w * x, before=lambda i: w.cast_("f4" if i > 4 else "f8"))


@claim(recordings=2)
def a_boolean_index_may_pick_more_entries() -> Any:
    w, picked = leaf(4, 3), np.zeros(4, bool)

    def step(x: Any) -> Any:
        return mg.mean((w * x)[picked])

    return world(step, before=lambda i: picked.__setitem__(slice(2 + (i > 4)), True))


@claim(recordings=3)
def shapes_dtypes_and_plain_values_of_arguments_make_other_programs() -> Any:
    w = leaf(3, 2)

    def given(i: int) -> Any:
        dtype, k = (np.float32, 1.0) if i > 6 else (float, 1.0 + i % 2)
        return data(i, 2 + (k > 1), 3).astype(dtype), k, {"n": int(k)}

    return world(lambda x, k, m: mg.sum(mg.tensor(x) @ w * k) + m["n"], given=given)


@claim(recordings=3)
def an_argument_may_be_given_twice_or_be_a_leaf_of_the_closure() -> Any:
    w, a, b = leaf(3), leaf(3, seed=1), leaf(3, seed=2)

    def step(x: Any, y: Any) -> Any:
        mg.sum(x * y * w).backward()

    pairs = [(a, b)] * 3 + [(a, a)] * 2 + [(w, b)] * 3 + [(a, b)]
    return world(step, w, a, b, given=lambda i: pairs[i])


@claim()
def views_and_casts_of_arguments_are_taken_at_each_call_however_they_lie() -> Any:
    w = leaf(4)

    def step(x: Any) -> Any:
        y = np.squeeze(x[None]).T.astype(np.float32).reshape(-1)[::5]
        return mg.sum(mg.tensor(x[:, 1:]) * w - x.T[0][:, None] * mg.tensor(x[::2, :1]).sum() + y)

    lay = [lambda x: x, np.asfortranarray, lambda x: x[::-1]]
    return world(step, given=lambda i: (lay[i % 3](data(i, 4, 5)),))


@claim()
def a_mask_among_the_arguments_may_get_axes_and_be_compared() -> Any:
    w = leaf(2, 3, 4, 5)

    def step(tokens: Any) -> Any:
        seen = np.expand_dims(tokens[:, None] > -1, 1) & (w < 1)
        return mg.sum(mg.softmax(mg.mask_add(w, seen)) * mg.where(~seen, w, 0.0))

    return world(step, given=lambda i: (data(i, 2, 5),))


@claim()
def arguments_may_share_memory_with_each_other_and_with_what_the_step_names() -> Any:
    w, table = leaf(3), np.arange(12.0)

    def step(x: Any, y: Any) -> Any:
        return w * x[1:] - y[0][:3] + table[:3]

    def given(i: int) -> Any:
        x, y = (table[:4], table[1:5]) if i < 2 else (data(i, 4), data(i + 9, 4))
        return x, [y]

    return world(step, given=given)


def turned(a, b):
    return b[::-1]


def product_and_sum(a, b):
    product = np.matmul(a, b).reshape(9)
    return (a + b).reshape(9) * product


product_and_sum.__module__ = "minigrad.ops.products"  # so that it is taken apart
FORMULAS = {"a": "<g>", "b": "<g>"}
turned, product_and_sum = [declare(f, vjp_tex=FORMULAS) for f in (turned, product_and_sum)]


@claim()
def ops_of_which_one_gives_a_view_of_what_it_was_given_and_one_is_taken_apart() -> Any:
    def step(x: Any) -> Any:
        y = mg.tensor(x) * 3.0
        return turned(y * 1.0, y) * 2.0 * y, product_and_sum(y + 1.0, y)

    return world(step, given=lambda i: (data(i, 3, 3),))


@claim()
def copies_of_a_parameter_before_and_after_an_update() -> Any:
    w = leaf(3, 2)
    optimizer = SGD([w], lr=0.1)

    def step() -> Any:
        optimizer.zero_grad()
        before, same_before = mg.reshape(w.T, (6,)), mg.reshape(w.T, (6, 1))
        mg.sum(before * before).backward()
        optimizer.step()
        return before * 1.0, same_before * 1.0, mg.reshape(w.T, (6,)) * 1.0

    return world(step, w, given=lambda i: ())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_compiled_step_gives_what_the_step_gives_at_each_call(name):
    same(*CLAIMS[name])


@pytest.mark.parametrize("seed", range(60))
def test_a_random_program_gives_what_it_gives_eagerly(seed):
    program = random_program(seed)

    def make() -> Any:
        leaves = [
            mg.tensor(x, requires_grad=True, name=f"x{i}") for i, x in enumerate(program.arrays)
        ]

        def step() -> Any:
            loss = program.loss([w * 1.0 for w in leaves])
            loss.backward()
            return loss

        return world(step, *leaves, given=lambda i: ())

    with np.errstate(all="ignore"):
        same(make, calls=5)


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
    assert "test_compile.py:" in str(caught[0].message)
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
    with pytest.warns(mg.CompileWarning, match="had other shapes, plain values or objects"):
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


def test_what_a_step_appends_to_its_argument_is_there_though_no_program_does_it():
    kept: list[Any] = [x0]
    with pytest.warns(mg.CompileWarning, match="changes a list among its arguments"):
        mg.compile(lambda kept: kept.append(mg.tensor(kept[0])))(kept)
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


def test_what_is_returned_may_be_named_as_a_setting_of_numpy():
    layer = Linear(3, 2, rng=0)

    def step(x: Any) -> Any:
        out = layer(x).named("out")
        mg.sum(mg.tanh(out)).backward()
        return out

    source = same(lambda: world(step)).source
    assert "out +=" in source
    assert ", out=" in source


def test_no_later_call_writes_into_what_an_earlier_one_gave():
    world = attention()
    run = mg.compile(world.step)
    given = []
    for i in range(6):
        out = run(*world.given(i))
        given += [(array, array.copy()) for array in (out.numpy(), *world.seen())]
    for array, before in given:
        np.testing.assert_array_equal(array, before)


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


@pytest.mark.parametrize("shape", [(3,), (3, 1), ()])
def test_gradients_of_what_was_broadcast_are_added_up_in_a_wider_dtype(shape, monkeypatch):
    monkeypatch.setattr(symbols, "PRODUCT_ROWS", 1)
    x = np.full((3, 3), 1e8, np.float32) * [[1, 1e-8, -1], [1e-8] * 3, [-1, 1e-8, 1]]
    w = mg.tensor(np.ones(shape, np.float32), requires_grad=True)

    def step(x: Any) -> Any:
        mg.sum(w * x).backward()
        return w.grad

    same(lambda: world(step, w, given=lambda i: (x.astype(np.float32),)))


def uses_the_old(x: Any, y: Any) -> Any:
    z = x * y
    old = z
    z += y
    return old * z


def uses_an_old_view(x: Any, y: Any) -> Any:
    z = x * y
    old = z.T
    z += y
    return old.T * z


def writes_into_an_input(x: Any, y: Any) -> Any:
    x += y
    return x


def ignores_errors(x: Any, y: Any) -> Any:
    with np.errstate(over="ignore"):
        return x * y


UNFOLLOWED = [
    uses_the_old, uses_an_old_view, writes_into_an_input, ignores_errors,
    lambda x, y: x * y[x > 0].sum(), lambda x, y: x.T if y.sum() > 0 else y,
    lambda x, y: (x * y).sum(), lambda x, y: np.add(x, y, out=np.empty((3, 3))),
    lambda x, y: x + np.asarray(y), lambda x, y: float(x[0, 0]) * y,
]  # fmt: skip


@pytest.mark.parametrize("kernel", UNFOLLOWED)
def test_what_arrays_without_entries_cannot_follow_leaves_no_calls(kernel):
    program = Calls(Names(()))
    x, y = [Variable(program, (3, 3), np.dtype(np.float64), name) for name in "xy"]
    value = Value(1, "out", (3, 3), np.dtype(np.float64))
    program.line = TapeLine("op", kernel, (), (value,))
    assert not program.take_apart([x, y], None)
    assert (program.calls, program.views, program.variables) == ([], {}, {})
