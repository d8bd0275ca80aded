"""What surrounds a call belongs to the thread or task that set it, and ends where it ends."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.context import _CURRENT, current
from minigrad.errors import ArgumentError
from tests.compare import refusals


@pytest.fixture
def x():
    return mg.tensor([1.0, 2.0], requires_grad=True)


class Names(mg.Listener):
    """Keeps the paths of the ops it hears of."""

    def __init__(self):
        self.heard = []

    def forward(self, op, inputs, settings, output, seconds):
        self.heard.append(output.path or op.name)


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


def test_a_decorated_coroutine_function_is_within_while_it_runs(x):
    @mg.no_grad()
    async def frozen():
        await asyncio.sleep(0)
        return (x * 2).requires_grad

    assert asyncio.run(frozen()) is False


def test_an_exception_restores_what_was(x):
    with pytest.raises(KeyError), mg.no_grad(), mg.scope("a"), mg.listen(Names()):
        raise KeyError
    assert current().recording
    assert current().scope == ""
    assert current().listeners == ()
    assert (x * 2).requires_grad


def test_backward_runs_where_the_graph_was_not_made(x):
    y = (x * x).sum()
    with mg.no_grad():
        y.backward()
    np.testing.assert_allclose(x.grad, 2 * x.data)


# ---------------------------------------------------------------- scopes


def test_scopes_make_paths(x):
    with mg.scope("encoder"), mg.scope("attn"):
        y = (x * 2).named("Q")
        assert y.path == "encoder/attn/Q"
        assert (x * 2).path == "encoder/attn/multiply"
    assert (x * 2).path == "multiply"


# ---------------------------------------------------------------- listeners


def test_listeners_hear_every_op_in_order(x):
    names = Names()
    with mg.listen(names):
        y = mg.exp(x)
        with mg.scope("s"):
            y.sum()
        mg.exp(np.ones(3))  # no Tensor, so no op of the graph
    mg.exp(x)
    assert names.heard == ["exp", "s/sum"]


def test_listeners_hear_each_backward_step_and_each_leaf_and_may_keep_the_gradients(x):
    steps, kept, leaves = [], [], []

    class Backward(mg.Listener):
        def backward(self, node, gradient, contributions, seconds):
            steps.append((node.op.name, [c.shape for c in contributions]))
            kept.append(gradient)

        def arrived(self, leaf, gradient):
            leaves.append((leaf, gradient))

    b, seed = mg.tensor(1.0, requires_grad=True), np.ones(2)
    with mg.listen(Backward()):
        mg.exp(x * b).backward(seed)
    seed += 1
    assert steps == [("exp", [(2,)]), ("multiply", [(2,), ()])]
    assert {id(leaf) for leaf, _ in leaves} == {id(x), id(b)}
    np.testing.assert_array_equal(kept[0], [1, 1])


# ---------------------------------------------------------------- threads and tasks


def at_once(work, each):
    """What `work` gives for each, in a thread of its own."""
    with ThreadPoolExecutor(len(each)) as pool:
        return list(pool.map(work, each))


def in_threads(work, *each):
    """Work that takes turns at every step, in threads; what each found."""
    barrier = threading.Barrier(len(each), timeout=300)

    async def turn():
        barrier.wait()

    return at_once(lambda arguments: asyncio.run(work(turn, *arguments)), each)


def in_tasks(work, *each):
    """The same in tasks of one thread."""

    async def together():
        return await asyncio.gather(*(work(lambda: asyncio.sleep(0), *one) for one in each))

    return asyncio.run(together())


@pytest.mark.parametrize("run", [in_threads, in_tasks])
def test_threads_and_tasks_keep_their_own_grad_mode_scope_and_listeners(x, run):
    async def work(turn, name, mode):
        names, found = Names(), set()
        with mg.scope(name), mg.listen(names), mode():
            for _ in range(20):
                await turn()
                y = x * 2
                found.add((y.requires_grad, current().scope))
        return found, len(names.heard), (x * 2).requires_grad

    found = run(work, ("a", mg.no_grad), ("b", mg.enable_grad))
    assert found == [({(False, "a")}, 20, True), ({(True, "b")}, 20, True)]


def test_threads_run_backward_at_once_through_their_own_graphs(rng):
    """Small graphs over a shared constant, in four threads: the gradients are those of one."""
    W = rng.normal(size=(5, 5))
    starts = rng.normal(size=(4, 3, 5))

    def work(start):
        x = mg.tensor(start, requires_grad=True)
        for _ in range(50):
            x.grad = None
            mg.softmax(mg.tanh(x @ W) @ W).max(axis=1).sum().backward()
        return x.grad

    np.testing.assert_array_equal(at_once(work, starts), [work(start) for start in starts])


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


# ---------------------------------------------------------------- Ctrl-C, and what is refused


def _interrupted(position):
    """Whether Ctrl-C at this bytecode of entering or leaving leaves the surroundings changed."""
    before, seen = current(), 0

    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code.co_name not in ("__enter__", "__exit__"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == position:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    change = mg.no_grad()
    try:
        sys.settrace(trace)
        with change:
            pass
    except KeyboardInterrupt:
        changed = current() is not before
        _CURRENT.set(before)
        return changed
    finally:
        sys.settrace(None)
    return None


def test_an_interrupt_while_entering_or_leaving_changes_nothing():
    """But at the first bytecode of leaving, before which there is nothing to catch it."""
    outcomes = []
    while (outcome := _interrupted(len(outcomes) + 1)) is not None:
        outcomes.append(outcome)
    if not outcomes:
        pytest.skip("this version of Python does not trace single bytecodes")
    assert len(outcomes) > 20
    assert sum(outcomes) <= 3, [i for i, bad in enumerate(outcomes) if bad]


async def coroutine():
    yield 1


test_what_is_refused = refusals(
    (lambda: mg.no_grad()(lambda: (yield 1)), ArgumentError,
     "a generator function cannot be decorated with no_grad"),
    (lambda: mg.no_grad()(coroutine), ArgumentError, "a generator function cannot be decorated"),
    *((lambda name=name: mg.scope(name), ArgumentError,
       r"scope\(name\): name must be a non-empty string, got") for name in ("", None, 3)),
)  # fmt: skip
