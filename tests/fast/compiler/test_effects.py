"""Ops with an effect run in a compiled step as they do eagerly: each, once, in order, whole."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg

told = []


@pytest.fixture
def say(monkeypatch):
    """An op that says what it is given, as its rule does."""

    @mg.op(tex=r"<x>", vjp_tex={"x": r"<g>"}, effect=True)
    def say_of_the_effect_test(x, word):
        told.append((word, np.sum(x)))
        return x * 1.0

    @say_of_the_effect_test.vjp("x")
    def _(g, word):
        told.append((f"d_{word}", np.sum(g)))
        return g

    told.clear()
    yield say_of_the_effect_test
    del mg.registry["say_of_the_effect_test"]


def test_effects_are_neither_dropped_nor_merged_nor_reordered(say):
    w = mg.tensor(np.ones(5), requires_grad=True)

    def step(x):
        y = w * x
        say(y, "unread")
        first, second = say(y, "twice"), say(y, "twice")
        loss = mg.sum(first * 2.0 + mg.tanh(second))
        loss.backward()
        say(y.detach(), "after")
        return loss

    run = mg.compile(step)
    for call in range(5):  # calls 2 and 4 run both ways
        x, w.grad = np.full(5, 0.5 * call), None
        told.clear()
        wanted = step(x).item(), w.grad, list(told)
        w.grad = None
        told.clear()
        found = run(x).item(), w.grad
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)
        times = 2 if call in (1, 3) else 1
        assert [word for word, _ in told] == times * [word for word, _ in wanted[2]]
        np.testing.assert_allclose([x for _, x in told], times * [x for _, x in wanted[2]])
    assert (run.recordings, run.reasons) == (1, [])


def test_an_error_after_an_effect_does_not_run_it_again(say):
    w = mg.tensor(np.ones((7, 3)), requires_grad=True)

    @mg.compile
    def step(tokens):
        x = say(w, "w")
        return mg.sum(mg.take(x, tokens, axis=0, negative=False)).detach()

    step(np.array([1, 2]))
    step(np.array([1, 2]))
    told.clear()
    with pytest.raises(IndexError):
        step(np.array([1, 9]))
    assert len(told) == 1
