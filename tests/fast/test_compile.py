"""A compiled step gives what the step gives at each call."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import BatchNorm, Linear, SelfAttention, create_causal_mask, padding_mask
from minigrad.optim import SGD, Adam, LossScale, clip_grad_norm, schedule
from tests.engine.declaring import declare
from tests.fast.compiled import CLAIMS, claim, data, leaf, same, world

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
        "linear_add = X.reshape((10, 8)).dot(W_Q._data) + b_Q._data",
        "S = np.multiply(S_raw, 0.35355339059327373, out=S_raw)",
        "softmax_subtract = S_masked - np.maximum.reduce(S_masked, ",
        "softmax_exp = np.exp(softmax_subtract, out=softmax_subtract)",
        "A = np.divide(softmax_exp, np.add.reduce(softmax_exp, ",
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
        s = SimpleNamespace(k=1.0, nested={"a": [1.0]}, function=mg.tanh)
        s.array, s.tensor = np.ones(2), mg.tensor(np.ones(2))
        s.module, s.settings = scaled(4), Settings()
        s.kind = type("Kind", (), {"scale": 1.0})

        def step(x: Any) -> Any:
            y = s.module(s.function(mg.tensor(x) @ w * s.k + s.array) + s.tensor)
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
    narrow = w._data.astype("f4")
    return world(lambda x: w * x, before=lambda i: i == 5 and setattr(w, "_data", narrow))


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


@claim(recordings=3)
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
        masked = mg.mask_add(mg.mask_add(w, seen), padding_mask(tokens > -2)[:, None])
        return mg.sum(mg.softmax(masked) * mg.where(~seen, w, 0.0))

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
        copies = [mg.tensor(w), mg.tensor(w.numpy()), mg.tensor(w.numpy()[1:])]
        mg.sum(before * before).backward()
        optimizer.step()
        copied = [copy * 1.0 for copy in copies]
        return before * 1.0, same_before * 1.0, mg.reshape(w.T, (6,)) * 1.0, copied

    return world(step, w, given=lambda i: ())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_compiled_step_gives_what_the_step_gives_at_each_call(name):
    same(*CLAIMS[name])


def test_no_later_call_writes_into_what_an_earlier_one_gave():
    world = attention()
    run = mg.compile(world.step)
    given = []
    for i in range(6):
        out = run(*world.given(i))
        given += [(array, array.copy()) for array in (out.numpy(), *world.seen())]
    for array, before in given:
        np.testing.assert_array_equal(array, before)
