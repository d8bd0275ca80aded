"""Hooks, retain_grad, and whose arrays gradients are."""

from itertools import combinations

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import GradientError
from tests.compare import refusals
from tests.engine.declaring import declare


@pytest.fixture
def x():
    return mg.tensor([2.0, 3.0, 5.0], requires_grad=True, name="x")


def test_a_hook_sees_the_whole_gradient_once(x):
    seen = []
    y = x * 1.0
    y.register_hook(lambda g: seen.append(g.copy()))
    (y * 2 + y * 3 + y * y).sum().backward()
    assert len(seen) == 1
    np.testing.assert_allclose(seen[0], 5 + 2 * x.data)


@pytest.mark.parametrize(
    ("hooks", "expected"),
    [([lambda g: np.zeros(3)], 0), ([lambda g: g + 1, lambda g: g * 10], 20)],
    ids=["one", "each on what the last gave"],
)
def test_hooks_replace_the_gradient_for_all_below_and_outlive_their_tensor(x, hooks, expected):
    y = x * 1.0
    for hook in hooks:
        y.register_hook(hook)
    z = y.sum()
    del y
    z.backward()
    np.testing.assert_allclose(x.grad, np.full(3, expected))


def test_a_hook_sees_tensors_when_the_graph_is_recorded(x):
    y = x * x
    y.register_hook(lambda g: g * 3)
    first = mg.grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(mg.grad(first.sum(), x), [6, 6, 6])


def test_only_leaves_keep_a_gradient_unless_asked_and_then_as_the_hooks_left_it(x):
    y, z = x * 2, x * 3
    removed = z.register_hook(lambda g: g * 100)
    z.retain_grad()
    z.register_hook(lambda g: g * 10)
    removed.remove()
    loss = (y + z).sum()
    for times in (1, 2):
        loss.backward(retain_graph=True)
        assert y.grad is None
        np.testing.assert_allclose(z.grad, np.full(3, 10 * times))
        assert z.grad.flags.owndata


def _write(gradient):
    gradient *= 2


def test_a_hook_cannot_write_into_a_gradient(x):
    y = x + 1.0
    y.register_hook(_write)
    with pytest.raises(ValueError, match="read-only"):
        (y * 2.0).sum().backward()


# ---------------------------------------------------------------- whose arrays


SIZES = pytest.mark.parametrize("n", [3, 5000])  # small gradients are copied, large ones if need be


@SIZES
@pytest.mark.parametrize(
    "rule",
    [lambda g, x, y: (x, y), lambda g, x, y: (one := g * 1.0, one), lambda g, x, y: (g, x[::-1])],
    ids=["what was saved", "one array for both", "views"],
)
def test_whatever_array_a_rule_gives_a_leaf_has_one_of_its_own(n, rule):
    op = declare(lambda x, y: x + y, vjp_tex={"x": "<g>", "y": "<g>"})
    op.vjp("x", "y")(rule)
    x, y = mg.ones(n, requires_grad=True), mg.ones(n, requires_grad=True)
    (op(x, y) * 2.0).sum().backward()
    mine = [x.grad, y.grad, x.data, y.data]
    assert not any(np.shares_memory(a, b) for a, b in combinations(mine, 2))
    assert x.grad.flags.owndata
    assert y.grad.flags.owndata


@pytest.mark.parametrize("build", [lambda w: w.sum(), lambda w: w.T[0].sum(), lambda w: w * 2 + w])
def test_a_leafs_gradient_may_be_written_and_has_its_dtype(build):
    """It is never a broadcast or read-only view."""
    w = mg.tensor(np.ones((3, 5000), np.float32), requires_grad=True)
    for _ in range(2):
        build(w).backward(np.ones(build(w).shape))
        w.grad *= 1.0
        assert (w.grad.shape, w.grad.dtype, w.grad.flags.owndata) == ((3, 5000), w.dtype, True)


@SIZES
def test_what_was_recorded_stays_whatever_is_done_to_seed_and_gradients_later(n):
    x, seed = mg.ones(n, requires_grad=True, name="x"), np.ones(n)
    with mg.trace() as t:
        (x * 2.0 + x * 3.0).named("y").backward(seed)
    seed += 1
    x.grad *= 7
    sent = [edge.contribution for edge in t["x"].uses]
    for found, value in zip([*sent, t["x"].gradient, t["y"].gradient], (2, 3, 5, 1), strict=True):
        np.testing.assert_array_equal(found, np.full(n, value))


def reshaping(x):
    (y := x * 1.0).register_hook(lambda g: g[:2])
    return y


test_what_is_refused = refusals(
    (lambda: reshaping(mg.ones(3, requires_grad=True)).sum().backward(), GradientError,
     r"hook: replaced a gradient \(3,\) by one of shape \(2,\)"),
    (lambda: mg.tensor([1.0], name="c").register_hook(print),
     GradientError, "register_hook: c does not require a gradient"),
    (lambda: mg.tensor([1.0], name="c").retain_grad(),
     GradientError, "retain_grad: c does not require a gradient"),
)  # fmt: skip
