"""What surrounds a call belongs to the thread or task that set it, and ends where it ends."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.context import current
from minigrad.errors import ArgumentError


@pytest.fixture
def x():
    return mg.tensor([1.0, 2.0], requires_grad=True)


class Names(mg.Observer):
    """Keeps the paths of the ops it hears of."""

    def __init__(self):
        self.heard = []

    def made(self, op, inputs, settings, result, seconds):
        self.heard.append(result.path or op.name)


# ---------------------------------------------------------------- grad mode


def test_no_grad_and_enable_grad_nest(x):
    with mg.no_grad():
        assert not (x * 2).requires_grad
        with mg.enable_grad():
            assert (x * 2).requires_grad
            with mg.no_grad():
                assert not (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_a_decorated_function_keeps_its_name_and_may_recurse(x):
    @mg.no_grad()
    @mg.scope("level")
    def down(n):
        """Docstring."""
        y = x * 2
        return [(current().scope, y.requires_grad), *(down(n - 1) if n else [])]

    assert down(1) == [("level", False), ("level/level", False)]
    assert (x * 2).requires_grad
    assert (down.__name__, down.__doc__) == ("down", "Docstring.")


def test_an_exception_restores_what_was(x):
    with pytest.raises(KeyError), mg.no_grad(), mg.scope("a"), mg.observe(Names()):
        raise KeyError
    assert current().recording
    assert current().scope == ""
    assert current().observers == ()
    assert (x * 2).requires_grad


# ---------------------------------------------------------------- threads


def at_once(work, *each):
    """What `work` gives for each, in a thread of its own."""
    with ThreadPoolExecutor(len(each[0])) as pool:
        return list(pool.map(work, *each))


def test_threads_keep_their_own_grad_mode_scope_and_observers(x):
    barrier = threading.Barrier(2, timeout=300)

    def work(name, mode):
        names, found = Names(), set()
        with mg.scope(name), mg.observe(names), mode():
            for _ in range(20):
                barrier.wait()
                y = x * 2
                found.add((y.requires_grad, current().scope))
        return found, len(names.heard), (x * 2).requires_grad

    found = at_once(work, ["a", "b"], [mg.no_grad, mg.enable_grad])
    assert found == [({(False, "a")}, 20, True), ({(True, "b")}, 20, True)]


class SlowToAdd(np.ndarray):
    """A gradient that takes its time to be added to: without a lock another thread reads it too."""

    def __add__(self, other):
        time.sleep(0.05)
        return np.asarray(self) + other


def test_threads_that_go_backward_into_one_leaf_lose_no_gradient():
    w = mg.tensor(np.ones(3), requires_grad=True)
    w.grad = np.zeros(3).view(SlowToAdd)
    at_once(lambda factor: mg.sum(w * factor).backward(), [2.0] * 4)
    np.testing.assert_array_equal(w.grad, [8.0, 8.0, 8.0])


# ---------------------------------------------------------------- what is refused


async def coroutine():
    await asyncio.sleep(0)


async def generator():
    yield 1


@pytest.mark.parametrize("later", [lambda: (yield 1), coroutine, generator])
def test_what_runs_after_its_call_is_not_decorated(later):
    with pytest.raises(ArgumentError, match=r"no_grad\(\) cannot decorate .*: the body of a gen"):
        mg.no_grad()(later)


@pytest.mark.parametrize("name", ["", None])
def test_a_scope_has_a_name(name):
    with pytest.raises(ArgumentError, match="a name is a non-empty string"):
        mg.scope(name)
