"""What a compiled step finds by name may change wherever it stands; what the step itself changes
there, without binding a name anew, is refused.
"""

from __future__ import annotations

import random
from collections import deque
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same
from tests.fast.test_compile import leaf, same, world


class Settings:
    """Where a step may find a number."""

    def __init__(self) -> None:
        held = [1.0]
        self.held = lambda: held
        self._changes = 1  # as a Module has
        self.own = 1.0
        self.deque = deque([1.0])
        self.file = ModuleType("settings")
        self.file.scale = 1.0
        self.array = np.ones(2)

        class Held:
            scale = 1.0

            @property
            def behind(self) -> float:
                return held[0]

            @staticmethod
            def fixed() -> float:
                return held[0]

        self.kind = Held
        self.instance = Held()

    def scale_of_file(self) -> float:
        return self.file.scale


HOLDERS = {
    "an object": (lambda s: s.own, lambda s, k: setattr(s, "own", k)),
    "a class": (lambda s: s.kind.scale, lambda s, k: setattr(s.kind, "scale", k)),
    "an instance's class": (lambda s: s.instance.scale, lambda s, k: setattr(s.kind, "scale", k)),
    "a first attribute": (lambda s: s.instance.scale, lambda s, k: setattr(s.instance, "scale", k)),
    "a property": (lambda s: s.instance.behind, lambda s, k: s.held().__setitem__(0, k)),
    "a static method": (lambda s: s.kind.fixed(), lambda s, k: s.held().__setitem__(0, k)),
    "a deque": (lambda s: s.deque[0], lambda s, k: s.deque.__setitem__(0, k)),
    "a file": (lambda s: s.scale_of_file(), lambda s, k: setattr(s.file, "scale", k)),
    "an entry": (lambda s: float(s.array[1]), lambda s, k: s.array.__setitem__(1, k)),
    "a sum": (lambda s: s.array.sum(), lambda s, k: s.array.__setitem__(1, k)),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_number_may_change_wherever_the_step_finds_it(name):
    def make() -> Any:
        settings, (read, write) = Settings(), HOLDERS[name]
        return world(
            lambda x: mg.tensor(x) * read(settings), before=lambda i: write(settings, 1.0 + (i > 4))
        )

    run = same(make)
    assert (run.recordings, run.reasons) == (2, [])


def test_an_object_that_answers_for_any_attribute_can_be_compiled():
    class Answers:
        def __getattr__(self, name: str) -> Any:
            return {"scale": 2.0}[name]

    answers = Answers()
    assert same(lambda: world(lambda x: mg.tensor(x) * answers.scale)).reasons == []


def test_a_boolean_index_that_picks_more_entries_records_again():
    def make() -> Any:
        w, picked = leaf(4, 3), np.zeros(4, bool)

        def step(x: Any) -> Any:
            return mg.mean((w * x)[picked])

        return world(step, [w], before=lambda i: picked.__setitem__(slice(2 + (i > 4)), True))

    run = same(make)
    assert (run.recordings, run.reasons) == (2, [])


def test_a_hook_that_comes_between_calls_is_heard():
    w, x = leaf(3), np.ones(3)
    run = mg.compile(lambda x: mg.sum(w * x).backward())
    for _ in range(5):
        w.grad = None
        run(x)
    w.register_hook(lambda g: 3 * g)
    w.grad = None
    with pytest.warns(mg.CompileWarning, match="a hook was registered"):
        run(x)
    assert_same(w.grad, 3 * x)


w0, counted, numbers, drawn = leaf(3), np.zeros(1), iter(range(99)), np.random.default_rng(0)


def writes(x: Any) -> Any:
    counted[0] += 1
    return w0 * x


def shuffles(x: Any) -> Any:
    random.shuffle([1, 2, 3])
    return w0 * x


REFUSED = {
    "an array written into": (writes, "changes counted"),
    "x written into": (lambda x: (x.fill(2.0), w0 * x), "by its fill"),
    "an iterator": (lambda x: w0 * x if next(numbers) < 99 else w0, "numbers is an iterator"),
    "a generator": (lambda x: w0 * x if drawn.random() < 2 else w0, "changes drawn"),
    "a generator between": (
        lambda x: mg.dropout(w0 if drawn.random() < 2 else -w0, 0.5, drawn), "changes drawn"
    ),
    "Python's random": (shuffles, "changes random"),
    "a boolean index": (lambda x: (w0 * x)[x > 0], "a boolean index"),
    "picked entries": (lambda x: w0 if len(x[x > 0]) else -w0, "by taking an entry out"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_step_itself_changes_or_counts_is_refused(name):
    step, reason = REFUSED[name]
    run = mg.compile(step)
    with pytest.warns(mg.CompileWarning, match=reason):
        run(np.ones(3))
