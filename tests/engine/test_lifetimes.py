"""What stays alive: by reference count alone, with the garbage collector off."""

import gc
import weakref

import numpy as np
import pytest

import minigrad as mg


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
    late = mg.exp(first)
    seen, alive = [], _watch(late)
    first.node.register_hook(lambda parts, g: seen.append(alive() is None))
    loss = late.sum()
    del late
    loss.backward()
    assert seen == [True]


def test_a_graph_without_backward_is_freed_with_its_last_tensor(x):
    h = mg.exp(x)
    nodes, arrays = [weakref.ref(h.node)], [_watch(h)]
    for _ in range(7):
        h = mg.tanh(h * h)
        nodes.append(weakref.ref(h.node))
        arrays.append(_watch(h))
    del h
    assert not any(r() is not None for r in nodes + arrays)


@pytest.mark.parametrize("hook", ["tensor", "node", "retain_grad"])
def test_hooks_make_no_cycle(x, hook):
    h = mg.exp(x)
    if hook == "tensor":
        h.register_hook(lambda g: None)
    elif hook == "node":
        h.node.register_hook(lambda parts, g: None)
    else:
        h.retain_grad()
    node, array = weakref.ref(h.node), _watch(h)
    h.sum().backward()
    del h
    assert node() is None
    assert array() is None


def test_create_graph_makes_no_cycle(x):
    h = mg.exp(x)
    alive = [_watch(h), weakref.ref(h.node)]
    first = mg.grad((h * h).sum(), x, create_graph=True)
    alive.append(_watch(first))
    second = mg.grad(first.sum(), x)
    del h, first
    assert second.shape == (3, 5)
    assert [r() for r in alive] == [None, None, None]


def test_an_error_keeps_nothing_alive(x):
    h = mg.exp(x)
    alive = _watch(h)
    loss = h.sum()
    loss.backward()
    try:
        loss.backward()
    except mg.errors.FreedGraphError:
        pass
    del h, loss
    assert alive() is None


def test_views_share_memory_and_save_shapes_alone(x):
    for view in (
        x.T,
        x[1:],
        x.reshape(5, 3),
        mg.squeeze(x),
        mg.expand_dims(x, 0),
        mg.broadcast_to(x, (2, 3, 5)),
    ):
        assert np.shares_memory(view.data, x.data)
        assert not any(isinstance(value, np.ndarray) for value in view.node.saved)
