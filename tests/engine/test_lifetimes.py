"""What stays alive: by reference count alone, with the garbage collector off; long chains."""

import gc
import weakref

import numpy as np
import pytest

import minigrad as mg
from tests.process import python


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _watch(tensor):
    """A weak reference to the array itself: `.data` is a view made anew each time."""
    return weakref.ref(tensor._data)


@pytest.fixture
def x():
    return mg.tensor(np.full((3, 5), 0.5), requires_grad=True)


def test_an_activation_that_no_rule_saved_dies_at_once(x):
    h = x + 1.0
    alive = _watch(h)
    out = h + 2.0
    del h
    assert alive() is None
    out.sum().backward()
    np.testing.assert_allclose(x.grad, np.ones((3, 5)))


def test_an_activation_that_a_rule_saved_lives_until_backward(x):
    h = x + 1.0
    alive = _watch(h)
    out = (h * h).sum()
    del h
    assert alive() is not None
    out.backward()
    assert alive() is None


def test_backward_drops_each_nodes_arrays_as_it_goes(x):
    """When the first op's rules run, what the last saved is gone already."""
    first = mg.exp(x)
    late = mg.exp(mg.exp(first))
    seen, alive = [], _watch(late)
    first.register_hook(lambda g: seen.append(alive() is None))
    loss = late.sum()
    del late
    loss.backward()
    assert seen == [True]


@pytest.mark.parametrize(
    "hook", [lambda h: h.register_hook(lambda g: None), lambda h: h.retain_grad()]
)
def test_hooks_make_no_cycle(x, hook):
    h = mg.exp(x)
    hook(h)
    node, array = weakref.ref(h.node), _watch(h)
    h.sum().backward()
    del h
    assert node() is None
    assert array() is None


def test_after_backward_a_loss_holds_its_number_and_not_its_batch(x):
    """Neither what was saved, nor what a setting holds, nor the leaves of the batch."""
    batch, index = mg.tensor(np.ones((3, 5))), np.arange(3)
    alive = [_watch(batch), weakref.ref(index)]
    loss = mg.take(mg.exp(x * batch), index, axis=0).sum()
    loss.backward()
    del batch, index
    assert [r() for r in alive] == [None, None]
    assert loss.item() > 0


def test_create_graph_makes_no_cycle(x):
    h = mg.exp(x)
    first = mg.grad((h * h).sum(), x, create_graph=True)
    alive = [_watch(h), weakref.ref(h.node), _watch(first)]
    mg.grad(first.sum(), x)
    del h, first
    assert [r() for r in alive] == [None, None, None]


# ---------------------------------------------------------------- however long a chain is

CHAINS = """
import threading
import minigrad as mg

def chain(length, start=None):
    y = mg.tensor(1.0, requires_grad=True) if start is None else start
    for _ in range(length):
        y = y + 1.0
    return y

def after_its_backward():
    x = mg.tensor(1.0, requires_grad=True)
    y = chain(100_000, x)
    y.backward()
    assert (y.item(), x.grad) == (100_001.0, 1.0)

def two_that_go_over_into_each_other():
    a, b = chain(1), chain(1)
    for _ in range(8_000):
        a, b = a + b, b * 0.5
    b.backward()

def of_a_gradient():
    x = y = mg.tensor(0.5, requires_grad=True)
    for _ in range(8_000):
        y = y * 0.5
        y = y * 2.0
    slope = mg.grad(y * y, x, create_graph=True)

def in_threads_at_once():
    def work():
        chain(8_000).backward()
        chain(8_000)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

threading.stack_size(1024 * 1024)
for way in [after_its_backward, two_that_go_over_into_each_other, of_a_gradient,
            in_threads_at_once]:
    thread = threading.Thread(target=way)
    thread.start()
    thread.join()
print("all were freed")
"""


def test_freeing_a_chain_does_not_nest():
    """In another process, in threads of 1 MiB: what nests ends that process."""
    done = python("-c", CHAINS)
    assert (done.stdout, done.stderr) == ("all were freed\n", "")
