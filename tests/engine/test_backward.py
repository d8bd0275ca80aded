"""backward and mg.grad: every use counts, graphs are freed or run again, and what is refused."""

from contextlib import nullcontext

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import (
    DTypeError,
    FreedGraphError,
    GradientError,
    OverwrittenError,
    ShapeError,
)
from tests.compare import refusals
from tests.engine.declaring import declare

X = mg.tensor([2.0, 3.0, 5.0], requires_grad=True)


@pytest.fixture
def x():
    return mg.tensor([2.0, 3.0, 5.0], requires_grad=True, name="x")


# ---------------------------------------------------------------- the traversal


def test_a_stack_of_diamonds_doubles_each_time():
    """Each node runs once: 2^200 paths from end to start, 200 steps."""
    start = y = mg.tensor(1.0, requires_grad=True)
    for _ in range(200):
        y = y + y
    y.backward()
    np.testing.assert_allclose(start.grad, 2.0**200)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 1, 5), ()])
def test_a_float16_gradient_counts_every_entry_that_an_input_was_broadcast_to(shape):
    """In float16 itself, 2048 ones and one more are 2048."""
    small = mg.tensor(np.zeros(shape, np.float16), requires_grad=True)
    (small + np.zeros((2, 2050, 5), np.float16)).backward(np.ones((2, 2050, 5)))
    times = 2 * 2050 * 5 // small.size
    np.testing.assert_array_equal(small.grad, np.full(shape, times, np.float16))


# ---------------------------------------------------------------- freeing, and a second backward


def test_a_second_backward_names_the_op_by_path_file_and_line(x):
    with mg.scope("head"):
        loss = mg.sum(x * x).named("loss")
    loss.backward()
    with pytest.raises(FreedGraphError) as error:
        loss.backward()
    text = str(error.value)
    assert "backward through head/loss (sum, made at " in text
    assert f"test_backward.py:{loss.node.place.line})" in text
    assert "pass retain_graph=True" in text


def test_a_state_that_is_carried_over_an_update_is_to_be_detached(x):
    """retain_graph would only lead to arrays that were overwritten, whose error says the same."""
    w = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for retain, error in ((False, FreedGraphError), (True, OverwrittenError)):
        state = mg.tanh(x * w)
        state.sum().backward(retain_graph=retain)
        w.assign_(w.data * 0.5)
        with pytest.raises(error, match=r"\.detach\(\)"):
            (state * w).sum().backward()


def test_a_retained_graph_runs_again_and_adds_to_leaves_only(x):
    y = mg.exp(x)
    z = (y * y).sum()
    z.backward(retain_graph=True)
    once = x.grad.copy()
    assert y.grad is None
    z.backward()
    np.testing.assert_allclose(x.grad, 2 * once)
    with pytest.raises(FreedGraphError):
        z.backward()


@pytest.mark.parametrize(
    ("rule", "gave"),
    [
        (lambda g: g[1:], r"shape \(2,\), which does not reduce to the input's \(3,\)"),
        (lambda g: 2.0, "a float, and a gradient is an array"),
        (lambda g: list(g), "a list, and a gradient is an array"),
        (lambda g: g * 1j, "a complex gradient of a real input"),
    ],
)
@pytest.mark.parametrize("around", [nullcontext, lambda: mg.observe(mg.Observer())])
def test_a_rule_that_gives_no_gradient_of_its_input_is_named(rule, gave, around, x):
    op = declare(lambda x: x * 1.0)
    op.vjp("x")(rule)
    with (
        around(),
        pytest.raises(
            GradientError, match=rf"<lambda>: the rule for x gave {gave}\n.*_backward\.py:"
        ),
    ):
        op(x).sum().backward()


# ---------------------------------------------------------------- requires_grad, detach, casts


def test_detach_shares_the_array_and_cuts_the_graph(x):
    y = (x * 2).named("y")
    cut = y.detach()
    assert np.shares_memory(cut.data, y.data)
    assert (cut.name, cut.is_leaf, cut.requires_grad) == ("y", True, False)
    (y * cut).sum().backward()
    np.testing.assert_allclose(x.grad, 2 * y.data)


def test_a_leaf_that_is_frozen_drops_its_gradient(x):
    """Or an optimizer would go on moving it."""
    x.sum().backward()
    x.requires_grad = False
    assert x.grad is None


# ---------------------------------------------------------------- mg.grad


