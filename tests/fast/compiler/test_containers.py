"""Batches and results may be tuples, lists, dicts, namedtuples and dataclasses of arrays."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytest

import minigrad as mg
from layers import Linear


class Pair(NamedTuple):
    x: Any
    y: Any

    def scaled(self):
        return self.x * 2.0


@dataclass
class Batch:
    x: Any
    y: Any
    note: str = "train"

    @cached_property
    def total(self):
        return self.x + self.y


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    y: Any

    def __post_init__(self):
        assert self.x is not None


@dataclass
class Later:
    x: Any
    y: Any = field(init=False)

    @classmethod
    def of(cls, x, y):
        made = cls(x)
        made.y = y
        return made


CONTAINERS = {  # how one is made of x and y, and how a step reads them
    "tuple": (lambda x, y: (x, y), lambda b: b[0] + b[1]),
    "list": (lambda x, y: [x, y], lambda b: b[0] + b[1]),
    "dict": (lambda x, y: {"x": x, "y": y}, lambda b: b["x"] + b["y"]),
    "OrderedDict": (lambda x, y: OrderedDict(x=x, y=y), lambda b: b["x"] + b["y"]),
    "namedtuple": (Pair, lambda b: b.scaled() + b[1]),
    "dataclass": (Batch, lambda b: b.x + b.y),
    "dataclass with a property": (Batch, lambda b: b.total * b.total),
    "frozen dataclass with slots": (Frozen, lambda b: b.x + b.y),
    "dataclass with a field set later": (Later.of, lambda b: b.x + b.y),
    "dataclass of Tensors": (
        lambda x, y: Batch(mg.tensor(x), mg.tensor(y)),
        lambda b: b.x + b.y,
    ),
    "nested": (lambda x, y: Batch([Pair(x, y)], {"y": y}), lambda b: b.x[0].x + b.y["y"]),
}


def parts_of(item):
    """Classes and arrays of nested containers, as plain lists."""
    if isinstance(item, mg.Tensor):
        return item.numpy().tolist()
    if isinstance(item, np.ndarray):
        return item.tolist()
    if isinstance(item, tuple | list):
        return [type(item), *map(parts_of, item)]
    if isinstance(item, dict):
        return [type(item), *item, *map(parts_of, item.values())]
    names = [name for name in ("x", "y", "note") if hasattr(item, name)]
    return [type(item), *(parts_of(getattr(item, name)) for name in names)] if names else item


@pytest.mark.parametrize(("make", "read"), CONTAINERS.values(), ids=CONTAINERS)
def test_a_batch_may_be_a_container_and_so_may_the_result(make, read):
    w = mg.tensor([1.0, 2.0, 3.0], requires_grad=True, name="w")

    def step(batch):
        loss = mg.sum(w * read(batch))
        loss.backward()
        return make(loss, (w * 2.0).detach())

    run = mg.compile(step)
    for call in range(9):
        x, y = np.random.default_rng(call).normal(size=(2, 3))
        found = []
        for one in (step, run):
            w.grad = None
            batch = make(x, y)
            before = parts_of(batch)
            found.append([parts_of(one(batch)), w.grad.tolist()])
            assert parts_of(batch) == before
        assert found[0] == found[1]
    assert (run.recordings, run.reasons) == (1, [])


def test_plain_values_of_a_dataclass_are_compared():
    run = mg.compile(lambda b: mg.sum(mg.tensor(b.x) * (2.0 if b.note == "train" else 1.0)))
    for call in range(6):
        note = ("train", "test")[call % 2]
        assert run(Batch(np.ones(3), None, note)).item() == (6.0, 3.0)[call % 2]
    assert (run.recordings, run.reasons) == (2, [])


def test_a_dataclass_that_holds_a_model_is_one_object_from_call_to_call():
    state = Batch(Linear(3, 2, rng=0), np.ones((1, 3)))

    def step(state, scale):
        return (state.x(state.y) * scale).detach()

    run = mg.compile(step)
    for call in range(5):
        if call == 3:
            state.y = np.full((1, 3), 2.0)
        scale = np.array(call + 1.0)
        np.testing.assert_array_equal(run(state, scale).numpy(), step(state, scale).numpy())
    assert (run.recordings, run.reasons) == (2, [])


def _insert(item):
    item.insert(0, item.pop())


CHANGES = {
    "a list that grows": (lambda x: [x], lambda b: b.append("seen")),
    "a list in another order": (lambda x: [x, x + 1.0], _insert),
    "a list of numbers": (lambda x: [1, 2], lambda b: b.append(3)),
    "a dict": (lambda x: {"x": x}, lambda b: b.update(mean=b["x"] * 2.0)),
    "an attribute": (lambda x: Batch(x, x), lambda b: setattr(b, "y", b.x * 2.0)),
    "an attribute that goes": (lambda x: Batch(x, x), lambda b: delattr(b, "y")),
    "within another": (lambda x: (Batch([x], x), 5), lambda b: b[0].x.append(b[0].y)),
}


@pytest.mark.parametrize(("make", "change"), CHANGES.values(), ids=CHANGES)
def test_a_step_that_changes_an_argument_changes_that_of_the_caller(make, change):
    w = mg.tensor([1.0, 2.0], requires_grad=True, name="w")

    def step(batch, x):
        change(batch)
        return mg.sum(w * x).detach()

    run = mg.compile(step)
    for call in range(4):
        x = np.array([1.0, call])
        wanted, found = make(x), make(x)
        step(wanted, x)
        if call:
            run(found, x)
        else:
            with pytest.warns(mg.CompileWarning, match=r"step changes args\[0\]"):
                run(found, x)
        assert parts_of(found) == parts_of(wanted)
    assert run.recordings == 1


def test_a_step_that_changes_an_argument_at_a_later_call_is_found_by_an_audit():
    def step(log, x):
        if np.asarray(x).max() > 1:
            log.append("large")
        return mg.sum(mg.tensor(x) * 2.0)

    run, log = mg.compile(step), []
    run(log, np.ones(3))
    with pytest.warns(mg.CompileWarning, match="a container among its arguments"):
        run(log, np.full(3, 2.0))
    assert log == ["large"]


@dataclass
class State:
    model: Any
    parent: Any = None
    last: Any = None


def test_an_object_that_is_returned_is_that_object():
    w = mg.tensor([1.0, 2.0], requires_grad=True)
    state, numbers, held = State(Linear(3, 2, rng=0)), [1, 2], Batch(np.ones(2), None)
    state.parent = state
    loop = State(np.ones(2))
    loop.last = [loop]
    for thing in (state, numbers, held, loop):

        def step(x, thing=thing):
            return mg.sum(w * x).detach(), thing

        run = mg.compile(step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mg.CompileWarning)
            assert run(np.ones(2))[1] is thing
            found = run(np.ones(2))[1]
            assert found is thing or thing is numbers


def test_a_container_of_another_class_is_returned_by_eager_runs():
    run = mg.compile(lambda x: defaultdict(list, y=mg.exp(x)))
    with pytest.warns(mg.CompileWarning, match="a defaultdict is returned"):
        run(np.ones(2))
    assert [type(run(np.ones(2))) for _ in range(3)] == [defaultdict] * 3


def test_an_array_that_is_given_and_returned_is_that_array():
    run, x = mg.compile(lambda x: (mg.sum(mg.exp(x)), x)), np.ones(2)
    assert [run(x)[1] is x for _ in range(3)] == [True] * 3