def test_grad_of_one_input_is_an_array_of_several_a_list_and_writes_no_attribute(x):
    y = mg.tensor([1.0, 1.0, 2.0], requires_grad=True)
    one, both = mg.grad((x * y).sum(), x), mg.grad((x * y).sum(), [x, y])
    assert isinstance(one, np.ndarray)
    assert isinstance(both, list)
    np.testing.assert_allclose(one, y.data)
    np.testing.assert_allclose(both, [y.data, x.data])
    z = mg.exp(x)
    z.retain_grad()
    mg.grad((z * 2).sum(), [x, z])
    assert (x.grad, y.grad, z.grad) == (None, None, None)


@pytest.mark.parametrize("made", [lambda x: x, lambda x: x * 1.0], ids=["leaves", "computed"])
def test_what_grad_gives_shares_no_memory_with_the_seed_or_each_other(x, made):
    x, y = made(x), made(mg.tensor([1.0, 1.0, 1.0], requires_grad=True))
    seed = np.ones(3)
    first, second = mg.grad(x + y, [x, y], seed)
    assert not np.shares_memory(*mg.grad(x + y, [x, x], seed))
    first += 100
    np.testing.assert_allclose(second, [1, 1, 1])
    np.testing.assert_allclose(seed, [1, 1, 1])


def test_a_gradient_on_demand_is_left_out_of_backward_and_given_by_grad():
    x = mg.leaf_on_demand(np.array([2.0]), "x")
    w = mg.tensor([3.0], requires_grad=True)
    y = (x * x * w).sum()
    y.backward(retain_graph=True)
    assert x.grad is None
    np.testing.assert_array_equal(w.grad, [4.0])
    np.testing.assert_array_equal(mg.grad(y, x), [12.0])


def test_rules_that_lead_to_no_wanted_input_do_not_run(x):
    """Nodes off the way are skipped, and so is the other side's rule of a node on the way."""
    ran = []

    class Sent(mg.Observer):
        def sent(self, node, gradient, parts, seconds):
            ran.append((node.op.name, [part is None for part in parts]))

    other = mg.tensor([1.0, 1.0, 1.0], requires_grad=True)
    out = x * mg.exp(other)
    with mg.observe(Sent()):
        mg.grad(out, x, np.ones(3))
    assert ran == [("multiply", [False, True])]


def test_grad_frees_what_it_ran_and_not_what_it_skipped(x):
    y = mg.exp(x)
    z = mg.exp(y)
    mg.grad(z.sum(), y)
    with pytest.raises(FreedGraphError):
        mg.grad(z.sum(), y)
    np.testing.assert_allclose(mg.grad(y.sum(), x), y.data)


def test_derivatives_to_fourth_order():
    x = mg.tensor(1.3, requires_grad=True)
    value = x**5 + mg.exp(2 * x)
    for order_ in range(1, 5):
        value = mg.grad(value, x, create_graph=True)
        falling = np.prod([5.0 - k for k in range(order_)])
        expected = falling * 1.3 ** (5 - order_) + 2.0**order_ * np.exp(2.6)
        np.testing.assert_allclose(value.data, expected, rtol=1e-13)


# ---------------------------------------------------------------- refusals


test_what_is_refused = refusals(
    (lambda: X.backward(), ShapeError, r"shape \(3,\) needs .*write out\.sum\(\)\.backward\(\)"),
    (lambda: (X * 1.0).backward(np.ones(2)), ShapeError, r"\(2,\) is not the output's \(3,\)"),
    (lambda: mg.tensor(1.0).backward(), GradientError, "requires no gradient: .* compiled step"),
    (lambda: mg.grad(mg.sum), DTypeError, r"of a function write mg\.vjp\(f, x\)"),
    (lambda: setattr((X * 2).named("y"), "requires_grad", False), GradientError,
     r"requires_grad: y was computed by multiply; use detach\(\)"),
    (lambda: mg.grad((X * 2).sum(), [X, mg.tensor([1.0])]), GradientError,
     r"grad\(output, inputs\): inputs\[1\] is no tensor that requires"),
    (lambda: mg.grad((X * 2).sum(), 1.0), GradientError, r"inputs\[0\] is no tensor"),
    (lambda: mg.Tensor([1.0, 2.0]), DTypeError, r"got list; write mg\.tensor\(data\)"),
)  # fmt: skip
